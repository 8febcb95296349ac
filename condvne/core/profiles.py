"""Profiles: a score over its parameter, with bands, and what they say about two sets.

Bands come from half-samples, m = n // 2 items drawn without replacement: their spread is that of the score of n items
to first order (as for a mean), and unlike draws with replacement they make no copies, which Circles and magnitude merge
and energy refuses. Ratios of half-samples' curves to their mean are applied to the curve of the whole set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from condvne.core.families import Energy, Family, as_family, default_grid
from condvne.core.items import ItemSet
from condvne.errors import InputError

RESAMPLES = 100
CONFIDENCE = 0.95
SEED = 0


@dataclass(frozen=True)
class Profile:
    """A curve of one family for one set of items.

    Attributes:
        family: with the names of its parameter.
        representation: of the items, in words.
        name: of the set.
        n: items.
        grid: (parameters,), ascending.
        values: (parameters,), float64; for Circles lower bounds.
        ceilings: (parameters,), equal to the values except where Circles is known only between bounds.
        lower, upper: (parameters,), ends of the pointwise band at `confidence`; None without resamples.
        replicates: (resamples, parameters), curves of half-samples; None without.
        resample_size: items in each half-sample.
    """

    family: Family
    representation: str
    name: str
    n: int
    grid: tuple[float, ...]
    values: Tensor
    ceilings: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    confidence: float = CONFIDENCE
    replicates: Tensor | None = field(default=None, repr=False)
    resample_size: int | None = None

    @property
    def exact(self) -> bool:
        """Whether every value is known, rather than bracketed."""
        return bool((self.values == self.ceilings).all())


def profile(
    items: ItemSet,
    family: Family | str,
    grid: Sequence[float] | None = None,
    *,
    resamples: int = RESAMPLES,
    resample_size: int | None = None,
    confidence: float = CONFIDENCE,
    epsilon: float | None = None,
    generator: torch.Generator | None = None,
) -> Profile:
    """The curve of a family over its parameter.

    Args:
        items: the set.
        family: "vendi", "magnitude", "circles" or "energy", or a family object.
        grid: strictly ascending parameters; chosen from the items by default. Curves that are compared need one grid.
        resamples: half-samples for the band, each as dear as a curve of half the items; 0 for none.
        resample_size: items in each; half of them by default.
        confidence: of the band.
        epsilon: for energy, the least distance that counts.
        generator: draws the half-samples; a fixed seed by default.

    Raises:
        InputError: the grid is not ascending or out of range; resamples, their size, confidence or epsilon out of
            range; and as the family's score.
    """
    chosen = as_family(family)
    if epsilon is not None:
        if not isinstance(chosen, Energy):
            raise InputError(f"epsilon belongs to energy; {chosen.title} has none.")
        chosen = replace(chosen, epsilon=epsilon)
    parameters = default_grid(chosen, items) if grid is None else chosen.checked_grid(grid)
    curve = chosen.curves([items], parameters)
    plain = Profile(
        chosen, items.representation, items.name, items.n, parameters, _kept(curve.values[0]), _kept(curve.ceilings[0])
    )
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, but is {confidence!r}.")
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 0:
        raise InputError(f"resamples must be a whole number, 0 for no band, but is {resamples!r}.")
    if resamples == 0:
        return plain
    size = items.n // 2 if resample_size is None else resample_size
    if resamples < 2 or not 2 <= size < items.n:
        raise InputError(
            f"{items.name}: {resamples} resamples of {size} of {items.n} items give no band; draw at least 2 of at "
            "least 2 items, fewer than there are, or set resamples=0."
        )
    replicates = _replicates(items, chosen, parameters, resamples, size, generator)
    lower, upper = _band(plain.values, replicates, confidence)
    return replace(plain, lower=lower, upper=upper, confidence=confidence, replicates=replicates, resample_size=size)


def _replicates(
    items: ItemSet,
    family: Family,
    grid: Sequence[float],
    resamples: int,
    size: int,
    generator: torch.Generator | None,
) -> Tensor:
    generator = generator or torch.Generator().manual_seed(SEED)
    draws = [torch.randperm(items.n, generator=generator)[:size].sort().values for _ in range(resamples)]
    return _kept(family.curves([items.subset(rows) for rows in draws], grid).values)


def _kept(values: Tensor) -> Tensor:
    return values.detach().cpu()


def _band(values: Tensor, replicates: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    ratios = replicates / replicates.mean(0)
    tail = (1 - confidence) / 2
    ends = torch.quantile(ratios, torch.tensor([tail, 1 - tail], dtype=ratios.dtype), dim=0) * values
    return ends.amin(0), ends.amax(0)  # energies are negative
