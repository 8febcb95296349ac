from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from condvne import Cosine, Delta, Gaussian, Kernel, Laplacian, Polynomial
from condvne.core.sketches import JointSketch
from condvne.errors import InputError
from condvne.tasks.guidance.objectives import (
    ExactObjective,
    SketchObjective,
    marginal_entropy,
)
from condvne.tasks.guidance.resolvents import (
    PartialFractions,
    UpdatedSpectrum,
    fractions_of,
    spectrum_of_sum,
)


def images(count: int, d: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Captions of four kinds and latent features around them, float64."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(4, (count,), generator=draw)
    x = torch.eye(4, dtype=torch.float64)[kinds]
    y = 2 * torch.randn(4, d, generator=draw, dtype=torch.float64)[kinds]
    return x, y + torch.randn(count, d, generator=draw, dtype=torch.float64)


def density(kernels: tuple[Kernel, Kernel], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    K_x, K_y = kernels[0].gram(x), kernels[1].gram(y)
    return K_x * K_y / len(x), K_x / len(x)


def plain_entropy(A: Tensor, order: float) -> Tensor:
    """By eigenvalues alone, which autograd differentiates stably; an independent form."""
    values = torch.linalg.eigvalsh(A)
    if order == 1.0:
        entropy: Tensor = -(values * torch.log(values.clamp(min=1e-12))).sum()
        return entropy
    return torch.log(values.clamp(min=1e-12).pow(order).sum()) / (1 - order)


KERNELS = [
    (Gaussian(1.0), Gaussian(2.0)),
    (Cosine(), Gaussian(1.5)),
    (Gaussian(0.7), Polynomial(3, 1.0, 1.0)),
    (Gaussian(1.0), Laplacian(4.0)),
]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("history", [0, 9])
def test_exact_routes_agree_with_autograd(kernels: tuple[Kernel, Kernel], order: float, history: int) -> None:
    x, y = images(history + 4)
    # where the joint matrix has null directions the floor of the logarithm decides: points, not copies
    objective = ExactObjective(x[:history], y[:history], x[history:], *kernels, order)
    found = objective.gradient(y[history:])
    current = y[history:].clone().requires_grad_()
    joint, marginal = density(kernels, x, torch.cat([y[:history], current]))
    expected = plain_entropy(joint, order) - plain_entropy(marginal, order)
    (gradient,) = torch.autograd.grad(plain_entropy(joint, order), current)
    tolerance = 1e-8 if order >= 1 else 1e-6  # λ^(-1/2) of the smallest eigenvalues loses digits in either form
    assert float((found.values - gradient).norm() / gradient.norm()) < tolerance
    if order >= 1:
        assert found.entropy == pytest.approx(float(expected.detach()), abs=1e-7)
    assert objective.entropy(y[history:]) == pytest.approx(found.entropy, abs=1e-12)


def test_the_gradient_is_that_of_the_conditional_entropy_by_differences() -> None:
    x, y = images(10)
    objective = ExactObjective(x[:6], y[:6], x[6:], Delta(), Gaussian(2.0))
    found, step = objective.gradient(y[6:]), 1e-5
    for i, j in ((0, 0), (2, 3), (3, 5)):
        moved = [y[6:].clone(), y[6:].clone()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        slope = (objective.entropy(moved[0]) - objective.entropy(moved[1])) / (2 * step)
        assert float(found.values[i, j]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def sketched(
    history: int, b: int, r: int, order: float, kernels: tuple[Kernel, Kernel]
) -> tuple[SketchObjective, Tensor]:
    x, y = images(history + b)
    sketch = JointSketch.draw(kernels, (4, 6), r, seed=1, dtype=torch.float64)
    z = sketch.features(x[:history], y[:history])
    values, basis = spectrum_of_sum(z.mT @ z)
    z_x = sketch.marginal(x)
    total = z_x[:history].mT @ z_x[:history]
    marginal = marginal_entropy(total, z_x[history:], history, order)
    return SketchObjective(sketch, values, basis, history, x[history:], marginal, order), y[history:]


@pytest.mark.parametrize("kernels", KERNELS[:2])
@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("history", [1, 20, 64, 400])
def test_the_sketch_route_is_the_exact_gradient_of_the_sketched_objective(
    kernels: tuple[Kernel, Kernel], order: float, history: int
) -> None:
    objective, y = sketched(history, 3, 64, order, kernels)
    found = objective.gradient(y)
    total = (objective.basis * objective.eigenvalues) @ objective.basis.mT
    current = y.clone().requires_grad_()
    z = objective.sketch.features(objective.x, current)
    joint = plain_entropy((total + z.mT @ z) / (history + 3), order)
    (gradient,) = torch.autograd.grad(joint, current)
    assert float((found.values - gradient).norm() / gradient.norm()) < 1e-3
    if order >= 1:
        assert found.entropy == pytest.approx(float(joint.detach()) - objective.marginal, abs=1e-4)
    assert objective.entropy(y) == pytest.approx(found.entropy, abs=1e-12)


def test_order_one_is_far_more_accurate_than_asked_for() -> None:
    d = torch.logspace(-11, -1, 200, dtype=torch.float64)
    Z = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 40
    scale = d.sum() + Z.square().sum()
    d, Z = d / scale, Z / scale.sqrt()
    entropy, gradient = UpdatedSpectrum(d, Z, 1.0).entropy_and_gradient()
    values, vectors = torch.linalg.eigh(torch.diag(d) + Z @ Z.mT)
    expected = -2 * (vectors * (values.log() + 1)) @ (vectors.mT @ Z)
    assert float((gradient - expected).norm() / expected.norm()) < 1e-5
    assert float(entropy) == pytest.approx(float(torch.special.entr(values).sum()), abs=1e-8)


def test_sketch_and_exact_route_point_the_same_way() -> None:
    kernels = (Gaussian(1.0), Gaussian(2.5))
    objective, y = sketched(60, 4, 1024, 1.0, kernels)
    x, whole = images(64)
    exact = ExactObjective(x[:60], whole[:60], x[60:], *kernels).gradient(y)
    found = objective.gradient(y)
    cosines = torch.nn.functional.cosine_similarity(found.values, exact.values, dim=1)
    assert float(cosines.min()) > 0.8
    assert found.entropy == pytest.approx(exact.entropy, rel=0.1)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.7, 3.0])
def test_partial_fractions_fit(order: float) -> None:
    f, derivative = fractions_of(order)
    x = torch.logspace(-11.5, 0, 777, dtype=torch.float64)
    exact = -x.log() - 1 if order == 1 else order * x ** (order - 1)
    assert float(((derivative(x) - exact) / exact.abs().clamp(min=1)).abs().max()) < 1e-5
    assert float((f(x) - (torch.special.entr(x) if order == 1 else x**order)).abs().max()) < 1e-6
    assert isinstance(f, PartialFractions)


@pytest.mark.parametrize("order", [0.0, 5.0, math.inf])
def test_orders_that_a_sketch_cannot_guide_are_refused(order: float) -> None:
    with pytest.raises(InputError, match="cannot be guided by a sketch"):
        fractions_of(order)


def test_identical_captions_and_identical_latents_give_finite_gradients() -> None:
    x, y = torch.ones(5, 4, dtype=torch.float64), torch.ones(5, 6, dtype=torch.float64)
    for order in (1.0, 2.0):
        found = ExactObjective(x[:2], y[:2], x[2:], Gaussian(), Gaussian(), order).gradient(y[2:])
        assert found.entropy == pytest.approx(0.0, abs=1e-9)
        assert bool((found.values == 0).all())


def test_the_per_step_bandwidth_is_that_of_history_and_current_images() -> None:
    x, y = images(12)
    whole = ExactObjective(x[:8], y[:8], x[8:], Delta(), Gaussian(None, 0.5)).entropy(y[8:])
    fixed = Gaussian(None, 0.5).fit(y)
    assert whole == pytest.approx(ExactObjective(x[:8], y[:8], x[8:], Delta(), fixed).entropy(y[8:]), abs=1e-12)
