"""Distinct-n: the share of distinct n-grams among all n-grams of a group of outputs.

Paper A reports Distinct-2 and Distinct-3 of continuations without naming the unit, so the unit is a setting:

* tokens: n-grams over prefix and continuation that end inside the continuation (short continuations have some too);
* words: n-grams of the output's white-space separated words, as they stand (case and punctuation kept);
* characters: n-grams of the output's characters, white space included.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Ngram = tuple[Hashable, ...]


def ngrams_of_pair(prefix_ids: Sequence[int], continuation_ids: Sequence[int], n: int) -> list[Ngram]:
    """The token n-grams over prefix + continuation whose last token lies in the continuation, in order.

    There are len(continuation_ids) of them, fewer where prefix and continuation are too short to reach back.
    """
    ids = [*prefix_ids, *continuation_ids]
    first_end = max(len(prefix_ids), n - 1)
    return [tuple(ids[end - n + 1 : end + 1]) for end in range(first_end, len(ids))]


def ngrams_of_text(text: str, n: int, unit: Literal["words", "characters"]) -> list[Ngram]:
    """The n-grams of words or characters within one output, in order; none when it is shorter than n."""
    units: Sequence[str] = text.split() if unit == "words" else text
    return [tuple(units[start : start + n]) for start in range(len(units) - n + 1)]


def token_ngrams(
    prefix_ids: Sequence[Sequence[int]], output_ids: Sequence[Sequence[Sequence[int]]], n: int
) -> list[list[Ngram]]:
    """For each condition, the token n-grams of all its outputs: `prefix_ids[i]` with every one of `output_ids[i]`."""
    return [
        [ngram for ids in outputs for ngram in ngrams_of_pair(prefix, ids, n)]
        for prefix, outputs in zip(prefix_ids, output_ids, strict=True)
    ]


def text_ngrams(outputs: Sequence[Sequence[str]], n: int, unit: Literal["words", "characters"]) -> list[list[Ngram]]:
    """For each condition, the word or character n-grams of all its outputs."""
    return [[ngram for text in texts for ngram in ngrams_of_text(text, n, unit)] for texts in outputs]


def distinct_n(sequences: Iterable[Iterable[Ngram]]) -> float | None:
    """Distinct n-grams / all n-grams over all sequences together, in (0, 1]; None where there is not one n-gram."""
    ngrams = [ngram for sequence in sequences for ngram in sequence]
    return len(set(ngrams)) / len(ngrams) if ngrams else None


class DistinctCounter:
    """Distinct-n of many subsamples of one group's conditions; n-grams become integers once, at the beginning.

    `rows[i]` holds the n-grams of condition i, those of several outputs one after another.
    """

    def __init__(self, rows: Sequence[Sequence[Ngram]]) -> None:
        numbers: dict[Ngram, int] = {}
        ids = [numbers.setdefault(ngram, len(numbers)) for row in rows for ngram in row]
        self._ids: npt.NDArray[np.int64] = np.array(ids, dtype=np.int64)
        self._lengths: npt.NDArray[np.int64] = np.array([len(row) for row in rows], dtype=np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._size = len(numbers)

    def score(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> float | None:
        """Distinct-n over the conditions at these indices, a condition counted as often as it is drawn.

        None where they hold not one n-gram. Raises IndexError for an index out of range.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        lengths = self._lengths[chosen]
        total = int(lengths.sum())
        if total == 0:
            return None
        # position of every chosen n-gram: its row's start plus 0, 1, 2, … within the row
        offsets = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.repeat(self._starts[chosen], lengths) + offsets
        seen = np.zeros(self._size, dtype=bool)
        seen[self._ids[positions]] = True
        return int(seen.sum()) / total
