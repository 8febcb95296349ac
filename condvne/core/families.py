"""Families of diversity scores with one parameter: what it is called, where it is interesting, how a curve is computed.

vendi      order q in (0, ∞]       effective number of a similarity matrix; falls with q
magnitude  scale t > 0             effective number at resolution 1/t; rises with t for negative type
circles    threshold τ >= 0        items pairwise farther apart than τ; falls with τ
energy     exponent s > 0          minus the mean of d^-s; large s looks at the nearest items only
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.checks import checked_gram
from condvne.core.circles import NODES, circles_curve
from condvne.core.density import weighted_gram
from condvne.core.diversity import energies
from condvne.core.items import ItemSet
from condvne.core.magnitude import magnitudes
from condvne.core.spectral import as_number, spectrum, spectrum_entropy
from condvne.errors import InputError

FamilyName = Literal["vendi", "magnitude", "circles", "energy"]
NEARLY_EQUAL, CLEARLY_APART = 0.99, 0.01  # similarities exp(-t d) between which scales are interesting


@dataclass(frozen=True)
class Curves:
    """Values (sets, parameters) and, where Circles is only bracketed, upper bounds that differ from them."""

    values: Tensor
    ceilings: Tensor


class Family(ABC):
    """A score with one parameter.

    Attributes:
        title, parameter, symbol: words for sentences and axes ("Vendi", "order", "q").
        finite: whether the parameter must be.
        from_zero: whether it may be zero.
    """

    title: str
    parameter: str
    symbol: str
    finite = True
    from_zero = False

    @abstractmethod
    def default_grid(self, sets: Sequence[ItemSet], points: int) -> list[float]:
        """About `points` ascending parameters for these sets."""

    @abstractmethod
    def curves(self, sets: Sequence[ItemSet], grid: Sequence[float]) -> Curves:
        """Curves of sets of equal size."""

    def position(self, parameter: float) -> float:
        """Coordinate in which curves are even, for interpolation: logarithmic, unless said otherwise."""
        return math.log(parameter)

    def parameter_at(self, position: float) -> float:
        return math.exp(position)

    def checked_grid(self, grid: Sequence[float]) -> tuple[float, ...]:
        """The grid as ascending floats in range. Raises InputError otherwise."""
        numbers = [as_number(p) for p in grid]
        for given, p in zip(grid, numbers, strict=True):
            low = p is not None and (p >= 0 if self.from_zero else p > 0)
            if p is None or not low or (self.finite and math.isinf(p)):
                span = f"{'[' if self.from_zero else '('}0, inf{')' if self.finite else ']'}"
                raise InputError(
                    f"{self.title}: the {self.parameter} must lie in {span}, but the grid holds {given!r}."
                )
        checked = tuple(p for p in numbers if p is not None)
        if not checked or any(a >= b for a, b in itertools.pairwise(checked)):
            raise InputError(
                f"{self.title}: the grid of {self.parameter}s must be strictly ascending and not empty; sort it, and "
                "drop repeats."
            )
        return checked


@dataclass(frozen=True)
class Vendi(Family):
    title, parameter, symbol, finite = "Vendi", "order", "q", False

    def default_grid(self, sets: Sequence[ItemSet], points: int) -> list[float]:
        return [*_geometric(1 / 16, 64.0, points - 1), math.inf]

    def curves(self, sets: Sequence[ItemSet], grid: Sequence[float]) -> Curves:
        spectra = torch.stack([self._spectrum(items) for items in sets])
        values = torch.stack([spectrum_entropy(spectra, q).exp() for q in grid], dim=-1)
        return Curves(values, values)

    def _spectrum(self, items: ItemSet) -> Tensor:
        if items.similarities is None:
            raise InputError(
                f"{items.name} has no similarities, which Vendi needs; give a positive semidefinite matrix "
                "(similarities=...), or leave Vendi out."
            )
        gram = checked_gram(items.similarities)
        return spectrum(weighted_gram(gram.values, None), epsilon=gram.epsilon)

    def position(self, parameter: float) -> float:
        return -1 / parameter  # so that infinity has a place

    def parameter_at(self, position: float) -> float:
        return -1 / position if position else math.inf


@dataclass(frozen=True)
class Magnitude(Family):
    title, parameter, symbol = "magnitude", "scale", "t"

    def default_grid(self, sets: Sequence[ItemSet], points: int) -> list[float]:
        nearest = torch.cat([_nearest(items) for items in sets])
        farthest = max(float(items.checked.values.max()) for items in sets)
        return _geometric(
            -math.log(NEARLY_EQUAL) / farthest, -math.log(CLEARLY_APART) / float(nearest.median()), points
        )

    def curves(self, sets: Sequence[ItemSet], grid: Sequence[float]) -> Curves:
        values = torch.stack([magnitudes(items.checked, grid) for items in sets])
        return Curves(values, values)


@dataclass(frozen=True)
class CirclesFamily(Family):
    nodes: int = NODES

    title, parameter, symbol, from_zero = "Circles", "threshold", "τ", True

    def default_grid(self, sets: Sequence[ItemSet], points: int) -> list[float]:
        pairs = torch.unique(torch.cat([items.checked.pairs.detach() for items in sets]))
        if len(pairs) <= points:
            return [float(tau) for tau in pairs]
        levels = torch.linspace(0, 1, points, dtype=torch.float64)
        # Half where pairs are, denser among near ones where the curve is steepest, and half even from end to end, so
        # that no stretch of distances that few pairs have, but others' sets may, goes unseen.
        at = (levels[::2].square() * (len(pairs) - 1)).round().long()
        even = torch.searchsorted(pairs, pairs[0] + levels[1::2] * (pairs[-1] - pairs[0]))
        chosen = set(torch.cat([at, even.clamp(max=len(pairs) - 1)]).tolist())
        rest = [k for k in range(len(pairs)) if k not in chosen]
        more = torch.linspace(0, len(rest) - 1, points - len(chosen)).round().long()
        return [float(pairs[k]) for k in sorted([*chosen, *(rest[k] for k in more.tolist())])]

    def curves(self, sets: Sequence[ItemSet], grid: Sequence[float]) -> Curves:
        found = [circles_curve(items.checked.values, grid, nodes=self.nodes) for items in sets]
        floors = torch.tensor([[c.lower for c in curve] for curve in found], dtype=torch.float64)
        ceilings = torch.tensor([[c.upper for c in curve] for curve in found], dtype=torch.float64)
        return Curves(floors, ceilings)

    def position(self, parameter: float) -> float:
        return parameter

    def parameter_at(self, position: float) -> float:
        return position


@dataclass(frozen=True)
class Energy(Family):
    epsilon: float | None = None

    title, parameter, symbol = "energy", "exponent", "s"

    def default_grid(self, sets: Sequence[ItemSet], points: int) -> list[float]:
        return _geometric(1 / 8, 16.0, points)

    def curves(self, sets: Sequence[ItemSet], grid: Sequence[float]) -> Curves:
        values = torch.stack([self._curve(items, grid) for items in sets])
        return Curves(values, values)

    def _curve(self, items: ItemSet, grid: Sequence[float]) -> Tensor:
        try:
            return energies(items.checked, grid, epsilon=self.epsilon)
        except InputError as error:
            raise InputError(f"{items.name}: {error}") from None


FAMILIES: dict[FamilyName, Family] = {
    "vendi": Vendi(),
    "magnitude": Magnitude(),
    "circles": CirclesFamily(),
    "energy": Energy(),
}


def as_family(family: Family | str) -> Family:
    """A family from itself or its lower-case name. Raises InputError for an unknown name."""
    if isinstance(family, Family):
        return family
    for name, known in FAMILIES.items():
        if name == family:
            return known
    raise InputError(f"no family {family!r}: give one of {', '.join(FAMILIES)}, or a family object.")


def default_grid(family: Family | str, *sets: ItemSet, points: int = 101) -> tuple[float, ...]:
    """Parameters chosen from the distances of all sets together, ascending.

    Orders from 1/16 to 64 and ∞; scales from where the farthest items are nearly equal (similarity 0.99) to where
    typical neighbours are clearly apart (0.01); thresholds at quantiles of the distances, denser among near pairs;
    exponents from 1/8 to 16.

    Raises InputError where all items are equal, or there are fewer than two points.
    """
    if not sets or points < 2:
        raise InputError(f"a grid needs at least one set and two points, but got {len(sets)} and {points}.")
    if not any(bool((items.checked.values > 0).any()) for items in sets):
        raise InputError("all items are equal: their distances give no grid; give one, or items that differ.")
    chosen = as_family(family)
    return chosen.checked_grid(chosen.default_grid(sets, points))


def _geometric(low: float, high: float, points: int) -> list[float]:
    return torch.logspace(math.log(low), math.log(high), points, base=math.e, dtype=torch.float64).tolist()


def _nearest(items: ItemSet) -> Tensor:
    """Distance of each item to the nearest that differs from it."""
    D = items.checked.values.detach()
    nearest = torch.where(D > 0, D, math.inf).amin(-1)
    return nearest[torch.isfinite(nearest)]
