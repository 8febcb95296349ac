"""Whether the gap between two groups of outputs could be chance: paired bootstrap and permutation test.

Both groups have one output for each of the same n conditions. The gap is H_α(A|X) - H_α(B|X), in which H_α(X) cancels:
it is a difference of two joint entropies. Nothing is recomputed for a resample:

    order 2      tr A² = Σ w_i w_j k_ij² is bilinear in weights and in indicators of swaps; one pass over the tiles of
                 squared kernel values multiplies those of all resamples at once
    other orders one joint sketch is drawn; C = Σ w_i z_i z_iᵀ is a product of r × n matrices, and a swap replaces
                 z_A z_Aᵀ by z_B z_Bᵀ
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from condvne.core.checks import checked_points
from condvne.core.density import DensityState
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import EPSILON, checked_order, matrix_entropy
from condvne.errors import InputError

Alternative = Literal["two-sided", "less", "greater"]
ALTERNATIVES: tuple[Alternative, ...] = ("two-sided", "less", "greater")
NUM_FEATURES = 256  # of the sketch for orders other than 2, by default
TILE = 1024
CHUNK_ENTRIES = 2**22  # entries of r × r matrices decomposed together
TIE = 1e-10  # nats: permuted gaps this close to the observed one are equal but for rounding


@dataclass(frozen=True)
class GapBootstrap:
    """A gap of conditional entropies in nats, with the spread of its bootstrap.

    Attributes:
        estimate: H_α(Y|X) of the group minus that of the reference (of the sketch, for orders other than 2).
        standard_error: standard deviation of the replicates.
        lower, upper: ends of the interval, quantiles of the replicates about their mean added to the estimate.
        confidence: of the interval.
        replicates: (resamples,), gaps of the resamples.
        order: α.
        n: conditions.
        num_features: of the sketch; None for the closed form of order 2.
    """

    estimate: float
    standard_error: float
    lower: float
    upper: float
    confidence: float
    replicates: Tensor = field(repr=False)
    order: float
    n: int
    num_features: int | None

    @property
    def ratio(self) -> float:
        """exp(gap): the group's effective number over the reference's."""
        return math.exp(self.estimate)


@dataclass(frozen=True)
class PermutationTest:
    """How often random swaps of outputs within conditions give a gap as extreme as the observed one.

    Attributes:
        estimate: the observed gap in nats (of the sketch, for orders other than 2).
        p_value: (1 + number of permuted gaps at least as extreme) / (1 + permutations).
        replicates: (permutations,), permuted gaps.
        alternative: which gaps count as extreme: "less" those below, "greater" those above, "two-sided" both.
        order: α.
        n: conditions.
        num_features: of the sketch; None for the closed form of order 2.
    """

    estimate: float
    p_value: float
    replicates: Tensor = field(repr=False)
    alternative: Alternative
    order: float
    n: int
    num_features: int | None


def bootstrap_gap(
    x: Tensor,
    y: Tensor,
    reference: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 2.0,
    resamples: int = 1000,
    confidence: float = 0.95,
    num_features: int | None = None,
    seed: int = 0,
) -> GapBootstrap:
    """Paired bootstrap over conditions of the gap H_α(Y|X) - H_α(reference|X).

    A resample draws n conditions with replacement, the same for both groups. Repeated conditions are equal to
    themselves, which alone would lower every resample's entropy: at order 2 pairs of a condition with itself keep
    their share 1/n, at other orders the replicates are centred. The interval is for the expected gap at this n.

    Args:
        x: (n, dx); y, reference: (n, dy), one output of each group for each condition, in order.
        kernel_x, kernel_y: kernels; open bandwidths are fixed on x and on the reference.
        order: α in (0, ∞].
        resamples: number of resamples.
        confidence: of the interval, in (0, 1).
        num_features: r of the sketch for orders other than 2, a positive multiple of 4; 256 by default.
        seed: of resamples and sketch.

    Raises:
        InputError: features as in `condvne.conditional_entropy`, or batched; a number out of range.
    """
    _check_count(resamples, "resamples")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie in (0, 1), but is {confidence}.")
    pairs = _Pairs.checked(x, y, reference, kernel_x, kernel_y, order, num_features, seed)
    generator = torch.Generator().manual_seed(seed)
    counts = torch.stack([_counts(pairs.n, generator) for _ in range(resamples)], dim=1)
    replicates = pairs.weighted_gaps(counts)
    estimate = pairs.gap()
    deviations = replicates - replicates.mean()
    low, high = (float(torch.quantile(deviations, p)) for p in ((1 - confidence) / 2, (1 + confidence) / 2))
    spread = float(replicates.std()) if resamples > 1 else math.nan
    return GapBootstrap(
        estimate=estimate,
        standard_error=spread,
        lower=estimate + low,
        upper=estimate + high,
        confidence=confidence,
        replicates=replicates,
        order=pairs.order,
        n=pairs.n,
        num_features=pairs.num_features,
    )


def permutation_test(
    x: Tensor,
    y: Tensor,
    reference: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 2.0,
    permutations: int = 1000,
    alternative: Alternative = "two-sided",
    num_features: int | None = None,
    seed: int = 0,
) -> PermutationTest:
    """Test that within each condition the two groups' outputs are exchangeable.

    Arguments and errors as `bootstrap_gap`; `permutations` random swaps, and `alternative` "two-sided", "less" (the
    group is less diverse than the reference) or "greater".
    """
    _check_count(permutations, "permutations")
    if alternative not in ALTERNATIVES:
        raise InputError(f"alternative must be one of {', '.join(ALTERNATIVES)}, but is {alternative!r}.")
    pairs = _Pairs.checked(x, y, reference, kernel_x, kernel_y, order, num_features, seed)
    generator = torch.Generator().manual_seed(seed)
    swaps = torch.stack([torch.randint(2, (pairs.n,), generator=generator) for _ in range(permutations)], dim=1)
    replicates, estimate = pairs.swapped_gaps(swaps), pairs.gap()
    extreme = {
        "less": replicates <= estimate + TIE,
        "greater": replicates >= estimate - TIE,
        "two-sided": replicates.abs() >= abs(estimate) - TIE,
    }[alternative]
    p_value = (1 + int(extreme.sum())) / (1 + permutations)
    return PermutationTest(estimate, p_value, replicates, alternative, pairs.order, pairs.n, pairs.num_features)


class _Pairs:
    """Two groups of outputs under the same conditions, ready to be resampled."""

    def __init__(self, kernels: tuple[Kernel, Kernel], x: Tensor, outputs: tuple[Tensor, Tensor], order: float) -> None:
        self.kernels, self.x, self.outputs, self.order = kernels, x, outputs, order
        self.n = x.shape[0]
        self.sketch: JointSketch | None = None

    @classmethod
    def checked(
        cls,
        x: Tensor,
        y: Tensor,
        reference: Tensor,
        kernel_x: Kernel | str,
        kernel_y: Kernel | str,
        order: float,
        num_features: int | None,
        seed: int,
    ) -> _Pairs:
        order = checked_order(order)
        if order == 0.0:
            raise InputError("order 0 counts ranks, which resampling does not estimate; use an order in (0, inf].")
        if order == 2.0 and num_features is not None:
            raise InputError("num_features is for orders other than 2, which is computed exactly; leave it out.")
        with torch.no_grad():
            group = checked_points((x, y), ("x", "y")).features
            base = checked_points((x, reference), ("x", "reference")).features
            if any(f.ndim != 2 for f in (*group, *base)):
                raise InputError("resampling takes one set of pairs, x (n, dx) and outputs (n, dy), without batches.")
            n = group[0].shape[0]
            if n < 2:
                raise InputError(f"{n} condition is too few to resample; give at least 2.")
            kernels = (as_kernel(kernel_x).fit_each(group[0]), as_kernel(kernel_y).fit_each(base[1]))
            pairs = cls(kernels, group[0], (group[1], base[1]), order)
            if order != 2.0:
                pairs.sketch = JointSketch.draw(
                    kernels,
                    [f.shape[-1] for f in group],
                    NUM_FEATURES if num_features is None else num_features,
                    seed,
                    origins=[f.mean(0) for f in base],
                    dtype=torch.float64,
                    device=group[0].device,
                )
            return pairs

    @property
    def num_features(self) -> int | None:
        return None if self.sketch is None else self.sketch.num_features

    def gap(self) -> float:
        """The observed gap."""
        if self.sketch is None:
            a, b = (float(DensityState(self.kernels, (self.x, y)).purity()) for y in self.outputs)
            return math.log(b / a)
        equal = torch.full((1, self.n), 1 / self.n, dtype=torch.float64, device=self.x.device)
        a, b = (float(self._sketched(_covariance(z), equal)) for z in self._features())
        return a - b

    def weighted_gaps(self, counts: Tensor) -> Tensor:
        """Gaps (B,) of resamples that draw each condition counts (n, B) times."""
        w = (counts.to(torch.float64) / self.n).to(self.x.device)
        if self.sketch is None:
            # Pairs of a condition with itself keep their share; the others lose 1/n of theirs to chance repetition.
            same, scale = w.square().sum(0), self.n / (self.n - 1)
            a, b = (1 / self.n + scale * (total - same) for total in self._sums([(0, 0, w, w), (1, 1, w, w)]))
            return torch.log(b / a).cpu()
        a, b = (self._sketched(_covariance(z), w.mT) for z in self._features())
        return (a - b).cpu()

    def swapped_gaps(self, swaps: Tensor) -> Tensor:
        """Gaps (B,) after the outputs of the conditions marked in swaps (n, B) have changed groups."""
        s = swaps.to(torch.float64).to(self.x.device)
        if self.sketch is None:
            kept = 1 - s
            parts = [
                (0, 0, kept, kept),
                (0, 1, kept, s),
                (1, 1, s, s),
                (0, 0, s, s),
                (0, 1, s, kept),
                (1, 1, kept, kept),
            ]
            aa, ab, bb, aa_swapped, ab_swapped, bb_swapped = self._sums(parts)
            return torch.log((aa_swapped + 2 * ab_swapped + bb_swapped) / (aa + 2 * ab + bb)).cpu()
        z_a, z_b = self._features()
        C_a, C_b = (z.mT @ z / self.n for z in (z_a, z_b))

        def change(row: Tensor) -> Tensor:
            return ((z_b.mT * row) @ z_b - (z_a.mT * row) @ z_a) / self.n

        first = self._sketched(lambda row: C_a + change(row), s.mT)
        second = self._sketched(lambda row: C_b - change(row), s.mT)
        return (first - second).cpu()

    def _features(self) -> tuple[Tensor, Tensor]:
        assert self.sketch is not None
        a, b = (self.sketch.features(self.x, y) for y in self.outputs)
        return a, b

    def _sketched(self, covariance: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """H_α of the covariances of all rows (B, n), (B,), decomposed a chunk at a time."""
        assert self.sketch is not None
        chunk = max(1, CHUNK_ENTRIES // self.sketch.num_features**2)
        found = []
        for start in range(0, len(rows), chunk):
            C = torch.stack([covariance(row) for row in rows[start : start + chunk]])
            trace = C.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
            found.append(matrix_entropy(C / trace, self.order, epsilon=self.n * EPSILON))
        return torch.cat(found)

    def _sums(self, parts: Sequence[tuple[int, int, Tensor, Tensor]]) -> list[Tensor]:
        """Σ_ij u_i v_j k_X² k_Y² for every (a, b, u, v): i has the output of group a, j that of b; u, v are (n, B)."""
        (x,) = self.kernels[0].prepare(self.x)
        y = self.kernels[1].prepare(*self.outputs)
        totals = [torch.zeros(u.shape[1], dtype=torch.float64, device=u.device) for _, _, u, _ in parts]
        for rows in _spans(self.n):
            for columns in _spans(self.n):
                of_x = self.kernels[0].evaluate(x[rows], x[columns]).square()
                tiles: dict[tuple[int, int], Tensor] = {}
                for total, (a, b, u, v) in zip(totals, parts, strict=True):
                    if (a, b) not in tiles:
                        tiles[a, b] = of_x * self.kernels[1].evaluate(y[a][rows], y[b][columns]).square()
                    total += (u[rows] * (tiles[a, b] @ v[columns])).sum(0)
        return totals


def _covariance(Z: Tensor) -> Callable[[Tensor], Tensor]:
    """Weights (n,) to Σ w_i z_i z_iᵀ."""
    return lambda w: (Z.mT * w) @ Z


def _spans(n: int) -> Iterator[slice]:
    for start in range(0, n, TILE):
        yield slice(start, min(start + TILE, n))


def _counts(n: int, generator: torch.Generator) -> Tensor:
    return torch.bincount(torch.randint(n, (n,), generator=generator), minlength=n)


def _check_count(count: int, name: str) -> None:
    if isinstance(count, bool) or int(count) != count or count < 1:
        raise InputError(f"{name} must be a whole number of at least 1, but is {count!r}.")
