"""What a reader is told of the texts that an encoder cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from condvne.evaluation import Embedder


class Shortsighted:
    """Reads the first four characters."""

    name, dimension = "shortsighted", 4

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[float(ord(c)) for c in text[:4].ljust(4)] for text in texts])

    def truncated(self, texts: Sequence[str]) -> int:
        return sum(len(text) > 4 for text in texts)


@pytest.mark.parametrize(("short", "warned"), [(9, True), (10, False)])
def test_a_tenth_of_cut_texts_is_a_warning_and_fewer_a_note(tmp_path: Path, short: int, warned: bool) -> None:
    embedder = Embedder(Shortsighted(), tmp_path, torch.device("cpu"), lambda *_: None, notes=[])
    texts = [*(f"{i:02d}" for i in range(short)), "00", "longer than four"]
    vectors = embedder.vectors("outputs", texts, [str(i) for i in range(len(texts))])
    assert vectors.shape == (short + 2, 4)
    assert vectors[0].equal(vectors[short])
    assert f"embeddings of outputs: {short + 1} distinct texts of {short + 2}" in embedder.notes
    told = (
        f"1 of {short + 1} distinct texts of outputs are longer than the encoder reads and were cut there: what "
        "differs only behind the cut counts as equal."
    )
    assert (embedder.warnings == [told], told in embedder.notes) == (warned, not warned)
