"""Inputs from files and data sets in their published layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import condvne as cv
from condvne.data.config import FileCorpus, Paragraphs
from condvne.data.config.mbr import CorpusInputs, FileInputs, HubInputs
from condvne.data.text.candidates import CandidateRecord
from condvne.data.text.inputs import read_inputs
from tests.corpora import write_corpus
from tests.models import byte_tokenizer


def write_articles(path: Path, count: int = 20) -> Path:
    rows = [{"id": f"n{i}", "article": f"Article {i}.", "highlights": f"Point {i}."} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tokenizer() -> Any:
    raise AssertionError("files and data sets need no tokenizer")


def read(source: FileInputs | HubInputs, count: int, seed: int) -> list[CandidateRecord]:
    found = read_inputs(source, count, seed, tokenizer)
    assert found.notes == []
    return found.records


def settings(path: Path) -> FileInputs:
    return FileInputs(source="file", path=str(path), condition_field="article", references_field="highlights")


def test_a_seeded_choice_in_the_order_of_the_file_that_more_rows_hardly_change(tmp_path: Path) -> None:
    chosen = read(settings(write_articles(tmp_path / "a.jsonl")), 8, seed=1)
    assert len(chosen) == 8
    assert [record.id for record in chosen] == sorted((r.id for r in chosen), key=lambda name: int(name[1:]))
    assert all(r.references == [f"Point {r.id[1:]}."] for r in chosen)
    assert all(r.condition == f"Article {r.id[1:]}." for r in chosen)
    again = read(settings(write_articles(tmp_path / "b.jsonl", 21)), 8, seed=1)
    assert len({r.id for r in chosen} & {r.id for r in again}) >= 7
    other = read(settings(tmp_path / "a.jsonl"), 8, seed=2)
    assert {r.id for r in other} != {r.id for r in chosen}


def test_a_saved_data_set_and_its_file_give_the_same_inputs(tmp_path: Path) -> None:
    import datasets

    path = write_articles(tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path / "saved")
    source = HubInputs(
        source="hub",
        name=str(tmp_path / "saved"),
        split="test",
        text_field="article",
        references_field="highlights",
        id_field="id",
    )
    assert read(source, 6, seed=0) == read(settings(path), 6, seed=0)


def test_what_cannot_be_read_is_refused_by_row(tmp_path: Path) -> None:
    path = write_articles(tmp_path / "a.jsonl", 3)
    with pytest.raises(cv.DataError, match="holds 3 inputs, fewer than the 4 asked for"):
        read(settings(path), 4, seed=0)
    path.write_text('{"id": "x", "article": "a"}\n{"id": "y", "article": "  "}\n')
    with pytest.raises(cv.DataError, match=r":2: field 'article' must be a text with a visible character"):
        read(settings(path), 1, seed=0)
    path.write_text('{"id": "x", "article": "a"}\n{"id": "x", "article": "b"}\n')
    with pytest.raises(cv.DataError, match="x came more than once"):
        read(settings(path), 1, seed=0)
    absent = HubInputs(source="hub", name=str(tmp_path / "nowhere"))
    with pytest.raises(cv.ConfigError, match=r"candidates\.inputs\.name: .*nowhere"):
        read(absent, 1, seed=0)


def test_beginnings_of_paragraphs_have_what_follows_as_reference(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl", documents=12)
    source = CorpusInputs(
        source="corpus",
        corpus=FileCorpus(source="files", paths=[str(tmp_path / "corpus.jsonl")]),
        paragraphs=Paragraphs(min_characters=100),
        prefix_tokens=20,
        continuation_tokens=10,
    )
    found = read_inputs(source, 5, 0, byte_tokenizer)
    texts = [
        " ".join(json.loads(line)["text"].split()) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()
    ]
    assert len(found.records) == 5
    for record in found.records:
        (reference,) = record.references
        assert record.outputs == []
        assert any(text.startswith(record.condition + reference) for text in texts)
