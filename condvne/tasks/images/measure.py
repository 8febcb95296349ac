"""The run: every stage leaves its result in the folder before the next begins, so it goes on where it stopped.

`checked.jsonl` (images that decode, growing block by block), `images.jsonl` (the pairs of all groups), `embeddings/`,
`scores.json`, `pictures.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from condvne.core.groups import OutputGroup
from condvne.data.config import plain_settings
from condvne.data.config.images import ImagesConfig, Pixels
from condvne.data.embeddings import TextEncoder
from condvne.data.images.checking import Checker
from condvne.data.images.conditions import load_condition_encoder
from condvne.data.images.encoding import ContentEncoder, default_workers
from condvne.data.images.matching import match
from condvne.data.images.models import load_image_model
from condvne.data.images.reading import read_groups
from condvne.data.images.records import ImageRecord, grouped, read_image_records
from condvne.data.pictures import ContactSheet
from condvne.data.records import clean_text, dump
from condvne.data.results import Scores
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.versions import installed_versions
from condvne.errors import ConfigError, DataError
from condvne.evaluation import (
    Comparison,
    Embedded,
    Embedder,
    Heading,
    Progress,
    checked_sizes,
    evaluate_embedded,
    resolved_device,
    with_kernels,
)
from condvne.ranks import SINGLE, Ranks
from condvne.tasks.images.pictures import contact_sheet

BLOCK = 2048  # images encoded between two writes


def measure_images(
    config: ImagesConfig, folder: Path, *, progress: Progress, ranks: Ranks = SINGLE
) -> tuple[Scores, ContactSheet]:
    """Run, or go on with, the whole measurement in `folder`; its scores are also in `scores.json`.

    Several ranks share encoding and scoring; the first alone lists and checks the images, makes the pictures and
    knows the folder. The sheet is empty on the others.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or disk or memory are full; what is
            finished stays, and the same command goes on from there.
    """
    device = resolved_device(config.device, ranks.local)
    settings, versions = plain_settings(config), installed_versions()
    ranks.agree({"settings": settings, "versions": versions}, "settings")
    with run_folder(folder, settings, versions, ranks) as run:
        records, notes = _records(config, run.path, progress, ranks)
        groups = grouped(records)
        comparison = _comparison(config, groups)
        checked_sizes(config.evaluation, len(comparison.conditions))
        encoders = _encoders(config, records, device)
        embedded = _embedded(config, groups, encoders, run.path / "embeddings", device, progress, notes, ranks)
        scores = evaluate_embedded(
            comparison,
            Heading(config.name, "images", config.seed, settings, versions, [*run.notes, *notes]),
            embedded,
            encoders,
            config.kernels,
            config.evaluation,
            progress=progress,
            ranks=ranks,
        )
        if not ranks.main:
            return scores, ContactSheet()
        write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        sheet = contact_sheet(config, groups, embedded, progress)
        write_whole(run.path / "pictures.json", sheet.model_dump_json(indent=1) + "\n")
        return scores, sheet


def _records(
    config: ImagesConfig, folder: Path, progress: Progress, ranks: Ranks
) -> tuple[list[ImageRecord], list[str]]:
    records, notes = _records_of_folder(config, folder, progress) if ranks.main else ([], [])
    if ranks.size > 1:
        sent = ranks.broadcast([record.to_json() for record in records])
        records = records if ranks.main else [ImageRecord.from_json(flat, "a record of rank 0") for flat in sent]
    return records, ranks.broadcast(notes)


def _records_of_folder(config: ImagesConfig, folder: Path, progress: Progress) -> tuple[list[ImageRecord], list[str]]:
    path, notes_path = folder / "images.jsonl", folder / "images.notes.json"
    if not path.exists():
        progress("listing images", 0, 1)
        groups, texts = read_groups(config)
        progress("listing images", 1, 1)
        with Checker(folder / "checked.jsonl", config.decoding, config.encoder.workers or default_workers()) as checker:
            matched = match(
                groups, config.matching, checker, config.seed, faulty=config.decoding.faulty, progress=progress
            )
        checked_sizes(config.evaluation, len(matched.conditions))
        records = [
            ImageRecord(f"{name}/{row}", condition, texts[condition], name, image)
            for name, images in matched.images.items()
            for row, (condition, image) in enumerate(zip(matched.conditions, images, strict=True))
        ]
        notes = [clean_text(note) for note in matched.notes]  # names of files may be no Unicode
        write_whole(notes_path, json.dumps(notes, indent=2, ensure_ascii=False) + "\n")
        write_whole(path, "".join(dump(record.to_json()) + "\n" for record in records))
    return read_image_records(path), json.loads(notes_path.read_text(encoding="utf-8"))


def _comparison(config: ImagesConfig, groups: dict[str, list[ImageRecord]]) -> Comparison:
    first = groups[config.reference]
    return Comparison(
        ids=[str(row) for row in range(len(first))],
        conditions=[record.text for record in first],
        outputs={name: [[record.image.digest] for record in held] for name, held in groups.items()},
        distinct={},
        distinct_unit="words",
        reference=config.reference,
    )


def _encoders(
    config: ImagesConfig, records: Sequence[ImageRecord], device: torch.device
) -> tuple[TextEncoder, ContentEncoder]:
    """What encodes conditions and images. Raises ConfigError for kernels that one-hot labels give no bandwidth."""
    vocabulary = list(dict.fromkeys(record.text for record in records))
    if (
        config.condition_encoder.kind == "one_hot"
        and len(vocabulary) == 1
        and config.kernels.condition.bandwidth is None
    ):
        name = config.kernels.condition.name
        if name in ("gaussian", "laplacian"):
            raise ConfigError(f"kernels.condition: one class gives no bandwidth for {name}; use the cosine kernel.")
    encoder = config.encoder
    images = ContentEncoder(
        load_image_model(encoder, device),
        {record.image.digest: record.image.source for record in records},
        config.decoding,
        batch_size=encoder.batch_size,
        workers=encoder.workers,
        prefetch=encoder.prefetch,
        normalize=encoder.normalize,
        dimension=_pixel_count(encoder, records) if isinstance(encoder, Pixels) else None,
    )
    return load_condition_encoder(config.condition_encoder, vocabulary, device), images


def _pixel_count(encoder: Pixels, records: Sequence[ImageRecord]) -> int:
    """Values of an image, of which raw pixels need the same number everywhere. Raises DataError naming two images."""
    channels = 3 if encoder.channels == "rgb" else 1
    if encoder.side is not None:
        return encoder.side**2 * channels
    first = records[0].image
    for image in (record.image for record in records):
        if (image.width, image.height) != (first.width, first.height):
            raise DataError(
                f"{image.source.name} has {image.width} × {image.height} pixels and {first.source.name} "
                f"{first.width} × {first.height}; raw pixels need images of one size, so set encoder.side."
            )
    return first.width * first.height * channels


def _embedded(
    config: ImagesConfig,
    groups: dict[str, list[ImageRecord]],
    encoders: tuple[TextEncoder, ContentEncoder],
    cache: Path,
    device: torch.device,
    progress: Progress,
    notes: list[str],
    ranks: Ranks,
) -> Embedded:
    first = groups[config.reference]
    texts = Embedder(encoders[0], cache, device, progress, notes, ranks=ranks)
    x = texts.vectors("conditions", [record.text for record in first], [record.condition for record in first])
    images = Embedder(encoders[1], cache, device, progress, notes, ranks=ranks)
    outputs = {}
    for name, held in groups.items():
        digests, names = [record.image.digest for record in held], [record.image.source.name for record in held]
        vectors = images.vectors(f"group {name}", digests, names, noun="images", block=BLOCK)
        outputs[name] = OutputGroup(vectors, torch.arange(len(held), device=device))
    return with_kernels(x, outputs, config.kernels, config.reference, notes, texts.warnings)
