"""Weights of candidates whose draws, one a condition, are as diverse as a reference of one output a condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.projection import Projection
from condvne.evaluation.crossing import crossing
from condvne.evaluation.projecting import Aim, PairFeatures

LOWEST, FIRST, HIGHEST = 1e-3, 0.05, 10.0  # λ; next to 10 the distance of the means weighs nothing


@dataclass(frozen=True)
class Matched:
    """Weights, and how near their draws came.

    Attributes:
        weights: (M,), one in sum for each condition.
        before, difference: conditional entropy of the draws minus the reference's, nats, under the weights before and
            under these.
        reached: whether it is within the tolerance.
        above: the draws were above the reference before: the weights are those.
        lam: λ of the projection; 0 where the weights are those before.
        share: of the way from the weights before to the projection's, where any λ would go too far.
        certificate: of the projection's objective, over λ log M.
        projections: computed on the way.
    """

    weights: Tensor
    before: float
    difference: float
    reached: bool
    above: bool
    lam: float
    share: float
    certificate: float
    projections: int


def matched_weights(
    features: PairFeatures,
    prior: Tensor,
    difference: Callable[[Tensor], float],
    *,
    tolerance: float,
    certificate: float,
    max_iterations: int,
    most: int = 8,
) -> Matched:
    """Search λ, then a share of the way where even the smallest λ goes too far, until `difference` is near zero.

    Entropies grow with the number of outputs, so weights are judged by draws of one output a condition.

    Args:
        prior: (M,), weights before.
        difference: of weights (M,): entropy of their draws minus the reference's, nats.
        tolerance: nats.
        certificate: of a projection, relative to λ log M.
        most: projections, at most.
    """
    before = difference(prior)
    if before >= -tolerance:
        return Matched(prior, before, before, before <= tolerance, before > tolerance, 0.0, 0.0, 0.0, 0)
    found: dict[float, tuple[Projection, float]] = {}

    def at(lam: float) -> float:
        result = features.projected(prior, Aim(lam, None, certificate, max_iterations))
        found[lam] = result, difference(result.weights.to(prior.device))
        return found[lam][1]

    end = crossing(at, [FIRST], lower=LOWEST, upper=HIGHEST, most=most - 1, tolerance=tolerance)
    lam, share = end.at, 1.0
    projection, gap = found[lam]
    weights = projection.weights.to(prior.device)
    if not end.reached and end.bracket is None and gap > 0:
        weights, gap, share = _blended(prior, weights, difference, tolerance, most)
    relative = projection.certificate / (lam * float(torch.log(torch.tensor(float(len(prior))))))
    return Matched(weights, before, gap, abs(gap) <= tolerance, False, lam, share, relative, len(found))


def _blended(
    prior: Tensor, weights: Tensor, difference: Callable[[Tensor], float], tolerance: float, most: int
) -> tuple[Tensor, float, float]:
    """Where candidates outnumber dimensions, weights of the same mean have more entropy: H jumps as λ leaves zero."""
    low, high = 0.0, 1.0
    best = weights, difference(weights), 1.0
    for _ in range(2 * most):
        share = (low + high) / 2
        mixed = prior + share * (weights - prior)
        gap = difference(mixed)
        if abs(gap) < abs(best[1]):
            best = mixed, gap, share
        if abs(gap) <= tolerance:
            break
        low, high = (share, high) if gap < 0 else (low, share)
    return best
