"""Precision and recall of support against their definition, and on sets whose support is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core import manifold
from condvne.core.manifold import support
from tests.references import points


def covered(centres: Tensor, others: Tensor, k: int) -> float:
    """By the definition, one point at a time."""
    inside = 0
    reaches = [sorted(float((c - other).norm()) for other in centres)[k] for c in centres]
    for point in others:
        inside += any(float((point - c).norm()) <= reach for c, reach in zip(centres, reaches, strict=True))
    return inside / len(others)


@pytest.mark.parametrize("k", [1, 3])
def test_support_is_its_definition(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifold, "ROWS", 7)
    x, y = points(40, 3, 0), points(30, 3, 1) * 1.5
    found = support(x, y, k)
    assert found.precision == covered(x, y, k)
    assert found.recall == covered(y, x, k)
    assert found.precision_error == pytest.approx((found.precision * (1 - found.precision) / 30) ** 0.5)


def test_a_collapsed_set_is_precise_and_a_spread_one_recalls() -> None:
    x = points(300, 2, 0)
    collapsed, spread = 0.1 * points(300, 2, 1), 5 * points(300, 2, 2)
    assert support(x, collapsed).precision == 1
    assert support(x, collapsed).recall < 0.2
    assert support(x, spread).precision < 0.5
    assert support(x, x).precision == support(x, x).recall == 1


def test_copies_reach_no_further_than_themselves() -> None:
    x = torch.zeros(10, 2)
    found = support(x, torch.ones(10, 2))
    assert (found.precision, found.recall) == (0, 0)


@pytest.mark.parametrize(
    ("x", "y", "k", "message"),
    [
        (torch.zeros(9, 2), torch.zeros(9, 3), 2, "of one width, but have shapes"),
        (torch.zeros(9, 2), torch.zeros(4, 2), 4, "neighbours must be between 1 and 3"),
        (torch.zeros(9, 2), torch.zeros(4, 2), 0, "neighbours must be between 1 and 3"),
        (torch.zeros(9, 2), torch.full((9, 2), float("nan")), 2, "samples holds NaN or infinite"),
    ],
)
def test_what_is_refused(x: Tensor, y: Tensor, k: int, message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        support(x, y, k)
