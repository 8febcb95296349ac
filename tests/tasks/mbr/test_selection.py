"""The candidate of the highest expected utility."""

from __future__ import annotations

import torch

from condvne.tasks.mbr.selection import select


def test_the_choice_is_that_of_a_loop_over_all_candidates() -> None:
    draw = torch.Generator().manual_seed(0)
    sizes = [2, 5, 9]
    utilities = [torch.rand(k, k, generator=draw, dtype=torch.float64) for k in sizes]
    weights = [torch.rand(k, generator=draw, dtype=torch.float64) for k in sizes]
    weights = [w / w.sum() for w in weights]
    found = select(utilities, weights)
    for u, w, chosen, expected in zip(utilities, weights, found.chosen, found.expected, strict=True):
        values = [sum(float(w[y] * u[h, y]) for y in range(len(w))) for h in range(len(w))]
        assert chosen == values.index(max(values))
        assert abs(expected - max(values)) < 1e-12
    assert found.ties == 0


def test_rows_are_hypotheses_and_columns_what_they_are_compared_with() -> None:
    u = torch.tensor([[1.0, 0.0], [0.9, 1.0]], dtype=torch.float64)
    assert select([u], [torch.tensor([1.0, 0.0], dtype=torch.float64)]).chosen == [0]
    assert select([u.mT], [torch.tensor([0.0, 1.0], dtype=torch.float64)]).chosen == [1]
    assert select([u.mT], [torch.tensor([0.6, 0.4], dtype=torch.float64)]).chosen == [0]


def test_equal_expected_utilities_are_counted_and_the_first_is_taken() -> None:
    u = torch.eye(3, dtype=torch.float64)
    found = select([u, u], [torch.full((3,), 1 / 3, dtype=torch.float64), torch.tensor([0.2, 0.5, 0.3])])
    assert found.chosen == [0, 1]
    assert found.ties == 1


def test_a_single_distinct_candidate_is_chosen() -> None:
    assert select([torch.zeros(1, 1)], [torch.ones(1)]).chosen == [0]
