"""From the settings of a group to its images and their conditions, whatever the layout."""

from __future__ import annotations

import glob
from dataclasses import replace
from pathlib import Path

from condvne.data.config.images import (
    ClassFolders,
    CocoCaptions,
    DgmEval,
    GroupSource,
    ImagesConfig,
    ImageTable,
    SampleBatch,
)
from condvne.data.images.batches import list_batch
from condvne.data.images.captions import list_coco
from condvne.data.images.classes import ClassList, read_classes, resolved_labels
from condvne.data.images.folders import list_class_folders, list_dgm_eval, list_table
from condvne.data.images.shards import list_shards
from condvne.data.images.sources import ListedImage, Listing
from condvne.data.listing import listed
from condvne.data.records import clean_text
from condvne.errors import DataError


def read_group(name: str, source: GroupSource) -> Listing:
    """All images of a group with their conditions as the layout names them. Raises DataError as the layouts do."""
    path = Path(source.path)
    if isinstance(source, ClassFolders):
        return list_class_folders(path)
    if isinstance(source, DgmEval):
        return list_dgm_eval(path)
    if isinstance(source, ImageTable):
        return list_table(path, Path(source.table), source.image_field, source.condition_field)
    if isinstance(source, CocoCaptions):
        return list_coco(path, Path(source.annotations), source.captions)
    if isinstance(source, SampleBatch):
        listings = [list_batch(file, Path(source.labels) if source.labels else None) for file in _files(name, source)]
        return Listing([image for listing in listings for image in listing.images])
    return list_shards(_files(name, source), source.condition, source.field)


def group_paths(source: GroupSource) -> list[Path]:
    """Every path that a group needs, for telling what is not there."""
    paths = [Path(source.path)]
    for field in ("table", "annotations", "labels"):
        value = getattr(source, field, None)
        paths += [Path(value)] if value else []
    return paths


def is_there(path: Path) -> bool:
    """Whether a path, or anything that a pattern stands for, exists."""
    return path.exists() or bool(glob.glob(str(path)))


def read_groups(config: ImagesConfig) -> tuple[dict[str, Listing], dict[str, str]]:
    """All groups that are there, the reference first, and the text of every condition.

    Labels of classes become indices of the list of classes where there is one; captions are stripped. Blank conditions
    are refused, or left out (evaluation.empty_texts).

    Raises DataError: a group that must be there is not, or as the layouts do.
    """
    classes = read_classes(Path(config.classes)) if config.classes is not None else None
    order = [config.reference, *(name for name in config.groups if name != config.reference)]
    groups: dict[str, Listing] = {}
    notes: list[str] = []
    for name in order:
        source = config.groups[name]
        missing = [path for path in group_paths(source) if not is_there(path)]
        if missing and source.optional and name != config.reference:
            notes.append(f"group {name} is optional and was left out; not there: {listed(missing)}")
            continue
        if missing:
            raise DataError(f"group {name!r}: not there: {listed(missing)}; give a path that exists.")
        groups[name] = _with_conditions(name, read_group(name, source), classes, config)
    if len(groups) < 2:
        raise DataError(f"only group {config.reference!r} is there ({'; '.join(notes)}); nothing to compare it with.")
    groups[config.reference].notes += notes
    return groups, _texts(groups, classes, config.template)


def _with_conditions(name: str, listing: Listing, classes: ClassList | None, config: ImagesConfig) -> Listing:
    labels = [image.condition.strip() for image in listing.images]
    blank = [image.source.name for image, label in zip(listing.images, labels, strict=True) if not label]
    if blank and config.evaluation.empty_texts == "refuse":
        raise DataError(
            f"group {name!r}: {len(blank)} images have an empty condition ({listed(blank)}); fill it in, or set "
            "evaluation.empty_texts: drop."
        )
    kept = [replace(image, condition=label) for image, label in zip(listing.images, labels, strict=True) if label]
    notes = [f"group {name}: {note}" for note in listing.notes]
    if blank:
        notes.append(f"group {name}: {len(blank)} images with an empty condition were left out ({listed(blank)})")
    if classes is not None:
        found = resolved_labels([image.condition for image in kept], classes, name)
        kept = [ListedImage(label, image.source) for label, image in zip(found, kept, strict=True)]
    if not kept:
        raise DataError(f"group {name!r}: has no images with a condition.")
    return Listing(kept, notes)


def _texts(groups: dict[str, Listing], classes: ClassList | None, template: str) -> dict[str, str]:
    conditions = dict.fromkeys(image.condition for listing in groups.values() for image in listing.images)
    names = {c: classes.names[int(c)] if classes is not None else c for c in conditions}
    texts = {c: clean_text(template.replace("{}", name)) for c, name in names.items()}
    if len(set(texts.values())) < len(texts):  # two classes of one name stay two conditions
        texts = {c: f"{text} ({c})" if list(texts.values()).count(text) > 1 else text for c, text in texts.items()}
    return texts


def _files(name: str, source: GroupSource) -> list[Path]:
    path = Path(source.path)
    suffix = ".npz" if isinstance(source, SampleBatch) else ".tar"
    if path.is_dir():
        files = sorted(path.glob(f"*{suffix}"))
    elif path.exists():
        files = [path]
    else:
        files = sorted(Path(file) for file in glob.glob(str(path)))
    if not files:
        raise DataError(f"group {name!r}: {path} holds no {suffix} files.")
    return files
