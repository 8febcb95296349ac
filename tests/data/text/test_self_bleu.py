"""Self-BLEU-2 of outputs and of resamples of them, against sacrebleu's own sentence scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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


def by_sacrebleu(texts: list[str], counts: npt.NDArray[np.int64]) -> float:
    bleu = BLEU(max_ngram_order=2, effective_order=True)
    total = 0.0
    for i, count in enumerate(counts):
        references = [texts[j] for j, other in enumerate(counts) if other and j != i]
        total += count * bleu.sentence_score(texts[i], references).score if count else 0.0
    return float(total / counts.sum() / 100)


def test_the_whole_set_has_the_mean_of_sentence_scores_against_all_others() -> None:
    expected = by_sacrebleu(TEXTS, np.ones(len(TEXTS), dtype=np.int64))
    assert SelfBleu(TEXTS).score() == pytest.approx(expected, abs=1e-12)


def test_every_resample_has_sacrebleus_value_too() -> None:
    draws = np.random.default_rng(0).integers(len(TEXTS), size=(60, len(TEXTS)))
    counts = np.stack([np.bincount(row, minlength=len(TEXTS)) for row in draws])
    found = SelfBleu(TEXTS).resampled(counts)
    assert found == pytest.approx([by_sacrebleu(TEXTS, row) for row in counts], abs=1e-12)


def test_equal_outputs_score_one_and_different_ones_zero() -> None:
    assert SelfBleu(["the old bridge"] * 4).score() == pytest.approx(1.0)
    assert SelfBleu(["a b c", "d e f", "g h i"]).score() == 0.0


def test_copies_of_one_input_are_no_references_for_each_other() -> None:
    counts = np.array([[2, 1, 0], [3, 0, 0]])
    found = SelfBleu(["a b c", "d e f", "a b c"]).resampled(counts)
    assert found[0] == 0.0
    assert np.isnan(found[1])


def test_one_output_has_no_self_bleu() -> None:
    assert SelfBleu(["a b c"]).score() is None
