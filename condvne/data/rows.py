"""The rows of a table file: JSONL, a JSON array, CSV or TSV, each also .gz or .zst."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from condvne.data.compressed import content_suffix, read_chunks, read_text
from condvne.data.records import parse_array, read_jsonl
from condvne.errors import DataError


class Row(NamedTuple):
    """One row: its number (the line where it begins, or the entry of a JSON array), "file:line", and its fields."""

    number: int
    where: str
    fields: dict[str, Any]
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where it stands within its file: "line 4", "entry 4"."""
        return f"{self.unit} {self.number}"


_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LONGEST_FIELD = 1 << 30


def read_rows(path: str | Path) -> Iterator[Row]:
    """The rows of a table file, in its order.

    .jsonl, .ndjson: an object a line. .json: an array of objects (numbered by entry) or, when it does not begin with
    "[", an object a line. .csv, .tsv: a header and its rows, by the csv module's default quoting; fields may hold
    newlines, all values are strings, and blank lines are skipped. A byte order mark is skipped.

    Raises DataError, as "file:line: …", for anything malformed, and for an unknown suffix.
    """
    path = Path(path)
    suffix = content_suffix(path)
    if suffix in (".jsonl", ".ndjson"):
        return _line_rows(path)
    if suffix == ".json":
        return read_json(path)
    if suffix in _DELIMITERS:
        return iter(_read_csv(path, _DELIMITERS[suffix]))
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a table; give one of its files.")
    raise DataError(
        f"{path}: suffix {suffix or 'none'!r} is not that of a table; "
        "use .jsonl, .json, .csv or .tsv, each also with .gz or .zst."
    )


def read_json(path: str | Path) -> Iterator[Row]:
    """The objects of a .json file: a JSON array, read whole and numbered by entry, or an object a line, streamed."""
    first = b""
    for chunk in read_chunks(path):
        first = (first + chunk).removeprefix(b"\xef\xbb\xbf").lstrip()
        if first:
            break
    if not first.startswith(b"["):
        return _line_rows(path)
    entries = parse_array(read_text(path), str(path))
    return (Row(number, f"{path}: entry {number}", fields, "entry") for number, fields in enumerate(entries, start=1))


def _line_rows(path: str | Path) -> Iterator[Row]:
    return (Row(number, f"{path}:{number}", fields) for number, fields in read_jsonl(path))


def _read_csv(path: Path, delimiter: str) -> list[Row]:
    text = read_text(path)
    before = csv.field_size_limit(_LONGEST_FIELD)  # the module's only setting that is the whole process's
    try:
        lines = list(_csv_lines(path, text, delimiter))
    finally:
        csv.field_size_limit(before)
    if not lines:
        raise DataError(f"{path}: is empty; it must begin with a header line that names the fields.")
    _, header = lines[0]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"{path}:1: field {twice[0]!r} comes twice in the header; field names must differ.")
    rows = []
    for number, values in lines[1:]:
        if len(values) != len(header):
            raise DataError(
                f"{path}:{number}: has {len(values)} fields where the header has {len(header)} "
                f"({', '.join(header)}); quote fields that hold the delimiter or a newline."
            )
        rows.append(Row(number, f"{path}:{number}", dict(zip(header, values, strict=True))))
    return rows


def _csv_lines(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for values in reader:
            if values:
                yield begin, values
            begin = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}:{begin}: is not valid CSV ({error}); double the quotes inside quoted fields."
        ) from error
