"""What a conditional entropy would be at infinite n: estimates whose bias is small, with intervals.

The plug-in entropy of n points lies below the population's and rises with n, which is easily taken for a finding.
Order 2 has an unbiased estimate of tr C² (the mean of k_ij² over pairs i ≠ j). Other orders are extrapolated: with
Ĥ_n and the mean Ĥ_{n/2} over disjoint halves, a bias of c/n leaves 2 Ĥ_n - Ĥ_{n/2} (Richardson). Standard errors
are infinitesimal jackknives: the entropy's derivative with respect to a point's weight is that point's influence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import torch
from torch import Tensor

from condvne.core.checks import checked_points
from condvne.core.density import DensityState
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.routes import state_entropy
from condvne.core.spectral import checked_order
from condvne.errors import InputError

SPLITS = 4  # random splits into halves: their noise is then well below the sampling error
LEAST = 8


@dataclass(frozen=True)
class PopulationEstimate:
    """An entropy of the distribution the points came from, in nats.

    Attributes:
        value: the estimate.
        standard_error: of the sampling of points.
        lower, upper: ends of the confidence interval.
        plug_in: the entropy of the points themselves, which is biased downwards.
        n: number of points.
        influence: (n,), derivative of the entropy with respect to each point's weight, of mean zero. Of two
            estimates from the same conditions the difference of influences gives the paired standard error.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    plug_in: float
    n: int
    influence: Tensor = field(repr=False, compare=False)


@dataclass(frozen=True)
class PopulationGap:
    """Difference of two effective numbers exp H at infinite n, paired over the same conditions."""

    value: float
    standard_error: float
    lower: float
    upper: float


def population_conditional_entropy(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 1.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> PopulationEstimate:
    """H_α(Y|X) of the distribution from which the n pairs were drawn independently.

    Args:
        x: (n, dx); y: (n, dy).
        kernel_x, kernel_y: kernels; an open bandwidth is fixed on these points and then taken as given.
        order: α in (0, ∞); order 2 is nearly unbiased at any n, others once n is above the effective number.
        confidence: of the interval, in (0, 1).
        seed: of the splits into halves.

    Raises:
        InputError: features as in `condvne.conditional_entropy`; fewer than 8 points; batched features; order 0 or ∞.
    """
    order = checked_order(order)
    points = checked_points((x, y), ("x", "y"))
    n = points.features[0].shape[-2]
    if any(f.ndim != 2 for f in points.features):
        raise InputError("population estimates take one set of points, x (n, dx) and y (n, dy), without leading dims.")
    if n < LEAST:
        raise InputError(f"{n} points are too few for a population estimate; give at least {LEAST}.")
    if order == 0.0 or math.isinf(order):
        raise InputError(f"order {order} has no population estimate here; use an order in (0, inf).")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie in (0, 1), but is {confidence}.")
    fitted = tuple(as_kernel(k).fit_each(f) for k, f in zip((kernel_x, kernel_y), points.features, strict=True))
    plug_in, influence = _plug_in(points.features, fitted, order)
    standard_error = _standard_error(influence)
    if order == 2.0:
        value = _unbiased_purity(points.features, fitted, (0,)) - _unbiased_purity(points.features, fitted, (0, 1))
    else:
        value = 2 * plug_in - _halves(points.features, fitted, order, seed)
    margin = NormalDist().inv_cdf((1 + confidence) / 2) * standard_error
    return PopulationEstimate(value, standard_error, value - margin, value + margin, plug_in, n, influence)


def population_gap(
    estimate: PopulationEstimate, reference: PopulationEstimate, *, confidence: float = 0.95
) -> PopulationGap:
    """exp H of one group minus that of another, by the delta method from paired influences.

    Args:
        estimate, reference: of outputs under the same conditions in the same order, with the same kernels.
        confidence: of the interval, in (0, 1).

    Raises:
        InputError: the two have different n.
    """
    if estimate.n != reference.n:
        raise InputError(
            f"a gap needs estimates from the same conditions, but these have n = {estimate.n} and {reference.n}."
        )
    scores = math.exp(estimate.value), math.exp(reference.value)
    spread = _standard_error(scores[0] * estimate.influence - scores[1] * reference.influence)
    margin = NormalDist().inv_cdf((1 + confidence) / 2) * spread
    value = scores[0] - scores[1]
    return PopulationGap(value, spread, value - margin, value + margin)


def _standard_error(influence: Tensor) -> float:
    return float(influence.square().sum().sqrt()) / influence.shape[0]


def _plug_in(features: tuple[Tensor, ...], kernels: tuple[Kernel, ...], order: float) -> tuple[float, Tensor]:
    n = features[0].shape[0]
    weights = torch.full((n,), 1.0 / n, dtype=torch.float64, device=features[0].device, requires_grad=True)
    with torch.enable_grad():
        state = DensityState(kernels, tuple(f.detach() for f in features), weights)
        H = state_entropy(state, order) - state_entropy(state.marginal((0,)), order)
        (influence,) = torch.autograd.grad(H, weights)
    return float(H.detach()), influence - influence.mean()


def _halves(features: tuple[Tensor, ...], kernels: tuple[Kernel, ...], order: float, seed: int) -> float:
    n = features[0].shape[0]
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(SPLITS):
        shuffled = torch.randperm(n, generator=generator).to(features[0].device)
        for rows in (shuffled[: n // 2], shuffled[n // 2 : 2 * (n // 2)]):
            state = DensityState(kernels, tuple(f.detach()[rows] for f in features))
            values.append(float(state_entropy(state, order) - state_entropy(state.marginal((0,)), order)))
    return math.fsum(values) / len(values)


def _unbiased_purity(features: tuple[Tensor, ...], kernels: tuple[Kernel, ...], sides: tuple[int, ...]) -> float:
    """log of the mean of k_ij² over pairs i ≠ j."""
    n = features[0].shape[0]
    purity = float(DensityState(kernels, tuple(f.detach() for f in features)).marginal(sides).purity())
    off_diagonal = (n * purity - 1) / (n - 1)  # k_ii = 1
    if off_diagonal <= 1e-12:  # rounding
        raise InputError(
            "no two points are similar under these kernels, so order 2 has no finite population estimate; "
            "use larger bandwidths or more points."
        )
    return math.log(off_diagonal)
