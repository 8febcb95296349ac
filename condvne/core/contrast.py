"""Whether distances tell items apart, and whether a profile's grid lies where its curve still moves.

In many dimensions distances concentrate: the nearest item is hardly nearer than a typical one, and scores at most
scales and thresholds say either "one item" or "n items". (Beyer et al. 1999; relative contrast: He et al. 2012.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.distances import checked_distances
from condvne.core.families import CirclesFamily, Energy, Magnitude
from condvne.core.profiles import Profile
from condvne.errors import InputError

SAMPLED_ITEMS = 2000
SEED = 0
SATURATED = 0.02  # relative distance from n items, or from one
MOSTLY = 0.5  # of a grid


@dataclass(frozen=True)
class DistanceContrast:
    """A histogram of pairwise distances.

    Attributes:
        edges, counts: (bins + 1,) and (bins,).
        mean, std: of the distances of pairs.
        relative_contrast: mean distance over the mean distance of the nearest item; near 1 where distances
            concentrate, infinite where every item has a copy.
        items: of which the pairs were taken.
        pairs: (pairs,), the distances, ascending.
    """

    edges: Tensor
    counts: Tensor
    mean: float
    std: float
    relative_contrast: float
    items: int
    pairs: Tensor

    @property
    def variation(self) -> float:
        """Standard deviation over mean."""
        return self.std / self.mean if self.mean else 0.0

    def share_below(self, thresholds: Tensor) -> Tensor:
        """Share of pairs at distance <= each threshold: where a grid lies in the histogram."""
        at = torch.as_tensor(thresholds, dtype=self.pairs.dtype)
        return torch.searchsorted(self.pairs, at, right=True).double() / len(self.pairs)


def distance_contrast(
    D: Tensor, *, bins: int = 50, items: int = SAMPLED_ITEMS, generator: torch.Generator | None = None
) -> DistanceContrast:
    """Histogram and relative contrast of the distances of sampled items.

    Args:
        D: distances (n, n), n >= 2.
        bins: of the histogram, from the smallest distance to the largest.
        items: at most so many are drawn, without replacement; all of their pairs are used.
        generator: draws them; a fixed seed by default.

    Raises InputError for bad distances, fewer than one bin or two items.
    """
    found = checked_distances(D)
    if bins < 1 or items < 2:
        raise InputError(f"a histogram needs at least 1 bin and 2 items, but got {bins} and {items}.")
    values = found.values.detach().cpu()
    if found.n > items:
        generator = generator or torch.Generator().manual_seed(SEED)
        rows = torch.randperm(found.n, generator=generator)[:items]
        values = values[rows][:, rows]
    above = torch.triu_indices(len(values), len(values), offset=1)
    pairs = values[above[0], above[1]].sort().values
    nearest = float(values.masked_fill(torch.eye(len(values), dtype=torch.bool), math.inf).amin(-1).mean())
    low, high = float(pairs[0]), float(pairs[-1])
    counts, edges = torch.histogram(pairs, bins, range=(low, high if high > low else low + 1))
    mean = float(pairs.mean())
    contrast = mean / nearest if nearest else (math.inf if mean else 1.0)
    return DistanceContrast(edges, counts, mean, float(pairs.std(correction=0)), contrast, len(values), pairs)


def saturated_share(profile: Profile) -> tuple[float, float]:
    """Shares of the grid at which a profile says "all n items" and "one item", to within 2 %.

    Energy has no such ends: zeros.
    """
    if isinstance(profile.family, Energy):
        return 0.0, 0.0
    full = profile.values >= (1 - SATURATED) * profile.n
    single = profile.ceilings <= 1 + SATURATED
    return float(full.double().mean()), float(single.double().mean())


def saturation_warning(profile: Profile) -> str | None:
    """One sentence where more than half of the grid lies where the curve is saturated; None elsewhere."""
    full, single = saturated_share(profile)
    if full + single <= MOSTLY:
        return None
    family = profile.family
    ends = [
        f"{100 * share:.0f} % of its {family.parameter}s score {words}"
        for share, words in ((full, f"nearly all {profile.n} items"), (single, "nearly one item"))
        if share
    ]
    advice = "only the rest of the grid can tell sets apart"
    if not isinstance(family, (Magnitude, CirclesFamily)) and "bandwidth" in profile.representation:
        advice = "use a kernel of another bandwidth, under which items are neither alike nor unrelated"
    return f"The {family.title} profile of {profile.name} is saturated: {' and '.join(ends)}; {advice}."
