"""Entropies of spectra: values, first and second derivatives at ties and zeros, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import condvne as cv
from condvne.core import spectral
from condvne.core.spectral import checked_order, matrix_entropy, purity_entropy, spectrum, spectrum_entropy
from tests.references import ORDERS, SMOOTH_ORDERS, double, points, renyi

SPECTRA = {
    "distinct": [0.5, 0.3, 0.15, 0.05],
    "tied": [0.4, 0.2, 0.2, 0.2],
    "uniform": [0.25, 0.25, 0.25, 0.25],
    "with zeros": [0.6, 0.4, 0.0, 0.0],
    "pure": [1.0, 0.0, 0.0, 0.0],
    "nearly tied": [0.25 + 1e-9, 0.25 - 1e-9, 0.25 + 1e-7, 0.25 - 1e-7],
    "one point": [1.0],
}
positive = pytest.mark.parametrize("name", ["distinct", "tied", "uniform", "nearly tied"])
smooth = pytest.mark.parametrize("order", SMOOTH_ORDERS)


def rotation(n: int, seed: int = 0) -> Tensor:
    vectors: Tensor = torch.linalg.qr(points(n, n, seed))[0]
    return vectors


def matrix_of(eigenvalues: Any, seed: int = 0) -> Tensor:
    values = double(eigenvalues)
    vectors = rotation(len(values), seed)
    return (vectors * values) @ vectors.mT


def symmetric_entropy(order: float) -> Any:
    """Of B + Bᵀ, so that perturbations of one entry stay symmetric."""
    return lambda B: matrix_entropy((B + B.mT) / 2, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SPECTRA)
def test_entropy_is_that_of_the_spectrum(name: str, order: float) -> None:
    A = matrix_of(SPECTRA[name])
    expected = renyi(SPECTRA[name], order)
    for value in (matrix_entropy(A, order), matrix_entropy(A.requires_grad_(), order).detach()):
        assert float(value) == pytest.approx(expected, rel=1e-10, abs=1e-13)
    assert float(spectrum_entropy(spectrum(A), order)) == pytest.approx(expected, rel=1e-10, abs=1e-13)


@given(
    raw=st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda v: sum(v) > 0.1),
    order=st.one_of(st.floats(0.05, 60), st.sampled_from([1 - 1e-12, 1 + 1e-12, 1.5, 1.5 - 1e-12, 1e4, 1e300, 1e308])),
)
@settings(derandomize=True, deadline=None, max_examples=80)
def test_any_order(raw: list[float], order: float) -> None:
    p = np.array(raw) / sum(raw)
    p = np.where(p < 1e-9, 0, p) / np.where(p < 1e-9, 0, p).sum()
    value = float(matrix_entropy(torch.diag(double(p)), order))
    assert value == pytest.approx(renyi(p, order), rel=1e-9, abs=1e-11)


def test_continuous_in_the_order() -> None:
    A = matrix_of(SPECTRA["distinct"])
    for order in (1.0, 1.5, 2.0):
        around = [float(matrix_entropy(A, order + step)) for step in (-1e-10, 0.0, 1e-10)]
        assert max(around) - min(around) < 1e-9
    assert float(matrix_entropy(A, 1e6)) == pytest.approx(float(matrix_entropy(A, math.inf)), rel=1e-5)
    assert float(matrix_entropy(A, 1e-9)) == pytest.approx(math.log(4), rel=1e-8)


@positive
@smooth
def test_gradient_is_the_spectral_function(name: str, order: float) -> None:
    A = matrix_of(SPECTRA[name]).requires_grad_()
    (gradient,) = torch.autograd.grad(matrix_entropy(A, order), A)
    p = double(SPECTRA[name])
    if order == 1:
        slope = -torch.log(p) - 1
    elif math.isinf(order):
        share = (p > p.max() * (1 - 1e-10)).double()
        slope = -share / share.sum() / p.max()
    else:
        slope = order / (1 - order) * (p / p.max()).pow(order - 1) / p.max() / (p / p.max()).pow(order).sum()
    difference = gradient - matrix_of(slope)
    # Along the identity the value is a convention: densities keep their trace.
    traceless = difference - torch.eye(4) * difference.trace() / 4
    assert float(traceless.abs().max()) < 1e-6 * max(1.0, float(slope.abs().max()))


@pytest.mark.parametrize("name", ["distinct", "tied", "uniform"])
@smooth
def test_derivatives_at_ties(name: str, order: float) -> None:
    B = matrix_of(SPECTRA[name]).requires_grad_()
    if not (math.isinf(order) and name == "uniform"):  # λ_max has a kink where it is tied
        assert gradcheck(symmetric_entropy(order), (B,))
        assert gradgradcheck(symmetric_entropy(order), (B,))
    (gradient,) = torch.autograd.grad(matrix_entropy(B, order), B)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-9, 3e-6, 1e-5, 1e-4])
@pytest.mark.parametrize("order", [0.5, 1.0, 1.2, 3.0])
def test_second_derivative_through_near_ties(order: float, gap: float) -> None:
    """At diag(a, b) the second derivative along the off-diagonal is twice the divided difference of f'."""
    a, b = 0.5 + gap / 2, 0.5 - gap / 2
    B = torch.diag(double([a, b])).requires_grad_()
    (gradient,) = torch.autograd.grad(matrix_entropy(B, order), B, create_graph=True)
    (second,) = torch.autograd.grad(gradient[0, 1] + gradient[1, 0], B)
    # Exact value: f''(1/2) to first order in the gap, its next term is of order gap².
    trace = a**order + b**order
    slope = -1 / 0.5 if order == 1 else order / (1 - order) * (order - 1) * 0.5 ** (order - 2) / trace
    assert float(second[0, 1]) == pytest.approx(slope, rel=1e-6 + gap)


def low_rank_entropy(order: float, Z: Tensor, *, wide: bool) -> Tensor:
    """Of ZᵀZ / tr, whose zero eigenvalues stay zero, or of ZZᵀ / tr, which has none."""
    A = Z.mT @ Z if wide else Z @ Z.mT
    return matrix_entropy(A / A.trace(), order)


@pytest.mark.parametrize("order", [1.0, 1 + 1e-9, 1.2, 2.0, 3.0, 50.0, math.inf])
def test_derivatives_of_a_low_rank_matrix(order: float) -> None:
    Z = points(2, 5, seed=1).requires_grad_()
    assert gradcheck(lambda Z: low_rank_entropy(order, Z, wide=True), (Z,))
    assert gradgradcheck(lambda Z: low_rank_entropy(order, Z, wide=True), (Z,))


@smooth
def test_zero_eigenvalues_leave_no_trace_in_derivatives(order: float) -> None:
    Z, direction = points(2, 5, seed=1).requires_grad_(), points(2, 5, seed=2)
    found = []
    for wide in (True, False):
        (first,) = torch.autograd.grad(low_rank_entropy(order, Z, wide=wide), Z, create_graph=True)
        (second,) = torch.autograd.grad((first * direction).sum(), Z)
        found.append((first.detach(), second))
    # The floor 1e-12 makes f' of the null space large at orders below one; rounding times it remains.
    tolerance = 1e-9 if order >= 0.5 else 1e-5
    for zeros, none in zip(*found, strict=True):
        torch.testing.assert_close(zeros, none, rtol=tolerance, atol=tolerance)


def test_gradient_on_null_directions_is_the_documented_floor() -> None:
    A = torch.diag(double([0.6, 0.4, 0.0])).requires_grad_()
    (gradient,) = torch.autograd.grad(matrix_entropy(A, 1.0), A)
    assert float(gradient[2, 2]) == pytest.approx(-math.log(1e-12) - 1)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.2])
def test_the_floor_is_flat(order: float) -> None:
    A = torch.diag(double([0.6, 0.4, 0.0, 0.0])).requires_grad_()
    (gradient,) = torch.autograd.grad(matrix_entropy(A, order), A, create_graph=True)
    (second,) = torch.autograd.grad(gradient[2, 3] + gradient[3, 2] + gradient[2, 2], A, retain_graph=True)
    # What remains comes through the trace of f alone, along the gradient itself.
    of_value = torch.zeros(()) if order == 1 else second[2, 2] * gradient.detach() / gradient[2, 2].detach()
    assert float((second - of_value)[2:, 2:].abs().max()) <= 1e-9 * float(gradient[2, 2].detach()) ** 2


def test_order_zero_and_tied_largest_have_finite_gradients() -> None:
    A = torch.eye(3, dtype=torch.float64).div(3).requires_grad_()
    (of_rank,) = torch.autograd.grad(matrix_entropy(A, 0.0), A)
    (of_largest,) = torch.autograd.grad(matrix_entropy(A, math.inf), A)
    assert float(of_rank.abs().max()) == 0.0
    torch.testing.assert_close(of_largest, -torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("order", ORDERS)
def test_batches_are_loops(order: float) -> None:
    batch = torch.stack([matrix_of(SPECTRA[name]) for name in ("distinct", "tied", "with zeros", "pure")])
    values = matrix_entropy(batch.reshape(2, 2, 4, 4).requires_grad_(), order)
    assert values.shape == (2, 2)
    each = torch.stack([matrix_entropy(A, order) for A in batch]).reshape(2, 2)
    torch.testing.assert_close(values.detach(), each, rtol=1e-12, atol=1e-14)


def test_rounding_does_not_count_as_rank() -> None:
    x = points(300, 3, seed=2)
    u = x / x.norm(dim=-1, keepdim=True)
    A = u @ u.mT / 300
    assert float(matrix_entropy(A, 0.0)) == pytest.approx(math.log(3), rel=1e-12)
    covariance = u.mT @ u / 300
    for order in (0.1, 0.25, 0.5, 1.0):
        assert float(matrix_entropy(A, order)) == pytest.approx(float(matrix_entropy(covariance, order)), rel=1e-10)


def test_negative_eigenvalues_are_named() -> None:
    with pytest.raises(cv.InputError, match=r"not positive semidefinite.* eigenvalue -0\.1"):
        matrix_entropy(matrix_of([0.7, 0.4, -0.1]), 1.0)
    with pytest.raises(cv.InputError, match="computed in float32 as float32"):
        matrix_entropy(matrix_of([0.7, 0.3 + 1e-9, -1e-9]), 1.0)
    assert float(matrix_entropy(matrix_of([0.7, 0.3, -1e-16]), 1.0)) == pytest.approx(renyi([0.7, 0.3], 1.0))


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf])
def test_impossible_purity(value: float) -> None:
    with pytest.raises(cv.InputError, match="not positive semidefinite, or overflows"):
        purity_entropy(double([0.5, value]))


@pytest.mark.parametrize("order", [-1, -1e-9, math.nan, -math.inf, "1", None, True, [1.0], 1j])
def test_bad_orders(order: Any) -> None:
    with pytest.raises(cv.InputError, match=r"order must be a number in \[0, inf\], but is"):
        checked_order(order)


@pytest.mark.parametrize("order", [1, np.float32(1), np.int64(1), np.float64(1)])
def test_numbers_of_any_kind_are_orders(order: Any) -> None:
    assert checked_order(order) == 1.0
    assert type(checked_order(order)) is float


def test_too_large_matrices_are_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "LARGEST_WITH_VECTORS", 3)
    monkeypatch.setattr(spectral, "LARGEST_WITHOUT_VECTORS", 4)
    A = torch.eye(5, dtype=torch.float64) / 5
    with pytest.raises(cv.InputError, match=r"5 points are too many .* \(at most 4\)"):
        matrix_entropy(A, 1.0)
    A = (torch.eye(4, dtype=torch.float64) / 4).requires_grad_()
    with pytest.raises(cv.InputError, match=r"4 points are too many .* \(at most 3\)"):
        matrix_entropy(A, 1.0)
    assert float(matrix_entropy(A.detach(), 2.0)) == pytest.approx(math.log(4))


def test_nan_is_never_a_value() -> None:
    A = matrix_of(SPECTRA["distinct"])
    A[0, 1] = A[1, 0] = math.nan
    for order in (0.5, 1.0, 2.0, math.inf):
        with pytest.raises(cv.InputError):
            matrix_entropy(A, order)
