"""Theorem 1's inequality where it must hold and where it must not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.groups import Engine, OutputGroup
from condvne.core.projection import project_kernel
from condvne.evaluation.inequality import theorem_one

N, M = 12, 5
EXACT = Engine("exact")


def problem(seed: int) -> tuple[Tensor, Tensor, Tensor, tuple[cv.Kernel, cv.Kernel]]:
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(N, 3, generator=draw), torch.randn(N * M, 4, generator=draw)
    return x, y, torch.arange(N).repeat_interleave(M), (cv.Gaussian().fit(x), cv.Gaussian().fit(y))


def gram_of(x: Tensor, y: Tensor, owners: Tensor, kernels: tuple[cv.Kernel, cv.Kernel]) -> Tensor:
    return kernels[0].gram(x[owners].double()) * kernels[1].gram(y.double())


@pytest.mark.parametrize("seed", range(2))
def test_it_holds_for_mixtures_of_the_candidates_that_meet_the_target(seed: int) -> None:
    x, y, owners, kernels = problem(seed)
    prior = torch.softmax(2 * torch.randn(N, M, generator=torch.Generator().manual_seed(seed)).double(), 1).flatten()
    mixture = torch.full((N * M,), 1 / M, dtype=torch.float64)  # more diverse than the prior
    gram = gram_of(x, y, owners, kernels)
    top = project_kernel(gram, owners, lam=0.0, prior=mixture).entropy
    found = project_kernel(gram, owners, target=top - 0.01, prior=prior, tolerance=1e-6, max_iterations=200)
    assert found.reached
    reference = OutputGroup(y, owners, mixture)
    result = theorem_one(x, kernels, OutputGroup(y, owners, prior), found.weights, reference, N, EXACT)
    assert result.promised
    assert result.holds
    assert result.moved > 0
    w = torch.stack([mixture - found.weights, found.weights - prior, mixture - prior]) / N
    expected = ((w @ gram) * w).sum(1).tolist()
    assert [result.to_after, result.moved, result.to_before] == pytest.approx(expected, abs=1e-12)


def test_it_need_not_and_does_not_hold_for_a_reference_of_less_entropy() -> None:
    x, y, owners, kernels = problem(0)
    prior = torch.full((N * M,), 1 / M, dtype=torch.float64)
    weights = project_kernel(gram_of(x, y, owners, kernels), owners, lam=5.0).weights
    same = theorem_one(x, kernels, OutputGroup(y, owners), weights, OutputGroup(y, owners, prior), N, EXACT)
    assert same.to_before == pytest.approx(0, abs=1e-12)  # the reference is the prior itself: moving leads away from it
    assert same.to_after == pytest.approx(same.moved, abs=1e-12)
    assert not same.holds
    assert not same.promised


def test_outputs_from_elsewhere_promise_nothing() -> None:
    x, y, owners, kernels = problem(1)
    weights = torch.full((N * M,), 1 / M, dtype=torch.float64)
    foreign = OutputGroup(y + 30.0, owners)
    result = theorem_one(x, kernels, OutputGroup(y, owners), weights, foreign, 0, EXACT)
    assert not result.promised
    assert result.moved == pytest.approx(0, abs=1e-12)
    assert result.holds  # nothing moved: both sides are the same
