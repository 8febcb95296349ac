"""The public functions: batches, precision, details, derivatives at awkward points, and what peers get wrong."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import condvne as cv
from condvne.core import kernels as kernel_module
from tests.references import (
    KERNELS,
    ORDERS,
    SMOOTH_KERNELS,
    SMOOTH_ORDERS,
    double,
    entropy_by_numpy,
    gram_by_rows,
    median_by_numpy,
    pair_problems,
    points,
    problems,
    random_weights,
)

ONE_SIDED: dict[str, Callable[..., Any]] = {"entropy": cv.entropy, "vendi": cv.vendi, "rke": cv.rke}
TWO_SIDED: dict[str, Callable[..., Any]] = {
    "conditional_entropy": cv.conditional_entropy,
    "mutual_information": cv.mutual_information,
    "conditional_vendi": cv.conditional_vendi,
    "conditional_rke": cv.conditional_rke,
}
WITHOUT_ORDER = ("rke", "conditional_rke")
HALF = [torch.float16, torch.bfloat16]


def call(name: str, x: Any, y: Any, kernel: Any, order: float, **options: Any) -> Any:
    """Any public function on features, with one kernel for both sides."""
    chosen = {} if name in WITHOUT_ORDER else {"order": order}
    if name in ONE_SIDED:
        return ONE_SIDED[name](x, kernel=kernel, **chosen, **options)
    return TWO_SIDED[name](x, y, kernel_x=kernel, kernel_y=kernel, **chosen, **options)


FUNCTIONS = [*ONE_SIDED, *TWO_SIDED]
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("problem", problems(), ids=lambda p: p.name)
def test_known_spectra(problem: Any, order: float) -> None:
    value = cv.entropy(problem.x, kernel=problem.kernel, order=order, weights=problem.weights)
    assert float(value) == pytest.approx(problem.entropy(order), rel=1e-10, abs=1e-12)
    score = cv.vendi(problem.x, kernel=problem.kernel, order=order, weights=problem.weights)
    assert float(score) == pytest.approx(math.exp(problem.entropy(order)), rel=1e-10)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("problem", pair_problems(), ids=lambda p: p.name)
def test_known_pairs(problem: Any, order: float) -> None:
    options = {"kernel_x": problem.kernel, "kernel_y": problem.kernel, "order": order, "weights": problem.weights}
    given = cv.conditional_entropy(problem.x, problem.y, **options)
    assert float(given) == pytest.approx(problem.conditional(order), rel=1e-10, abs=1e-12)
    shared = cv.mutual_information(problem.x, problem.y, **options)
    assert float(shared) == pytest.approx(problem.mutual_information(order), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("order", [0.25, 1.0, 1.2, 2.0, 50.0, math.inf])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_function_against_numpy(kernel: str, order: float) -> None:
    x, y, weights = points(9, 3, seed=0), points(9, 2, seed=1), random_weights(9, seed=2)
    K_X, K_Y = (gram_by_rows(kernel, side.numpy(), side.numpy()) for side in (x, y))
    for name in FUNCTIONS:
        at = 2.0 if name in WITHOUT_ORDER else order
        of_x, of_y, joint = (entropy_by_numpy(K, at, weights.numpy()) for K in (K_X, K_Y, K_X * K_Y))
        plain = of_x if name in ONE_SIDED else of_x + of_y - joint if name == "mutual_information" else joint - of_x
        expected = plain if name in ("entropy", "mutual_information", "conditional_entropy") else math.exp(plain)
        value = call(name, x, y, KERNELS[kernel], order, weights=weights)
        assert float(value) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), "gaussian", "laplacian"], ids=str)
@every_function
def test_batches_are_loops(name: str, kernel: Any) -> None:
    x, y = points(7, 2, 3, 2, 3) * double([1, 2, 5]).reshape(3, 1, 1), points(7, 3, 4, 2, 3)
    weights = torch.stack([random_weights(7, seed) for seed in range(6)]).reshape(2, 3, 7)
    for order in (1.0, 2.0):
        values = call(name, x, y, kernel, order, weights=weights)
        assert values.shape == (2, 3)
        each = [
            [call(name, x[i, j], y[i, j], kernel, order, weights=weights[i, j]) for j in range(3)] for i in range(2)
        ]
        torch.testing.assert_close(values, double(each), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", TWO_SIDED)
def test_leading_dimensions_broadcast(name: str) -> None:
    x, y, weights = points(6, 2, 5), points(6, 3, 6, 4), random_weights(6, seed=7)
    for order in (1.0, 2.0):
        for kernel in ("gaussian", "cosine"):
            right = double([call(name, x, element, kernel, order) for element in y])
            torch.testing.assert_close(call(name, x, y, kernel, order), right)
            left = double([call(name, element, x, kernel, order) for element in y])
            torch.testing.assert_close(call(name, y, x, kernel, order), left)
            grid = call(name, y[:, None], y[None, :2], kernel, order)
            assert grid.shape == (4, 2)
            assert float(grid[3, 1]) == pytest.approx(float(call(name, y[3], y[1], kernel, order)), rel=1e-12)
            stacked = torch.stack([weights, weights.flip(0)])
            of_weights = call(name, x, y[0], kernel, order, weights=stacked)
            assert float(of_weights[1]) == pytest.approx(
                float(call(name, x, y[0], kernel, order, weights=weights.flip(0))), rel=1e-12
            )


@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [(torch.float32, False), (torch.float32, True), (torch.float16, False), (torch.bfloat16, True)],
    ids=["float32", "float32 autocast", "float16", "bfloat16 autocast"],
)
@pytest.mark.parametrize("kernel", [*SMOOTH_KERNELS.values(), "gaussian"], ids=str)
@every_function
def test_low_precision_is_accurate_to_float32(name: str, kernel: Any, dtype: torch.dtype, autocast: bool) -> None:
    """Values and gradients are those of the rounded features; a gradient is rounded to the features' precision."""
    sides = [points(12, 4, seed=8).to(dtype), points(12, 4, seed=9).to(dtype)]
    used = 1 if name in ONE_SIDED else 2
    for order in (1.0, 2.0):
        low, high = [[side.to(kind).requires_grad_() for side in sides] for kind in (dtype, torch.float64)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            value = call(name, low[0], low[1], kernel, order)
            gradients = torch.autograd.grad(value, low[:used])
        exact = call(name, high[0], high[1], kernel, order)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=2e-5, atol=1e-7)
        for gradient, expected in zip(gradients, torch.autograd.grad(exact, high[:used]), strict=True):
            assert gradient.dtype == dtype
            epsilon = torch.finfo(dtype).eps
            smallest = 1e-6 * float(expected.abs().max()) + epsilon * torch.finfo(dtype).smallest_normal
            torch.testing.assert_close(gradient.double(), expected, rtol=2 * epsilon, atol=smallest)


@pytest.mark.parametrize("order", SMOOTH_ORDERS)
@pytest.mark.parametrize("kernel", SMOOTH_KERNELS)
def test_derivatives(kernel: str, order: float) -> None:
    leaves = (points(4, 2, seed=10), points(4, 3, seed=11), random_weights(4, seed=12))
    k = KERNELS[kernel]

    def shared(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        return cv.mutual_information(x, y, kernel_x=k, kernel_y=k, order=order, weights=weights)

    def all_three(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        marginal = cv.entropy(y, kernel=k, order=order, weights=weights)
        given = cv.conditional_entropy(x, y, kernel_x=k, kernel_y=k, order=order, weights=weights)
        return torch.stack([marginal, given, shared(x, y, weights)])

    inputs = tuple(leaf.requires_grad_() for leaf in leaves)
    assert gradcheck(all_three, inputs, fast_mode=True)
    assert gradgradcheck(shared, inputs, fast_mode=True)  # holds the three entropies of the two others


@pytest.mark.parametrize("order", SMOOTH_ORDERS)
def test_labels_have_derivatives_of_weights(order: float) -> None:
    x, y = double([[0], [0], [1], [2]]), double([[0], [1], [1], [1]])
    weights = random_weights(4, seed=13).requires_grad_()

    def entropy(weights: Tensor) -> Tensor:
        return cv.conditional_entropy(x, y, kernel_x="delta", kernel_y="delta", order=order, weights=weights)

    assert gradcheck(entropy, (weights,))
    assert gradgradcheck(entropy, (weights,))


@pytest.mark.parametrize("order", [0.5, 1.0, 1.2, 2.0, 50.0])
@pytest.mark.parametrize("kernel", SMOOTH_KERNELS)
def test_derivatives_at_repeated_eigenvalues(kernel: str, order: float) -> None:
    """Orthonormal features, where differentiating through an eigendecomposition gives NaN."""
    x = torch.eye(3, 4, dtype=torch.float64).add(0.1 if kernel == "laplacian" else 0).requires_grad_()

    def entropy(x: Tensor) -> Tensor:
        return cv.entropy(x, kernel=KERNELS[kernel], order=order)

    (gradient,) = torch.autograd.grad(entropy(x), x)
    assert bool(torch.isfinite(gradient).all())
    if kernel != "laplacian":  # |z - z'|₁ has a kink where coordinates agree
        assert gradcheck(entropy, (x,))
        assert gradgradcheck(entropy, (x,))


@pytest.mark.parametrize("order", [1.0, 1.2, 2.0, 3.0, 50.0, math.inf])
@pytest.mark.parametrize("kernel", ["gaussian", "cosine", "polynomial"])
def test_gradients_at_duplicate_rows(kernel: str, order: float) -> None:
    """Zero eigenvalues that may rise, one direction for each copy; from order 2 the second derivative exists too."""
    block = points(2, 3, seed=14)
    x = torch.cat([block, block]).requires_grad_()
    weights = double([0.3, 0.3, 0.2, 0.2]).requires_grad_()

    def entropy(x: Tensor, weights: Tensor) -> Tensor:
        return cv.entropy(x, kernel=KERNELS[kernel], order=order, weights=weights)

    assert gradcheck(entropy, (x, weights), atol=1e-4)
    if order >= 2:
        assert gradgradcheck(entropy, (x, weights), atol=1e-4)


@pytest.mark.parametrize("order", [0.0, 0.25, 1.0, 1.2, 2.0, math.inf])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "cosine", "polynomial"])
@pytest.mark.parametrize("n", [1, 5])
def test_all_points_equal(n: int, kernel: str, order: float) -> None:
    for dtype in (torch.float64, torch.float16):
        x = torch.tensor([[0.3, -1.7]], dtype=dtype).repeat(n, 1).requires_grad_()
        for name in FUNCTIONS:
            value = call(name, x, x, kernel, order)
            expected = 0.0 if name in ("entropy", "conditional_entropy", "mutual_information") else 1.0
            assert float(value.detach()) == pytest.approx(expected, abs=1e-6 if dtype != torch.float64 else 1e-13)
            (gradient,) = torch.autograd.grad(value, x)
            assert float(gradient.abs().max()) < 1e-5


def test_three_of_four_points_equal() -> None:
    x = double([[1, 1], [1, 1], [1, 1], [4, 5]]).requires_grad_()
    result = cv.entropy(x, details=True)
    assert result.bandwidths == (5.0,)
    assert float(result.value.detach()) == pytest.approx(
        entropy_by_numpy(gram_by_rows("gaussian", x.detach().numpy() * 1.3 / 5, x.detach().numpy() * 1.3 / 5), 1.0)
    )
    assert bool(torch.isfinite(torch.autograd.grad(result.value, x)[0]).all())


def test_data_far_from_the_origin_in_float32() -> None:
    x = (100 + 1e-3 * points(60, 5, seed=15)).float()
    for order in (0.5, 1.0, 2.0, math.inf):
        low, high = cv.entropy(x, order=order), cv.entropy(x.double() - 100, order=order)
        assert float(low) == pytest.approx(float(high), rel=1e-6)


@pytest.mark.parametrize(("n", "orders"), [(2000, [0.25]), (400, [0.0, 0.5, 1.0, 1.2, 2.0, 50.0, math.inf])])
def test_low_rank_gram_matrix_in_float32(n: int, orders: list[float]) -> None:
    """Rank 32 among many points: about half of the computed null eigenvalues are negative."""
    x = points(n, 32, seed=16)
    u = (x / x.norm(dim=-1, keepdim=True)).float()
    for order in orders:
        value = cv.entropy_from_gram(u @ u.T, order=order)
        assert float(value) == pytest.approx(float(cv.entropy(u.double(), kernel="cosine", order=order)), rel=2e-5)


def test_ten_modes_in_many_dimensions_score_ten() -> None:
    modes = torch.linalg.qr(points(8000, 10, seed=17))[0].T.float()
    x = modes.repeat(20, 1)
    for order in (0.0, 0.25, 0.5, 1.0, 2.0, math.inf):
        assert float(cv.vendi(x, kernel="cosine", order=order)) == pytest.approx(10, rel=2e-5)
        assert float(cv.entropy_from_gram(x @ x.T, order=order).exp()) == pytest.approx(10, rel=2e-5)


def test_identity_of_fifty_scores_fifty() -> None:
    for order in ORDERS:
        assert float(cv.entropy_from_gram(torch.eye(50), order=order).exp()) == pytest.approx(50, rel=1e-6)


def test_the_order_is_heard_and_nothing_is_rounded() -> None:
    x, y = points(8, 2, seed=18), points(8, 2, seed=19)
    for name in FUNCTIONS:
        values = [float(call(name, x, y, "gaussian", order)) for order in (0.5, 1.0, 1.5, 2.0, 3.0)]
        assert len(set(values)) == (1 if name in WITHOUT_ORDER else 5)
        assert all(value != round(value, 4) for value in values)
    assert float(cv.rke(x)) == pytest.approx(float(cv.vendi(x, order=2)), rel=1e-14)
    assert float(cv.conditional_rke(x, y)) == pytest.approx(float(cv.conditional_vendi(x, y, order=2)), rel=1e-14)


@every_function
def test_details(name: str) -> None:
    x, y = points(30, 3, seed=20).requires_grad_(), points(30, 2, seed=21)
    sides = (x.detach(), y)[: 1 if name in ONE_SIDED else 2]
    for order in (1.0, 2.0):
        result = call(name, x, y, "gaussian", order, details=True)
        assert isinstance(result, cv.EntropyResult)
        plain = call(name, x.detach(), y, "gaussian", order)
        torch.testing.assert_close(result.value.detach(), plain, rtol=1e-13, atol=0)
        assert result.value.requires_grad
        assert float(result.lower) == float(result.value.detach()) == float(result.upper)
        assert float(result.standard_error) == 0
        assert result.bandwidths == pytest.approx([median_by_numpy(side.numpy()) for side in sides], rel=1e-12)
        assert (result.method, result.n, result.seed) == ("exact", 30, None)
        assert result.cost > 0
        assert call(name, x, y, "cosine", order, details=True).bandwidths == (None,) * len(sides)


def test_details_of_batches_and_of_fixed_bandwidths() -> None:
    x = points(6, 2, 22, 3)
    (bandwidth,) = cv.entropy(x, details=True).bandwidths
    assert isinstance(bandwidth, Tensor)
    assert bandwidth.tolist() == pytest.approx([median_by_numpy(element.numpy()) for element in x], rel=1e-12)
    assert cv.entropy(x, kernel=cv.Gaussian(0.7), details=True).bandwidths == (0.7,)


def test_the_seed_is_told_only_where_one_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("condvne.core.entropy.MEDIAN_ROWS", 20)
    monkeypatch.setattr(kernel_module, "MEDIAN_ROWS", 20)
    x = points(40, 2, seed=23)
    assert cv.entropy(x, details=True).seed == kernel_module.MEDIAN_SEED
    result = cv.entropy(x, generator=torch.Generator().manual_seed(11), details=True)
    assert result.seed == 11
    again = cv.entropy(x, generator=torch.Generator().manual_seed(11))
    assert float(again) == float(result.value) != float(cv.entropy(x))
    for kernel in (cv.Gaussian(1.0), cv.Cosine(), cv.Delta()):
        assert cv.entropy(x, kernel=kernel, details=True).seed is None
    assert cv.entropy(x[:20], details=True).seed is None


def test_global_state_is_left_alone() -> None:
    x = points(2100, 2, seed=24)
    random, enabled = torch.random.get_rng_state(), torch.is_grad_enabled()
    copy = x.clone()
    cv.rke(x)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert torch.is_grad_enabled() == enabled
    assert torch.equal(x, copy)


def test_inputs_are_never_written_to() -> None:
    x, y, weights = points(6, 2, seed=25), points(6, 2, seed=26), random_weights(6, seed=27)
    copies = [t.clone() for t in (x, y, weights)]
    for kernel in KERNELS.values():
        for name in FUNCTIONS:
            for order in (1.0, 2.0):
                call(name, x, y, kernel, order, weights=weights)
    K = cv.Gaussian(1.0).gram(x)
    K_copy = K.clone()
    cv.entropy_from_gram(K)
    for now, before in zip((x, y, weights, K), (*copies, K_copy), strict=True):
        assert torch.equal(now, before)


def test_works_on_inference_tensors_and_without_gradients() -> None:
    with torch.inference_mode():
        x = points(6, 2, seed=28)
        inside = float(cv.conditional_vendi(x, x))
    with torch.no_grad():
        assert float(cv.conditional_vendi(x, x)) == inside
    assert float(cv.conditional_vendi(x.clone(), x.clone())) == inside


def test_fitted_kernels_carry_one_bandwidth_to_every_group() -> None:
    reference, group = points(10, 2, seed=29), 3 * points(10, 2, seed=30)
    fitted = cv.Gaussian(multiplier=0.5).fit(reference)
    sigma = 0.5 * median_by_numpy(reference.numpy())
    assert float(cv.vendi(group, kernel=fitted)) == pytest.approx(float(cv.vendi(group, kernel=cv.Gaussian(sigma))))
    assert cv.entropy(group, kernel=fitted, details=True).bandwidths == (fitted.bandwidth,)


def test_signatures_are_the_published_ones() -> None:
    common = ["order", "weights", "method", "generator", "details"]
    for name, function in (ONE_SIDED | TWO_SIDED).items():
        parameters = list(inspect.signature(function).parameters)
        sides = ["x", "kernel"] if name in ONE_SIDED else ["x", "y", "kernel_x", "kernel_y"]
        rest = common[1:] if name in WITHOUT_ORDER else common
        assert parameters == sides + rest
    assert list(inspect.signature(cv.entropy_from_gram).parameters) == ["K", "order", "weights"]
