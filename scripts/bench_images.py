"""Benchmark of images: decode and encode a folder, and how much of the time the device waits for images.

python scripts/bench_images.py                                     a ViT-S/14 with random weights, JPEG of 256 × 256
python scripts/bench_images.py --path facebook/dinov2-large --device cuda --dtype bfloat16 --count 20000

The device's own time is measured first, on batches that are ready; what the whole pass takes beyond it, it waited.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from bench_tools import Claim, seconds

from condvne.data.config.images import Decoding, Dinov2
from condvne.data.images.decoding import decode
from condvne.data.images.encoding import ContentEncoder, default_workers
from condvne.data.images.models import load_image_model
from condvne.data.images.sources import Source

SIDE = 256  # as samples of ImageNet generators are published


def write_images(folder: Path, count: int) -> list[Source]:
    """JPEG files of smooth random colours, about as large as photographs of this size."""
    from PIL import Image

    generator = np.random.default_rng(0)
    sources = []
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (24, 24, 3), dtype=np.uint8))
        path = folder / f"{number:06d}.jpg"
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=95)
        sources.append(Source(str(path)))
    return sources


def random_dinov2(folder: Path) -> str:
    """A DINOv2 of the size of ViT-S/14, which processes images as published ones do."""
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    Dinov2Model(Dinov2Config(hidden_size=384, num_hidden_layers=12, num_attention_heads=6)).save_pretrained(folder)
    BitImageProcessor(
        size={"shortest_edge": 256}, crop_size={"height": 224, "width": 224}, do_convert_rgb=True
    ).save_pretrained(folder)
    return str(folder)


def measured(encoder: ContentEncoder, digests: list[str], device: torch.device) -> dict[str, float]:
    """Seconds of the whole pass, of decoding alone, and of the device alone, for these images."""
    ready = list(encoder.batches(digests))
    encoder.encode(digests[: encoder.batch_size])  # warm

    def device_alone() -> None:
        with torch.inference_mode():
            for batch in ready:
                encoder.model.encode(batch)

    def decode_alone() -> None:
        for _ in encoder.batches(digests):
            pass

    turns: dict[str, list[float]] = {"device": [], "decode": [], "whole": []}
    for _ in range(2):  # in turns, so that a busy moment of the machine hits all
        turns["device"].append(seconds(device_alone, device))
        turns["decode"].append(seconds(decode_alone, device))
        turns["whole"].append(seconds(lambda: encoder.encode(digests), device))
    return {name: min(times) for name, times in turns.items()}


def images_per_second(
    device: torch.device,
    *,
    count: int = 128,
    path: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    batch_size: int = 16,
    workers: int | None = None,
    most_waiting: float = 0.2,
) -> list[Claim]:
    """Images a second of decode + encode, and the share of time that the device waits."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    threads = workers or default_workers()
    with tempfile.TemporaryDirectory() as name:
        sources = write_images(Path(name), count)
        digests = {decode(source, Decoding()).digest: source for source in sources}
        config = Dinov2(kind="dinov2", path=path or random_dinov2(Path(name) / "model"), dtype=dtype)
        model = load_image_model(config, device)
        encoder = ContentEncoder(model, digests, Decoding(), batch_size=batch_size, workers=threads)
        times = measured(encoder, list(digests), device)
    waiting = max(0.0, 1 - times["device"] / times["whole"])
    rates = {name: count / value for name, value in times.items()}
    text = (
        f"{rates['whole']:.1f} images a second (decoding alone {rates['decode']:.0f} with {threads} threads, device "
        f"alone {rates['device']:.1f}); the device waits {100 * waiting:.0f} % of the time"
    )
    model_name = path or "a ViT-S/14 (224 × 224)"
    return [
        Claim(
            f"decode + encode, {count} JPEG of {SIDE} × {SIDE} through {model_name}",
            text,
            f"waits ≤ {100 * most_waiting:.0f} %",
            waiting <= most_waiting,
        )
    ]


def main(
    count: Annotated[int, typer.Option(min=1, help="Images.")] = 128,
    path: Annotated[str | None, typer.Option(help="A DINOv2; default a ViT-S/14 with random weights.")] = None,
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Print the claim, and end with status 1 where it does not hold."""
    chosen: Any = dtype
    claims = images_per_second(
        torch.device(device), count=count, path=path, dtype=chosen, batch_size=batch_size, workers=workers
    )
    for claim in claims:
        print(f"{'holds ' if claim.holds else 'FAILS '} {claim.name}: {claim.measured} (goal {claim.goal})")
    sys.exit(int(not all(claim.holds for claim in claims)))


if __name__ == "__main__":
    typer.run(main)
