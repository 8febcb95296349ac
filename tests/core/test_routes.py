"""The choice of route, and every route's answer through the public functions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.routes import METHODS, Method, exact_limit


@pytest.fixture(scope="module")
def pair() -> tuple[Tensor, Tensor]:
    """Clustered points, the outputs partly decided by the conditions: exp H(Y|X) is about 5."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 8, generator=generator)
    chosen, free = torch.randint(40, (2, 900), generator=generator)
    x = centres[chosen] + 0.2 * torch.randn(900, 8, generator=generator)
    y = centres[free % 8] + 0.2 * torch.randn(900, 8, generator=generator)
    return x, y


@pytest.mark.parametrize("function", ["conditional_entropy", "mutual_information"])
@pytest.mark.parametrize("order", [1.0, 1.5])
def test_lanczos_agrees_with_the_exact_route_within_its_own_error(
    pair: tuple[Tensor, Tensor], function: str, order: float
) -> None:
    call = getattr(cv, function)
    exact = float(call(*pair, order=order, method="exact"))
    result = call(*pair, order=order, method="lanczos", details=True)
    assert result.method == "lanczos"
    assert result.cost > 0
    assert float(result.standard_error) > 0
    margin = 3 * float(result.standard_error)
    assert float(result.lower) - margin <= exact <= float(result.upper) + margin
    assert float(result.value) == pytest.approx(exact, abs=0.02)


def test_one_sketch_serves_every_term(pair: tuple[Tensor, Tensor]) -> None:
    exact = float(cv.conditional_entropy(*pair, order=2.0))
    result = cv.conditional_entropy(*pair, order=2.0, method="sketch", details=True)
    assert result.method == "sketch"
    assert float(result.lower) <= exact <= float(result.upper)
    assert abs(float(result.value) - exact) <= 3 * float(result.standard_error)


def test_a_generator_seeds_probes_and_sketches(pair: tuple[Tensor, Tensor]) -> None:
    for method in ("lanczos", "sketch"):
        values = [
            float(cv.conditional_vendi(*pair, method=method, generator=torch.Generator().manual_seed(seed)))
            for seed in (1, 1, 2)
        ]
        assert values[0] == values[1] != values[2]


def test_scores_carry_their_errors_over_by_the_derivative(pair: tuple[Tensor, Tensor]) -> None:
    H = cv.conditional_entropy(*pair, method="lanczos", details=True)
    score = cv.conditional_vendi(*pair, method="lanczos", details=True)
    assert float(score.value) == pytest.approx(math.exp(float(H.value)), rel=1e-5)
    assert float(score.standard_error) == pytest.approx(float(H.standard_error) * float(score.value), rel=1e-4)
    assert float(score.lower) == pytest.approx(math.exp(float(H.lower)), rel=1e-5)


def test_every_route_is_differentiable(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    gradients = {}
    methods: tuple[Method, ...] = ("exact", "lanczos", "sketch")
    for method in methods:
        moving = y[:500].clone().requires_grad_()
        kernel = cv.Gaussian(2.0)
        H = cv.conditional_entropy(x[:500], moving, kernel_x=kernel, kernel_y=kernel, method=method)
        gradients[method] = torch.autograd.grad(H, moving)[0].flatten()
    for method in ("lanczos", "sketch"):
        assert float(torch.cosine_similarity(gradients["exact"], gradients[method], dim=0)) > 0.9


def test_auto_is_exact_for_few_points_batches_and_order_two(pair: tuple[Tensor, Tensor]) -> None:
    limit = exact_limit(torch.device("cpu"))
    assert limit >= 2048
    assert limit & (limit - 1) == 0
    assert cv.conditional_entropy(*pair, details=True).method == "exact"
    many = torch.randn(limit + 1, 1, generator=torch.Generator().manual_seed(0))
    assert cv.entropy(many, order=2.0, details=True).method == "exact"
    assert cv.entropy(many, kernel="cosine", details=True).method == "exact"  # a 1 × 1 covariance
    assert cv.entropy(many, kernel=cv.Gaussian(1.0), details=True).method == "lanczos"


def test_tiny_sets_are_exact_by_every_method() -> None:
    x = torch.eye(3)
    for method in METHODS:
        assert float(cv.vendi(x, kernel="cosine", method=method)) == pytest.approx(3.0)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(cv.InputError, match="exact, lanczos, sketch"):
        cv.vendi(torch.eye(3), method="guess")  # type: ignore[call-overload]
