"""Conditional entropies of several groups: exact, matrix-free, and shared between groups."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.core.groups import Engine, OutputGroup, conditional_entropies
from condvne.core.inference import subsample
from tests.core.pairs import gaussian_groups

KERNEL = cv.Gaussian(1.0)


def test_conditional_entropies_equal_the_public_functions_at_every_order() -> None:
    x, groups = gaussian_groups(40, seed=0)
    rows = subsample(40, 25, repeat=0, seed=0)
    orders = [0.5, 1.0, 2.0, 3.0, math.inf]
    got = conditional_entropies(x, groups, rows, kernel_x=KERNEL, kernel_y=KERNEL, orders=orders)
    for name, group in groups.items():
        expected = [
            float(cv.conditional_entropy(x[rows], group.features[rows], kernel_x=KERNEL, kernel_y=KERNEL, order=a))
            for a in orders
        ]
        # At order 1/2 an eigenvalue at rounding's edge, 1e-15, counts as 3e-8: kept or not, both are right.
        assert got[name][0].value == pytest.approx(expected[0], rel=1e-6)
        assert [e.value for e in got[name][1:]] == pytest.approx(expected[1:], rel=1e-10)


def test_every_condition_weighs_the_same_however_many_outputs_it_has() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    counts = torch.tensor([1, 3, 2, 4, 1, 2])
    owners = torch.repeat_interleave(torch.arange(6), counts)
    y = torch.randn(len(owners), 3, generator=generator, dtype=torch.float64)
    rows = torch.tensor([1, 2, 3, 5])
    got = conditional_entropies(
        x, {"g": OutputGroup(y, owners)}, rows, kernel_x=KERNEL, kernel_y=KERNEL, orders=[1.0, 2.0]
    )["g"]
    kept = torch.isin(owners, rows)
    weights = 1 / (4 * counts[owners[kept]].double())
    expected = [
        float(
            cv.conditional_entropy(
                x[owners[kept]], y[kept], kernel_x=KERNEL, kernel_y=KERNEL, order=order, weights=weights
            )
        )
        for order in (1.0, 2.0)
    ]
    assert [e.value for e in got] == pytest.approx(expected, rel=1e-10)


# Below order 1 the smallest eigenvalues weigh most, and quadrature brackets them least.
@pytest.mark.parametrize(("order", "widest"), [(0.5, 0.1), (1.0, 0.02), (2.0, 1e-6), (3.0, 0.02), (math.inf, 0.02)])
def test_matrix_free_values_lie_within_their_stated_error(order: float, widest: float) -> None:
    generator = torch.Generator().manual_seed(2)
    x, a, b = torch.randn(3, 900, 6, generator=generator, dtype=torch.float64)
    owners = torch.arange(900)
    groups = {"near": OutputGroup(0.8 * x + 0.6 * a, owners), "far": OutputGroup(b, owners)}
    rows = torch.arange(0, 900)
    exact = conditional_entropies(x, groups, rows, kernel_x=cv.Gaussian(3.0), kernel_y=cv.Gaussian(3.0), orders=[order])
    free = conditional_entropies(
        x,
        groups,
        rows,
        kernel_x=cv.Gaussian(3.0),
        kernel_y=cv.Gaussian(3.0),
        orders=[order],
        engine=Engine("lanczos", tolerance=5e-3),
    )
    for name in groups:
        (estimate,), (truth,) = free[name], exact[name]
        assert estimate.method == "lanczos"
        assert truth.method == "exact"
        assert truth.error == 0
        assert abs(estimate.value - truth.value) <= estimate.error + 1e-6  # tiles are float32
        assert estimate.error <= widest


def test_matrix_free_values_of_unequal_layouts_follow_the_weights() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(400, 4, generator=generator, dtype=torch.float64)
    counts = torch.tensor([1, 2] * 200)
    owners = torch.repeat_interleave(torch.arange(400), counts)
    groups = {
        "one": OutputGroup(torch.randn(400, 3, generator=generator, dtype=torch.float64), torch.arange(400)),
        "several": OutputGroup(torch.randn(len(owners), 3, generator=generator, dtype=torch.float64), owners),
    }
    both = [
        conditional_entropies(
            x,
            groups,
            torch.arange(400),
            kernel_x=cv.Gaussian(2.0),
            kernel_y=cv.Gaussian(2.0),
            orders=[1.0, 2.0],
            engine=engine,
        )
        for engine in (Engine("exact"), Engine("lanczos"))
    ]
    for name in groups:
        for truth, estimate in zip(both[0][name], both[1][name], strict=True):
            assert abs(estimate.value - truth.value) <= estimate.error + 1e-6


def test_auto_is_exact_for_few_points_and_a_rank_is_always_exact() -> None:
    x, groups = gaussian_groups(400, seed=4)
    rows = torch.arange(400)
    arguments: dict[str, Any] = {"kernel_x": KERNEL, "kernel_y": KERNEL}
    small = conditional_entropies(x, groups, rows, orders=[1.0], engine=Engine("auto"), **arguments)
    ranks = conditional_entropies(x, groups, rows, orders=[0.0, 1.0], engine=Engine("lanczos"), **arguments)
    assert {e.method for values in small.values() for e in values} == {"exact"}
    assert {tuple(e.method for e in values) for values in ranks.values()} == {("exact", "lanczos")}


def test_probes_depend_on_the_generator_alone() -> None:
    x, groups = gaussian_groups(500, seed=5)
    rows = torch.arange(500)

    def value(seed: int) -> float:
        found = conditional_entropies(
            x,
            groups,
            rows,
            kernel_x=cv.Gaussian(0.02),
            kernel_y=cv.Gaussian(0.02),
            orders=[1.0],
            engine=Engine("lanczos", tolerance=0.05),
            generator=torch.Generator().manual_seed(seed),
        )
        return found["loose"][0].value

    assert value(1) == value(1)
    assert value(1) != value(2)


def test_a_condition_without_output_is_refused() -> None:
    x = torch.randn(5, 2)
    group = OutputGroup(torch.randn(4, 2), torch.tensor([0, 1, 2, 4]))
    with pytest.raises(cv.InputError, match="condition 3 has no output"):
        conditional_entropies(x, {"g": group}, torch.arange(5), kernel_x=KERNEL, kernel_y=KERNEL, orders=[1.0])
