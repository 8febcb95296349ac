"""Subsamples, paired intervals and curves over n."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.groups import OutputGroup, conditional_entropies
from condvne.core.inference import PairedGap, Statistics, curves, subsample
from tests.core.pairs import gaussian_groups

KERNEL = cv.Gaussian(1.0)


def vendi_statistic(x: Tensor, groups: dict[str, OutputGroup]) -> Statistics:
    def score(rows: Tensor) -> dict[tuple[str, str], float]:
        entropies = conditional_entropies(x, groups, rows, kernel_x=KERNEL, kernel_y=KERNEL, orders=[1.0])
        return {(name, "vendi"): math.exp(values[0].value) for name, values in entropies.items()}

    return score


def test_subsamples_are_seeded_distinct_sorted_and_nested() -> None:
    small, large = subsample(50, 10, repeat=3, seed=7), subsample(50, 30, repeat=3, seed=7)
    assert torch.equal(small, subsample(50, 10, repeat=3, seed=7))
    assert len(set(large.tolist())) == 30
    assert torch.equal(large, large.sort().values)
    assert set(small.tolist()) <= set(large.tolist())
    assert not torch.equal(large, subsample(50, 30, repeat=4, seed=7))
    assert not torch.equal(large, subsample(50, 30, repeat=3, seed=8))


@pytest.mark.parametrize("n", [0, 51])
def test_a_subsample_beyond_the_pool_is_refused(n: int) -> None:
    with pytest.raises(cv.InputError, match="from 1 to 50"):
        subsample(50, n, repeat=0, seed=0)


def test_curves_report_plain_moments_of_the_subsamples() -> None:
    x, groups = gaussian_groups(100, seed=2)
    points = curves(vendi_statistic(x, groups), available=100, sizes=[20, 40], repeats=4, seed=0, reference="loose")
    for point in points:
        values = torch.tensor(point.values, dtype=torch.float64)
        assert len(values) == 4
        assert point.mean == pytest.approx(float(values.mean()))
        assert point.std == pytest.approx(float(values.std(unbiased=True)))
    base = {p.n: p for p in points if p.group == "loose"}
    for point in points:
        if point.group == "loose":
            assert point.gap is None
            continue
        assert point.gap is not None
        assert point.gap.estimate == pytest.approx(point.mean - base[point.n].mean)
        low, high = point.gap.low, point.gap.high
        assert low is not None
        assert high is not None
        assert low < point.gap.estimate < high


def test_scores_grow_with_n_on_average() -> None:
    x, groups = gaussian_groups(300, seed=3)
    points = curves(vendi_statistic(x, groups), available=300, sizes=[20, 60, 150], repeats=5, seed=0, reference=None)
    means = [p.mean for p in points if p.group == "loose"]
    assert means == sorted(means)
    assert all(p.gap is None for p in points)


def test_one_repeat_gives_neither_spread_nor_interval() -> None:
    x, groups = gaussian_groups(40, seed=4)
    points = curves(vendi_statistic(x, groups), available=40, sizes=[10, 40], repeats=1, seed=0, reference="loose")
    tight = [p for p in points if p.group == "tight"]
    assert all(p.std is None and p.gap is not None and p.gap.low is None and p.gap.high is None for p in tight)


def test_all_conditions_are_scored_once_with_an_interval_from_halves() -> None:
    x, groups = gaussian_groups(60, seed=5)
    calls: list[int] = []
    statistic = vendi_statistic(x, groups)

    def counted(rows: Tensor) -> Mapping[tuple[str, str], float]:
        calls.append(len(rows))
        return statistic(rows)

    points = curves(counted, available=60, sizes=[60], repeats=5, seed=0, reference="loose")
    assert sorted(calls) == [30] * 5 + [60]
    assert {p.n for p in points} == {60}
    tight = next(p for p in points if p.group == "tight")
    assert len(tight.values) == 1
    assert tight.std is not None
    assert tight.std > 0
    assert tight.gap is not None
    assert tight.gap.low is not None


@pytest.mark.parametrize(("available", "n"), [(240, 60), (120, 60), (80, 60), (60, 60)])
def test_the_interval_of_a_gap_covers_the_expected_gap(available: int, n: int) -> None:
    # The truth is the mean over many independent samples of n, drawn apart from the pools.
    x, groups = gaussian_groups(60 * 1500, seed=100)
    batched = [t.reshape(1500, 60, 1) for t in (x, groups["loose"].features, groups["tight"].features)]
    scores = [cv.conditional_vendi(batched[0], y, kernel_x=KERNEL, kernel_y=KERNEL) for y in (batched[1], batched[2])]
    truth = float((scores[1] - scores[0]).mean())
    covered = 0
    for seed in range(80):
        pool_x, pool = gaussian_groups(available, seed=1000 + seed)
        points = curves(
            vendi_statistic(pool_x, pool), available=available, sizes=[n], repeats=5, seed=seed, reference="loose"
        )
        gap = next(p.gap for p in points if p.group == "tight")
        assert gap is not None
        assert gap.low is not None
        assert gap.high is not None
        covered += gap.low <= truth <= gap.high
    # 95 % nominal; fewer than 70 of 80 has probability below 0.3 % then.
    assert covered >= 70


def test_a_statistic_that_is_undefined_somewhere_has_no_curve() -> None:
    def score(rows: Tensor) -> dict[tuple[str, str], float]:
        scores = {("g", "always"): 1.0}
        if 0 in rows.tolist():
            scores["g", "sometimes"] = 2.0
        return scores

    points = curves(score, available=10, sizes=[3], repeats=8, seed=0, reference=None)
    assert {p.metric for p in points} == {"always"}


def test_a_reference_that_is_undefined_somewhere_gives_no_gap() -> None:
    def score(rows: Tensor) -> dict[tuple[str, str], float]:
        whole = {("reference", "often"): 1.0} if len(rows) == 12 else {}
        return {("g", "often"): 2.0, ("g", "always"): 1.0, ("reference", "always"): 3.0} | whole

    points = curves(score, available=12, sizes=[12], repeats=3, seed=0, reference="reference")
    gaps = {(p.group, p.metric): p.gap for p in points}
    assert gaps["g", "often"] is None  # the halves behind the interval lack the reference's score
    assert gaps["g", "always"] is not None


def test_rounding_is_neither_spread_nor_direction() -> None:
    noise = iter([0.0, 1e-17, -1e-17, 2e-17] * 100)

    def statistics(rows: Tensor) -> dict[tuple[str, str], float]:
        return {("a", "d"): 0.058 + next(noise), ("b", "d"): 0.058 - next(noise)}

    (a, b) = curves(statistics, available=100, sizes=[20], repeats=5, seed=0, reference="a")
    assert (a.std, b.std) == (0.0, 0.0)
    assert b.gap == PairedGap(0.0, 0.0, 0.0)


def test_subsamples_of_few_conditions_give_no_interval() -> None:
    def statistics(rows: Tensor) -> dict[tuple[str, str], float]:
        return {("a", "d"): 1.0, ("b", "d"): 1 / len(rows)}

    points = curves(statistics, available=100, sizes=[2, 4, 5], repeats=5, seed=0, reference="a")
    gaps = {p.n: p.gap for p in points if p.group == "b"}
    assert gaps[2] == PairedGap(-0.5, None, None)
    assert gaps[4] == PairedGap(-0.75, None, None)
    assert gaps[5] == PairedGap(0.2 - 1, 0.2 - 1, 0.2 - 1)
