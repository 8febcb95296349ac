"""Population estimates against the closed forms of Gaussian pairs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.population import population_gap

ORACLES = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["gaussian_population"]


def gaussian_pair(entry: dict[str, Any], n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    y = entry["correlation"] * x + math.sqrt(1 - entry["correlation"] ** 2) * noise
    return entry["std_x"] * x, entry["std_y"] * y


def estimate(entry: dict[str, Any], n: int, seed: int, order: float) -> cv.PopulationEstimate:
    x, y = gaussian_pair(entry, n, seed)
    kernel = cv.Gaussian(entry["bandwidth"])
    return cv.population_conditional_entropy(x, y, kernel_x=kernel, kernel_y=kernel, order=order, seed=seed)


@pytest.mark.parametrize("entry", ORACLES, ids=lambda e: f"correlation {e['correlation']}")
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_the_interval_covers_the_population_value_and_the_bias_is_small(entry: dict[str, Any], order: float) -> None:
    truth = entry[f"population_H{order:.0f}_Y_given_X"]
    runs = [estimate(entry, 200, seed, order) for seed in range(60)]
    assert (
        sum(r.lower <= truth <= r.upper for r in runs) >= 51
    )  # 95 % nominal; below 51 of 60 has probability 1 in 1,000
    # The estimate and the plug-in share their sampling noise, which their difference is free of.
    shift = sum(r.value - r.plug_in for r in runs) / 60
    plug_in_bias = sum(r.plug_in for r in runs) / 60 - truth
    noise = math.sqrt(sum(r.standard_error**2 for r in runs)) / 60
    assert shift > 0
    assert abs(plug_in_bias + shift) <= abs(plug_in_bias) / 2 + 3 * noise


def test_the_plug_in_is_the_entropy_of_the_points_themselves() -> None:
    x, y = gaussian_pair(ORACLES[1], 50, 0)
    kernel = cv.Gaussian(1.0)
    for order in (0.5, 1.0, 2.0):
        result = cv.population_conditional_entropy(x, y, kernel_x=kernel, kernel_y=kernel, order=order)
        expected = cv.conditional_entropy(x, y, kernel_x=kernel, kernel_y=kernel, order=order)
        assert result.plug_in == pytest.approx(float(expected), rel=1e-6)
        assert result.n == 50
        assert result.lower < result.value < result.upper


def test_order_two_is_the_mean_over_pairs_of_distinct_points() -> None:
    x, y = gaussian_pair(ORACLES[1], 40, 1)
    kernel = cv.Gaussian(1.0)
    off = ~torch.eye(40, dtype=torch.bool)
    K_X = kernel.gram(x).square()
    K_XY = K_X * kernel.gram(y).square()
    expected = torch.log(K_X[off].mean() / K_XY[off].mean())
    result = cv.population_conditional_entropy(x, y, kernel_x=kernel, kernel_y=kernel, order=2.0)
    assert result.value == pytest.approx(float(expected), rel=1e-10)


def test_the_standard_error_is_that_of_repeated_samples() -> None:
    runs = [estimate(ORACLES[1], 200, seed, 2.0) for seed in range(80)]
    values = torch.tensor([r.value for r in runs], dtype=torch.float64)
    stated = sum(r.standard_error for r in runs) / 80
    assert 0.75 < float(values.std()) / stated < 1.33  # a standard deviation of 80 draws is known to about 8 %


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_the_interval_of_a_paired_gap_covers_the_true_difference_of_scores(order: float) -> None:
    loose, tight = ORACLES[0], ORACLES[1]  # the same conditions, outputs correlated 0 and 0.8 with them
    key, kernel = f"population_H{order:.0f}_Y_given_X", cv.Gaussian(loose["bandwidth"])
    truth = math.exp(tight[key]) - math.exp(loose[key])
    covered, widths, unpaired = 0, 0.0, 0.0
    for seed in range(60):
        x, y = gaussian_pair(tight, 200, seed)
        _, independent = gaussian_pair(loose, 200, 1000 + seed)
        found = [
            cv.population_conditional_entropy(x, outputs, kernel_x=kernel, kernel_y=kernel, order=order, seed=seed)
            for outputs in (y, independent)
        ]
        gap = population_gap(*found)
        covered += gap.lower <= truth <= gap.upper
        widths += gap.standard_error
        unpaired += math.hypot(*(math.exp(f.value) * f.standard_error for f in found))
    assert covered >= 51  # 95 % nominal; below 51 of 60 has probability 1 in 1,000
    assert widths < unpaired


def test_a_gap_of_estimates_from_unlike_conditions_is_refused() -> None:
    a, b = (estimate(ORACLES[0], n, 0, 2.0) for n in (20, 30))
    with pytest.raises(cv.InputError, match="n = 20 and 30"):
        population_gap(a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 0.0}, "order"),
        ({"order": math.inf}, "order"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_what_has_no_estimate_is_refused(changes: dict[str, Any], message: str) -> None:
    x, y = gaussian_pair(ORACLES[0], 20, 0)
    with pytest.raises(cv.InputError, match=message):
        cv.population_conditional_entropy(x, y, **changes)


def test_too_few_batched_and_unlike_points_are_refused() -> None:
    x, y = gaussian_pair(ORACLES[0], 20, 0)
    with pytest.raises(cv.InputError, match="too few"):
        cv.population_conditional_entropy(x[:7], y[:7])
    with pytest.raises(cv.InputError, match="leading"):
        cv.population_conditional_entropy(x.expand(3, 20, 1), y)
    with pytest.raises(cv.InputError, match="similar"):
        cv.population_conditional_entropy(x, torch.eye(20), kernel_y="cosine", order=2.0)
