"""Tiles of Gram matrices: where their entries come from, in which precision, how large they are and which are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import psutil  # type: ignore[import-untyped]
import torch
from torch import Tensor

from condvne.core.kernels import Kernel
from condvne.errors import InputError

Precision = Literal["float64", "float32", "tf32", "bfloat16"]

CPU_TILE = 512  # rows: a float32 tile stays in the cache between its two applications
CUDA_TILE = 8192
LEAST_TILE = 64
LEAST_SHARE = 8  # tiles for each of several processes, so that one more or less is no great difference
SHARE_OF_FREE_MEMORY = 0.5


@dataclass(frozen=True)
class Rounding:
    """Difference of kernel values as computed in tiles from float64, on a few rows."""

    largest: float
    root_mean_square: float


class Side(Protocol):
    def block(self, rows: slice, columns: slice) -> Tensor: ...


@dataclass(frozen=True)
class FeatureSide:
    """Blocks evaluated from prepared features (n, d)."""

    kernel: Kernel
    prepared: Tensor
    dtype: torch.dtype

    def block(self, rows: slice, columns: slice) -> Tensor:
        if rows == columns:
            return self.kernel.evaluate(self.prepared[rows]).to(self.dtype)
        return self.kernel.evaluate(self.prepared[rows], self.prepared[columns]).to(self.dtype)


@dataclass(frozen=True)
class GramSide:
    """Blocks of a Gram matrix (n, n)."""

    gram: Tensor
    dtype: torch.dtype

    def block(self, rows: slice, columns: slice) -> Tensor:
        return self.gram[rows, columns].to(self.dtype)


def tile_layout(
    n: int,
    sides: int,
    terms: int,
    dtype: torch.dtype,
    device: torch.device,
    memory: int | None,
    processes: int = 1,
    sharing: int = 1,
) -> tuple[int, tuple[bool, ...]]:
    """Rows of a tile, and for each matrix whether half of it is kept, within the memory stated (bytes).

    With several processes each keeps its part, tiles are small enough to give each LEAST_SHARE of them, and
    `sharing` of the processes divide the device's free memory.

    Raises InputError where the memory is negative.
    """
    if memory is not None and memory < 0:
        raise InputError(f"memory must be a number of bytes, 0 or more, but is {memory}.")
    budget = memory if memory is not None else int(SHARE_OF_FREE_MEMORY * free_memory(device) / sharing)
    size = torch.finfo(dtype).bits // 8
    in_flight = sides + terms + 4  # blocks, products, and temporaries of one evaluation
    tile = CUDA_TILE if device.type == "cuda" else CPU_TILE
    if budget > 0:
        tile = min(tile, math.isqrt(budget // (2 * size * in_flight)))
    if processes > 1:
        spans = math.isqrt(2 * LEAST_SHARE * processes - 1) + 1
        tile = min(tile, n // spans)
    tile = min(max(tile, LEAST_TILE), n)
    left = budget - in_flight * size * tile**2
    half = size * n * (n + tile) // (2 * processes)
    kept = []
    for _ in range(terms):
        fits = half <= left
        left -= half if fits else 0
        kept.append(fits)
    return tile, tuple(kept)


def rounded(kernel: Kernel, prepared: Tensor, dtype: torch.dtype) -> Tensor:
    """Prepared coordinates (n, d) in the precision of the tiles."""
    if kernel.fixed_bandwidth is not None:  # a kernel of differences: a common shift is nothing but rounding
        prepared = prepared - prepared.mean(dim=0)
    return prepared.to(dtype)


def free_memory(device: torch.device) -> int:
    """Bytes free on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


@contextmanager
def full_precision(precision: Precision) -> Iterator[None]:
    """Matrix products of float32 in float32, or in TF32 where that was asked for; the caller's setting returns."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def check_precision(precision: str, device: torch.device) -> None:
    """Raises InputError where the precision is unknown or the device does not have it."""
    if precision not in get_args(Precision):
        raise InputError(f"precision must be one of {', '.join(get_args(Precision))}, but is {precision!r}.")
    if precision == "tf32" and device.type != "cuda":
        raise InputError(f"precision 'tf32' needs CUDA, but the features are on {device}; use 'float32'.")
