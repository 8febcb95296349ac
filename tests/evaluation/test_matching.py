"""Weights whose draws meet a reference's entropy: by a price, by a share of the way, or as they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.evaluation.matching import Matched, matched_weights
from condvne.evaluation.projecting import PairFeatures

N, M = 20, 6
PRIOR = torch.full((N * M,), 1 / M, dtype=torch.float64)


def candidates(dimensions: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(N, 2, generator=draw), torch.randn(N * M, dimensions, generator=draw)
    y[torch.arange(N * M) % M < 4] = y[0].clone()  # four of six are the same everywhere
    return x, y, torch.arange(N).repeat_interleave(M)


def match(x: Tensor, y: Tensor, owners: Tensor, kernel: cv.Kernel, target: float) -> tuple[Matched, float]:
    kernels = (kernel.fit(x), kernel.fit(y[y.ne(y[0]).any(1)]))
    features = PairFeatures(x, y, owners, kernels, kind="kernel")

    def entropy(weights: Tensor) -> float:
        whole = weights / N
        return float(
            cv.conditional_entropy(x[owners], y, kernel_x=kernels[0], kernel_y=kernels[1], weights=whole.double())
        )

    before = entropy(PRIOR)
    found = matched_weights(
        features,
        PRIOR,
        lambda weights: entropy(weights) - before - target,
        tolerance=1e-3,
        certificate=1e-5,
        max_iterations=200,
        most=20,
    )
    sums = found.weights.reshape(N, M).sum(1)
    torch.testing.assert_close(sums, torch.ones(N, dtype=torch.float64), atol=1e-12, rtol=0)
    return found, before


def test_a_target_is_met_by_a_price() -> None:
    found, _ = match(*candidates(5), cv.Gaussian(), 0.2)
    assert found.reached
    assert abs(found.difference) <= 1e-3
    assert found.before == pytest.approx(-0.2)
    assert found.lam > 0
    assert found.share == 1
    assert found.certificate <= 1e-5


def test_where_any_price_goes_too_far_the_way_is_shared() -> None:
    found, _ = match(*candidates(2), cv.Cosine(), 0.005)  # four dimensions: entropy jumps as λ leaves zero
    assert found.reached
    assert 0 < found.share < 1


def test_what_is_above_or_near_already_keeps_its_weights() -> None:
    above, _ = match(*candidates(5), cv.Gaussian(), -0.1)
    assert above.above
    assert not above.reached
    near, _ = match(*candidates(5), cv.Gaussian(), 0.0)
    assert near.reached
    for found in (above, near):
        assert torch.equal(found.weights, PRIOR)
        assert found.projections == 0


def test_a_target_out_of_reach_is_said_to_be() -> None:
    found, _ = match(*candidates(5), cv.Gaussian(), 10.0)
    assert not found.reached
    assert found.difference > found.before
