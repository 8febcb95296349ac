"""Records: one JSON object a line, UTF-8; token ids are the truth, texts are decoded from them."""

from __future__ import annotations

import json
import logging
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from condvne.data.compressed import read_lines
from condvne.errors import DataError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = {"Zs", "Zl", "Zp", "Cc", "Cf"}  # spaces, line ends, controls, formats such as U+200B and U+FEFF
_IDS = "_ids"
_log = logging.getLogger(__name__)


def dump(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON without its newline: characters as they are, lone surrogates as \\udXXX.

    Raises DataError for NaN, infinities and values that JSON does not know.
    """
    try:
        line = json.dumps(dict(record), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise DataError(f"record {record.get('id')!r} cannot be written as JSON ({error}).") from error
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def clean_text(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD: tokenizers and encoders refuse such code points."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def has_visible(text: str) -> bool:
    """Whether any character of the text can be seen: not only white space, controls and zero-width characters."""
    return any(unicodedata.category(c) not in _INVISIBLE for c in text)


def parse_object(text: str, where: str) -> dict[str, Any]:
    """One JSON object. Raises DataError, beginning with `where`, for broken JSON, NaN, infinities and other values."""
    return _object(_parse(text, where), where)


def parse_array(text: str, where: str) -> list[dict[str, Any]]:
    """A JSON array of objects. Raises DataError as `parse_object`, naming the first entry that is no object."""
    values = _parse(text, where)
    if not isinstance(values, list):
        raise DataError(f"{where}: must hold one JSON array of objects, not a value of type {type(values).__name__}.")
    return [_object(value, f"{where}: entry {number}") for number, value in enumerate(values, start=1)]


def read_jsonl(path: str | Path, *, tolerate_torn_tail: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file (plain, .gz, .zst) with their line numbers, streamed.

    A byte order mark is skipped, and so are blank lines; only "\\n" ends a line, so U+2028 and its like may stand
    inside strings. With `tolerate_torn_tail`, a last line that lacks its newline and does not parse, as a killed
    writer leaves it, is left out and logged as a warning.

    Raises DataError, as "file:line: …", for broken JSON, a line that is no object, NaN, infinities and invalid UTF-8.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}:{number}"
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            record = parse_object(_decode(line.rstrip(b"\r\n"), where), where)
        except DataError:
            if not tolerate_torn_tail or line.endswith(b"\n"):
                raise
            _log.warning("%s: the last line was cut off while it was written and is left out.", where)
            return
        yield number, record


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repetition
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, character {error.colno}" if error.lineno > 1 else f"character {error.colno}"
        raise DataError(f"{where}: is not valid JSON ({error.msg} at {place}); mend it there.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not usable JSON ({error}).") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: must be a JSON object, not a value of type {type(value).__name__}.")
    return value


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: is not valid UTF-8 ({error.reason} at byte {error.start + 1}); save the file as UTF-8."
        ) from error


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is too large for a number")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} comes twice in one object; rename or remove one")
    return held


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value; replace it by a number or null")


@dataclass(frozen=True)
class PairRecord:
    """A prefix with the continuation from the training text and those that a model gave it.

    `outputs` and `output_ids` map the name of a group (a decoding strategy) to its continuation: text and token ids.
    """

    id: str
    prefix: str
    prefix_ids: list[int]
    training: str
    training_ids: list[int]
    outputs: dict[str, str] = field(default_factory=dict)
    output_ids: dict[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The flat form of a line: id, prefix, prefix_ids, training, training_ids, greedy, greedy_ids, …

        Raises DataError when a group has only one of text and ids, or its name meets another field.
        """
        flat: dict[str, Any] = {
            "id": self.id,
            "prefix": self.prefix,
            "prefix_ids": self.prefix_ids,
            "training": self.training,
            "training_ids": self.training_ids,
        }
        if self.outputs.keys() != self.output_ids.keys():
            lone = sorted(self.outputs.keys() ^ self.output_ids.keys())
            raise DataError(f"record {self.id!r}: group {lone[0]!r} must have both a text and token ids.")
        for name, text in self.outputs.items():
            if name in flat or name + _IDS in flat:
                raise DataError(f"record {self.id!r}: group name {name!r} meets another field; rename the group.")
            flat[name], flat[name + _IDS] = text, self.output_ids[name]
        return flat

    @classmethod
    def from_json(cls, flat: Mapping[str, Any], where: str) -> PairRecord:
        """Read the flat form. Raises DataError, beginning with `where`, for missing or mistyped fields."""
        names = [key for key, value in flat.items() if key != "id" and isinstance(value, str)]
        outputs = {name: _text(flat, name, where) for name in names if name not in ("prefix", "training")}
        known = {"id", "prefix", "training", *outputs}
        known |= {name + _IDS for name in known - {"id"}}
        unknown = sorted(flat.keys() - known)
        if unknown:
            raise DataError(f"{where}: field {unknown[0]!r} belongs to no pair of a text and its token ids.")
        return cls(
            id=_text(flat, "id", where),
            prefix=_text(flat, "prefix", where),
            prefix_ids=_token_ids(flat, "prefix_ids", where),
            training=_text(flat, "training", where),
            training_ids=_token_ids(flat, "training_ids", where),
            outputs=outputs,
            output_ids={name: _token_ids(flat, name + _IDS, where) for name in outputs},
        )


def read_pair_records(
    path: str | Path, *, groups: Sequence[str] = (), tolerate_torn_tail: bool = False
) -> list[PairRecord]:
    """All pair records of a JSONL file, in its order.

    Raises DataError for what `read_jsonl` refuses, for missing or mistyped fields, for a record without one of
    `groups`, and for an id that comes twice (both lines are named).
    """
    records = []
    lines: dict[str, str] = {}
    for number, flat in read_jsonl(path, tolerate_torn_tail=tolerate_torn_tail):
        where = f"{path}:{number}"
        for name in groups:
            _text(flat, name, where)
        record = PairRecord.from_json(flat, where)
        note_id(lines, record.id, f"line {number}", where)
        records.append(record)
    return records


def note_id(places: dict[str, str], record_id: str, place: str, where: str) -> None:
    """Enter an id into the map from ids to their places. Raises DataError naming both places when it is there."""
    if record_id in places:
        raise DataError(f"{where}: id {record_id!r} was already given in {places[record_id]}; ids must differ.")
    places[record_id] = place


def require_field(flat: Mapping[str, Any], name: str, where: str) -> Any:
    """The value of a field. Raises DataError naming the fields that are there when it is missing."""
    if name not in flat:
        raise DataError(f"{where}: has no field {name!r}; its fields are {', '.join(map(str, flat)) or 'none'}.")
    return flat[name]


def _text(flat: Mapping[str, Any], name: str, where: str) -> str:
    value = require_field(flat, name, where)
    if not isinstance(value, str):
        raise DataError(f"{where}: field {name!r} must be a string, not {type(value).__name__}.")
    return value


def _token_ids(flat: Mapping[str, Any], name: str, where: str) -> list[int]:
    value = require_field(flat, name, where)
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise DataError(f"{where}: field {name!r} must be a list of token ids (integers, none negative).")
    return value
