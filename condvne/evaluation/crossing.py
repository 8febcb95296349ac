"""Where a quantity that grows with a positive parameter crosses zero, in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Crossing:
    """The parameter nearest to a crossing of those that were tried.

    Attributes:
        at: the parameter.
        difference: the quantity there.
        reached: whether it is within the tolerance of zero.
        bracket: parameters with quantities of both signs; None where there are none.
        spent: evaluations beside those of the known parameters.
    """

    at: float
    difference: float
    reached: bool
    bracket: tuple[float, float] | None
    spent: int


def crossing(
    difference: Callable[[float], float],
    known: Sequence[float],
    *,
    lower: float,
    upper: float,
    most: int,
    tolerance: float,
) -> Crossing:
    """The parameter whose quantity is nearest to zero.

    The known parameters, evaluated anyway, and, where they do not bracket zero, the ends of the search give a bracket;
    false position in the parameter's logarithm narrows it. Quantities of samples are not strictly monotone, so the
    nearest point seen is the answer.

    Args:
        most: evaluations, beside those of the known parameters, at most.
    """
    seen = {at: difference(at) for at in known}
    spent = 0
    for end, needed in ((lower, min(seen.values()) > 0), (upper, max(seen.values()) < 0)):
        if needed and end not in seen and spent < most:
            seen[end], spent = difference(end), spent + 1
    bracket = _bracket(seen)
    while bracket and spent < most and min(map(abs, seen.values())) > tolerance:
        low, high = bracket
        f_low, f_high = seen[low], seen[high]
        share = min(max(-f_low / (f_high - f_low), 0.1), 0.9)  # away from the ends, so that both move
        middle = float(f"{math.exp((1 - share) * math.log(low) + share * math.log(high)):.4g}")
        if middle in seen:
            break
        seen[middle], spent = difference(middle), spent + 1
        bracket = _bracket(seen)
    best = min(seen, key=lambda at: abs(seen[at]))
    return Crossing(best, seen[best], abs(seen[best]) <= tolerance, bracket, spent)


def _bracket(seen: dict[float, float]) -> tuple[float, float] | None:
    """Neighbouring parameters with a quantity below and one above zero."""
    ordered = sorted(seen)
    pairs = [(a, b) for a, b in pairwise(ordered) if seen[a] <= 0 <= seen[b]]
    return min(pairs, key=lambda pair: pair[1] / pair[0]) if pairs else None
