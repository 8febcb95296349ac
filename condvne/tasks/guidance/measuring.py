"""Images of `condvne guide` measured: as groups of `condvne images`, and against real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from condvne.data.config import validate
from condvne.data.config.guide import GuideConfig
from condvne.data.config.images import ImagesConfig, ImageTable
from condvne.data.embeddings import embed
from condvne.data.images.encoding import ContentEncoder
from condvne.data.images.models import load_image_model
from condvne.data.images.reading import read_group
from condvne.data.images.sources import content_digest
from condvne.evaluation import Progress, resolved_device
from condvne.tasks.guidance.quality import Quality, qualities


def scored_images(settings: GuideConfig, images: Path) -> ImagesConfig:
    """How `condvne images` would score the groups that were made; real images, where given, are the reference."""
    groups: dict[str, Any] = {
        name: {"layout": "table", "path": str(images / name), "table": str(images / f"{name}.jsonl")}
        for name in ("unguided", "guided")
    }
    if settings.real is not None:
        groups["real"] = settings.real.model_dump()
    shared = {"matching", "decoding", "encoder", "condition_encoder", "kernels"}
    raw = settings.model_dump(include=shared | {"seed", "device", "name"})
    raw |= {"groups": groups, "reference": "real" if settings.real else "unguided", "pictures": settings.grid}
    evaluation = settings.evaluation.model_dump(exclude={"distinct"})
    return validate(ImagesConfig, raw | {"evaluation": evaluation}, "settings")


def image_qualities(settings: GuideConfig, images: Path, cache: Path, progress: Progress) -> dict[str, Quality]:
    """Precision, recall and agreement of both groups against the real images; none where no real ones are given."""
    if settings.real is None:
        return {}
    sources: dict[str, Any] = {
        name: ImageTable(layout="table", path=str(images / name), table=str(images / f"{name}.jsonl"))
        for name in ("unguided", "guided")
    }
    listed = {name: read_group(name, source).images for name, source in ({"real": settings.real} | sources).items()}
    digests = {name: [content_digest(image.source.content()) for image in held] for name, held in listed.items()}
    places = {d: image.source for name, held in listed.items() for d, image in zip(digests[name], held, strict=True)}
    chosen = settings.encoder
    encoder = ContentEncoder(
        load_image_model(chosen, resolved_device(settings.device)), places, settings.decoding,
        batch_size=chosen.batch_size, normalize=chosen.normalize,
    )  # fmt: skip

    def told(done: int, total: int) -> None:
        progress("quality", done, total)

    features = {name: embed(held, encoder, cache, progress=told).tensor for name, held in digests.items()}
    texts = {name: [image.condition for image in held] for name, held in listed.items()}
    groups = {name: (features[name], texts[name]) for name in ("unguided", "guided")}
    real = features["real"]
    return qualities(real, texts["real"], groups, settings.neighbours, agreement=settings.agreement)
