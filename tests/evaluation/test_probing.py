"""Probes: grouped masses, entropies and which prompts are shown."""

from __future__ import annotations

import math

import pytest

import condvne as cv
from condvne.evaluation.probing import probe, probes

TEXTS = ["owl", "hen", "owl", "jay"]


def test_equal_texts_are_one_output() -> None:
    found = probe(TEXTS, [0.25] * 4, [0.1, 0.4, 0.1, 0.4])
    assert [(o.text, o.copies) for o in found.outputs] == [("owl", 2), ("hen", 1), ("jay", 1)]
    assert [o.before for o in found.outputs] == [0.5, 0.25, 0.25]
    assert [o.after for o in found.outputs] == pytest.approx([0.2, 0.4, 0.4])
    assert found.entropy_before == pytest.approx(1.5 * math.log(2))
    assert found.effective_before == pytest.approx(2**1.5)
    expected = 0.2 * math.log(0.4) + 0.8 * math.log(1.6)
    assert found.divergence == pytest.approx(expected)


def test_one_text_has_no_entropy_and_zero_mass_is_no_fault() -> None:
    assert probe(["owl"], [1.0], [1.0]).effective_after == 1.0
    found = probe(["owl", "hen"], [1.0, 0.0], [1.0, 0.0])
    assert (found.entropy_before, found.divergence) == (0.0, 0.0)


def test_the_prompts_that_moved_most_or_those_named() -> None:
    before = [[0.5, 0.5]] * 3
    after = [[0.5, 0.5], [0.9, 0.1], [0.6, 0.4]]
    arguments = (["a", "b", "c"], ["A", "B", "C"], [["x", "y"]] * 3, before, after)
    assert [p.id for p in probes(*arguments, chosen=2)] == ["b", "c"]
    assert [p.id for p in probes(*arguments, chosen=9)] == ["b", "c", "a"]
    named = probes(*arguments, chosen=["c", "a"])
    assert [(p.id, p.condition) for p in named] == [("c", "C"), ("a", "A")]
    with pytest.raises(cv.InputError, match="there is no prompt with id z; the first are a, b, c"):
        probes(*arguments, chosen=["z"])


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ([0.5, 0.5], "before: 2 weights for 4 candidates"),
        ([0.5, 0.5, 0.5, 0.5], "sum to 1, but sum to 2"),
        ([-0.5, 0.5, 0.5, 0.5], "non-negative"),
        ([math.nan, 0.5, 0.25, 0.25], "sum to nan"),
    ],
)
def test_weights_that_are_refused(before: list[float], message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        probe(TEXTS, before, [0.25] * 4)
