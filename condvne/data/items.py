"""Items of a set, as `condvne profile` compares them: texts, or SMILES, from tables and files of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from condvne.data.compressed import content_suffix, read_text
from condvne.data.config.profile import ItemSource
from condvne.data.listing import counted, listed
from condvne.data.records import clean_text, has_visible, require_field
from condvne.data.rows import read_rows
from condvne.data.seeding import seeded_key
from condvne.errors import DataError

LINES = (".txt", ".text", ".smi", ".smiles", ".md")
UNSAID = ("nan", "<na>")  # what pandas writes for nothing


@dataclass(frozen=True)
class Item:
    """A text and where it stands."""

    text: str
    where: str


def read_items(name: str, source: ItemSource, warnings: list[str]) -> list[Item]:
    """The items of a set, in the order of its file; those without a visible character are left out with a warning.

    A table's "nan" may be a text, or what another program wrote for nothing: it stays, with a warning.

    Raises DataError for what cannot be read, a table without its column, or fewer than two items.
    """
    path = Path(source.path)
    found = list(_of_lines(path, source) if content_suffix(path) in LINES else _of_table(path, source))
    items = [item for item in found if has_visible(item.text)]
    blank = [item.where for item in found if not has_visible(item.text)]
    if blank:
        warnings.append(
            f"{name}: left out, without a visible character: {counted(len(blank), 'item')} ({listed(blank)})."
        )
    unsaid = [item.where for item in items if item.text.strip().lower() in UNSAID]
    if unsaid and content_suffix(path) not in LINES:
        warnings.append(
            f"{name}: counted as texts though they read nan: {counted(len(unsaid), 'item')} ({listed(unsaid)}); empty "
            "them where nothing is meant."
        )
    if len(items) < 2:
        chosen = f" where {_words(source.where)}" if source.where else ""
        has = counted(len(items), "item")
        raise DataError(f"{path}: set {name!r} has {has}{chosen}; a profile needs at least two.")
    return items


def drawn(count: int, wanted: int | None, seed: int, name: str) -> list[int]:
    """Which of `count` items are taken, ascending: all where no number is wanted, or there are no more."""
    if wanted is None or count <= wanted:
        return list(range(count))
    generator = np.random.Generator(np.random.Philox(key=seeded_key(seed, "items", name)))
    return sorted(generator.choice(count, wanted, replace=False).tolist())


def _of_lines(path: Path, source: ItemSource) -> Iterator[Item]:
    if source.column is not None or source.where:
        raise DataError(
            f"{path}: is a file of lines, without columns; leave them out, or name each set, tables and files, in a "
            "configuration."
        )
    smiles = content_suffix(path) in (".smi", ".smiles")
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            # A .smi file may name the molecule behind its SMILES.
            yield Item(clean_text(line.split()[0] if smiles else line.strip()), f"{path}:{number}")


def _of_table(path: Path, source: ItemSource) -> Iterator[Item]:
    for row in read_rows(path):
        if source.column is None:
            raise DataError(f"{path}: is a table of {', '.join(row.fields)}; name the column that holds the items.")
        if not _chosen(row.fields, source.where, row.where):
            continue
        value = require_field(row.fields, source.column, row.where)
        values = value if isinstance(value, list) else [value]
        for text in values:
            if not isinstance(text, str):
                raise DataError(
                    f"{row.where}: field {source.column!r} must be a text or a list of texts, but holds "
                    f"{type(text).__name__}."
                )
            yield Item(clean_text(text), row.where)


def _chosen(fields: Mapping[str, object], wanted: Mapping[str, str], where: str) -> bool:
    return all(str(require_field(fields, name, where)) == value for name, value in wanted.items())


def _words(wanted: Mapping[str, str]) -> str:
    return " and ".join(f"{name} is {value}" for name, value in wanted.items())
