"""What a run with images would do, found without a model, a hub or a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from condvne.data.config.images import ImagesConfig
from condvne.data.images.matching import balanced_counts
from condvne.data.images.reading import group_paths, is_there, read_group, read_groups
from condvne.errors import DataError


@dataclass(frozen=True)
class GroupPlan:
    """A group as far as it is on disk.

    Attributes:
        missing: paths that are not there.
        images, conditions: how many; None where something is missing or cannot be listed.
        fault: why it cannot be listed.
    """

    name: str
    layout: str
    path: str
    missing: tuple[str, ...]
    images: int | None = None
    conditions: int | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Plan:
    """All groups, the reference first, and how many pairs they would give.

    Attributes:
        pairs: None until every group that must be there is.
        notes: what would be trimmed or left out; why there are no pairs.
    """

    groups: list[GroupPlan]
    pairs: int | None
    notes: list[str]


def plan_images(config: ImagesConfig) -> Plan:
    """List what is there and match it; nothing is decoded, so faults inside image files are found by the run only."""
    order = [config.reference, *(name for name in config.groups if name != config.reference)]
    groups = [_group(config, name) for name in order]
    notes: list[str] = []
    if config.classes is not None and not Path(config.classes).is_file():
        notes.append(f"classes: not there: {config.classes}")
    required = [group for group in groups if not config.groups[group.name].optional or group.name == config.reference]
    if notes or any(group.images is None for group in required):
        return Plan(groups, None, notes)
    try:
        listings, _ = read_groups(config)
        pairs = sum(balanced_counts(listings, config.matching, notes).values())
    except DataError as error:
        return Plan(groups, None, [str(error)])
    rows = config.matching.rows
    pairs = pairs if rows is None else min(pairs, rows)
    too_large = [n for n in config.evaluation.sizes if n > pairs]
    if too_large:
        notes.append(f"evaluation.sizes asks for {too_large[0]} pairs, but there are {pairs}: the run would be refused")
    return Plan(groups, pairs, [note for listing in listings.values() for note in listing.notes] + notes)


def _group(config: ImagesConfig, name: str) -> GroupPlan:
    source = config.groups[name]
    missing = tuple(str(path) for path in group_paths(source) if not is_there(path))
    if missing:
        return GroupPlan(name, source.layout, source.path, missing)
    try:
        images = read_group(name, source).images
    except DataError as error:
        return GroupPlan(name, source.layout, source.path, missing, fault=str(error))
    return GroupPlan(name, source.layout, source.path, missing, len(images), len({i.condition for i in images}))
