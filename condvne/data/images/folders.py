"""Images in folders: a folder a class, DGM-Eval's numbered folders, and a flat folder with a table of conditions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from condvne.data.images.sources import ListedImage, Listing, Source, is_image
from condvne.data.listing import listed
from condvne.data.records import require_field
from condvne.data.rows import read_rows
from condvne.errors import DataError


def list_class_folders(root: Path) -> Listing:
    """ImageNet's layout: the class is the folder's name; folders inside a class count to it.

    Raises DataError when there is no such folder, or no image in a class.
    """
    listing = Listing()
    folders = _subfolders(root)
    if not folders:
        raise DataError(
            f"{root}: has no folders, so no classes; use layout table for a flat folder with a file of conditions."
        )
    passed = [entry.name for entry in _entries(root) if not entry.is_dir()]
    for folder in folders:
        files, others = image_files(folder)
        passed += others
        if not files:
            raise DataError(f"{folder}: class folder without an image; remove it, or put its images there.")
        listing.images += [ListedImage(folder.name, Source(str(file))) for file in files]
    listing.notes += _passed_note(root, passed)
    return listing


def list_dgm_eval(root: Path) -> Listing:
    """DGM-Eval's layout: folders named by class index, with or without leading zeros, images right inside.

    Raises DataError for folders that are no numbers, two names of one number, and flat (unconditional) samples.
    """
    folders = _subfolders(root)
    if not folders:
        raise DataError(f"{root}: has no numbered folders: unconditional samples have no condition to compare under.")
    foreign = [folder.name for folder in folders if not folder.name.isdecimal()]
    if foreign:
        raise DataError(
            f"{root}: folders {listed(foreign)} are no class indices, as DGM-Eval names them; use layout class_folders."
        )
    folders.sort(key=lambda folder: int(folder.name))
    twice = [b.name for a, b in pairwise(folders) if int(a.name) == int(b.name)]
    if twice:
        raise DataError(f"{root}: class {int(twice[0])} has two folders; keep one.")
    listing = list_class_folders(root)
    images = [ListedImage(str(int(image.condition)), image.source) for image in listing.images]
    listing.images = sorted(images, key=lambda image: int(image.condition))
    return listing


def list_table(root: Path, table: Path, image_field: str, condition_field: str) -> Listing:
    """A folder and a table file with one row an image.

    Image files may stand with or without suffix, relative to the folder. Files that no row names are counted.

    Raises DataError, naming rows, for images that are not there, rows that name a file twice with the same condition,
    and fields that are missing or no texts.
    """
    if not root.is_dir():
        raise DataError(f"{root}: is no folder; give the folder that holds the images.")
    listing = Listing()
    seen: dict[tuple[str, str], str] = {}
    missing: list[str] = []
    stems: dict[str, str] | None = None
    for row in read_rows(table):
        name, condition = (_text(row.fields, key, row.where) for key in (image_field, condition_field))
        path = root / name
        if not path.is_file():
            stems = _stems(root) if stems is None else stems
            path = Path(stems.get(name, path))
        if not path.is_file():
            missing.append(f"{name} ({row.where})")
            continue
        first = seen.setdefault((str(path), condition), row.where)
        if first != row.where:
            raise DataError(f"{row.where}: names {name} under the same condition as {first}; keep one of the rows.")
        listing.images.append(ListedImage(condition, Source(str(path))))
    if missing:
        raise DataError(f"{root}: {len(missing)} images of {table.name} are not there: {listed(missing)}.")
    if not listing.images:
        raise DataError(f"{table}: has no rows; it must name the images of {root}.")
    named = {image.source.path for image in listing.images}
    unnamed = [file for file in image_files(root)[0] if file not in named]
    if unnamed:
        listing.notes.append(
            f"{root}: {len(unnamed)} images without a row in {table.name} were passed over "
            f"({listed([os.path.relpath(file, root) for file in unnamed])})"
        )
    return listing


def _text(fields: dict[str, object], name: str, where: str) -> str:
    value = require_field(fields, name, where)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # class indices in JSON
    if not isinstance(value, str):
        raise DataError(f"{where}: field {name!r} must be a text, not {type(value).__name__}.")
    return value


def _stems(root: Path) -> dict[str, str]:
    return {os.path.splitext(os.path.relpath(file, root))[0]: file for file in image_files(root)[0]}


def _entries(root: Path) -> list[os.DirEntry[str]]:
    """Entries in the order of their names, hidden ones left out."""
    try:
        with os.scandir(root) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        raise DataError(f"{root}: cannot be read as a folder ({error.strerror}); give a folder of images.") from error


def _subfolders(root: Path) -> list[Path]:
    return [Path(entry.path) for entry in _entries(root) if entry.is_dir()]


def image_files(folder: Path) -> tuple[list[str], list[str]]:
    """Paths of the images below a folder, in the order of their names, and names of other files."""
    images: list[str] = []
    others: list[str] = []
    for path in _walk(folder):
        (images if is_image(path) else others).append(path if is_image(path) else os.path.basename(path))
    return images, others


def _walk(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _walk(Path(entry.path))
        else:
            yield entry.path


def _passed_note(root: Path, names: Sequence[str]) -> list[str]:
    return [f"{root}: {len(names)} files that are no images were passed over ({listed(names)})"] if names else []
