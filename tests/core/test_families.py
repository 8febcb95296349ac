"""Grids chosen from the data, and curves of the four families against their scores one by one."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import condvne as cv
from condvne.core.families import FAMILIES, as_family, default_grid
from tests.references import double, points

laws = settings(derandomize=True, deadline=None, max_examples=30)


def items(n: int, d: int = 3, seed: int = 0, name: str = "the set") -> cv.ItemSet:
    return cv.ItemSet.from_features(points(n, d, seed), "euclidean", bandwidth=1.0, name=name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [5, 50])
def test_default_grids_have_the_points_asked_for(family: Any, n: int) -> None:
    grid = default_grid(family, items(n), items(n, seed=1), points=21)
    assert len(grid) == 21 or family == "circles"
    assert as_family(family).checked_grid(grid) == grid


def test_default_grids_lie_where_curves_move() -> None:
    one, other = items(40), items(40, seed=1)
    D = one.distances
    scales = default_grid("magnitude", one, other)
    farthest = max(float(one.distances.max()), float(other.distances.max()))
    assert math.exp(-scales[0] * farthest) == pytest.approx(0.99)
    nearest = torch.cat([(s.distances + torch.eye(40) * 9).amin(-1) for s in (one, other)]).median()
    assert math.exp(-scales[-1] * float(nearest)) == pytest.approx(0.01)
    thresholds = default_grid("circles", one)
    assert len(thresholds) == 101
    assert (thresholds[0], thresholds[-1]) == (float(D[D > 0].min()), float(D.max()))
    assert default_grid("vendi", one)[-1] == math.inf
    for family in FAMILIES:
        if family != "energy":
            values = cv.profile(one, family, resamples=0).values
            assert float(values.max() / values.min()) > 4


def test_thresholds_of_few_distances_are_all_of_them() -> None:
    line = cv.ItemSet(cv.distances(double([1, 2, 4])[:, None]))
    assert default_grid("circles", line) == (1.0, 2.0, 3.0)


def test_thresholds_reach_where_few_distances_are() -> None:
    """Twenty near items, and a set of three far ones: the stretch between is seen."""
    near, far = cv.ItemSet(cv.distances(points(20, 3, 0) / 100)), cv.ItemSet(cv.distances(points(4, 3, 1)))
    grid = default_grid("circles", near, far, points=41)
    assert len(grid) == 41
    distances = far.checked.pairs.tolist()
    assert sum(tau > 0.1 for tau in grid) == sum(d > 0.1 for d in distances) == 6


@pytest.mark.parametrize("family", FAMILIES)
def test_curves_are_the_scores(family: Any) -> None:
    one = items(20)
    D, K = one.distances, one.similarities
    assert K is not None
    scores: dict[str, Any] = {
        "vendi": lambda q: cv.entropy_from_gram(K, order=q).exp(),
        "magnitude": lambda t: cv.magnitude(D, t),
        "circles": lambda tau: cv.circles(D, tau).lower,
        "energy": lambda s: cv.energy(D, s),
    }
    found = cv.profile(one, family, resamples=0)
    assert len(found.grid) > 100
    assert found.exact
    for k in range(0, len(found.grid), 10):
        assert float(found.values[k]) == pytest.approx(float(scores[family](found.grid[k])), rel=1e-10)


@given(st.integers(2, 15), st.integers(1, 5), st.integers(0, 10_000))
@laws
def test_profiles_are_monotone_bounded_and_continuous(n: int, d: int, seed: int) -> None:
    """Vendi falls with q, magnitude rises with t, Circles falls with τ, all within [1, n]; those with a continuous
    parameter move little where it does, through order 1 as well."""
    one = items(n, d, seed)
    for family, rising in (("vendi", False), ("magnitude", True), ("circles", False)):
        grid = default_grid(family, one)
        values = cv.profile(one, family, grid, resamples=0).values.tolist()
        steps = itertools.pairwise(values if rising else reversed(values))
        assert all(a <= b * (1 + 1e-9) for a, b in steps)
        assert 1 - 1e-9 <= min(values) <= max(values) <= n * (1 + 1e-9)
    for family in ("vendi", "magnitude", "energy"):
        for p in (0.3, 1.0, 5.0):
            near = cv.profile(one, family, [p * (1 - 1e-7), p, p * (1 + 1e-7)], resamples=0).values
            assert float(near.diff().abs().max()) <= 1e-4 * float(near[1].abs())


@pytest.mark.parametrize(
    ("family", "grid", "complaint"),
    [
        ("vendi", [0.0, 1.0], r"Vendi: the order must lie in \(0, inf\], but the grid holds 0.0"),
        ("vendi", [-1.0], "the order must lie in"),
        ("vendi", [math.nan], "the order must lie in"),
        ("magnitude", [1.0, math.inf], r"magnitude: the scale must lie in \(0, inf\), but the grid holds inf"),
        ("magnitude", [0.0, 1.0], "the scale must lie in"),
        ("circles", [-0.5, 1.0], r"Circles: the threshold must lie in \[0, inf\)"),
        ("circles", [math.inf], "the threshold must lie in"),
        ("energy", [0, 1], "the exponent must lie in"),
        ("energy", ["a"], "the exponent must lie in"),
        ("magnitude", [2.0, 1.0], "the grid of scales must be strictly ascending"),
        ("vendi", [1.0, 1.0], "the grid of orders must be strictly ascending"),
        ("circles", [], "must be strictly ascending and not empty"),
        ("entropy", [1.0], "no family 'entropy': give one of vendi, magnitude, circles, energy"),
    ],
)
def test_grids_out_of_range(family: Any, grid: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        cv.profile(items(5), family, grid)


def test_grids_that_cannot_be_chosen() -> None:
    with pytest.raises(cv.InputError, match="all items are equal"):
        default_grid("magnitude", cv.ItemSet(torch.zeros(3, 3)))
    with pytest.raises(cv.InputError, match="at least one set and two points"):
        default_grid("magnitude", items(5), points=1)
    with pytest.raises(cv.InputError, match="at least one set"):
        default_grid("magnitude")


def test_vendi_without_similarities() -> None:
    with pytest.raises(cv.InputError, match="plain has no similarities, which Vendi needs"):
        cv.profile(cv.ItemSet(1 - torch.eye(3), name="plain"), "vendi", [1.0])
