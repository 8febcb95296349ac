"""MS-COCO's captions: one JSON file that lists images and, by image id, their captions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from condvne.data.compressed import read_text
from condvne.data.images.sources import ListedImage, Listing, Source, is_image
from condvne.data.listing import listed
from condvne.data.records import parse_object
from condvne.errors import DataError


def list_coco(root: Path, annotations: Path, captions: Literal["first", "all"]) -> Listing:
    """Images of a folder under their captions; each caption of an image is a pair of its own with `all`.

    An image is found by COCO's file name, by that name with another suffix, or by its id with or without leading
    zeros, so a folder of generated images matches too. Images of the annotations that the folder lacks are counted.

    Raises DataError for a file of another form, captions of unknown images, and when no image is found.
    """
    content = parse_object(read_text(annotations), str(annotations))
    names = _image_names(content, annotations)
    texts = _captions(content, annotations, names)
    found = _by_name(root)
    listing = Listing()
    lacking = []
    for image_id, name in names.items():
        path = next((found[key] for key in _keys(image_id, name) if key in found), None)
        if path is None or image_id not in texts:
            lacking.append(name)
            continue
        chosen = texts[image_id] if captions == "all" else texts[image_id][:1]
        listing.images += [ListedImage(text, Source(path)) for _, text in chosen]
    if not listing.images:
        raise DataError(f"{root}: holds none of the {len(names)} images that {annotations} lists with captions.")
    if lacking:
        listing.notes.append(
            f"{root}: {len(lacking)} of {len(names)} images of {annotations.name} are not there or have no caption "
            f"({listed(lacking)})"
        )
    return listing


def read_coco_captions(annotations: Path) -> list[str]:
    """Of each image, in the order of image ids, the caption of the lowest annotation id. Raises as `list_coco`."""
    content = parse_object(read_text(annotations), str(annotations))
    texts = _captions(content, annotations, _image_names(content, annotations))
    return [entries[0][1] for _, entries in sorted(texts.items())]


def _image_names(content: Mapping[str, Any], path: Path) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, entry in enumerate(_entries(content, "images", path), start=1):
        image_id, name = entry.get("id"), entry.get("file_name")
        if type(image_id) is not int or not isinstance(name, str):
            raise DataError(f"{path}: image {number} needs an integer id and a file_name.")
        if names.setdefault(image_id, name) != name:
            raise DataError(f"{path}: image id {image_id} comes twice, for {names[image_id]} and {name}.")
    return names


def _captions(content: Mapping[str, Any], path: Path, names: Mapping[int, str]) -> dict[int, list[tuple[int, str]]]:
    """For each image its captions with their annotation ids, in the order of these."""
    texts: dict[int, list[tuple[int, str]]] = {}
    for number, entry in enumerate(_entries(content, "annotations", path), start=1):
        image_id, text, own = entry.get("image_id"), entry.get("caption"), entry.get("id", number)
        if type(image_id) is not int or not isinstance(text, str) or type(own) is not int:
            raise DataError(f"{path}: annotation {number} needs an integer image_id and a caption.")
        if image_id not in names:
            raise DataError(f"{path}: annotation {number} belongs to image {image_id}, which is not listed.")
        texts.setdefault(image_id, []).append((own, text.strip()))
    return {image_id: sorted(entries) for image_id, entries in texts.items()}


def _entries(content: Mapping[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    entries = content.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{path}: must hold a list {key!r} of objects, as COCO's captions_*.json does.")
    return entries


def _by_name(root: Path) -> dict[str, str]:
    """Paths by file name, by stem, and by the number that a stem ends in or is."""
    try:
        files = sorted(entry.path for entry in os.scandir(root) if entry.is_file() and is_image(entry.name))
    except OSError as error:
        raise DataError(f"{root}: cannot be read as a folder ({error.strerror}); give a folder of images.") from error
    found: dict[str, str] = {}
    for file in files:
        name = os.path.basename(file)
        stem = os.path.splitext(name)[0]
        found[name] = file
        for key in (f"stem {stem}", *([f"id {int(stem)}"] if re.fullmatch(r"[0-9]+", stem) else [])):
            if found.setdefault(key, file) != file:
                raise DataError(f"{root}: {os.path.basename(found[key])} and {name} stand for one image; keep one.")
    return found


def _keys(image_id: int, name: str) -> tuple[str, str, str]:
    base = os.path.basename(name)
    return base, f"stem {os.path.splitext(base)[0]}", f"id {image_id}"
