"""What is compared of latents: their numbers, averaged or not, with distances that do not grow with the resolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from condvne.errors import InputError

LatentFeatures = Callable[[Tensor], Tensor]


def flattened(latents: Tensor) -> Tensor:
    """Latents (b, …) as (b, d) rows divided by √d: distances are root mean squares of differences.

    >>> flattened(torch.ones(2, 4, 8, 8)).shape
    torch.Size([2, 256])
    """
    rows = latents.flatten(1)
    scaled: Tensor = rows / rows.shape[1] ** 0.5
    return scaled


def pooled(latents: Tensor, side: int = 16) -> Tensor:
    """Latents (b, c, height, width) averaged to at most side × side cells, then as `flattened`.

    Raises InputError where latents have no height and width, as Flux's packed ones.
    """
    if latents.ndim != 4:
        raise InputError(
            f"latents of shape {tuple(latents.shape)} have no height and width to pool over; use 'flattened' features."
        )
    size = (min(side, latents.shape[2]), min(side, latents.shape[3]))
    return flattened(torch.nn.functional.adaptive_avg_pool2d(latents, size))


NAMED: dict[str, LatentFeatures] = {"flattened": flattened, "pooled": pooled}


def latent_features(choice: str | LatentFeatures) -> tuple[str, LatentFeatures]:
    """Name and function of a choice. Raises InputError for an unknown name."""
    if callable(choice):
        return getattr(choice, "__qualname__", type(choice).__qualname__), choice
    if choice not in NAMED:
        raise InputError(f"no latent features {choice!r}: give one of {', '.join(NAMED)}, or a function of latents.")
    return choice, NAMED[choice]


def unit_captions(vectors: Tensor) -> Tensor:
    """Caption vectors (b, dx) divided by their norms, float32; rows of zeros stay as they are."""
    rows = vectors.to(torch.float32)
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1.0)
