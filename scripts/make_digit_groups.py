"""Write scikit-learn's digits and images of generators fitted to them as folders that `condvne images` reads.
Usage: python scripts/make_digit_groups.py runs/digits

Groups: `digits` (the reference), `gaussian` (one Gaussian a class, fitted to all of its images), `collapsed` (three
images of each class with a little noise, a generator whose modes have collapsed) and, where a diffusers pipeline is
given, `diffusion`. Each is a folder a class of PNG files, and a CSV of captions beside it.
"""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from condvne.data.storage import write_whole
from condvne.errors import CondvneError, ConfigError

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LEVELS = 16  # of the digits' grey values
ANCHORS, NOISE = 3, 0.5  # of the collapsed sampler: images of each class, and grey levels
SHRINKAGE = 0.05  # towards a diagonal covariance: a class has fewer images than its covariance has entries
console = Console()
Images = np.ndarray[Any, np.dtype[Any]]  # (n, height, width), grey values in [0, 16]


def digits() -> dict[int, Images]:
    """Scikit-learn's digits by class."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return {label: data.images[data.target == label] for label in range(10)}


def gaussian(images: Images, count: int, generator: np.random.Generator) -> Images:
    """Samples of the Gaussian with the images' mean and, slightly shrunk, their covariance."""
    flat = images.reshape(len(images), -1)
    covariance = np.cov(flat, rowvar=False)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance))
    drawn = generator.multivariate_normal(flat.mean(0), shrunk, count, method="eigh")
    return drawn.reshape(count, *images.shape[1:])


def collapsed(images: Images, count: int, generator: np.random.Generator) -> Images:
    """A few of the images over and over, with a little noise."""
    anchors = images[generator.choice(len(images), min(ANCHORS, len(images)), replace=False)]
    chosen = anchors[generator.integers(len(anchors), size=count)]
    return chosen + NOISE * generator.standard_normal(chosen.shape)


def diffusion(pipeline: Path, count: int, steps: int, seed: int) -> dict[int, Images]:
    """Images of a text-to-image pipeline under the captions."""
    from diffusers import DiffusionPipeline

    try:
        pipe: Any = DiffusionPipeline.from_pretrained(str(pipeline))
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"--pipeline: {pipeline} cannot be loaded by diffusers ({error}).") from error
    pipe.set_progress_bar_config(disable=True)
    found = {}
    for label in range(10):
        batches = []
        for start in range(0, count, 40):
            number = min(40, count - start)
            seeded = [torch.Generator().manual_seed((seed * 10 + label) * 100_000 + start + k) for k in range(number)]
            result = pipe([caption(label)] * number, num_inference_steps=steps, generator=seeded, output_type="pil")
            batches += [np.asarray(image.convert("L"), dtype=np.float64) * (LEVELS / 255) for image in result.images]
        found[label] = np.stack(batches)
    return found


def caption(label: int) -> str:
    return f"a handwritten {NAMES[label]}"


def write_group(folder: Path, name: str, images: dict[int, Images]) -> int:
    """A folder a class of PNG files, and the CSV of their captions; the CSV comes last. How many images there are."""
    from PIL import Image

    root, table = folder / name, folder / f"{name}.csv"
    table.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(["file", "caption"])
    total = 0
    for label, of_class in images.items():
        pixels = np.clip(np.rint(of_class * (255 / LEVELS)), 0, 255).astype(np.uint8)
        (root / str(label)).mkdir(parents=True)
        for number, values in enumerate(pixels):
            path = Path(str(label)) / f"{number:04d}.png"
            Image.fromarray(values).save(root / path)
            writer.writerow([path.as_posix(), caption(label)])
        total += len(pixels)
    write_whole(table, rows.getvalue())
    return total


def main(
    folder: Annotated[Path, typer.Argument(help="Where the groups go.")],
    count: Annotated[int, typer.Option(min=1, help="Generated images of each class.")] = 160,
    pipeline: Annotated[Path | None, typer.Option(help="Folder of a diffusers text-to-image pipeline.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of the pipeline.")] = 25,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write the groups of configs/digits-images.yaml and configs/digits-captions.yaml."""
    try:
        real = digits()
        groups = {"digits": real}
        for number, sampler in enumerate((gaussian, collapsed)):
            generators = {label: np.random.default_rng((seed, number, label)) for label in real}
            groups[sampler.__name__] = {c: sampler(images, count, generators[c]) for c, images in real.items()}
        if pipeline is not None and pipeline.is_dir():
            groups["diffusion"] = diffusion(pipeline, count, steps, seed)
        elif pipeline is not None:
            console.print(f"{pipeline} is not there: no group diffusion.", markup=False)
        for name, images in groups.items():
            console.print(f"{name}: {write_group(folder, name, images):,} images", markup=False)
    except CondvneError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
