"""Laws of the entropies, over kernels, orders, precisions and weights: one table of cases, drawn by hypothesis.

Order α entropies of density matrices are bounded, invariant under relabelling and merging of copies, and
non-increasing in α; the joint state of two kernels is separable, so it is majorised by its marginals.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import condvne as cv
from tests.references import (
    KERNELS,
    ORDERS,
    GaussianPair,
    double,
    gaussian_population,
    points,
    random_weights,
    renyi,
    table_of_counts,
)

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-5}
laws = settings(derandomize=True, deadline=None, max_examples=40)


@dataclass(frozen=True)
class Case:
    """Pairs, their weights, kernels and an order; features on a coarse grid so that copies occur."""

    x: Tensor
    y: Tensor
    kernel_x: cv.Kernel
    kernel_y: cv.Kernel
    order: float
    weights: Tensor | None

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.x.dtype]

    def marginal(self, side: str = "x", **changed: Any) -> float:
        options = {"kernel": getattr(self, f"kernel_{side}"), "order": self.order, "weights": self.weights} | changed
        return float(cv.entropy(options.pop("x", getattr(self, side)), **options))

    def conditional(self, **changed: Any) -> float:
        return float(cv.conditional_entropy(**self._options(changed)))

    def mutual_information(self, **changed: Any) -> float:
        return float(cv.mutual_information(**self._options(changed)))

    def joint(self, **changed: Any) -> float:
        given = self._options(changed)
        of_x = cv.entropy(given["x"], kernel=given["kernel_x"], order=given["order"], weights=given["weights"])
        return float(of_x) + self.conditional(**changed)

    def distribution(self) -> Tensor:
        return self.weights if self.weights is not None else torch.full((self.n,), 1 / self.n, dtype=torch.float64)

    def _options(self, changed: dict[str, Any]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | changed


@st.composite
def cases(draw: st.DrawFn, orders: tuple[float, ...] = ORDERS) -> Case:
    n, dx, dy = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    seed, grid = draw(st.integers(0, 10_000)), draw(st.sampled_from([1.0, 8.0]))

    def side(d: int, seed: int) -> Tensor:
        # Off the origin, which has no cosine.
        return ((grid * points(n, d, seed)).round() / grid + 0.0625).to(dtype)

    weights = draw(st.sampled_from(["none", "unequal", "some zero"]))
    w = None if weights == "none" else random_weights(n, seed + 2)
    if w is not None and weights == "some zero" and n > 1:
        w[draw(st.integers(0, n - 1))] = 0
        w = w / w.sum()
    names = st.sampled_from(list(KERNELS))
    kernels = (KERNELS[draw(names)], KERNELS[draw(names)])
    return Case(side(dx, seed), side(dy, seed + 1), *kernels, draw(st.sampled_from(orders)), w)


@given(cases())
@laws
def test_between_one_and_n(case: Case) -> None:
    for value in (case.marginal(), case.marginal("y"), case.joint()):
        assert -case.tolerance <= value <= math.log(case.n) + case.tolerance


@given(cases(), st.randoms(use_true_random=False))
@laws
def test_permutation(case: Case, random: Any) -> None:
    order = list(range(case.n))
    random.shuffle(order)
    moved = {"x": case.x[order], "y": case.y[order], "weights": None if case.weights is None else case.weights[order]}
    assert case.conditional(**moved) == pytest.approx(case.conditional(), abs=case.tolerance)
    assert case.mutual_information(**moved) == pytest.approx(case.mutual_information(), abs=case.tolerance)


@given(cases(), st.integers(0, 7), st.floats(0.0, 1.0))
@laws
def test_copies_share_their_weight(case: Case, index: int, share: float) -> None:
    """Splitting a point into two copies with parts of its weight changes nothing."""
    index %= case.n
    w = case.distribution()
    split = torch.cat([w, w[index : index + 1] * share])
    split[index] = w[index] * (1 - share)
    doubled = {side: torch.cat([getattr(case, side), getattr(case, side)[index : index + 1]]) for side in ("x", "y")}
    assert case.conditional(**doubled, weights=split) == pytest.approx(case.conditional(), abs=case.tolerance)
    assert case.joint(**doubled, weights=split) == pytest.approx(case.joint(), abs=case.tolerance)


@given(cases())
@laws
def test_repeating_the_set_changes_nothing(case: Case) -> None:
    repeated = {"x": case.x.repeat(3, 1), "y": case.y.repeat(3, 1)}
    weights = None if case.weights is None else case.weights.repeat(3) / 3
    assert case.joint(**repeated, weights=weights) == pytest.approx(case.joint(), abs=case.tolerance)


@given(cases())
@laws
def test_non_increasing_in_the_order(case: Case) -> None:
    for quantity in (case.marginal, case.joint):
        values = [quantity(order=order) for order in ORDERS]
        assert all(a >= b - case.tolerance for a, b in itertools.pairwise(values))


@given(cases())
@laws
def test_conditional_entropy_is_never_negative(case: Case) -> None:
    assert case.conditional() >= -case.tolerance
    assert case.joint() >= case.marginal("y") - case.tolerance


@given(cases())
@laws
def test_knowing_the_condition_lowers_order_one(case: Case) -> None:
    assert case.conditional(order=1.0) <= case.marginal("y", order=1.0) + case.tolerance
    assert case.mutual_information(order=1.0) >= -case.tolerance


def test_mutual_information_of_other_orders_may_be_negative_and_is_not_clamped() -> None:
    table = np.array([[8, 1], [1, 0]])
    x, y, counts = table_of_counts(table)
    p = counts / counts.sum()
    for order in (0.0, 2.0, 3.0):
        expected = 2 * renyi([0.9, 0.1], order) - renyi(p, order)
        value = cv.mutual_information(x, y, kernel_x="delta", kernel_y="delta", order=order, weights=double(p))
        assert float(value) == pytest.approx(expected, rel=1e-10)
    assert float(cv.mutual_information(x, y, kernel_x="delta", kernel_y="delta", order=2.0, weights=double(p))) < -0.001


@given(cases())
@laws
def test_mutual_information_is_symmetric_and_made_of_entropies(case: Case) -> None:
    swapped = {"x": case.y, "y": case.x, "kernel_x": case.kernel_y, "kernel_y": case.kernel_x}
    assert case.mutual_information(**swapped) == pytest.approx(case.mutual_information(), abs=2 * case.tolerance)
    parts = case.marginal() + case.marginal("y") - case.joint()
    assert case.mutual_information() == pytest.approx(parts, abs=3 * case.tolerance)


@given(cases())
@laws
def test_a_constant_condition_tells_nothing(case: Case) -> None:
    constant = torch.full_like(case.x, 0.5)
    assert case.conditional(x=constant) == pytest.approx(case.marginal("y"), abs=case.tolerance)


@given(cases())
@laws
def test_orthogonal_conditions_tell_everything(case: Case) -> None:
    for apart, kernel in ((torch.eye(case.n), cv.Cosine()), (torch.arange(case.n).unsqueeze(-1), cv.Delta())):
        assert case.conditional(x=apart, kernel_x=kernel) == pytest.approx(0, abs=case.tolerance)


@given(cases())
@laws
def test_a_constant_output_has_one_value(case: Case) -> None:
    assert case.conditional(y=torch.full_like(case.y, 0.5)) == pytest.approx(0, abs=case.tolerance)


@given(cases())
@laws
def test_constant_outputs_beside_conditions(case: Case) -> None:
    """Identical items score one, under every kernel, order and weighting."""
    assert case.marginal(x=torch.full_like(case.x, -1.5)) == pytest.approx(0, abs=case.tolerance)


@given(st.lists(st.integers(0, 5), min_size=6, max_size=6).filter(any), st.sampled_from(ORDERS))
@laws
def test_delta_kernels_are_the_entropies_of_the_table(counts: list[int], order: float) -> None:
    table = np.array(counts).reshape(2, 3)
    x, y, cells = table_of_counts(table)
    expected = renyi(table / table.sum(), order) - renyi(table.sum(1) / table.sum(), order)
    weighted = cv.conditional_entropy(
        x, y, kernel_x="delta", kernel_y="delta", order=order, weights=double(cells / cells.sum())
    )
    assert float(weighted) == pytest.approx(expected, rel=1e-10, abs=1e-12)
    repeats = torch.as_tensor(cells)
    rows = [side.repeat_interleave(repeats, dim=0) for side in (x, y)]
    unweighted = cv.conditional_entropy(*rows, kernel_x="delta", kernel_y="delta", order=order)
    assert float(unweighted) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@given(cases(), st.floats(0.0, 1.0))
@laws
def test_conditional_entropy_of_order_one_is_concave_in_the_joint_law(case: Case, t: float) -> None:
    p, q = case.distribution(), random_weights(case.n, seed=99)
    of_p, of_q = (case.conditional(order=1.0, weights=w) for w in (p, q))
    mixed = case.conditional(order=1.0, weights=t * p + (1 - t) * q)
    assert mixed >= t * of_p + (1 - t) * of_q - case.tolerance


@given(cases())
@laws
def test_mean_over_subsets_is_not_above_the_whole(case: Case) -> None:
    """Concavity again: the expectation does not fall when n grows, so groups are compared at equal n."""
    for size in range(1, case.n):
        subsets = itertools.islice(itertools.combinations(range(case.n), size), 80)
        rows = torch.tensor(list(itertools.combinations(range(case.n), size)) if case.n <= 6 else list(subsets))
        if case.n > 6 and size not in (1, case.n - 1):
            continue
        values = cv.conditional_entropy(case.x[rows], case.y[rows], kernel_x=case.kernel_x, kernel_y=case.kernel_y)
        assert float(values.double().mean()) <= case.conditional(order=1.0, weights=None) + case.tolerance


@given(cases(), st.floats(0.01, 100.0), st.floats(-10.0, 10.0))
@laws
def test_median_bandwidth_makes_scale_and_shift_irrelevant(case: Case, scale: float, shift: float) -> None:
    for kernel in ("gaussian", "laplacian"):
        moved = case.marginal(kernel=kernel, x=scale * case.x.double() + shift)
        assert moved == pytest.approx(case.marginal(kernel=kernel, x=case.x.double()), abs=1e-7)


@given(cases(), st.integers(0, 1000))
@laws
def test_rotations_do_not_matter_to_inner_products(case: Case, seed: int) -> None:
    rotation = torch.linalg.qr(points(case.x.shape[-1], case.x.shape[-1], seed))[0]
    x = case.x.double()
    for name in ("gaussian", "cosine", "polynomial"):
        turned = case.marginal(kernel=KERNELS[name], x=x @ rotation)
        assert turned == pytest.approx(case.marginal(kernel=KERNELS[name], x=x), abs=1e-7)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.2, 2.0, 3.0, math.inf])
def test_mehlers_spectrum_is_the_limit(order: float) -> None:
    """Quantiles of a Gaussian as points: their kernel entropies approach Mehler's closed form."""
    for variance, bandwidth in ((1.0, 1.0), (4.0, 0.7), (0.25, 2.0)):
        population = gaussian_population([variance], bandwidth, order)
        gaps = []
        for n in (60, 600):
            levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
            x = math.sqrt(2 * variance) * torch.erfinv(2 * levels - 1).unsqueeze(-1)
            gaps.append(abs(population - float(cv.entropy(x, kernel=cv.Gaussian(bandwidth), order=order))))
        assert gaps[1] < 0.3 * gaps[0] + 1e-9
        assert gaps[1] < 0.015 * population


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_correlated_gaussians_approach_their_closed_form(order: float) -> None:
    pair = GaussianPair(1.0, 1.5, 0.6, 1.2)
    x, y = pair.sample(4, 500)
    kernel = cv.Gaussian(pair.bandwidth)
    value = cv.conditional_entropy(x, y, kernel_x=kernel, kernel_y=kernel, order=order).mean()
    assert float(value) == pytest.approx(pair.conditional(order), rel=0.04)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 3, 6])
@pytest.mark.parametrize("kernel", ["cosine", "delta", cv.Gaussian(0.05), cv.Laplacian(0.02)], ids=str)
def test_equal_blocks_count_themselves(kernel: Any, blocks: int, order: float) -> None:
    """Identical items score 1, n orthogonal items n, m equal blocks m."""
    x = torch.eye(blocks).repeat_interleave(12 // blocks, dim=0)
    assert float(cv.vendi(x, kernel=kernel, order=order)) == pytest.approx(blocks, rel=2e-6)
