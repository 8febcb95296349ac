from __future__ import annotations

from pathlib import Path

import pytest

from condvne.data.images.checking import Checked
from condvne.data.images.records import ImageRecord, grouped, read_image_records
from condvne.data.images.sources import Source
from condvne.data.records import dump
from condvne.errors import DataError

SOURCES = [Source("a.png"), Source("s.tar", offset=512, size=9, member="x.png"), Source("b.npz", row=0)]


def records() -> list[ImageRecord]:
    return [
        ImageRecord(f"g/{row}", "0", "a cat", "g", Checked(source, "d" * 32, 3, 4, ("CMYK",)))
        for row, source in enumerate(SOURCES)
    ]


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "images.jsonl"
    path.write_text("".join(dump(record.to_json()) + "\n" for record in records()))
    assert read_image_records(path) == records()
    assert grouped(records()) == {"g": records()}


@pytest.mark.parametrize(
    ("change", "message"),
    [({"source": {"file": "a"}}, "field 'source' names no image"), ({"id": "g/0"}, "was already given in line 1")],
)
def test_records_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "images.jsonl"
    lines = [records()[0].to_json(), records()[1].to_json() | change]
    path.write_text("".join(dump(line) + "\n" for line in lines))
    with pytest.raises(DataError, match=rf"images\.jsonl:2: .*{message}"):
        read_image_records(path)


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    flat = records()[0].to_json()
    del flat["digest"]
    (tmp_path / "images.jsonl").write_text(dump(flat) + "\n")
    with pytest.raises(DataError, match="has no field 'digest'"):
        read_image_records(tmp_path / "images.jsonl")
