"""Tables of conditions and outputs that users already have, read into groups that can be compared.

Wide form: a row is one condition, and each output field is a group, holding one output or a list of them.
Long form: a row is one output (or a list) of one condition and one group; rows of the same condition and group belong
together, and groups are matched by the condition's text.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from condvne.data.records import clean_text as clean_text  # callers that encode a table's texts need it
from condvne.data.records import has_visible, note_id, require_field
from condvne.data.rows import Row, read_rows
from condvne.data.seeding import seeded_key
from condvne.errors import DataError

_SHOWN = 5


@dataclass(frozen=True)
class OutputTable:
    """n conditions and, for each group, the outputs under each of them.

    `groups[name][i]` are the outputs of condition i, a list of at least one text; every group has the conditions in
    the same order and as many outputs of condition i as the others. `ids[i]` is the row's id, or the place of the
    (first) row that holds the condition ("line 4"). `notes` tell what was left out.
    Texts stand as in the file, lone surrogates included: pass them through `clean_text` before encoding.
    """

    conditions: list[str]
    ids: list[str]
    groups: dict[str, list[list[str]]]
    notes: list[str]


@dataclass
class _Collected:
    """Outputs by group and by id of the condition; `blank` holds the places of empty texts by id."""

    conditions: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # "line 4", or "line 4 (id 'a')"
    groups: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    blank: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, ids: Collection[str]) -> None:
        self.conditions = {i: text for i, text in self.conditions.items() if i in ids}
        self.groups = {name: {i: t for i, t in held.items() if i in ids} for name, held in self.groups.items()}


def read_table(
    path: str | Path,
    *,
    condition: str,
    outputs: Sequence[str],
    group: str | None = None,
    matched: bool = False,
    outputs_per_condition: int | None = None,
    empty: Literal["refuse", "drop"] = "refuse",
    seed: int = 0,
) -> OutputTable:
    """Read a JSONL, JSON, CSV or TSV file (also .gz, .zst) in wide form, or in long form when `group` is given.

    Args:
        condition: field of the condition's text.
        outputs: fields of the outputs; one group each (wide), or exactly one field (long).
        group: field of the group's name (long form).
        matched: long form only: keep only the conditions that all groups have.
        outputs_per_condition: use this many outputs of every condition and group, a choice that depends on `seed`.
        empty: refuse texts without a visible character, or drop their conditions from all groups.

    Raises DataError, naming rows or conditions, for malformed files, missing fields, values that are not texts, ids
    that come twice, empty texts, conditions that a group lacks, and numbers of outputs that differ between groups.
    """
    path = Path(path)
    _check_fields(path, condition, outputs, group)
    rows = read_rows(path)
    if group is None:
        collected = _collect_wide(rows, condition, outputs)
    else:
        collected = _collect_long(rows, condition, outputs[0], group)
    if not collected.conditions:
        raise DataError(f"{path}: holds no rows to score; give a file with at least one condition.")
    notes = [*_without_blank(path, collected, empty), *_match(path, collected, matched)]
    if outputs_per_condition is not None:
        _choose(path, collected, outputs_per_condition, seed)
    _check_equal_numbers(path, collected)
    if not collected.conditions:
        raise DataError(f"{path}: no condition is left to score ({'; '.join(notes)}).")
    ids = list(collected.conditions)
    groups = {name: [held[i] for i in ids] for name, held in collected.groups.items()}
    return OutputTable(list(collected.conditions.values()), ids, groups, notes)


def _check_fields(path: Path, condition: str, outputs: Sequence[str], group: str | None) -> None:
    named = [condition, *outputs, *([group] if group is not None else [])]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise DataError(
            f"{path}: field {twice[0]!r} is named twice; condition, outputs and group must be distinct fields."
        )
    if not outputs or (group is not None and len(outputs) > 1):
        wanted = "one field per group" if group is None else "exactly one field, since the group field names the group"
        raise DataError(f"{path}: outputs must name {wanted}, not {len(outputs)} fields.")


def _collect_wide(rows: Iterable[Row], condition: str, outputs: Sequence[str]) -> _Collected:
    collected = _Collected(groups={name: {} for name in outputs})
    has_ids: bool | None = None  # the first row decides
    for row in rows:
        has_ids = ("id" in row.fields and "id" not in (condition, *outputs)) if has_ids is None else has_ids
        row_id = _row_id(row) if has_ids else row.place
        note_id(collected.places, row_id, row.place, row.where)
        collected.places[row_id] = place = f"{row.place} (id {row_id!r})" if has_ids else row.place
        collected.conditions[row_id] = text = _one_text(row, condition)
        values = {name: _texts(row, name) for name in outputs}
        for name, texts in values.items():
            collected.groups[name][row_id] = texts
        places = [name for name, texts in {condition: [text], **values}.items() if _any_blank(texts)]
        if places:
            collected.blank[row_id] = [f"{place}, field {name!r}" for name in places]
    return collected


def _collect_long(rows: Iterable[Row], condition: str, output: str, group: str) -> _Collected:
    collected = _Collected()
    ids: dict[str, str] = {}
    for row in rows:
        text, name, texts = _one_text(row, condition), _one_text(row, group), _texts(row, output)
        if not name.strip():
            raise DataError(
                f"{row.where}: field {group!r}, the name of the group, is empty; name a group in every row."
            )
        condition_id = ids.setdefault(text, row.place)
        collected.places.setdefault(condition_id, row.place)
        collected.conditions[condition_id] = text
        collected.groups.setdefault(name, {}).setdefault(condition_id, []).extend(texts)
        places = [shown for shown, held in {condition: [text], output: texts}.items() if _any_blank(held)]
        if places:
            collected.blank.setdefault(condition_id, []).extend(f"{row.place}, field {p!r}" for p in places)
    return collected


def _without_blank(path: Path, collected: _Collected, empty: Literal["refuse", "drop"]) -> list[str]:
    if not collected.blank:
        return []
    places = [place for found in collected.blank.values() for place in found]
    if empty == "refuse":
        raise DataError(
            f"{path}: {_count(len(places), 'field')} without a visible character: {_some(places, '; ')}; "
            "fill them, or pass --empty drop to leave out their conditions in all groups."
        )
    collected.keep(collected.conditions.keys() - collected.blank.keys())
    dropped = _count(len(collected.blank), "condition")
    return [f"{dropped} with empty texts left out in all groups: {_some(places, '; ')}"]


def _match(path: Path, collected: _Collected, matched: bool) -> list[str]:
    total = len(collected.conditions)
    everywhere = {i for i in collected.conditions if all(i in held for held in collected.groups.values())}
    if len(everywhere) == total:
        return []
    lacking = "; ".join(
        f"group {name!r} lacks {_lacking(collected, held)}"
        for name, held in collected.groups.items()
        if len(held) < total
    )
    if not matched:
        raise DataError(f"{path}: {lacking}; pass --matched to keep only the {len(everywhere)} that all groups have.")
    collected.keep(everywhere)
    return [f"{total - len(everywhere)} of {total} conditions left out, since not all groups have them: {lacking}"]


def _lacking(collected: _Collected, held: Mapping[str, object]) -> str:
    missing = [_short(text) for i, text in collected.conditions.items() if i not in held]
    return f"{len(missing)} of {len(collected.conditions)} conditions ({_some(missing, ', ')})"


def _choose(path: Path, collected: _Collected, number: int, seed: int) -> None:
    if number < 1:
        raise DataError(f"--outputs-per-condition must be at least 1, not {number}.")
    for name, held in collected.groups.items():
        short = [
            f"{_short(collected.conditions[i])} has {len(texts)}" for i, texts in held.items() if len(texts) < number
        ]
        if short:
            raise DataError(
                f"{path}: group {name!r} has fewer than {number} outputs for {_count(len(short), 'condition')}: "
                f"{_some(short, ', ')}; lower --outputs-per-condition."
            )
        for i, texts in held.items():
            keys = [seeded_key(seed, "output", name, i, position) for position in range(len(texts))]
            held[i] = [texts[p] for p in sorted(heapq.nsmallest(number, range(len(texts)), key=keys.__getitem__))]


def _check_equal_numbers(path: Path, collected: _Collected) -> None:
    for i, text in collected.conditions.items():
        numbers = {name: len(held[i]) for name, held in collected.groups.items()}
        if len(set(numbers.values())) > 1:
            shown = ", ".join(f"{count} in group {name!r}" for name, count in numbers.items())
            raise DataError(
                f"{path}: condition {_short(text)} ({collected.places[i]}) has different numbers of outputs, {shown}, "
                "and scores grow with the number; "
                f"pass --outputs-per-condition K (here at most {min(numbers.values())})."
            )


def _row_id(row: Row) -> str:
    value = require_field(row.fields, "id", row.where)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise DataError(f"{row.where}: field 'id' must be a string or integer, not {type(value).__name__}.")
    return str(value)


def _one_text(row: Row, name: str) -> str:
    value = require_field(row.fields, name, row.where)
    if not isinstance(value, str):
        raise _not_text(row, name, value, "a string")
    return value


def _texts(row: Row, name: str) -> list[str]:
    value = require_field(row.fields, name, row.where)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _not_text(row, name, value, "a string or a list of strings")
    return texts


def _not_text(row: Row, name: str, value: Any, wanted: str) -> DataError:
    shown = ", ".join(sorted({type(item).__name__ for item in value})) if isinstance(value, list) else None
    found = f"a list of {shown}" if shown else type(value).__name__
    return DataError(
        f"{row.where}: field {name!r} must be {wanted}, not {found}; the row's fields are {', '.join(row.fields)}."
    )


def _any_blank(texts: Sequence[str]) -> bool:
    return not texts or any(not has_visible(text) for text in texts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _some(items: Sequence[str], joint: str) -> str:
    return joint.join(items[:_SHOWN]) + (f"{joint}… ({len(items)} in all)" if len(items) > _SHOWN else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
