"""Where the mass of a condition's candidates goes when they are reweighted (paper A, E.8)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from condvne.data.listing import listed
from condvne.data.reweighting import Probe, ProbedOutput
from condvne.errors import InputError

SUM = 1e-6  # that weights may be off from one


def probe(
    texts: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    *,
    id: str = "",
    condition: str = "",
) -> Probe:
    """The mass on each distinct text, before and after, with Shannon's entropy H (nats) and exp(H) of both.

    Equal texts are one output: their weights add.

    Args:
        texts: the candidates of one condition, (m,).
        before, after: their weights, (m,), non-negative, one in sum.

    Raises:
        InputError: no candidates, or weights that are no distribution over them.

    >>> found = probe(["an owl", "an owl", "a hen"], [1 / 3, 1 / 3, 1 / 3], [0.25, 0.25, 0.5])
    >>> [(output.text, round(output.before, 3), output.after) for output in found.outputs]
    [('an owl', 0.667, 0.5), ('a hen', 0.333, 0.5)]
    >>> round(found.effective_before, 3), round(found.effective_after, 3)
    (1.89, 2.0)
    """
    for name, weights in (("before", before), ("after", after)):
        if len(weights) != len(texts) or len(texts) == 0:
            raise InputError(f"{name}: {len(weights)} weights for {len(texts)} candidates; give one for each of them.")
        if not all(0 <= w < math.inf for w in weights) or abs(sum(weights) - 1) > SUM:
            raise InputError(f"{name}: weights must be non-negative and sum to 1, but sum to {sum(weights):.6g}.")
    masses: dict[str, tuple[int, float, float]] = {}
    for text, old, new in zip(texts, before, after, strict=True):
        copies, p, q = masses.get(text, (0, 0.0, 0.0))
        masses[text] = copies + 1, p + old, q + new
    outputs = [ProbedOutput(text=t, copies=k, before=p, after=q) for t, (k, p, q) in masses.items()]
    outputs.sort(key=lambda output: -output.before)
    entropies = [_entropy(o.before for o in outputs), _entropy(o.after for o in outputs)]
    return Probe(
        id=id,
        condition=condition,
        outputs=outputs,
        entropy_before=entropies[0],
        entropy_after=entropies[1],
        effective_before=math.exp(entropies[0]),
        effective_after=math.exp(entropies[1]),
        divergence=max(0.0, sum(o.after * math.log(o.after / o.before) for o in outputs if o.after > 0 < o.before)),
    )


def probes(
    ids: Sequence[str],
    conditions: Sequence[str],
    texts: Sequence[Sequence[str]],
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
    chosen: int | Sequence[str],
) -> list[Probe]:
    """Probes of the conditions with these ids, or of so many whose masses moved most by Kullback-Leibler divergence.

    Raises:
        InputError: an id that there is not, or as `probe`.
    """
    if not isinstance(chosen, int):
        places = {name: row for row, name in enumerate(ids)}
        unknown = [name for name in chosen if name not in places]
        if unknown:
            raise InputError(f"probe: there is no prompt with id {listed(unknown)}; the first are {listed(ids[:3])}.")
        rows = [places[name] for name in chosen]
        return [probe(texts[i], before[i], after[i], id=ids[i], condition=conditions[i]) for i in rows]
    found = (
        probe(*row[2:], id=row[0], condition=row[1]) for row in zip(ids, conditions, texts, before, after, strict=True)
    )
    return heapq.nlargest(chosen, found, key=lambda p: p.divergence)


def _entropy(masses: Iterable[float]) -> float:
    return -sum(p * math.log(p) for p in masses if p > 0) + 0.0
