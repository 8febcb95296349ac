"""Texts to conditional Vendi scores with any encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.errors import InputError
from condvne.integrations.texts import TextScore, encoded

CONDITIONS = ["one", "one", "two", "two", "three", "three"]
OUTPUTS = ["a", "b", "a", "c", "d", "d"]


def letters(texts: Sequence[str]) -> list[list[float]]:
    return [[float(text.count(c)) for c in "abcdefhnortw"] for text in texts]


class Object:
    """An encoder as sentence-transformers has it: `encode`, in inference mode and half precision."""

    @torch.inference_mode()
    def encode(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor(letters(texts), dtype=torch.float16)


@pytest.mark.parametrize("encoder", [letters, Object()])
def test_the_score_is_that_of_the_vectors(encoder: Any) -> None:
    x, y = (torch.tensor(letters(texts), dtype=torch.float64) for texts in (CONDITIONS, OUTPUTS))
    expected = cv.conditional_vendi(x, y, kernel_x="cosine", order=0.5)
    assert TextScore(encoder, kernel_x="cosine", order=0.5)(CONDITIONS, OUTPUTS) == pytest.approx(expected.item())


def test_delta_kernels_count_different_answers() -> None:
    score = TextScore(letters, "delta", "delta")(CONDITIONS, OUTPUTS)
    assert score == pytest.approx(2 ** (2 / 3))  # two answers to two conditions in three, one to the third


@pytest.mark.parametrize(
    ("conditions", "outputs", "said"),
    [
        (CONDITIONS, OUTPUTS[:2], "6 conditions for 2 outputs"),
        ([], [], "no pairs"),
        (["a", "b"], ["c", None], "outputs must be texts, but rows 1 are not"),
    ],
)
def test_what_is_no_pair_of_texts_is_refused(conditions: Any, outputs: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        TextScore(letters)(conditions, outputs)


def test_encoders_that_give_no_row_a_text_are_refused() -> None:
    with pytest.raises(InputError, match=r"the encoder gave shape \(1, 2\) for 2 texts"):
        encoded(lambda texts: [[1.0, 2.0]], ["a", "b"])
