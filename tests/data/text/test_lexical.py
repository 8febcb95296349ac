"""Distinct-n: counted by hand, and many subsamples at once against one by one."""

from __future__ import annotations

import numpy as np
import pytest

from condvne.data.text.lexical import (
    DistinctCounter,
    distinct_n,
    ngrams_of_pair,
    ngrams_of_text,
    text_ngrams,
    token_ngrams,
)


@pytest.mark.parametrize(
    ("prefix", "continuation", "n", "expected"),
    [
        ([1, 2, 3], [4, 5], 1, [(4,), (5,)]),
        ([1, 2, 3], [4, 5], 2, [(3, 4), (4, 5)]),
        ([1, 2, 3], [4, 5], 3, [(2, 3, 4), (3, 4, 5)]),
        ([1], [4, 5, 6], 3, [(1, 4, 5), (4, 5, 6)]),
        ([], [4, 5], 2, [(4, 5)]),
        ([1], [4], 3, []),
        ([1, 2, 3], [], 2, []),
    ],
)
def test_token_ngrams_end_inside_the_continuation(
    prefix: list[int], continuation: list[int], n: int, expected: list[tuple[int, ...]]
) -> None:
    assert ngrams_of_pair(prefix, continuation, n) == expected


def test_words_stand_as_they_are_and_characters_include_white_space() -> None:
    assert ngrams_of_text("The cat, the  cat\n", 2, "words") == [("The", "cat,"), ("cat,", "the"), ("the", "cat")]
    assert ngrams_of_text("a b", 2, "characters") == [("a", " "), (" ", "b")]
    assert ngrams_of_text("a", 2, "words") == []


def test_share_of_distinct_ngrams_over_the_group() -> None:
    assert distinct_n([[("a",), ("b",)], [("a",)], []]) == 2 / 3
    assert distinct_n([[], []]) is None
    assert DistinctCounter([[], []]).score([0, 1]) is None
    assert DistinctCounter([[("a",)]]).score([]) is None


def test_group_with_several_outputs_per_condition() -> None:
    tokens = token_ngrams([[1, 2], [1, 2]], [[[3, 4], [3, 5]], [[3, 4]]], 2)
    assert tokens == [[(2, 3), (3, 4), (2, 3), (3, 5)], [(2, 3), (3, 4)]]
    assert distinct_n(tokens) == 3 / 6
    assert text_ngrams([["a b", "b a"], ["c"]], 1, "words") == [[("a",), ("b",), ("b",), ("a",)], [("c",)]]
    with pytest.raises(ValueError, match="zip"):
        token_ngrams([[1]], [], 2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_subsamples_agree_with_counting_them_one_by_one(n: int) -> None:
    rng = np.random.default_rng(0)
    groups = [[list(rng.integers(0, 6, rng.integers(0, 6))) for _ in range(rng.integers(0, 4))] for _ in range(200)]
    rows = token_ngrams([[1, 2] for _ in groups], groups, n)
    counter = DistinctCounter(rows)
    for size in (1, 2, 17, 200):
        chosen = rng.integers(0, len(rows), size)  # a condition drawn twice counts twice
        assert counter.score(chosen) == distinct_n([rows[i] for i in chosen])
        assert counter.score(chosen.tolist()) == counter.score(chosen)
    with pytest.raises(IndexError):
        counter.score([200])
