"""Entropies of sketches: they converge to the exact ones, and what they say of their own error is true."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core import sketched
from condvne.core.concentration import entropy_range
from condvne.core.featuremaps import SketchMethod
from condvne.core.sketched import (
    sketched_conditional_entropy,
    sketched_covariances,
    sketched_entropy,
    sketched_terms,
)
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy, spectrum, spectrum_entropy
from tests.references import points, random_weights

Pair = tuple[cv.Kernel, cv.Kernel]


def clustered(n: int, d: int = 8, clusters: int = 12) -> tuple[Tensor, Tensor]:
    """Conditions in clusters, and outputs near one of three centres that belong to the condition's cluster."""
    generator = torch.Generator().manual_seed(5)
    centres = 2 * points(clusters, d, 1)
    of = torch.randint(clusters, (n,), generator=generator)
    to = (of + torch.randint(3, (n,), generator=generator)) % clusters
    return centres[of] + 0.4 * points(n, d, 2), centres.flip(0)[to] + 0.5 * points(n, d, 3)


def median_kernels(x: Tensor, y: Tensor) -> Pair:
    return cv.Gaussian().fit(x), cv.Gaussian().fit(y)


def cases(x: Tensor, y: Tensor) -> list[tuple[Pair, SketchMethod]]:
    gaussian = median_kernels(x, y)
    return [
        (gaussian, "fourier"),
        (gaussian, "orthogonal"),
        ((gaussian[0], cv.Laplacian().fit(y)), "fourier"),
        ((cv.Cosine(), cv.Cosine()), "dense"),
        ((cv.Cosine(), cv.Cosine()), "tensor"),
        ((cv.Cosine(), cv.Cosine()), "kronecker"),
        ((gaussian[0], cv.Cosine()), "mixed"),
    ]


def test_the_bias_of_a_sketch_falls_as_one_over_its_size_and_extrapolation_removes_most_of_it() -> None:
    x, y = clustered(512)
    kernels = median_kernels(x, y)
    exact = float(cv.conditional_entropy(x, y, kernel_x=kernels[0], kernel_y=kernels[1]))
    plain: dict[int, float] = {}
    for r in (128, 256, 512, 1024):
        entropies = []
        for seed in range(6):
            sketch = JointSketch.draw(kernels, (8, 8), r, seed, dtype=torch.float64)
            sums = sketched_covariances(sketch, ((0, 1), (0,)), (x, y))
            entropies.append(float(matrix_entropy(sums[(0, 1)]) - matrix_entropy(sums[(0,)])))
        plain[r] = sum(entropies) / 6 - exact
    assert all(bias < 0 for bias in plain.values())
    slope = math.log(plain[1024] / plain[256]) / math.log(4)
    assert -1.15 < slope < -0.75
    for r in (256, 512, 1024):
        assert abs(2 * plain[r] - plain[r // 2]) < 0.6 * abs(plain[r])
    assert abs(2 * plain[1024] - plain[512]) < 0.35 * abs(plain[1024])
    found = [sketched_conditional_entropy(x, y, kernels, num_features=512, seed=s) for s in range(6)]
    assert sum(float(f.plain) for f in found) / 6 - exact == pytest.approx(plain[512], abs=1e-4)
    assert abs(sum(float(f.value) for f in found) / 6 - exact) < 0.5 * abs(plain[512])


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, math.inf])
def test_stated_errors_cover_the_exact_value(order: float) -> None:
    x, y = clustered(400)
    covered = trials = 0
    for kernels, method in cases(x, y):
        exact = float(cv.conditional_entropy(x, y, kernel_x=kernels[0], kernel_y=kernels[1], order=order))
        for seed in range(10):
            found = sketched_conditional_entropy(x, y, kernels, num_features=256, order=order, seed=seed, method=method)
            trials += 1
            covered += abs(float(found.value) - exact) <= 2 * float(found.standard_error)
            assert float(found.lower) <= exact <= float(found.upper)
            assert float(found.standard_error) < 1.0
    assert covered >= 0.93 * trials, f"{covered} of {trials}"


def test_the_spread_over_draws_is_estimated_from_one_draw() -> None:
    x, y = clustered(300)
    kernels = median_kernels(x, y)
    found = [sketched_conditional_entropy(x, y, kernels, num_features=256, order=2.0, seed=s) for s in range(40)]
    spread = float(torch.stack([f.value for f in found]).std())
    within = [math.sqrt(float(f.standard_error) ** 2 - float(f.value - f.plain) ** 2) for f in found]
    assert sum(within) / 40 == pytest.approx(spread, rel=0.3)


def test_a_sketched_joint_with_an_exact_marginal_is_far_more_biased() -> None:
    # With sharp kernels a sketch of 200 features is far from its limit. Biases of the same sign cancel in part, and
    # extrapolation removes most of what is left.
    x, y = clustered(500)
    kernels: Pair = (cv.Gaussian(multiplier=0.4).fit(x), cv.Gaussian(multiplier=0.4).fit(y))
    exact = float(cv.conditional_vendi(x, y, kernel_x=kernels[0], kernel_y=kernels[1]))
    of_x = float(cv.entropy(x, kernel=kernels[0]))
    ours, matched, mixed = [], [], []
    for seed in range(6):
        found = sketched_conditional_entropy(x, y, kernels, num_features=200, seed=seed)
        joint = float(found.plain + sketched_entropy(x, kernels[0], num_features=200, seed=seed).plain)
        ours.append(math.exp(float(found.value)) / exact - 1)
        matched.append(math.exp(float(found.plain)) / exact - 1)
        mixed.append(math.exp(joint - of_x) / exact - 1)
    bias = {name: sum(v) / len(v) for name, v in (("ours", ours), ("matched", matched), ("mixed", mixed))}
    assert bias["mixed"] < -0.3
    assert abs(bias["matched"]) < 0.9 * abs(bias["mixed"])
    assert abs(bias["ours"]) < 0.45 * abs(bias["mixed"])


def test_precise_features_and_many_of_them_reach_the_exact_value_by_every_combination() -> None:
    x, y = clustered(500)
    kernels = median_kernels(x, y)
    w = random_weights(500, 4)
    mutual = ((1, (0,)), (1, (1,)), (-1, (0, 1)))
    found = sketched_terms(mutual, (x, y), kernels, 1000, weights=w, dtype=torch.float64)
    exact = float(cv.mutual_information(x, y, kernel_x=kernels[0], kernel_y=kernels[1], weights=w))
    assert abs(float(found.value) - exact) < min(2 * float(found.standard_error), 0.1)
    alone = sketched_entropy(y, kernels[1], num_features=1000, weights=w)
    assert abs(float(alone.value) - float(cv.entropy(y, kernel=kernels[1], weights=w))) < 0.05


@pytest.mark.parametrize("method", ["fourier", "tensor"])
def test_gradients_are_those_of_differences(method: SketchMethod) -> None:
    x, y = points(12, 3, 1).requires_grad_(), points(12, 2, 2).requires_grad_()
    w = random_weights(12, 3).requires_grad_()
    kernels: Pair = (cv.Gaussian(1.5), cv.Gaussian(1.0)) if method == "fourier" else (cv.Cosine(), cv.Cosine())

    def value(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return sketched_conditional_entropy(
            x, y, kernels, num_features=16, weights=w / w.sum(), method=method, dtype=torch.float64
        ).value

    assert torch.autograd.gradcheck(value, (x, y, w), atol=1e-6)
    found = sketched_conditional_entropy(x, y, kernels, num_features=16, method=method)
    assert found.value.requires_grad
    assert not any(getattr(found, f).requires_grad for f in ("plain", "standard_error", "lower", "upper"))


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clustered(100)
    w = random_weights(100, 1)
    sketch = JointSketch.draw(median_kernels(x, y), (8, 8), 32, dtype=torch.float64)
    whole = sketched_covariances(sketch, ((0, 1), (0,)), (x, y), w)
    monkeypatch.setattr(sketched, "BLOCK_ENTRIES", 32 * 7)
    assert len(list(sketched._spans(100, 32, 1))) == 15
    blocks = sketched_covariances(sketch, ((0, 1), (0,)), (x, y), w)
    again = sketched_covariances(sketch, ((0, 1), (0,)), (x.requires_grad_(), y), w)
    for sides in ((0, 1), (0,)):
        torch.testing.assert_close(blocks[sides], whole[sides], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(again[sides].detach(), whole[sides], rtol=1e-12, atol=1e-15)


def test_leading_dimensions_are_problems_of_their_own() -> None:
    x, y = points(40, 3, 1, 2), points(40, 3, 2)
    kernels: Pair = (cv.Gaussian(1.0), cv.Cosine())
    both = sketched_conditional_entropy(x, y, kernels, num_features=32, dtype=torch.float64)
    assert both.value.shape == both.standard_error.shape == both.lower.shape == (2,)
    origin = x.flatten(0, 1).mean(0)
    sketch = JointSketch.draw(kernels, (3, 3), 32, origins=(origin, None), dtype=torch.float64)
    for i in range(2):
        sums = sketched_covariances(sketch, ((0, 1), (0,)), (x[i], y))
        alone = sketched.estimate(sketch, sketched.CONDITIONAL, sums, 1.0, 40)
        assert float(both.value[i]) == pytest.approx(float(alone.value), abs=1e-9)


@pytest.mark.parametrize(
    ("kernels", "method"), [(("gaussian", "gaussian"), "fourier"), (("cosine", "cosine"), "tensor")]
)
def test_equal_pairs_count_once(kernels: tuple[str, str], method: SketchMethod) -> None:
    x = points(1, 4, 1).expand(50, 4)
    found = sketched_conditional_entropy(x, x, kernels, num_features=32, method=method)
    for field in (found.value, found.plain, found.standard_error, found.lower):
        assert float(field) == pytest.approx(0.0, abs=1e-5)


def test_more_features_than_the_exact_route_needs_are_refused() -> None:
    x = points(20, 3, 1)
    assert sketched_entropy(x, num_features=40).num_features == 40
    with pytest.raises(cv.InputError, match="num_features is 44 for 20 points: beyond 20 the exact matrix is smaller"):
        sketched_entropy(x, num_features=44)
    with pytest.raises(cv.InputError, match="positive multiple of 4"):
        sketched_entropy(x, num_features=0)
    with pytest.raises(cv.InputError, match="x has 20 rows and y has 19"):
        sketched_conditional_entropy(x, x[1:], num_features=8)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_ranges_contain_every_spectrum_within_the_distance(order: float) -> None:
    n = 60
    generator = torch.Generator().manual_seed(1)
    for trial in range(60):
        known = torch.rand(n, generator=generator, dtype=torch.float64).pow(1 + trial % 7 * 4)
        other = torch.rand(n, generator=generator, dtype=torch.float64).pow(1 + trial % 5 * 6)
        known, other = (v.sort().values / v.sum() for v in (known, other))
        mixed = (1 - 0.01 * trial / 60) * known + 0.01 * trial / 60 * other
        distance = float((known - mixed).norm())
        least, largest = entropy_range(known, order, n, distance)
        H = float(spectrum_entropy(mixed, order))
        assert float(least) - 1e-9 <= H <= float(largest) + 1e-9
        assert float(least) >= 0
        assert float(largest) <= math.log(n) + 1e-12
    exactly = entropy_range(known, order, n, 0.0)
    if order >= 2:
        assert float(exactly[0]) == pytest.approx(float(exactly[1]), abs=1e-9) == float(spectrum_entropy(known, order))


def test_the_range_of_order_two_is_of_use_and_unbounded_sketches_say_nothing() -> None:
    x, _ = clustered(2000)
    kernel = cv.Gaussian(multiplier=1.5).fit(x)
    found = sketched_entropy(x, kernel, num_features=1024, order=2.0)
    exact = float(cv.entropy(x, kernel=kernel, order=2.0))
    assert float(found.lower) <= exact <= float(found.upper)
    assert float(found.upper - found.lower) < 1.0
    nothing = sketched_entropy(x[:500], kernel, num_features=256, order=2.0, method="orthogonal")
    assert float(nothing.lower) == 0.0
    assert float(nothing.upper) == pytest.approx(math.log(500))


def test_spectra_of_sketch_and_kernel_agree_within_the_deviation() -> None:
    x, y = clustered(300)
    kernels = median_kernels(x, y)
    exact = spectrum(kernels[0].gram(x) * kernels[1].gram(y) / 300).flip(0)[:128]
    for seed in range(10):
        sketch = JointSketch.draw(kernels, (8, 8), 128, seed, dtype=torch.float64)
        found = spectrum(sketched_covariances(sketch, ((0, 1),), (x, y))[(0, 1)]).flip(0)
        assert float((found - exact).norm()) <= sketch.deviation(0.05)
