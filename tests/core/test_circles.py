"""Circles against stored values, an integer program and exhaustive search; bounds and what they are made of."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

import condvne as cv
from condvne.core.circles import Circles, circles_curve
from tests.references import double, oracles, points

ORACLES = oracles()
FIGURE = ORACLES["from_papers_and_peers"]["paper_B_figure_1"]
laws = settings(derandomize=True, deadline=None, max_examples=60)


def assert_certified(found: Circles, D: torch.Tensor, threshold: float) -> None:
    """The chosen rows prove the lower bound."""
    rows = torch.tensor(found.rows)
    assert len(set(found.rows)) == found.lower <= found.upper
    apart = D[rows][:, rows] > threshold
    assert bool((apart | torch.eye(len(rows), dtype=torch.bool)).all())


def by_integer_program(D: Any, threshold: float) -> int:
    """Largest set without a near pair, by HiGHS, one constraint a near pair."""
    n = len(D)
    near = [(i, j) for i, j in itertools.combinations(range(n), 2) if D[i, j] <= threshold]
    if not near:
        return n
    rows = np.zeros((len(near), n))
    for k, pair in enumerate(near):
        rows[k, list(pair)] = 1
    found = milp(-np.ones(n), constraints=LinearConstraint(rows, ub=1), integrality=np.ones(n), bounds=Bounds(0, 1))
    return round(-float(found.fun))


@pytest.mark.parametrize("entry", ORACLES["circles"], ids=["8", "11", "13"])
def test_as_stored(entry: dict[str, Any]) -> None:
    D = cv.distances(double(entry["points"]), entry["metric"])
    curve = circles_curve(D, entry["thresholds"])
    assert [c.lower for c in curve] == [c.upper for c in curve] == entry["circles"]
    for threshold, expected in zip(entry["thresholds"], entry["circles"], strict=True):
        assert cv.circles(D, threshold).lower == expected


@pytest.mark.parametrize("name", ["A", "B"])
def test_sets_of_figure_1(name: str) -> None:
    D = cv.distances(double(FIGURE[name])[:, None])
    curve = circles_curve(D, FIGURE["circles_thresholds"])
    assert [c.lower for c in curve] == FIGURE[f"circles_{name}"]


@given(st.integers(2, 9), st.integers(0, 10_000), st.floats(0.0, 8.0))
@laws
def test_against_exhaustive_search(n: int, seed: int, threshold: float) -> None:
    """On a coarse grid, where copies and distances equal to the threshold occur."""
    D = cv.distances((2 * points(n, 2, seed)).round())
    threshold = round(threshold)
    far = D.numpy() > threshold
    largest = max(
        len(rows)
        for size in range(1, n + 1)
        for rows in itertools.combinations(range(n), size)
        if all(far[i, j] for i, j in itertools.combinations(rows, 2))
    )
    found = cv.circles(D, threshold)
    assert found.exact
    assert found.lower == largest
    assert_certified(found, D, threshold)


@pytest.mark.parametrize(("n", "d"), [(30, 2), (40, 5), (40, 50)])
def test_against_an_integer_program(n: int, d: int) -> None:
    D = cv.distances(points(n, d, 7))
    thresholds = torch.quantile(D[D > 0], torch.linspace(0, 0.9, 7, dtype=torch.float64)).tolist()
    for threshold, found in zip(thresholds, circles_curve(D, thresholds), strict=True):
        assert found.exact
        assert found.lower == by_integer_program(D.numpy(), threshold)
        assert_certified(found, D, threshold)


@given(st.integers(2, 25), st.integers(0, 10_000))
@laws
def test_falls_with_the_threshold_and_steps_only_at_distances(n: int, seed: int) -> None:
    D = cv.distances(points(n, 3, seed))
    steps = [0.0, *sorted(set(D[D > 0].tolist()))]
    values = [c.lower for c in circles_curve(D, steps)]
    assert values[0] == n
    assert values[-1] == 1
    assert all(a >= b for a, b in itertools.pairwise(values))
    between = [(a + b) / 2 for a, b in itertools.pairwise(steps)]
    assert [c.lower for c in circles_curve(D, between)] == values[:-1]


def test_copies_count_once() -> None:
    D = cv.distances(double([1, 1, 1, 2, 2, 9])[:, None])
    assert [c.lower for c in circles_curve(D, [0, 1, 7, 8])] == [3, 2, 2, 1]
    assert circles_curve(torch.zeros(4, 4), [0.0]) == [Circles(1, 1, (0,))]


def test_bounds_hold_whatever_the_effort() -> None:
    x = points(150, 3, 5)
    D = cv.distances(x)
    thresholds = torch.quantile(D[D > 0], torch.linspace(0, 1, 12, dtype=torch.float64).square()).tolist()
    exact = circles_curve(D, thresholds)
    assert all(c.exact for c in exact)
    for nodes in (0, 1, 20):
        rough = circles_curve(D, thresholds, nodes=nodes)
        for threshold, bound, truth in zip(thresholds, rough, exact, strict=True):
            assert bound.lower <= truth.lower <= bound.upper
            assert_certified(bound, D, threshold)
    assert not all(c.exact for c in circles_curve(D, thresholds, nodes=0))


def test_large_sets_have_certified_intervals() -> None:
    x = points(700, 4, 6)
    D = cv.distances(x)
    thresholds = torch.quantile(D[:400][D[:400] > 0], torch.linspace(0, 1, 9, dtype=torch.float64)).tolist()
    curve = circles_curve(D, thresholds, nodes=2000)
    assert any(not c.exact for c in curve)
    for threshold, found in zip(thresholds, curve, strict=True):
        assert_certified(found, D, threshold)
        assert found.upper <= 2.5 * found.lower
    for bound in ("lower", "upper"):
        assert all(getattr(a, bound) >= getattr(b, bound) for a, b in itertools.pairwise(curve))


def test_upper_bounds_of_large_sets_hold() -> None:
    """Clusters of diameter below the threshold, far apart: Circles is their number, known beyond any search."""
    centres = 100 * torch.eye(300, dtype=torch.float64)
    x = centres.repeat_interleave(2, dim=0) + 0.001 * points(600, 300, 8)
    found = cv.circles(cv.distances(x), 5.0)
    assert (found.lower, found.upper) == (300, 300)


@pytest.mark.parametrize("threshold", [-0.1, math.inf, math.nan, "1", None])
def test_thresholds_out_of_range(threshold: Any) -> None:
    with pytest.raises(cv.InputError, match="threshold of Circles must be at least 0 and finite"):
        cv.circles(1 - torch.eye(3), threshold)


@pytest.mark.parametrize("thresholds", [[], [0.5, 0.2]])
def test_unsorted_thresholds(thresholds: list[float]) -> None:
    with pytest.raises(cv.InputError, match="ascending order"):
        circles_curve(1 - torch.eye(3), thresholds)


@pytest.mark.parametrize("nodes", [-1, 1.5, True])
def test_efforts_out_of_range(nodes: Any) -> None:
    with pytest.raises(cv.InputError, match="nodes must be a whole number"):
        cv.circles(1 - torch.eye(3), 0.5, nodes=nodes)
