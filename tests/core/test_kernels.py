"""Kernels against their formulas, the median bandwidth against NumPy's, and what may not be asked of them."""

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
from condvne.core import kernels as kernel_module
from condvne.core.kernels import as_kernel, median_distance, row_kronecker
from tests.references import KERNELS, SMOOTH_KERNELS, double, gram_by_rows, median_by_numpy, points

HALF = [torch.float16, torch.bfloat16]
BANDWIDTH_KERNELS = [cv.Gaussian, cv.Laplacian]
every_kernel = pytest.mark.parametrize("name", KERNELS)


@every_kernel
def test_gram_is_the_formula(name: str) -> None:
    x, z = points(6, 3, seed=0), points(4, 3, seed=1)
    z[1] = x[2]
    kernel = KERNELS[name]
    expected = double(gram_by_rows(name, x.numpy(), z.numpy()))
    torch.testing.assert_close(kernel.gram(x, z), expected, rtol=1e-12, atol=1e-14)
    own = double(gram_by_rows(name, x.numpy(), x.numpy()))
    torch.testing.assert_close(kernel.gram(x), own, rtol=1e-12, atol=1e-14)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF, torch.int64])
def test_self_similarity_is_exactly_one_and_none_is_above(name: str, dtype: torch.dtype) -> None:
    x = (3 * points(40, 5, seed=2) + 7).to(dtype)
    x[3] = x[1]
    for rows in (x, x * 1000):
        gram = KERNELS[name].gram(rows)
        assert bool((gram.diagonal() == 1).all())
        assert float(gram.max()) <= 1
        assert float(gram[1, 3]) == pytest.approx(1, abs=1e-6)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_lower_precision_is_accurate_to_float32(name: str, dtype: torch.dtype) -> None:
    x = points(20, 4, seed=3).to(dtype)
    gram = KERNELS[name].gram(x)
    assert gram.dtype == torch.float32
    torch.testing.assert_close(gram.double(), KERNELS[name].gram(x.double()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", SMOOTH_KERNELS)
def test_autocast_changes_nothing(name: str) -> None:
    x = points(20, 4, seed=4).float()
    plain = KERNELS[name].gram(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(KERNELS[name].gram(x), plain, rtol=0, atol=0)


@pytest.mark.parametrize("kernel", BANDWIDTH_KERNELS)
def test_far_from_the_origin_in_float32(kernel: type[cv.Gaussian]) -> None:
    x = (100 + 1e-3 * points(50, 8, seed=5)).float()
    gram = kernel().gram(x)
    assert bool((gram.diagonal() == 1).all())
    assert float(gram.max()) <= 1
    differences = x.double()[:, None] - x.double()[None]
    if kernel is cv.Gaussian:
        expected = torch.exp(-differences.square().sum(-1) / (2 * median_by_numpy(x.double().numpy()) ** 2))
    else:
        expected = torch.exp(-differences.abs().sum(-1) / median_by_numpy(x.double().numpy(), norm=1))
    torch.testing.assert_close(gram.double(), expected, rtol=1e-6, atol=1e-7)


def test_a_common_shift_costs_no_accuracy() -> None:
    x = points(50, 8, seed=5)
    kernel = cv.Gaussian(2.0)
    assert kernel.rounding(x + 1000) == pytest.approx(kernel.rounding(x), rel=1e-9)
    torch.testing.assert_close(kernel.gram(x + 1000), kernel.gram(x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kernel", [cv.Cosine(), cv.Polynomial(), cv.Polynomial(degree=60)], ids=str)
def test_copies_of_a_direction_are_one_point(kernel: cv.Kernel) -> None:
    lengths = torch.linspace(0.1, 9, 12, dtype=torch.float64).unsqueeze(-1)
    for seed in range(20):
        row = points(1, 7, seed)
        rows = row * lengths if isinstance(kernel, cv.Cosine) else row.repeat(12, 1)
        for n in (2, 3, 12):
            assert float(cv.vendi(rows[:n], kernel=kernel, order=0)) == 1


def test_clusters_many_bandwidths_apart_in_float32() -> None:
    x = torch.cat([points(10, 2, seed=6) + 3000, points(10, 2, seed=7) - 3000]).float()
    square = (x.double()[:, None] - x.double()[None]).square().sum(-1)
    torch.testing.assert_close(
        cv.Gaussian(bandwidth=1.0).gram(x).double(), torch.exp(-square / 2), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("bandwidth", [1e-1, 1e-2, 1e-3, 1e-6, 1e-9])
def test_copies_stay_copies_at_any_bandwidth(bandwidth: float) -> None:
    """By |u|² + |v|² - 2⟨u, v⟩ alone, copies of far rows would be at distances of rounding, or of many bandwidths."""
    x = points(10, 3, seed=8).repeat(2, 1)
    kernel = cv.Gaussian(bandwidth)
    exact = torch.exp(-(x[:, None] - x[None]).square().sum(-1) / (2 * bandwidth**2))
    for rows in (x, x.clone().requires_grad_()):
        torch.testing.assert_close(kernel.gram(rows).detach(), exact, rtol=0, atol=1e-11)
        for order in (0.0, 0.25, 1.0, math.inf):
            value, once = (
                cv.entropy(rows, kernel=kernel, order=order),
                cv.entropy(rows[:10], kernel=kernel, order=order),
            )
            torch.testing.assert_close(value, once, rtol=1e-10, atol=1e-12)
    assert kernel.rounding(x) <= 4 * (1 + kernel_module.FAR)


@pytest.mark.parametrize("bandwidth", [0.003, 0.02, 1.0])
def test_derivatives_near_and_far(bandwidth: float) -> None:
    """Two close pairs, up to hundreds of bandwidths apart."""
    x = double([[0, 0], [0.4, 0.3], [3, 4], [3.5, 4.1]])
    x = (torch.where(x >= 3, 3.0, 0.0) + torch.where(x >= 3, x - 3, x) * bandwidth).requires_grad_()
    assert gradcheck(cv.Gaussian(bandwidth).gram, (x,), eps=1e-6 * bandwidth, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
@pytest.mark.parametrize("name", ["cosine", "laplacian"])
def test_directions_do_not_depend_on_the_scale(name: str, scale: float) -> None:
    x = points(6, 3, seed=8)
    kernel = cv.Cosine() if name == "cosine" else cv.Laplacian()
    torch.testing.assert_close(kernel.gram(scale * x), kernel.gram(x), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["cosine", "polynomial", "delta"])
def test_feature_map_has_the_kernel_as_inner_product(name: str) -> None:
    x = points(7, 2, 9, 3) if name != "delta" else torch.randint(0, 3, (3, 7, 2)).double()
    kernel = KERNELS[name]
    features = kernel.feature_map(x)
    assert features.shape == (3, 7, kernel.feature_dimension(x))
    torch.testing.assert_close(features @ features.mT, kernel.gram(x), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["gaussian", "laplacian"])
def test_infinite_feature_maps_are_refused(name: str) -> None:
    assert KERNELS[name].feature_dimension(points(3, 2, seed=0)) is None
    with pytest.raises(cv.InputError, match="no finite feature map"):
        KERNELS[name].feature_map(points(3, 2, seed=0))


def test_row_kronecker() -> None:
    a, b = points(4, 2, seed=0), points(4, 3, seed=1)
    expected = np.stack([np.kron(p, q) for p, q in zip(a.numpy(), b.numpy(), strict=True)])
    torch.testing.assert_close(row_kronecker(a, b), double(expected))


def test_polynomial_settings() -> None:
    x = points(5, 3, seed=10)
    raw = (0.5 * x @ x.T + 2.0) ** 2
    expected = raw / (raw.diagonal()[:, None] * raw.diagonal()[None]).sqrt()
    torch.testing.assert_close(cv.Polynomial(degree=2, gamma=0.5, coef0=2.0).gram(x), expected)
    torch.testing.assert_close(cv.Polynomial(degree=1, coef0=0.0).gram(x), cv.Cosine().gram(x))


def test_delta_tells_integers_and_zeros_apart_rightly() -> None:
    ids = torch.tensor([[2**24], [2**24 + 1], [2**53 - 1], [2**53]])
    torch.testing.assert_close(cv.Delta().gram(ids), torch.eye(4, dtype=torch.float64))
    assert float(cv.Delta().gram(double([[0.0], [-0.0]])).min()) == 1
    assert float(cv.Delta().gram(torch.tensor([[True], [False]]))[0, 1]) == 0
    with pytest.raises(cv.InputError, match=r"beyond 2\*\*53"):
        cv.Delta().gram(torch.tensor([[2**60], [2**60 + 1]]))


def test_delta_compares_whole_rows_of_both_sets() -> None:
    x, z = double([[0, 1], [1, 0], [1, 1]]), double([[1, 0], [2, 2]])
    torch.testing.assert_close(cv.Delta().gram(x, z), double([[0, 0], [1, 0], [0, 0]]))


@pytest.mark.parametrize("kernel", BANDWIDTH_KERNELS)
@given(n=st.integers(2, 9), d=st.integers(1, 4), equal=st.integers(0, 8), seed=st.integers(0, 99))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_median_bandwidth_is_numpys(kernel: type[cv.Gaussian], n: int, d: int, equal: int, seed: int) -> None:
    x = points(n, d, seed)
    x[: min(equal, n - 1)] = x[0].clone()
    norm = 2 if kernel is cv.Gaussian else 1
    fitted = kernel(multiplier=0.5).fit(x)
    assert fitted.fixed_bandwidth == pytest.approx(0.5 * median_by_numpy(x.numpy(), norm), rel=1e-12)
    assert fitted.multiplier == 1.0
    assert fitted.fit(2 * x) is fitted


def test_three_of_four_points_equal() -> None:
    x = double([[1, 1], [1, 1], [1, 1], [4, 5]])
    assert cv.Gaussian().fit(x).bandwidth == 5.0
    assert cv.Laplacian().fit(x).bandwidth == 7.0


def test_bandwidth_is_each_batch_elements_own() -> None:
    x = points(6, 2, 11, 2, 3) * torch.arange(1, 7).reshape(2, 3, 1, 1)
    bandwidth = cv.Gaussian().fit(x).bandwidth
    assert isinstance(bandwidth, Tensor)
    expected = [[median_by_numpy(element.numpy()) for element in row] for row in x]
    torch.testing.assert_close(bandwidth, double(expected), rtol=1e-12, atol=0)
    gram = cv.Gaussian().gram(x)
    torch.testing.assert_close(gram[1, 2], cv.Gaussian().gram(x[1, 2]))


def test_bandwidth_has_no_gradient_and_may_be_given_one() -> None:
    x = points(5, 2, seed=12).requires_grad_()
    assert isinstance(cv.Gaussian().fit(x).bandwidth, float)
    sigma = double(0.8).requires_grad_()
    assert gradcheck(lambda s: cv.Gaussian(bandwidth=s).gram(x.detach()), (sigma,))


def test_median_above_the_row_limit_draws_a_seeded_subsample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "MEDIAN_ROWS", 50)
    x = points(400, 3, seed=13)
    fixed = median_distance(x)
    torch.testing.assert_close(fixed, median_distance(x), rtol=0, atol=0)
    drawn = median_distance(x, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(drawn, median_distance(x, generator=torch.Generator().manual_seed(5)), rtol=0, atol=0)
    assert float(drawn) != float(fixed)
    assert float(fixed) == pytest.approx(median_by_numpy(x.numpy()), rel=0.1)


def test_global_random_state_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "MEDIAN_ROWS", 5)
    before = torch.random.get_rng_state()
    cv.Gaussian().fit(points(20, 2, seed=0))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("x", [double([[1.0, 2.0]] * 4), double([[3.0]])], ids=["all equal", "one row"])
@pytest.mark.parametrize("kernel", BANDWIDTH_KERNELS)
def test_no_bandwidth_from_equal_rows(kernel: type[cv.Gaussian], x: Tensor) -> None:
    with pytest.raises(cv.InputError, match=r"all rows are equal.*give bandwidth="):
        kernel().fit(x)
    assert kernel().fit_each(x).bandwidth == 1.0
    assert float(kernel(multiplier=3.0).fit_each(x).gram(x).min()) == 1.0


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.inf, math.nan, "wide", True, [1.0], torch.tensor([1.0, 0.0])])
@pytest.mark.parametrize("kernel", BANDWIDTH_KERNELS)
@pytest.mark.parametrize("argument", ["bandwidth", "multiplier"])
def test_bad_bandwidths(kernel: type[cv.Gaussian], argument: str, value: Any) -> None:
    with pytest.raises(cv.InputError, match=f"{kernel.__name__}: {argument} must be positive and finite"):
        kernel(**{argument: value})


def test_numbers_of_numpy_are_bandwidths() -> None:
    x = points(4, 2, seed=0)
    torch.testing.assert_close(cv.Gaussian(np.float32(2)).gram(x), cv.Gaussian(2.0).gram(x))
    torch.testing.assert_close(cv.Gaussian(np.int64(2)).gram(x), cv.Gaussian(2.0).gram(x))


def test_bad_settings() -> None:
    for settings_ in ({"degree": 0}, {"degree": 2.5}, {"gamma": 0.0}, {"gamma": math.nan}, {"coef0": -1.0}):
        with pytest.raises(cv.InputError, match=f"Polynomial: {next(iter(settings_))} must be"):
            cv.Polynomial(**settings_)
    with pytest.raises(cv.InputError, match="leave it out"):
        cv.Gaussian(bandwidth=1.0, multiplier=2.0)
    with pytest.raises(cv.InputError, match=r"leading dimensions .* \(2,\) and \(3,\)"):
        cv.Gaussian(bandwidth=torch.ones(3)).gram(points(4, 2, 0, 2))
    with pytest.raises(cv.InputError, match="fix the bandwidth first"):
        cv.Gaussian().prepare(points(4, 2, seed=0))
    with pytest.raises(cv.InputError, match="x has 2 columns and z has 3"):
        cv.Cosine().gram(points(4, 2, seed=0), points(4, 3, seed=0))


@pytest.mark.parametrize("kernel", ["rbf", "Gaussian", "", None, 3, cv.Gaussian])
def test_unknown_kernels(kernel: Any) -> None:
    with pytest.raises(cv.InputError, match=r"no kernel .*gaussian, laplacian, cosine, polynomial, delta"):
        as_kernel(kernel)


def test_rows_without_direction_are_named() -> None:
    x = points(5, 2, seed=0)
    x[[1, 4]] = 0
    with pytest.raises(cv.InputError, match="rows 1, 4 are zero"):
        cv.Cosine().gram(x)
    with pytest.raises(cv.InputError, match=r"rows \(1, 1\), \(1, 4\) are zero"):
        cv.Cosine().gram(torch.stack([points(5, 2, seed=1), x]))
    with pytest.raises(cv.InputError, match="Polynomial kernel: rows 1, 4"):
        cv.Polynomial(coef0=0.0).gram(x)
    assert float(cv.Polynomial().gram(x)[1, 4]) == 1.0


def test_nan_does_not_make_a_bandwidth() -> None:
    x = points(5, 2, seed=0)
    x[3, 1] = math.nan
    with pytest.raises(cv.InputError, match="rows 3"):
        cv.Gaussian().fit(x)
    with pytest.raises(cv.InputError, match="rows 3"):
        cv.Gaussian(bandwidth=1.0).gram(x)


@pytest.mark.parametrize("name", SMOOTH_KERNELS)
def test_derivatives(name: str) -> None:
    kernel = KERNELS[name]
    x, z = points(4, 2, seed=14).requires_grad_(), points(3, 2, seed=15).requires_grad_()
    assert gradcheck(kernel.gram, (x,))
    assert gradgradcheck(kernel.gram, (x,))
    assert gradcheck(kernel.gram, (x, z))
    assert gradgradcheck(kernel.gram, (x, z))


@pytest.mark.parametrize("name", ["gaussian", "cosine", "polynomial"])
def test_derivatives_at_equal_rows(name: str) -> None:
    x = double([[1, 2], [1, 2], [3, -1]]).requires_grad_()
    assert gradcheck(KERNELS[name].gram, (x,))
    assert gradgradcheck(KERNELS[name].gram, (x,))


def test_broadcast_second_set() -> None:
    x, z = points(4, 2, seed=16).requires_grad_(), points(3, 2, 17, 2).requires_grad_()
    for kernel in KERNELS.values():
        both = torch.stack([kernel.gram(x, z[0]), kernel.gram(x, z[1])])
        torch.testing.assert_close(kernel.gram(x, z), both)
    assert gradgradcheck(KERNELS["laplacian"].gram, (x, z))


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-160, 1e160, 1e200, 1e300])
@pytest.mark.parametrize("kernel", [cv.Gaussian, cv.Laplacian])
def test_the_median_bandwidth_follows_any_scale(kernel: type[cv.Gaussian], scale: float) -> None:
    x = points(20, 3, seed=0)
    bandwidth, unscaled = kernel().fit(scale * x).bandwidth, kernel().fit(x).bandwidth
    assert isinstance(unscaled, float)
    assert bandwidth == pytest.approx(scale * unscaled, rel=1e-12)
    torch.testing.assert_close(cv.vendi(scale * x, kernel=kernel()), cv.vendi(x, kernel=kernel()))
