"""Inputs from files and data sets in their published layouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import condvne as cv
from condvne.data.config.mbr import FileInputs, HubInputs
from condvne.data.text.inputs import read_inputs


def write_articles(path: Path, count: int = 20) -> Path:
    rows = [{"id": f"n{i}", "article": f"Article {i}.", "highlights": f"Point {i}."} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settings(path: Path) -> FileInputs:
    return FileInputs(source="file", path=str(path), condition_field="article", references_field="highlights")


def test_a_seeded_choice_in_the_order_of_the_file_that_more_rows_hardly_change(tmp_path: Path) -> None:
    chosen = read_inputs(settings(write_articles(tmp_path / "a.jsonl")), 8, seed=1)
    assert len(chosen) == 8
    assert [record.id for record in chosen] == sorted((r.id for r in chosen), key=lambda name: int(name[1:]))
    assert all(r.references == [f"Point {r.id[1:]}."] for r in chosen)
    assert all(r.condition == f"Article {r.id[1:]}." for r in chosen)
    again = read_inputs(settings(write_articles(tmp_path / "b.jsonl", 21)), 8, seed=1)
    assert len({r.id for r in chosen} & {r.id for r in again}) >= 7
    other = read_inputs(settings(tmp_path / "a.jsonl"), 8, seed=2)
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
    assert read_inputs(source, 6, seed=0) == read_inputs(settings(path), 6, seed=0)


def test_what_cannot_be_read_is_refused_by_row(tmp_path: Path) -> None:
    path = write_articles(tmp_path / "a.jsonl", 3)
    with pytest.raises(cv.DataError, match="holds 3 inputs, fewer than the 4 asked for"):
        read_inputs(settings(path), 4, seed=0)
    path.write_text('{"id": "x", "article": "a"}\n{"id": "y", "article": "  "}\n')
    with pytest.raises(cv.DataError, match=r":2: field 'article' must be a text with a visible character"):
        read_inputs(settings(path), 1, seed=0)
    path.write_text('{"id": "x", "article": "a"}\n{"id": "x", "article": "b"}\n')
    with pytest.raises(cv.DataError, match="x came more than once"):
        read_inputs(settings(path), 1, seed=0)
    absent = HubInputs(source="hub", name=str(tmp_path / "nowhere"))
    with pytest.raises(cv.ConfigError, match=r"candidates\.inputs\.name: .*nowhere"):
        read_inputs(absent, 1, seed=0)
