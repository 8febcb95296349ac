"""Lists of classes: by them the indices of one group, the synsets of another and the names of a third are matched."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condvne.data.compressed import read_text
from condvne.data.listing import listed
from condvne.errors import DataError

_SYNSET = re.compile(r"n[0-9]{8}")


@dataclass(frozen=True)
class ClassList:
    """Classes in the order of their indices.

    Attributes:
        names: for each class its name in words.
        indices: index by every way to write a class: "7", "007", a synset, the whole name.
    """

    names: list[str] = field(default_factory=list)
    indices: Mapping[str, int] = field(default_factory=dict)

    def resolve(self, label: str) -> int | None:
        """The index of a class however it is written; None for one that the list does not know."""
        if label in self.indices:
            return self.indices[label]
        number = int(label) if label.isdecimal() else -1
        return number if 0 <= number < len(self.names) else None


def read_classes(path: Path) -> ClassList:
    """A list of classes.

    Plain text: a class a line, its name, or a synset and its names ("n01440764 tench, Tinca tinca", as ImageNet's
    LOC_synset_mapping.txt). JSON: a list of names, or {"0": name} or {"0": ["n01440764", "tench"]}.

    Raises DataError for another form, and for classes that cannot be told apart.
    """
    entries = _json_entries(path) if path.suffix.lower() == ".json" else _line_entries(path)
    names = [name for _, name in entries]
    often = {name for name, count in Counter(names).items() if count > 1}  # ImageNet has two cranes, told by synset
    indices: dict[str, int] = {}
    for index, (synset, name) in enumerate(entries):
        labels = [label for label in (synset, name) if label is not None and label not in often]
        if not labels:
            twice = [place for place, other in enumerate(names) if other == name]
            raise DataError(f"{path}: classes {twice[0]} and {twice[1]} are both named {name!r}.")
        known = next((label for label in labels if label in indices), None)
        if known is not None:
            raise DataError(f"{path}: classes {indices[known]} and {index} are both named {known!r}.")
        indices |= dict.fromkeys(labels, index)
    if not names:
        raise DataError(f"{path}: lists no classes.")
    return ClassList(names, indices)


def resolved_labels(labels: list[str], classes: ClassList, group: str) -> list[str]:
    """Labels as the list's indices. Raises DataError naming those that the list does not know."""
    found = {label: classes.resolve(label) for label in dict.fromkeys(labels)}
    unknown = [label for label, index in found.items() if index is None]
    if unknown:
        raise DataError(
            f"group {group!r}: {len(unknown)} classes are not in the list of {len(classes.names)}: {listed(unknown)}."
        )
    return [str(found[label]) for label in labels]


def _line_entries(path: Path) -> list[tuple[str | None, str]]:
    entries: list[tuple[str | None, str]] = []
    for line in read_text(path).splitlines():
        if not line.strip():
            continue
        first, _, rest = line.strip().partition(" ")
        entries.append((first, _first_name(rest) or first) if _SYNSET.fullmatch(first) else (None, line.strip()))
    return entries


def _json_entries(path: Path) -> list[tuple[str | None, str]]:
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise DataError(f"{path}: is not valid JSON ({error}).") from error
    if isinstance(content, dict):
        if sorted(content) != sorted(str(i) for i in range(len(content))):
            raise DataError(f'{path}: keys must be the class indices "0" to "{len(content) - 1}".')
        content = [content[str(i)] for i in range(len(content))]
    if not isinstance(content, list):
        raise DataError(f"{path}: must hold a list of classes or an object by class index.")
    return [_json_entry(path, index, entry) for index, entry in enumerate(content)]


def _json_entry(path: Path, index: int, entry: Any) -> tuple[str | None, str]:
    if isinstance(entry, str) and entry.strip():
        return None, entry.strip()
    if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
        return entry[0], entry[1].replace("_", " ")
    raise DataError(f"{path}: class {index} must be a name, or a synset and a name.")


def _first_name(names: str) -> str:
    return names.split(",")[0].strip()
