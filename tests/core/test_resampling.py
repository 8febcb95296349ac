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
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy
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


def sketched_gap(x: Tensor, y: Tensor, reference: Tensor, sketch: JointSketch, order: float) -> float:
    """The gap of extrapolated sketches, from features made afresh."""
    r, entropies = sketch.num_features, []
    for outputs in (y, reference):
        Z = sketch.features(x, outputs)
        whole, *halves = (
            float(matrix_entropy(part.mT @ part / part.square().sum(), order))
            for part in (Z, Z[:, : r // 2], Z[:, r // 2 :])
        )
        entropies.append(2 * whole - sum(halves) / 2)
    return entropies[0] - entropies[1]


def test_the_estimate_is_the_gap_of_the_public_functions() -> None:
    x, y, reference = sample(60, 0)
    expected = cv.conditional_entropy(x, y, order=2.0, **FIXED) - cv.conditional_entropy(
        x, reference, order=2.0, **FIXED
    )
    result = bootstrap_gap(x, y, reference, resamples=20, **FIXED)
    assert result.estimate == pytest.approx(float(expected), rel=1e-10)
    assert result.ratio == pytest.approx(math.exp(float(expected)), rel=1e-10)
    assert permutation_test(x, y, reference, permutations=20, **FIXED).estimate == result.estimate
    assert (result.method, result.num_features, result.n, result.seed) == ("closed form", None, 60, 0)


@pytest.mark.parametrize("order", [0.5, 1.0, 3.0, math.inf])
def test_the_sketch_is_named_and_comes_near_the_gap(order: float) -> None:
    x, y, reference = sample(100, 0)
    exact = cv.conditional_entropy(x, y, order=order, **FIXED) - cv.conditional_entropy(
        x, reference, order=order, **FIXED
    )
    result = bootstrap_gap(x, y, reference, order=order, resamples=4, num_features=128, seed=5, **FIXED)
    assert (result.method, result.num_features, result.seed) == ("sketch", 128, 5)
    assert result.standard_error > float(result.replicates.std())  # the sketch's own error comes on top
    assert abs(result.estimate - float(exact)) < 3 * result.standard_error
    test = permutation_test(x, y, reference, order=order, permutations=4, num_features=128, seed=5, **FIXED)
    assert (test.method, test.num_features, test.seed, test.estimate) == ("sketch", 128, 5, result.estimate)


def test_weights_give_what_recomputed_entropies_give() -> None:
    x, y, reference = sample(30, 1)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, 2.0, None, 0)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randint(30, (30,), generator=generator) for _ in range(5)]
    counts = torch.stack([torch.bincount(rows, minlength=30) for rows in drawn], dim=1)
    got = pairs.weighted_gaps(counts)
    for b in range(5):
        w = counts[:, b].double() / 30
        traces = []
        for outputs in (y, reference):
            trace = torch.exp(-state_entropy(DensityState((KERNEL, KERNEL), (x, outputs), w), 2.0))
            traces.append(1 / 30 + (trace - w.square().sum()) * 30 / 29)
        assert float(got[b]) == pytest.approx(float(torch.log(traces[1] / traces[0])), abs=1e-10)


@pytest.mark.parametrize("order", [2.0, 1.0, math.inf])
def test_swaps_give_what_exchanged_outputs_give(order: float) -> None:
    x, y, reference = sample(40, 2)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, order, None if order == 2 else 64, 3)
    swaps = torch.randint(2, (40, 4), generator=torch.Generator().manual_seed(0))
    got = pairs.swapped_gaps(swaps)
    for b in range(4):
        change = swaps[:, b, None].bool()
        exchanged = (torch.where(change, reference, y), torch.where(change, y, reference))
        if pairs.sketch is None:
            entropies = [state_entropy(DensityState((KERNEL, KERNEL), (x, outputs)), 2.0) for outputs in exchanged]
            expected = float(entropies[0] - entropies[1])
        else:
            expected = sketched_gap(x, *exchanged, pairs.sketch, order)
        assert float(got[b]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("order", [1.0, math.inf])
def test_sketched_weights_give_what_repeated_rows_give(order: float) -> None:
    x, y, reference = sample(40, 3)
    pairs = _Pairs.checked(x, y, reference, KERNEL, KERNEL, order, 64, 0)
    assert pairs.sketch is not None
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randint(40, (40,), generator=generator) for _ in range(3)]
    got = pairs.weighted_gaps(torch.stack([torch.bincount(rows, minlength=40) for rows in drawn], dim=1))
    for b, rows in enumerate(drawn):
        expected = sketched_gap(x[rows], y[rows], reference[rows], pairs.sketch, order)
        assert float(got[b]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kernel", [KERNEL, cv.Laplacian(1.0), cv.Cosine(), cv.Delta()])
def test_the_order_of_conditions_does_not_matter(kernel: cv.Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y, reference = torch.randint(1, 4, (3, 30, 2), generator=generator).double()
    y[:, 0] = 1
    counts = torch.stack([torch.bincount(torch.randint(30, (30,), generator=generator), minlength=30)] * 2, dim=1)
    swaps, order = torch.randint(2, (30, 3), generator=generator), torch.randperm(30, generator=generator)
    one, other = (
        _Pairs.checked(x[rows], y[rows], reference[rows], KERNEL, kernel, 2.0, None, 0)
        for rows in (torch.arange(30), order)
    )
    torch.testing.assert_close(other.weighted_gaps(counts[order]), one.weighted_gaps(counts), rtol=0, atol=1e-12)
    torch.testing.assert_close(other.swapped_gaps(swaps[order]), one.swapped_gaps(swaps), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("order", "num_features", "seeds", "least"), [(2.0, None, 100, 90), (1.0, 64, 40, 34), (math.inf, 64, 40, 34)]
)
def test_the_bootstrap_interval_covers_the_expected_gap(
    order: float, num_features: int | None, seeds: int, least: int
) -> None:
    # The truth is the mean of the exact gap over many fresh samples of the same size.
    n, fresh = 100, 500
    x, groups = gaussian_groups(n * fresh, seed=100)
    parts = [t.reshape(fresh, n, 1) for t in (x, groups["tight"].features, groups["loose"].features)]
    tight, loose = (cv.conditional_entropy(parts[0], y, order=order, **FIXED) for y in parts[1:])
    truth = float((tight - loose).mean())
    covered = 0
    for seed in range(seeds):
        options: dict[str, Any] = {"order": order, "num_features": num_features, "seed": seed, **FIXED}
        result = bootstrap_gap(*sample(n, 1000 + seed), resamples=200 if order == 2 else 60, **options)
        covered += result.lower <= truth <= result.upper
    assert covered >= least  # 95 % nominal; fewer has probability below 1 in 80, of 40 seeds 1 in 250


def test_the_bootstrap_spread_is_that_of_fresh_samples() -> None:
    gaps = torch.tensor([bootstrap_gap(*sample(100, s), resamples=2, **FIXED).estimate for s in range(150)])
    stated = [bootstrap_gap(*sample(100, s), resamples=200, **FIXED).standard_error for s in range(15)]
    assert 0.8 < sum(stated) / 15 / float(gaps.std()) < 1.3


@pytest.mark.parametrize(("order", "num_features", "permutations"), [(2.0, None, 99), (1.0, 16, 39)])
def test_p_values_of_exchangeable_groups_are_uniform(order: float, num_features: int | None, permutations: int) -> None:
    options: dict[str, Any] = {"order": order, "num_features": num_features, "permutations": permutations, **FIXED}
    p_values = [permutation_test(*exchangeable(60, s), seed=s, **options).p_value for s in range(200)]
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


@pytest.mark.parametrize("order", [2.0, 0.5, 1.0, math.inf])
def test_equal_groups_have_no_gap_and_p_one(order: float) -> None:
    x, y, _ = sample(50, 6)
    options: dict[str, Any] = {"order": order, "num_features": None if order == 2 else 32, **FIXED}
    for alternative in ALTERNATIVES:
        test = permutation_test(x, y, y.clone(), permutations=50, alternative=alternative, **options)
        assert test.estimate == pytest.approx(0, abs=1e-12)
        assert test.p_value == 1.0
    bootstrap = bootstrap_gap(x, y, y.clone(), resamples=50, **options)
    assert bootstrap.lower == pytest.approx(0, abs=1e-12)
    assert bootstrap.upper == pytest.approx(0, abs=1e-12)


def test_swaps_of_equal_outputs_are_ties() -> None:
    x, _, reference = sample(40, 6)
    y = reference.clone()
    y[0] = 9.0  # one pair differs, so every swap gives the observed gap or its opposite
    for order in (2.0, 1.0):
        test = permutation_test(x, y, reference, order=order, permutations=60, **FIXED)
        assert test.p_value == 1.0


def test_seeds_decide_and_the_global_generator_is_left_alone() -> None:
    x, y, reference = sample(40, 7)
    before = torch.get_rng_state()
    a, b, c = (bootstrap_gap(x, y, reference, resamples=10, seed=s, **FIXED).replicates for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    more = bootstrap_gap(x, y, reference, resamples=15, seed=1, **FIXED).replicates
    torch.testing.assert_close(more[:10], a)
    assert torch.equal(before, torch.get_rng_state())


def test_tiles_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, reference = sample(50, 8)

    def replicates() -> Tensor:
        found = []
        settings: tuple[dict[str, Any], ...] = ({"order": 2.0}, {"order": 1.0, "num_features": 16})
        for options in settings:
            found.append(permutation_test(x, y, reference, permutations=10, **options, **FIXED).replicates)
            found.append(bootstrap_gap(x, y, reference, resamples=10, **options, **FIXED).replicates)
        return torch.stack(found)

    whole = replicates()
    monkeypatch.setattr("condvne.core.resampling.TILE", 16)
    monkeypatch.setattr("condvne.core.resampling.CHUNK_ENTRIES", 3 * 16**2)
    torch.testing.assert_close(replicates(), whole, rtol=0, atol=1e-12)


def test_gradients_are_not_followed() -> None:
    x, y, reference = (t.requires_grad_() for t in sample(20, 8))
    for order in (2.0, 1.0):
        options: dict[str, Any] = {"order": order, "num_features": None if order == 2 else 16, **FIXED}
        assert not bootstrap_gap(x, y, reference, resamples=3, **options).replicates.requires_grad
        assert not permutation_test(x, y, reference, permutations=3, **options).replicates.requires_grad


def test_open_bandwidths_are_fixed_on_the_reference() -> None:
    x, y, reference = sample(50, 9)
    given = permutation_test(x, y, reference, permutations=5)
    fitted: dict[str, Any] = {"kernel_x": cv.Gaussian().fit(x), "kernel_y": cv.Gaussian().fit(reference)}
    assert given.estimate == pytest.approx(permutation_test(x, y, reference, permutations=5, **fitted).estimate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resamples": 0}, "resamples must be a whole number of at least 1"),
        ({"resamples": math.nan}, "resamples must be a whole number of at least 1"),
        ({"resamples": math.inf}, "resamples must be a whole number of at least 1"),
        ({"resamples": 2.5}, "resamples must be a whole number of at least 1"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"confidence": math.nan}, "confidence must lie in"),
        ({"kernel_y": cv.Gaussian(torch.tensor([1.0, 2.0]))}, "one bandwidth a kernel"),
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
        ((x, y, reference[:19]), "x has 20 rows and reference has 19"),
        ((x, bad, reference), "rows 3"),
        ((x, y, bad), "reference holds NaN"),
        ((x[:1], y[:1], reference[:1]), "too few"),
        ((x.expand(2, 20, 1), y, reference), "without batches"),
        ((x, y.expand(20, 2), reference), "y has 2 columns and reference has 1"),
        ((x, y.reshape(20, 1, 1), reference), "one output for each condition"),
    ):
        with pytest.raises(cv.InputError, match=message):
            permutation_test(*arguments, permutations=3, **FIXED)
    with pytest.raises(cv.InputError, match="alternative must be one of"):
        permutation_test(x, y, reference, alternative="both", **FIXED)  # type: ignore[arg-type]
