"""Bootstrap and permutation test of a gap: against explicit loops, coverage, level and power."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.density import DensityState
from condvne.core.resampling import ALTERNATIVES, _Pairs, bootstrap_gap, permutation_test
from condvne.core.routes import state_entropy
from tests.core.pairs import gaussian_groups

KERNEL = cv.Gaussian(1.0)
FIXED: dict[str, Any] = {"kernel_x": KERNEL, "kernel_y": KERNEL}


def sample(n: int, seed: int, *, first: str = "tight") -> tuple[Tensor, Tensor, Tensor]:
    """Conditions, outputs of a group and of the reference, (n, 1) each."""
    x, groups = gaussian_groups(n, seed)
    return x, groups[first].features, groups["loose"].features


def exchangeable(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, a, b = torch.randn(3, n, 1, generator=generator, dtype=torch.float64)
    return x, 0.6 * x + 0.8 * a, 0.6 * x + 0.8 * b


def test_the_estimate_is_the_gap_of_the_public_functions() -> None:
    x, y, reference = sample(60, 0)
    expected = cv.conditional_entropy(x, y, order=2.0, **FIXED) - cv.conditional_entropy(
        x, reference, order=2.0, **FIXED
    )
    result = bootstrap_gap(x, y, reference, resamples=20, **FIXED)
    assert result.estimate == pytest.approx(float(expected), rel=1e-10)
    assert result.ratio == pytest.approx(math.exp(float(expected)), rel=1e-10)
    assert permutation_test(x, y, reference, permutations=20, **FIXED).estimate == result.estimate
    assert result.num_features is None


def test_weights_give_what_recomputed_entropies_give() -> None:
    x, y, reference = sample(30, 1)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, 2.0, None, 0)
    counts = torch.stack([torch.bincount(torch.randint(30, (30,)), minlength=30) for _ in range(5)], dim=1)
    got = pairs.weighted_gaps(counts)
    for b in range(5):
        w = counts[:, b].double() / 30
        traces = []
        for outputs in (y, reference):
            trace = torch.exp(-state_entropy(DensityState((KERNEL, KERNEL), (x, outputs), w), 2.0))
            traces.append(1 / 30 + (trace - w.square().sum()) * 30 / 29)
        assert float(got[b]) == pytest.approx(float(torch.log(traces[1] / traces[0])), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_swaps_give_what_exchanged_outputs_give(order: float) -> None:
    x, y, reference = sample(40, 2)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, order, None if order == 2 else 64, 3)
    swaps = torch.randint(2, (40, 4), generator=torch.Generator().manual_seed(0))
    got = pairs.swapped_gaps(swaps)
    for b in range(4):
        change = swaps[:, b, None].bool()
        exchanged = (torch.where(change, reference, y), torch.where(change, y, reference))
        again = _Pairs(pairs.kernels, pairs.x, exchanged, order)
        again.sketch = pairs.sketch
        assert float(got[b]) == pytest.approx(again.gap(), rel=1e-9, abs=1e-12)


def test_sketched_weights_give_what_repeated_rows_give() -> None:
    x, y, reference = sample(40, 3)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, 1.0, 64, 0)
    rows = torch.randint(40, (40,), generator=torch.Generator().manual_seed(1))
    again = _Pairs(pairs.kernels, x[rows], (y[rows], reference[rows]), 1.0)
    again.sketch = pairs.sketch
    counts = torch.bincount(rows, minlength=40)[:, None]
    assert float(pairs.weighted_gaps(counts)) == pytest.approx(again.gap(), rel=1e-9)


@pytest.mark.parametrize(("order", "seeds", "least"), [(2.0, 60, 51), (1.0, 30, 24)])
def test_the_bootstrap_interval_covers_the_expected_gap(order: float, seeds: int, least: int) -> None:
    # The truth is the mean over many fresh samples of the same size.
    n = 100
    x, groups = gaussian_groups(n * 1500, seed=100)
    parts = [t.reshape(1500, n, 1) for t in (x, groups["tight"].features, groups["loose"].features)]
    tight, loose = (cv.conditional_entropy(parts[0], y, order=order, **FIXED) for y in parts[1:])
    truth = float((tight - loose).mean())
    covered = 0
    for seed in range(seeds):
        result = bootstrap_gap(
            *sample(n, 1000 + seed),
            order=order,
            resamples=200 if order == 2 else 100,
            num_features=None if order == 2 else 64,
            seed=seed,
            **FIXED,
        )
        covered += result.lower <= truth <= result.upper
    assert covered >= least  # 95 % nominal; fewer has probability below 1 in 500


def test_the_bootstrap_spread_is_that_of_fresh_samples() -> None:
    gaps = torch.tensor([bootstrap_gap(*sample(100, s), resamples=2, **FIXED).estimate for s in range(150)])
    stated = [bootstrap_gap(*sample(100, s), resamples=200, **FIXED).standard_error for s in range(15)]
    assert 0.8 < sum(stated) / 15 / float(gaps.std()) < 1.3


def test_p_values_of_exchangeable_groups_are_uniform() -> None:
    p_values = [permutation_test(*exchangeable(60, s), permutations=99, seed=s, **FIXED).p_value for s in range(200)]
    assert 2 <= sum(p <= 0.05 for p in p_values) <= 22  # 10 expected; outside has probability below 1 in 1,000
    assert 75 <= sum(p <= 0.5 for p in p_values) <= 125


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_a_narrower_group_is_found_on_its_side(order: float) -> None:
    x, _, reference = sample(200, 5)
    options: dict[str, Any] = {"order": order, "permutations": 99, "num_features": None if order == 2 else 64, **FIXED}
    results = {
        alternative: permutation_test(x, 0.1 * reference, reference, alternative=alternative, **options).p_value
        for alternative in ALTERNATIVES
    }
    assert results == {"less": 0.01, "greater": 1.0, "two-sided": 0.01}


def test_equal_groups_have_no_gap_and_p_one() -> None:
    x, y, _ = sample(50, 6)
    for alternative in ("two-sided", "less", "greater"):
        test = permutation_test(x, y, y.clone(), permutations=50, alternative=alternative, **FIXED)
        assert test.estimate == pytest.approx(0, abs=1e-12)
        assert test.p_value == 1.0
    bootstrap = bootstrap_gap(x, y, y.clone(), resamples=50, **FIXED)
    assert bootstrap.lower == pytest.approx(0, abs=1e-12)
    assert bootstrap.upper == pytest.approx(0, abs=1e-12)


def test_seeds_decide_and_the_global_generator_is_left_alone() -> None:
    x, y, reference = sample(40, 7)
    before = torch.get_rng_state()
    a, b, c = (bootstrap_gap(x, y, reference, resamples=10, seed=s, **FIXED).replicates for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    more = bootstrap_gap(x, y, reference, resamples=15, seed=1, **FIXED).replicates
    torch.testing.assert_close(more[:10], a)
    assert torch.equal(before, torch.get_rng_state())


def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, reference = sample(50, 8)
    whole = permutation_test(x, y, reference, permutations=10, **FIXED).replicates
    monkeypatch.setattr("condvne.core.resampling.TILE", 16)
    torch.testing.assert_close(permutation_test(x, y, reference, permutations=10, **FIXED).replicates, whole)


def test_open_bandwidths_are_fixed_on_the_reference() -> None:
    x, y, reference = sample(50, 9)
    given = permutation_test(x, y, reference, permutations=5)
    fitted: dict[str, Any] = {"kernel_x": cv.Gaussian().fit(x), "kernel_y": cv.Gaussian().fit(reference)}
    assert given.estimate == pytest.approx(permutation_test(x, y, reference, permutations=5, **fitted).estimate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resamples": 0}, "resamples must be a whole number of at least 1"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"order": 0.0}, "order 0 counts ranks"),
        ({"order": -1.0}, "order must be"),
        ({"num_features": 64}, "num_features is for orders other than 2"),
        ({"order": 1.0, "num_features": 3}, "num_features"),
        ({"order": 1.0, "num_features": 0}, "num_features"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        bootstrap_gap(*sample(20, 0), **{**FIXED, "resamples": 3, **changes})


def test_points_that_are_no_pairs_are_refused() -> None:
    x, y, reference = sample(20, 0)
    bad = y.clone()
    bad[3] = math.nan
    for arguments, message in (
        ((x, y[:19], reference), "rows"),
        ((x, y, reference[:19]), "rows"),
        ((x, bad, reference), "rows 3"),
        ((x, y, bad), "reference holds NaN"),
        ((x[:1], y[:1], reference[:1]), "too few"),
        ((x.expand(2, 20, 1), y, reference), "without batches"),
    ):
        with pytest.raises(cv.InputError, match=message):
            permutation_test(*arguments, permutations=3, **FIXED)
    with pytest.raises(cv.InputError, match="alternative must be one of"):
        permutation_test(x, y, reference, alternative="both", **FIXED)  # type: ignore[arg-type]
