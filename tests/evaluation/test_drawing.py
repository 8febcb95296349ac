"""Draws by weights: their shares, and what they depend on."""

from __future__ import annotations

import torch

from condvne.evaluation.drawing import drawn

OWNERS = torch.tensor([0, 0, 0, 1, 2, 2])
IDS = ["a", "b", "c"]


def test_shares_are_the_weights_and_zero_is_never_drawn() -> None:
    weights = torch.tensor([0.5, 0.2, 0.3, 1.0, 1.0, 0.0])
    places = drawn(weights, OWNERS, IDS, 20_000, seed=0)
    shares = torch.bincount(places[0], minlength=6) / 20_000
    torch.testing.assert_close(shares[:3], weights[:3], atol=0.015, rtol=0)
    assert set(places[1].tolist()) == {3}
    assert set(places[2].tolist()) == {4}


def test_a_draw_depends_on_seed_and_id_alone() -> None:
    weights = torch.tensor([0.5, 0.2, 0.3, 1.0, 0.6, 0.4])
    few, many = (drawn(weights, OWNERS, IDS, k, seed=0) for k in (5, 50))
    assert torch.equal(many[:, :5], few)
    alone = drawn(weights[4:], OWNERS[4:] - 2, ["c"], 50, seed=0)
    assert torch.equal(alone[0] + 4, many[2])
    assert not torch.equal(drawn(weights, OWNERS, IDS, 50, seed=1), many)


def test_weights_that_nearly_vanish_can_be_drawn_from() -> None:
    places = drawn(torch.tensor([1e-300, 1e-300], dtype=torch.float64), torch.tensor([0, 0]), ["a"], 100, seed=0)
    assert set(places[0].tolist()) == {0, 1}
