"""Richness, average distance and energy against stored values and closed forms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import condvne as cv
from tests.references import double, oracles, points

ORACLES = oracles()
FIGURE = ORACLES["from_papers_and_peers"]["paper_B_figure_1"]
PRECISIONS = [(torch.float64, 1e-10), (torch.float32, 2e-5)]


def on_a_line(*at: float) -> torch.Tensor:
    return cv.distances(double(at)[:, None])


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_energy_as_stored(dtype: torch.dtype, tolerance: float) -> None:
    entry = ORACLES["energy"]
    D = cv.distances(torch.tensor(entry["points"], dtype=dtype), entry["metric"])
    for s, expected in zip(entry["s"], entry["energy"], strict=True):
        value = cv.energy(D, s)
        assert value.dtype == dtype
        assert float(value) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("k", [0, 1])
def test_sets_of_figure_1(k: int) -> None:
    D = on_a_line(*FIGURE["AB"[k]])
    assert float(cv.average_distance(D)) == pytest.approx(FIGURE["average_distance"][k], rel=1e-14)
    assert cv.richness(D) == FIGURE["richness"][k]


def test_richness_counts_copies_once() -> None:
    assert cv.richness(on_a_line(1, 2, 1, 2, 5)) == 3
    assert cv.richness(on_a_line(4, 4)) == 1


def test_gradients() -> None:
    x = points(5, 3, 0).requires_grad_()
    for score in (cv.average_distance, lambda D: cv.energy(D, 1.7), lambda D: cv.energy(D, 2, epsilon=1.5)):
        assert torch.autograd.gradcheck(lambda x, score=score: score(cv.distances(x)), (x,))
        assert torch.autograd.gradgradcheck(lambda x, score=score: score(cv.distances(x)), (x,))


def test_epsilon_is_the_least_distance_that_counts() -> None:
    assert float(cv.energy(on_a_line(0, 0, 1), 2, epsilon=0.5)) == pytest.approx(-(4 + 1 + 1) / 3)
    assert float(cv.energy(on_a_line(0, 3, 7), 2, epsilon=0.5)) == float(cv.energy(on_a_line(0, 3, 7), 2))


def test_energy_of_copies_names_them() -> None:
    with pytest.raises(cv.InputError, match=r"items 0 and 2, 1 and 4 are at distance 0.*epsilon"):
        cv.energy(on_a_line(1, 2, 1, 3, 2), 1.0)
    with pytest.raises(cv.InputError, match=r"… \(21 pairs in all\)"):
        cv.energy(torch.zeros(7, 7), 1.0)


@pytest.mark.parametrize("exponent", [0, -1.0, math.inf, math.nan, "1", True])
def test_exponents_out_of_range(exponent: Any) -> None:
    with pytest.raises(cv.InputError, match="exponent of an energy must be positive and finite"):
        cv.energy(on_a_line(0, 1), exponent)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan])
def test_epsilon_out_of_range(epsilon: Any) -> None:
    with pytest.raises(cv.InputError, match="epsilon must be positive and finite"):
        cv.energy(on_a_line(0, 1), 1.0, epsilon=epsilon)


def test_an_energy_beyond_floats_is_refused() -> None:
    with pytest.raises(cv.InputError, match=r"exponent 400 overflows: the nearest items are 0\.1 apart"):
        cv.energy(on_a_line(0, 0.1), 400)


def test_power_means_fall_with_the_exponent() -> None:
    """(-E_s)^(-1/s) is the power mean of order -s of the distances, between the smallest and the average."""
    D = cv.distances(points(12, 3, 4))
    means = [float((-cv.energy(D, s)) ** (-1 / s)) for s in (0.01, 0.5, 1, 3, 10, 60)]
    assert all(a > b for a, b in itertools.pairwise(means))
    assert float(cv.average_distance(D)) > means[0]
    assert means[-1] > float(D[D > 0].min())
