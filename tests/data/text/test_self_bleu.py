"""Self-BLEU-2 of outputs and of resamples of them, against sacrebleu's own sentence scores."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu import BLEU

from condvne.data.text.self_bleu import SelfBleu
from tests.models import SENTENCES

TEXTS = [
    *SENTENCES,
    "A tensor holds the sum of all numbers, and the value.",
    "the the the dog the",
    "x",
    "Every function has a name.",
    "!",
]


def by_sacrebleu(texts: list[str]) -> float:
    bleu = BLEU(max_ngram_order=2, effective_order=True)
    scores = [bleu.sentence_score(text, texts[:i] + texts[i + 1 :]).score for i, text in enumerate(texts)]
    return float(np.mean(scores)) / 100


def test_the_whole_set_has_the_mean_of_sentence_scores_against_all_others() -> None:
    assert SelfBleu(TEXTS).score() == pytest.approx(by_sacrebleu(TEXTS), abs=1e-12)


def test_every_subset_has_sacrebleus_value_too() -> None:
    draws = np.random.default_rng(0)
    kept = draws.random((60, len(TEXTS))) < draws.uniform(0.3, 1.0, (60, 1))
    kept = kept[kept.sum(1) > 1]
    found = SelfBleu(TEXTS).of_subsets(kept)
    expected = [by_sacrebleu([text for text, held in zip(TEXTS, row, strict=True) if held]) for row in kept]
    assert found == pytest.approx(expected, abs=1e-12)


def test_equal_outputs_score_one_and_different_ones_zero() -> None:
    assert SelfBleu(["the old bridge"] * 4).score() == pytest.approx(1.0)
    assert SelfBleu(["a b c", "d e f", "g h i"]).score() == 0.0


def test_one_output_has_no_self_bleu() -> None:
    assert SelfBleu(["a b c"]).score() is None
    found = SelfBleu(["a b c", "a b c"]).of_subsets(np.array([[True, False], [True, True], [False, False]]))
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == pytest.approx(1.0)
