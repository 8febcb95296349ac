"""Self-BLEU-2: how much the outputs for different inputs repeat each other, by sacrebleu (Zhu et al. 2018)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from condvne.data.text.quality import check_packages

Array = npt.NDArray[np.float64]
ORDER = 2


class SelfBleu:
    """Mean BLEU-2 of each output against all the others as its references, in [0, 1]; higher is less diverse.

    Sentence BLEU as sacrebleu has it: n-grams of its "13a" tokens, clipped counts, the closest reference length, no
    n-gram orders beyond what the output has, and exponential smoothing.

    >>> SelfBleu(["the cat sat on it", "the cat sat on it", "dogs bark"]).score() < 1
    True
    """

    def __init__(self, texts: Sequence[str]) -> None:
        check_packages(["self_bleu_2"])
        from sacrebleu import BLEU

        self._bleu: Any = BLEU(max_ngram_order=ORDER, effective_order=True)
        self._texts = list(texts)

    def score(self) -> float | None:
        """Self-BLEU-2 of all outputs; None for fewer than two."""
        texts = self._texts
        if len(texts) < 2:
            return None
        scores = [self._bleu.sentence_score(t, texts[:i] + texts[i + 1 :]).score for i, t in enumerate(texts)]
        return float(np.mean(scores)) / 100

    def of_subsets(self, kept: npt.NDArray[np.bool_]) -> Array:
        """Self-BLEU-2 of B subsets, which hold output i where kept[b, i]: (B,), NaN for fewer than two outputs."""
        words = [self._bleu.tokenizer(text.rstrip()).split() for text in self._texts]
        lengths = np.array([len(w) for w in words])
        ngrams = [[Counter(zip(*(w[k:] for k in range(n)), strict=False)) for w in words] for n in (1, 2)]
        enough = kept.sum(1) > 1
        total = np.zeros(len(kept))
        for i in range(len(words)):
            held = kept[:, i] & enough
            others = kept[held]
            others[:, i] = False
            if held.any():
                total[held] += self._sentence(i, others, lengths, ngrams)
        scores: Array = np.full(len(kept), np.nan)
        scores[enough] = total[enough] / kept[enough].sum(1)
        return scores

    def _sentence(
        self,
        i: int,
        others: npt.NDArray[np.bool_],
        lengths: npt.NDArray[np.int64],
        ngrams: Sequence[Sequence[Counter[Any]]],
    ) -> Array:
        """BLEU-2 of output i for each row of `others`, which marks its references."""
        matched = [_matched(of_order, i, others) for of_order in ngrams]
        totals = [sum(of_order[i].values()) for of_order in ngrams]
        own = int(lengths[i])
        nearest = np.lexsort((lengths, np.abs(lengths - own)))
        reference = lengths[nearest[others[:, nearest].argmax(1)]]
        penalty = np.where(own < reference, np.exp(1 - reference / max(own, 1)), 1.0) if own else np.zeros(len(others))
        logs, smoothing = np.zeros(len(others)), np.ones(len(others))
        order = 0
        for correct, count in zip(matched, totals, strict=True):
            if count == 0:
                break
            order += 1
            smoothing = np.where(correct == 0, 2 * smoothing, smoothing)
            logs += np.log(np.where(correct == 0, 1 / (smoothing * count), correct / count))
        nothing = sum(matched) == 0
        scores: Array = np.where(nothing, 0.0, penalty * np.exp(logs / max(order, 1)))
        return scores


def _matched(counters: Sequence[Counter[Any]], i: int, others: npt.NDArray[np.bool_]) -> Array:
    """n-grams of output i found in its references, each as often as in the one that has it most: one a row."""
    own = counters[i]
    matched: Array = np.zeros(len(others))
    marks = others.astype(np.float32)
    for level in range(1, max(own.values(), default=0) + 1):
        grams = [gram for gram, count in own.items() if count >= level]
        has = np.array([[counter[gram] >= level for gram in grams] for counter in counters], dtype=np.float32)
        matched += (marks @ has > 0).sum(1)
    return matched
