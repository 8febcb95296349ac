"""The memory of past batches: what it adds up to, what carries a gradient, and how strongly."""

from __future__ import annotations

import pytest
import torch

import condvne as cv
from condvne.core.sketched import sketched_conditional_entropy
from condvne.tasks.training import ConditionalEntropyLoss
from tests.references import points

X, Y = points(60, 3, 1), points(60, 4, 2)
KX, KY = cv.Gaussian(1.5), cv.Gaussian(2.0)


def test_a_sketch_gives_the_entropy_of_a_sketch() -> None:
    loss = ConditionalEntropyLoss(KX, KY, num_features=32)
    expected = sketched_conditional_entropy(X, Y, (KX, KY), num_features=32, dtype=torch.float64)
    assert loss(X, Y).item() == pytest.approx(-float(expected.plain), abs=1e-9)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_memory_is_a_weighted_sum_of_batches(order: float) -> None:
    decay = 0.5
    loss = ConditionalEntropyLoss(KX, KY, order=order, num_features=32, decay=decay)
    for start in (0, 20, 40):
        value = loss(X[start : start + 20], Y[start : start + 20])
    weights = torch.tensor([decay**2, decay, 1.0]).repeat_interleave(20)
    whole = ConditionalEntropyLoss(KX, KY, order=order, num_features=32)
    whole.batches.running = loss.batches.running  # drawn around the first batch
    assert whole.batches.running is not None
    whole.batches.running.past, whole.batches.running.rows = {}, 0.0
    assert value.item() == pytest.approx(whole(X, Y, weights.double()).item(), abs=1e-9)


def test_only_the_batch_carries_a_gradient_and_it_stands_for_the_whole() -> None:
    decay, rows = 0.8, 20
    loss = ConditionalEntropyLoss(KX, KY, num_features=32, decay=decay)
    first = Y[:rows].clone().requires_grad_()
    loss(X[:rows], first)
    y = Y[rows : 2 * rows].clone().requires_grad_()
    loss(X[rows : 2 * rows], y).backward()
    assert first.grad is None
    assert y.grad is not None
    # Against finite differences, which see the batch's own share 1 / (1 + decay) only.
    state = loss.state_dict()
    shift = torch.zeros_like(Y[:rows])
    shift[3, 1] = 1e-5
    ends = []
    for sign in (1, -1):
        again = ConditionalEntropyLoss(KX, KY, num_features=32, decay=decay)
        again.load_state_dict(state)
        assert again.batches.running is not None
        running = again.batches.running
        running.past = {
            sides: (total - running.sums([X[rows : 2 * rows], Y[rows : 2 * rows]], None)[sides]) / decay
            for sides, total in running.past.items()
        }
        running.rows = rows
        ends.append(again(X[rows : 2 * rows], Y[rows : 2 * rows] + sign * shift).item())
    slope = (ends[0] - ends[1]) / 2e-5
    assert float(y.grad[3, 1]) == pytest.approx(slope * (1 + decay), rel=1e-5)


def test_small_batches_with_memory_see_the_whole_stream() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    y = x + torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    kernels = cv.Gaussian().fit(x), cv.Gaussian().fit(y)
    whole = ConditionalEntropyLoss(*kernels, num_features=128).entropy(x, y).item()
    alone = ConditionalEntropyLoss(*kernels, num_features=128)
    remembering = ConditionalEntropyLoss(*kernels, num_features=128, decay=0.98)
    for a, b in zip(torch.split(x, 10), torch.split(y, 10), strict=True):
        small, seen = alone(a, b), remembering(a, b)
    assert abs(-seen.item() - whole) < 0.2 * abs(-small.item() - whole)


def test_evaluation_does_not_join_the_memory() -> None:
    loss = ConditionalEntropyLoss(KX, KY, num_features=32, decay=0.5)
    loss(X[:20], Y[:20])
    assert loss.batches.running is not None
    rows = loss.batches.running.rows
    loss.eval()
    loss(X[20:], Y[20:])
    loss.train()
    loss.entropy(X[20:], Y[20:])
    assert loss.batches.running.rows == rows
