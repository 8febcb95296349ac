"""Metrics of chosen outputs and their bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import condvne as cv
from condvne.data.config.mbr import MetricName
from condvne.data.text.lexical import distinct_n, text_ngrams
from condvne.data.text.self_bleu import SelfBleu
from condvne.tasks.mbr.metrics import DESCRIPTIONS, RANGES, Judge, Judged, Outputs

N, B = 12, 300
WORDS = ("the", "old", "bridge", "closed", "storm", "won", "vote", "a")
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KERNEL_X, KERNEL_Y = cv.Gaussian(2.0), cv.Gaussian(1.5)
QUALITY = [torch.tensor([0.1 * k, 0.9 - 0.05 * k], dtype=torch.float64) for k in range(N)]
METRICS: tuple[MetricName, ...] = ("rouge_l", "distinct_2", "self_bleu_2", "conditional_vendi")


def judge(n: int = N, metrics: tuple[MetricName, ...] = METRICS, resamples: int = B, seed: int = 0) -> Judge:
    gram = KERNEL_X.gram(X[:n])
    return Judge(metrics, n, resamples, seed, {"rouge_l": QUALITY[:n]}, gram, KERNEL_Y.gram)


def outputs(seed: int, n: int = N, spread: float = 1.0) -> Outputs:
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, size=5)) for _ in range(n)]
    features = spread * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Outputs(texts, draw.integers(2, size=n).tolist(), features)


def test_every_metric_has_words_and_a_range() -> None:
    assert DESCRIPTIONS.keys() == RANGES.keys()


def test_values_are_those_of_the_public_functions() -> None:
    found, given = judge(), outputs(1)
    assert given.features is not None
    expected = {
        "rouge_l": float(np.mean([float(q[k]) for q, k in zip(QUALITY, given.chosen, strict=True)])),
        "distinct_2": distinct_n(text_ngrams([[t] for t in given.texts], 2, "words")),
        "self_bleu_2": SelfBleu(given.texts).score(),
        "conditional_vendi": float(cv.conditional_vendi(X, given.features, kernel_x=KERNEL_X, kernel_y=KERNEL_Y)),
    }
    for metric in METRICS:
        assert found.judged(metric, given).value == pytest.approx(expected[metric], abs=1e-9)


def test_replicates_are_the_metrics_of_the_resampled_inputs() -> None:
    found, given = judge(resamples=20), outputs(2)
    assert given.features is not None
    by_metric = {metric: found.judged(metric, given).replicates for metric in METRICS}
    for b, counts in enumerate(found.counts):
        quality = [float(QUALITY[i][given.chosen[i]]) for i in np.repeat(np.arange(N), counts)]
        assert len(quality) == N
        assert by_metric["rouge_l"][b] == pytest.approx(np.mean(quality))
    for b, rows in enumerate(np.flatnonzero(row) for row in found.kept):
        assert len(rows) == N - 1
        texts = [given.texts[i] for i in rows]
        assert by_metric["distinct_2"][b] == distinct_n(text_ngrams([[t] for t in texts], 2, "words"))
        assert by_metric["self_bleu_2"][b] == pytest.approx(SelfBleu(texts).score(), abs=1e-12)
        y = given.features[rows]
        score = float(cv.conditional_vendi(X[rows], y, kernel_x=KERNEL_X, kernel_y=KERNEL_Y))
        assert by_metric["conditional_vendi"][b] == pytest.approx(score, abs=1e-9)


def test_differences_are_paired_over_the_same_resamples() -> None:
    found, a = judge(), outputs(3)
    b = Outputs(a.texts, [1 - k if i == 0 else k for i, k in enumerate(a.chosen)], a.features)
    base, other = found.judged("rouge_l", a), found.judged("rouge_l", b)
    gap = found.gap("rouge_l", other, base, 0.95)
    assert gap is not None
    assert base.value is not None
    # The two differ in one input only, so the difference varies far less than either value.
    ends = found.bounds("rouge_l", base, 0.95)
    assert gap.low is not None
    assert gap.high is not None
    assert ends[0] is not None
    assert ends[1] is not None
    assert gap.high - gap.low < ends[1] - ends[0]
    same = found.gap("rouge_l", base, base, 0.95)
    assert same is not None
    assert (same.estimate, same.low, same.high, same.direction) == (0.0, 0.0, 0.0, "undecided")


def test_a_clear_difference_is_decided_in_its_direction() -> None:
    found = judge()
    wide, narrow = outputs(4, spread=3.0), outputs(4, spread=0.1)
    gap = found.gap(
        "conditional_vendi", found.judged("conditional_vendi", narrow), found.judged("conditional_vendi", wide), 0.95
    )
    assert gap is not None
    assert gap.direction == "below"
    assert gap.high is not None
    assert gap.high < 0


def test_the_seed_decides_the_resamples() -> None:
    a, b, c = judge(seed=1), judge(seed=1), judge(seed=2)
    assert np.array_equal(a.counts, b.counts)
    assert np.array_equal(a.kept, b.kept)
    assert not np.array_equal(a.counts, c.counts)


def test_the_interval_of_a_mean_is_the_normal_one_for_many_inputs() -> None:
    n = 400
    values = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    many = Judge(("rouge_l",), n, 2000, 0, {"rouge_l": [v[None] for v in values]}, None, KERNEL_Y.gram)
    found = many.judged("rouge_l", Outputs([""] * n, [0] * n, None))
    low, high = many.bounds("rouge_l", found, 0.95)
    margin = 1.96 * float(values.std()) / n**0.5
    assert low == pytest.approx(float(values.mean()) - margin, abs=0.1 * margin)
    assert high == pytest.approx(float(values.mean()) + margin, abs=0.1 * margin)


def test_few_inputs_have_values_without_intervals() -> None:
    few = judge(4)
    found = few.judged("conditional_vendi", outputs(5, 4))
    assert found.value is not None
    assert few.bounds("conditional_vendi", found, 0.95) == (None, None)
    gap = few.gap("conditional_vendi", found, found, 0.95)
    assert gap is not None
    assert (gap.low, gap.high) == (None, None)


def test_resamples_in_which_a_set_has_no_value_do_not_count() -> None:
    found = judge(6, ("distinct_2",))
    judged = found.judged("distinct_2", Outputs(["two words", *["one"] * 5], [0] * 6, None))
    assert np.isnan(judged.replicates).any()
    assert found.bounds("distinct_2", judged, 0.95) == (1.0, 1.0)


def test_the_interval_of_a_set_metric_covers_the_difference_that_fresh_inputs_have() -> None:
    """Distinct-2 of outputs of two lengths; at nominal 95 % an interval that is a third too narrow would miss more."""
    n, samples = 30, 80

    def drawn(seed: int) -> tuple[Outputs, Outputs]:
        draw = np.random.default_rng(seed)
        sides = [[" ".join(draw.choice(WORDS, size=draw.integers(2, top))) for _ in range(n)] for top in (6, 9)]
        return Outputs(sides[0], [0] * n, None), Outputs(sides[1], [0] * n, None)

    whole = Judge(("distinct_2",), n, 200, 0, {}, None, KERNEL_Y.gram)
    fresh = [[whole.judged("distinct_2", side).value or 0.0 for side in drawn(1000 + k)] for k in range(200)]
    truth = float(np.mean([a - b for a, b in fresh]))
    covered = 0
    for k in range(samples):
        a, b = (whole.judged("distinct_2", side) for side in drawn(k))
        gap = whole.gap("distinct_2", a, b, 0.95)
        assert gap is not None
        assert gap.low is not None
        assert gap.high is not None
        covered += gap.low <= truth <= gap.high
    assert covered >= 70


def test_a_metric_that_is_undefined_has_no_bounds_and_no_gap() -> None:
    found = judge()
    single = found.judged("distinct_2", Outputs(["word"] * N, [0] * N, None))
    assert single.value is None
    assert found.bounds("distinct_2", single, 0.95) == (None, None)
    assert found.gap("distinct_2", single, single, 0.95) is None


def test_bounds_stay_within_the_metrics_range() -> None:
    found = judge(metrics=("distinct_2",))
    low, high = found.bounds("distinct_2", Judged(0.99, np.linspace(0.95, 1.0, B)), 0.95)
    assert low is not None
    assert 0 < low < 0.99
    assert high == 1.0
