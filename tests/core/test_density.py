"""Two routes to one spectrum, order 2 by tiles, and weights down to zero."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import condvne as cv
from condvne.core import density
from condvne.core.density import DensityState, weighted_gram
from condvne.core.routes import state_entropy
from condvne.core.spectral import matrix_entropy, spectrum
from tests.references import (
    KERNELS,
    SMOOTH_KERNELS,
    SMOOTH_ORDERS,
    double,
    entropy_by_numpy,
    gram_by_rows,
    points,
    random_weights,
)

EXPLICIT: dict[str, tuple[cv.Kernel, ...]] = {
    "cosine": (cv.Cosine(),),
    "polynomial": (cv.Polynomial(degree=2),),
    "cosine × cosine": (cv.Cosine(), cv.Cosine()),
    "polynomial × cosine": (cv.Polynomial(degree=2), cv.Cosine()),
    "cosine × delta": (cv.Cosine(), cv.Delta()),
}


def explicit_state(name: str, *leaves: Tensor) -> DensityState:
    kernels = EXPLICIT[name]
    return DensityState(kernels, tuple(leaves[: len(kernels)]), leaves[-1])


def explicit_leaves(name: str, n: int = 20) -> tuple[Tensor, ...]:
    """Features of each side and weights; the product feature space is smaller than n."""
    sides = [
        points(n, 2, seed).requires_grad_()
        if not isinstance(kernel, cv.Delta)
        else double(torch.arange(n) % 3)[:, None]
        for seed, kernel in enumerate(EXPLICIT[name])
    ]
    return (*sides, random_weights(n, seed=7).requires_grad_())


def by_gram(state: DensityState, order: float) -> Tensor:
    return matrix_entropy(state.density_matrix(), order)


def by_covariance(state: DensityState, order: float) -> Tensor:
    return matrix_entropy(state.covariance(), order)


@pytest.mark.parametrize("order", SMOOTH_ORDERS)
@pytest.mark.parametrize("name", EXPLICIT)
def test_gram_and_covariance_agree_in_value_and_gradient(name: str, order: float) -> None:
    leaves = explicit_leaves(name, n=40)
    state = explicit_state(name, *leaves)
    assert state.prefers_covariance
    assert state.dimension == state.covariance().shape[-1] < 40
    differentiable = [leaf for leaf in leaves if leaf.requires_grad]
    results = []
    for route in (by_gram, by_covariance):
        value = route(state, order)
        results.append((value.detach(), *torch.autograd.grad(value, differentiable)))
    # At orders below one the floor makes f' of null directions large, and rounding is multiplied by it.
    tolerance = 1e-8 if order >= 0.5 else 1e-4
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-10, atol=1e-12)
    for of_gram, of_covariance in zip(results[0][1:], results[1][1:], strict=True):
        torch.testing.assert_close(of_gram, of_covariance, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("route", [by_gram, by_covariance])
@pytest.mark.parametrize("order", [1.0, 1.2, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("name", ["cosine", "cosine × cosine"])
def test_derivatives_through_either_route(
    name: str, order: float, route: Callable[[DensityState, float], Tensor]
) -> None:
    leaves = explicit_leaves(name, n=5)

    def entropy(*leaves: Tensor) -> Tensor:
        return route(explicit_state(name, *leaves), order)

    assert gradcheck(entropy, leaves)
    assert gradgradcheck(entropy, leaves, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("name", KERNELS)
def test_state_against_numpy(name: str, order: float) -> None:
    x, y, weights = points(8, 2, seed=0), points(8, 2, seed=1), random_weights(8, seed=2)
    state = DensityState((KERNELS[name], KERNELS["gaussian"]), (x, y), weights)
    K_X, K_Y = gram_by_rows(name, x.numpy(), x.numpy()), gram_by_rows("gaussian", y.numpy(), y.numpy())
    expected = entropy_by_numpy(K_X * K_Y, order, weights.numpy())
    assert float(state_entropy(state, order)) == pytest.approx(expected, rel=1e-10)
    expected = entropy_by_numpy(K_X, order, weights.numpy())
    assert float(state_entropy(state.marginal((0,)), order)) == pytest.approx(expected, rel=1e-10)


def two_sided(name: str, weights: Tensor | None, *batch: int) -> DensityState:
    return DensityState((KERNELS[name], KERNELS["gaussian"]), (points(11, 2, 3, *batch), points(11, 3, 4)), weights)


@pytest.mark.parametrize("tile", [1, 9, 50, 121, 2**22])
@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
@pytest.mark.parametrize("name", KERNELS)
def test_purity_by_tiles_is_that_of_the_matrix(
    name: str, weighted: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(density, "TILE_ENTRIES", tile)
    weights = random_weights(11, seed=5) if weighted else None
    for batch in ((), (2, 3)):
        state = two_sided(name, weights, *batch)
        eigenvalues = spectrum(state.density_matrix())
        torch.testing.assert_close(state.purity(), eigenvalues.square().sum(-1), rtol=1e-12, atol=1e-15)


def test_purity_of_batched_weights_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "TILE_ENTRIES", 16)
    weights = torch.stack([random_weights(11, seed) for seed in range(3)])
    together = two_sided("laplacian", weights).purity()
    each = torch.stack([two_sided("laplacian", w).purity() for w in weights])
    torch.testing.assert_close(together, each, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", SMOOTH_KERNELS)
def test_order_two_derivatives_over_several_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = points(5, 2, seed=6).requires_grad_(), points(5, 2, seed=7).requires_grad_()
    weights = random_weights(5, seed=8).requires_grad_()

    def conditional(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        kernel = KERNELS[name]
        return cv.conditional_entropy(x, y, kernel_x=kernel, kernel_y="polynomial", order=2, weights=weights)

    whole = torch.autograd.grad(conditional(x, y, weights), (x, y, weights))
    monkeypatch.setattr(density, "TILE_ENTRIES", 9)
    tiled = torch.autograd.grad(conditional(x, y, weights), (x, y, weights))
    for a, b in zip(tiled, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    assert gradcheck(conditional, (x, y, weights), fast_mode=True)
    assert gradgradcheck(conditional, (x, y, weights), fast_mode=True)


def test_order_two_gradient_is_of_the_square_not_the_kernel() -> None:
    """∂H_2/∂x_i = -(4/n²) Σ_j k_ij ∂k_ij/∂x_i / tr A²: by hand, for a Gaussian kernel."""
    x = points(9, 3, seed=9).requires_grad_()
    sigma = 1.3
    (gradient,) = torch.autograd.grad(cv.entropy(x, kernel=cv.Gaussian(sigma), order=2), x)
    rows = x.detach()
    differences = rows[:, None] - rows[None]
    K = torch.exp(-differences.square().sum(-1) / (2 * sigma**2))
    by_hand = 4 * (K.square()[..., None] * differences).sum(1) / sigma**2 / K.square().sum()
    torch.testing.assert_close(gradient, by_hand, rtol=1e-10, atol=1e-12)


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of all results alive at once, at most, while the mode is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                storage = result.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}  # type: ignore[no-untyped-call]
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return results


def peak_bytes(task: Callable[[], Any]) -> int:
    held = Held()
    with held:
        task()
    return held.peak


@pytest.mark.parametrize("differentiable", [False, True], ids=["value", "gradient"])
def test_order_two_never_holds_a_whole_matrix(differentiable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "TILE_ENTRIES", 2**16)
    n = 2500
    x, y = points(n, 4, seed=10), points(n, 4, seed=11).requires_grad_(differentiable)

    def task() -> None:
        value = cv.conditional_rke(x, y, kernel_x=cv.Gaussian(1.0), kernel_y=cv.Gaussian(1.0))
        if differentiable:
            torch.autograd.grad(value, y)

    matrix = 8 * n * n
    assert matrix / 200 < peak_bytes(task) < matrix / 4
    dense = DensityState((cv.Gaussian(1.0),), (x,))
    assert peak_bytes(lambda: dense.density_matrix().square().sum()) >= matrix


def test_covariance_is_one_weighted_sum() -> None:
    x, weights = points(30, 3, seed=12), random_weights(30, seed=13)
    u = x / x.norm(dim=-1, keepdim=True)
    expected = sum(w * torch.outer(row, row) for w, row in zip(weights, u, strict=True))
    torch.testing.assert_close(DensityState((cv.Cosine(),), (x,), weights).covariance(), expected)


def test_short_feature_maps_and_only_they_take_the_covariance() -> None:
    x = points(30, 3, seed=0)
    assert DensityState((cv.Cosine(),), (x,)).prefers_covariance
    assert DensityState((cv.Cosine(), cv.Cosine()), (x, x)).matrix().shape == (9, 9)
    assert not DensityState((cv.Polynomial(),), (x,)).prefers_covariance  # 4³ > 30
    assert not DensityState((cv.Cosine(), cv.Gaussian(1.0)), (x, x)).prefers_covariance
    assert DensityState((cv.Cosine(), cv.Gaussian(1.0)), (x, x)).dimension is None
    assert DensityState((cv.Delta(),), (double(torch.arange(30) % 4)[:, None],)).matrix().shape == (4, 4)
    assert DensityState((cv.Cosine(),), (x,)).cost(1.0) < DensityState((cv.Gaussian(1.0),), (x,)).cost(1.0)
    assert DensityState((cv.Gaussian(1.0),), (x,)).cost(2.0) < DensityState((cv.Gaussian(1.0),), (x,)).cost(1.0)


@pytest.mark.parametrize("order", [1.0, 1.2, 2.0, 3.0])
@pytest.mark.parametrize("route", [by_gram, by_covariance])
def test_gradient_at_zero_weight(route: Callable[[DensityState, float], Tensor], order: float) -> None:
    """One-sided differences along the simplex, where the point lies in the span of the others."""
    x = points(6, 2, seed=14)
    weights = torch.cat([random_weights(5, seed=15), torch.zeros(1, dtype=torch.float64)]).requires_grad_()

    def entropy(weights: Tensor) -> Tensor:
        return route(DensityState((cv.Cosine(),), (x,), weights), order)

    (gradient,) = torch.autograd.grad(entropy(weights), weights)
    assert bool(torch.isfinite(gradient).all())
    towards = double([0, 0, 0, 0, 0, 1]) - weights.detach()
    step = 1e-6
    forward = [float(entropy(weights.detach() + k * step * towards)) for k in (0, 1, 2)]
    one_sided = (-3 * forward[0] + 4 * forward[1] - forward[2]) / (2 * step)
    assert float(gradient @ towards) == pytest.approx(one_sided, rel=1e-5, abs=1e-6)


def test_zero_weight_of_a_new_direction_has_a_finite_gradient() -> None:
    x = torch.eye(3, dtype=torch.float64)
    weights = double([0.5, 0.5, 0.0]).requires_grad_()
    for kernel in (cv.Cosine(), cv.Gaussian(0.5)):
        (gradient,) = torch.autograd.grad(cv.entropy(x, kernel=kernel, weights=weights), weights)
        assert bool(torch.isfinite(gradient).all())
        assert float(gradient[2]) > float(gradient[0])


def test_zero_weights_are_points_left_out() -> None:
    x, kept = points(7, 2, seed=16), [0, 2, 3, 6]
    weights = torch.zeros(7, dtype=torch.float64)
    weights[kept] = random_weights(4, seed=17)
    for kernel in KERNELS.values():
        for order in (0.0, 0.25, 1.0, 2.0, math.inf):
            whole = cv.entropy(x, kernel=kernel, order=order, weights=weights)
            part = cv.entropy(x[kept], kernel=kernel, order=order, weights=weights[kept])
            torch.testing.assert_close(whole, part, rtol=1e-10, atol=1e-12)


def test_weighted_gram() -> None:
    K, weights = double([[1, 0.5], [0.5, 1]]), double([0.64, 0.36])
    torch.testing.assert_close(weighted_gram(K, weights), double([[0.64, 0.24], [0.24, 0.36]]))
    torch.testing.assert_close(weighted_gram(K, None), K / 2)


@pytest.mark.parametrize(("n", "differentiable"), [(60_000, False), (40_000, True)])
def test_sizes_beyond_lapack_are_refused_before_anything_is_allocated(n: int, differentiable: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = torch.zeros(n, 1, requires_grad=differentiable)
    with pytest.raises(cv.InputError, match=rf"{n} points are too many .* use method='lanczos'"):
        cv.entropy(x, kernel=cv.Gaussian(1.0), method="exact")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB; the matrix would take 13 GB
