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
from transformers.utils import logging as transformers_logging

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


def claim(times: dict[str, float], count: int, workers: int, device: str, most_waiting: float) -> Claim:
    waiting = max(0.0, 1 - times["device"] / times["whole"])
    rates = {name: count / value for name, value in times.items()}
    text = (
        f"{rates['whole']:.1f} images a second (decode alone {rates['decode']:.0f} with {workers} threads, device "
        f"alone {rates['device']:.1f}); the device waits {100 * waiting:.0f} % of the time"
    )
    return Claim(
        f"decode + encode, {count} JPEG on {device}",
        text,
        f"waits ≤ {100 * most_waiting:.0f} %",
        waiting <= most_waiting,
    )


def main(
    count: Annotated[int, typer.Option(min=1, help="Images.")] = 128,
    path: Annotated[str | None, typer.Option(help="A DINOv2; default a ViT-S/14 with random weights.")] = None,
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    most_waiting: Annotated[float, typer.Option(help="Largest share of waiting that holds.")] = 0.2,
) -> None:
    """Images a second, and the share of time that the device waits."""
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = write_images(folder, count)
        chosen: Any = dtype
        kind: Literal["dinov2"] = "dinov2"
        config = Dinov2(kind=kind, path=path or random_dinov2(folder / "model"), dtype=chosen)
        digests = {decode(source, Decoding()).digest: source for source in sources}
        threads = workers or default_workers()
        encoder = ContentEncoder(
            load_image_model(config, device), digests, Decoding(), batch_size=batch_size, workers=threads
        )
        result = claim(measured(encoder, list(digests), torch.device(device)), count, threads, device, most_waiting)
    print(f"{'holds ' if result.holds else 'FAILS '} {result.name}: {result.measured} (goal {result.goal})")
    sys.exit(int(not result.holds))


if __name__ == "__main__":
    typer.run(main)
