"""Magnitude against stored values and closed forms, over scales, near singularity and on the iterative route."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import condvne as cv
from condvne.core import magnitude as module
from condvne.core.magnitude import magnitude_curve
from tests.references import double, oracles, points

ORACLES = oracles()
PAPER = ORACLES["from_papers_and_peers"]["paper_B_magnitude"]
SCALES = [1e-9, 1e-4, 0.05, 0.5, 1.0, 3.0, 10.0, 100.0]
laws = settings(derandomize=True, deadline=None, max_examples=40)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_as_stored(dtype: torch.dtype, tolerance: float) -> None:
    entry = ORACLES["magnitude"]
    D = cv.distances(torch.tensor(entry["points"], dtype=dtype), entry["metric"])
    for t, expected in zip(entry["t"], entry["magnitude"], strict=True):
        value = cv.magnitude(D, t)
        assert value.dtype == dtype
        assert float(value) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["", "_less_similar"])
def test_similarities_of_the_paper(name: str) -> None:
    D = -double(PAPER[f"Z{name}"]).log()
    assert float(cv.magnitude(D, 1.0)) == pytest.approx(PAPER[f"magnitude{name}"], rel=1e-10)


@pytest.mark.parametrize("t", SCALES)
def test_points_on_a_line(t: float) -> None:
    """Figure 1 of paper B: {1, 2, 3} has 1 + 2 tanh(t/2), {0, 4} has 1 + tanh(2t)."""
    three, two = (cv.distances(double(at)[:, None]) for at in ([1, 2, 3], [0, 4]))
    assert float(cv.magnitude(three, t)) == pytest.approx(1 + 2 * math.tanh(t / 2), rel=1e-13)
    assert float(cv.magnitude(two, t)) == pytest.approx(1 + math.tanh(2 * t), rel=1e-13)
    assert float(cv.magnitude(three, t)) - 1 == pytest.approx(2 * math.tanh(t / 2), rel=1e-6)
    gaps = double([0.3, 1.7, 0.01, 2.5])
    line = cv.distances(torch.cat([torch.zeros(1), gaps.cumsum(0)]).double()[:, None])
    assert float(cv.magnitude(line, t)) == pytest.approx(1 + float(torch.tanh(t * gaps / 2).sum()), rel=1e-12)


@pytest.mark.parametrize("t", SCALES)
@pytest.mark.parametrize("n", [2, 5, 40])
def test_complete_graphs(n: int, t: float) -> None:
    """n items one apart: n / (1 + (n - 1) exp(-t)); two points: 2 / (1 + exp(-t))."""
    D = 1 - torch.eye(n, dtype=torch.float64)
    assert float(cv.magnitude(D, t)) == pytest.approx(n / (1 + (n - 1) * math.exp(-t)), rel=1e-12)


def test_copies_are_merged() -> None:
    x = points(6, 2, 0)
    twice = torch.cat([x, x[:3], x[:1]])
    for t in SCALES:
        copied = cv.magnitude(cv.distances(twice), t)
        assert float(copied) == pytest.approx(float(cv.magnitude(cv.distances(x), t)), rel=1e-12)
    assert float(cv.magnitude(torch.zeros(3, 3), 1.0)) == 1.0


@given(st.integers(2, 12), st.integers(0, 10_000), st.sampled_from(["euclidean", "cosine", "tanimoto"]))
@laws
def test_between_one_and_n_and_rising_with_the_scale(n: int, seed: int, metric: Any) -> None:
    x = points(n, 6, seed)
    D = cv.distances((x > 0).double() if metric == "tanimoto" else x, metric)
    curve = magnitude_curve(D, SCALES)
    assert float(curve[0]) >= 1 - 1e-12
    assert float(curve[-1]) <= cv.richness(D) * (1 + 1e-12)
    assert all(a <= b * (1 + 1e-10) for a, b in itertools.pairwise(curve.tolist()))


def test_gradients() -> None:
    x = points(6, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: cv.magnitude(cv.distances(x), 0.8), (x,))
    assert torch.autograd.gradgradcheck(lambda x: cv.magnitude(cv.distances(x), 0.8), (x,))


def test_nearly_equal_items_count_as_one() -> None:
    """Similarities that are singular to within rounding: null directions are left out, the value stays."""
    x = points(30, 1, 3)
    angle = torch.cat([x.cos(), x.sin()], dim=1)
    D = cv.distances(torch.cat([angle, angle * 1.5 + 1e-12 * points(30, 2, 4)]), "cosine")
    near = cv.magnitude(D, 2.0)
    assert float(near) == pytest.approx(float(cv.magnitude(cv.distances(angle, "cosine"), 2.0)), rel=1e-6)
    with pytest.raises(cv.InputError, match="singular to within rounding and have no gradient"):
        cv.magnitude(D.requires_grad_(), 2.0)


def test_indefinite_similarities_are_refused() -> None:
    """The graph K_{3,2}: shortest-path distances, indefinite at small scales (Leinster 2013, example 2.2.7)."""
    side = torch.tensor([0, 0, 0, 1, 1])
    D = torch.where(side[:, None] == side, 2.0, 1.0).double().fill_diagonal_(0)
    with pytest.raises(cv.InputError, match=r"not positive definite at the scale t = 0\.1"):
        magnitude_curve(D, [2.0, 0.1])
    assert float(cv.magnitude(D, 2.0)) > 1


@pytest.mark.parametrize("scale", [0, -1.0, math.inf, math.nan, "1", None])
def test_scales_out_of_range(scale: Any) -> None:
    with pytest.raises(cv.InputError, match="scale of a magnitude must be positive and finite"):
        cv.magnitude(1 - torch.eye(3), scale)


@pytest.mark.parametrize(
    ("d", "metric", "scales"),
    [
        (3, "euclidean", (0.003, 30)),
        (40, "euclidean", (1e-3, 2)),
        (40, "cosine", (0.01, 20)),
        (3, "cosine", (0.05, 20000)),  # singular to within rounding at the smaller scales
    ],
)
def test_curves_of_large_sets(d: int, metric: Any, scales: tuple[float, float]) -> None:
    """The iterative route, in no order of scales, against one factorisation a scale."""
    D = cv.distances(points(module.DENSE_UP_TO + 60, d, 5), metric)
    grid = torch.logspace(math.log10(scales[0]), math.log10(scales[1]), 25, dtype=torch.float64)
    grid = grid[torch.randperm(25, generator=torch.Generator().manual_seed(0))]
    curve = magnitude_curve(D, [*grid.tolist(), 1e-8])
    assert float(curve[-1]) - 1 == pytest.approx(float(cv.magnitude(D, 1e-8)) - 1, rel=1e-6)
    for k in range(0, 25, 6):
        assert float(curve[k]) == pytest.approx(float(cv.magnitude(D, float(grid[k]))), rel=1e-7)


def test_large_sets_that_are_not_of_negative_type() -> None:
    side = torch.arange(module.DENSE_UP_TO + 20) % 2
    D = torch.where(side[:, None] == side, 2.0, 1.0).double().fill_diagonal_(0)
    n = len(D)
    expected = n / (1 + (n / 2 - 1) * math.exp(-20) + n / 2 * math.exp(-10))
    assert float(magnitude_curve(D, [8.0, 9.0, 10.0])[2]) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(cv.InputError, match="not positive definite"):
        magnitude_curve(D, [0.1, 9.0, 10.0])


def test_the_number_of_threads_is_as_before() -> None:
    threads = torch.get_num_threads()
    D = cv.distances(points(module.DENSE_UP_TO + 5, 3, 0), "euclidean")
    try:
        torch.set_num_threads(2)
        curve = magnitude_curve(D, [0.5, 1.0, 2.0])
        assert torch.get_num_threads() == 2
        with pytest.raises(cv.InputError, match="positive and finite"):
            magnitude_curve(D, [0.5, 1.0, math.inf])
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        torch.testing.assert_close(magnitude_curve(D, [0.5, 1.0, 2.0]), curve, rtol=1e-9, atol=0)
    finally:
        torch.set_num_threads(threads)
