"""The contact sheet: modes of each group's joint spectrum, and the conditions under which a group loses most."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import torch
from torch import Tensor

from condvne.core.contributions import JointSpectrum, block_contributions, condition_gaps, joint_spectrum
from condvne.core.kernels import Cosine
from condvne.data.config.images import ImagesConfig
from condvne.data.images.decoding import decode
from condvne.data.images.records import ImageRecord
from condvne.data.pictures import ContactSheet, GroupLosses, GroupModes, Loss, Mode, Picture
from condvne.data.records import clean_text
from condvne.data.seeding import seeded_key
from condvne.evaluation import Embedded, Progress

_PIXELATED = 32  # pictures up to this size are kept as they are


def contact_sheet(
    config: ImagesConfig, groups: dict[str, list[ImageRecord]], embedded: Embedded, progress: Progress
) -> ContactSheet:
    """Modes and losses of every group, with a small picture of each image that they show.

    Joint spectra are of at most `pictures.size` pairs: whole conditions, drawn at random. Where the condition kernel
    is zero between classes (one-hot labels, cosine kernel), losses are of all pairs.
    """
    settings, reference = config.pictures, config.reference
    numbers = _numbers(groups[reference])
    rows = _whole_conditions(numbers, settings.size, config.seed)
    blocks = config.condition_encoder.kind == "one_hot" and isinstance(embedded.kernel_x, Cosine)
    used = torch.arange(len(numbers)) if blocks else rows
    conditions = torch.unique(numbers[used], return_inverse=True)[1]
    contributions: dict[str, Tensor] = {}
    modes: list[GroupModes] = []
    for done, (name, held) in enumerate(groups.items(), start=1):
        spectrum = _spectrum(embedded, name, rows)
        if settings.modes:
            modes.append(_modes(name, [held[i] for i in rows.tolist()], spectrum, settings.modes, settings.images))
        contributions[name] = _blocks(embedded, name, conditions) if blocks else spectrum.contributions.cpu()
        progress("joint spectra", done, len(groups))
    losses = [
        _losses(config, groups, name, used, conditions, contributions)
        for name in groups
        if name != reference and settings.conditions
    ]
    return ContactSheet(
        modes=modes, losses=losses, thumbnails=_thumbnails(config, groups, _shown(modes, losses), progress)
    )


def _numbers(records: Sequence[ImageRecord]) -> Tensor:
    """For each pair the number of its condition, from 0 in order of appearance."""
    places: dict[str, int] = {}
    return torch.tensor([places.setdefault(record.condition, len(places)) for record in records])


def _whole_conditions(numbers: Tensor, size: int, seed: int) -> Tensor:
    """Rows of conditions drawn at random until `size` is reached; of one condition that is larger, its first rows."""
    counts = torch.bincount(numbers)
    chosen, total = [], 0
    for condition in sorted(range(len(counts)), key=lambda c: seeded_key(seed, "pictures", c)):
        count = int(counts[condition])
        if total and total + count > size:
            continue
        chosen.append(condition)
        total += count
    rows = torch.nonzero(torch.isin(numbers, torch.tensor(chosen))).squeeze(-1)
    return rows[:size]


def _spectrum(embedded: Embedded, group: str, rows: Tensor) -> JointSpectrum:
    rows = rows.to(embedded.x.device)
    return joint_spectrum(
        embedded.x[rows],
        embedded.groups[group].features[rows],
        kernel_x=embedded.kernel_x,
        kernel_y=embedded.kernel_y,
    )


def _blocks(embedded: Embedded, group: str, conditions: Tensor) -> Tensor:
    return block_contributions(
        embedded.x,
        embedded.groups[group].features,
        conditions.to(embedded.x.device),
        kernel_x=embedded.kernel_x,
        kernel_y=embedded.kernel_y,
    ).cpu()


def _modes(name: str, records: Sequence[ImageRecord], spectrum: JointSpectrum, modes: int, images: int) -> GroupModes:
    found = []
    for k, (share, points) in enumerate(spectrum.leading(modes, images)):
        weights = spectrum.weights[points, k].tolist()
        found.append(Mode(share=share, pictures=[_picture(records[i]) for i in points.tolist()], weights=weights))
    return GroupModes(group=name, n=len(records), modes=found)


def _losses(
    config: ImagesConfig,
    groups: dict[str, list[ImageRecord]],
    name: str,
    rows: Tensor,
    conditions: Tensor,
    contributions: dict[str, Tensor],
) -> GroupLosses:
    reference, settings = config.reference, config.pictures
    gaps = condition_gaps(contributions[name], contributions[reference], conditions)
    order = gaps.argsort(dim=0, stable=True)[: settings.conditions].tolist()
    losses = []
    for condition in (c for c in order if gaps[c] < 0):
        members = rows[conditions == condition].tolist()
        mine, theirs = ([groups[g][i] for i in members[: settings.images]] for g in (name, reference))
        losses.append(
            Loss(
                condition=mine[0].text,
                gap=float(gaps[condition]),
                count=len(members),
                pictures=[_picture(record) for record in mine],
                reference_pictures=[_picture(record) for record in theirs],
            )
        )
    return GroupLosses(
        group=name,
        reference=reference,
        n=len(rows),
        conditions=len(gaps),
        below=int((gaps < 0).sum()),
        gap=float(gaps.sum()),
        losses=losses,
    )


def _picture(record: ImageRecord) -> Picture:
    return Picture(image=clean_text(record.image.source.name), condition=record.text, thumbnail=record.image.digest)


def _shown(modes: Sequence[GroupModes], losses: Sequence[GroupLosses]) -> list[str]:
    """Digests of all pictures, once each."""
    pictures = [p for group in modes for mode in group.modes for p in mode.pictures]
    pictures += [p for group in losses for loss in group.losses for p in (*loss.pictures, *loss.reference_pictures)]
    return list(dict.fromkeys(picture.thumbnail for picture in pictures))


def _thumbnails(
    config: ImagesConfig, groups: dict[str, list[ImageRecord]], digests: Sequence[str], progress: Progress
) -> dict[str, str]:
    sources = {record.image.digest: record.image.source for held in groups.values() for record in held}
    found = {}
    for done, digest in enumerate(digests, start=1):
        image = decode(sources[digest], config.decoding).image
        small = max(image.size) <= _PIXELATED
        image.thumbnail((config.pictures.thumbnail, config.pictures.thumbnail))
        buffer = io.BytesIO()
        image.save(buffer, "PNG" if small else "JPEG", quality=85)
        kind = "png" if small else "jpeg"
        found[digest] = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
        progress("pictures", done, len(digests))
    return found
