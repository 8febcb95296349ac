"""Squared norms of measures in a kernel's space, against whole matrices and known distances."""

from __future__ import annotations

import pytest
import torch

import condvne as cv
from condvne.core.discrepancy import squared_norms


@pytest.mark.parametrize("kernel", [cv.Gaussian(2.0), cv.Laplacian(3.0), cv.Cosine(), cv.Polynomial()])
def test_tiles_give_the_whole_quadratic_form(kernel: cv.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("condvne.core.discrepancy.TILE", 7)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 3, generator=draw), torch.randn(30, 2, generator=draw)
    measures = torch.randn(4, 30, generator=draw, dtype=torch.float64)
    joint = kernel.gram(x.double()) * cv.Gaussian(1.0).gram(y.double())
    expected = ((measures @ joint) * measures).sum(1)
    torch.testing.assert_close(squared_norms([kernel, cv.Gaussian(1.0)], [x, y], measures), expected)


def test_equal_distributions_on_copies_are_not_apart() -> None:
    points = torch.tensor([[0.0], [0.0], [3.0]])
    measures = torch.tensor([[0.5, -0.5, 0.0], [0.25, 0.25, -0.5]])
    near, far = squared_norms([cv.Delta()], [points], measures)
    assert float(near) == 0
    assert float(far) == pytest.approx(0.5)
