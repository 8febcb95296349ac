"""Sample batches in .npz files, as published for ADM and BigGAN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from condvne.data.images.arrays import map_member, members
from condvne.data.images.sources import ListedImage, Listing, Source
from condvne.errors import DataError


def list_batch(path: Path, labels: Path | None) -> Listing:
    """The rows of a sample batch, each under its class index (arr_1, or the file `labels`).

    Raises DataError for arrays of another shape or type, compressed arrays, and classes that are missing or not as
    many as the images.
    """
    images = map_member(path, "arr_0")
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise DataError(
            f"{path}: arr_0 must hold images, uint8 of shape (n, height, width, 3), not {images.dtype} of shape "
            f"{images.shape}."
        )
    classes = _labels(path, labels)
    if classes.shape != (len(images),):
        raise DataError(f"{path}: has {len(images)} images but class indices of shape {classes.shape}; one each.")
    return Listing([ListedImage(str(int(label)), Source(str(path), row=row)) for row, label in enumerate(classes)])


def _labels(path: Path, labels: Path | None) -> np.ndarray[Any, Any]:
    if labels is None:
        if "arr_1.npy" not in members(path):
            raise DataError(
                f"{path}: holds no class indices (arr_1); samples of an unconditional model have no condition, or "
                "name the file that holds them (labels)."
            )
        found = map_member(path, "arr_1")
    elif labels.suffix == ".npz":
        found = map_member(labels, _first_member(labels))
    else:
        try:
            found = np.load(labels, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{labels}: cannot be read as class indices ({error}).") from error
    if found.ndim == 2 and found.shape[1] > 1 and bool((np.sort(found, axis=1)[:, :-1] == 0).all()):
        found = found.argmax(1)  # one-hot, as some batches are published
    if found.dtype.kind not in "iu":
        raise DataError(f"{labels or path}: class indices must be integers, not {found.dtype}.")
    return found.reshape(-1)


def _first_member(path: Path) -> str:
    names = sorted(members(path))
    if not names:
        raise DataError(f"{path}: holds no array.")
    return names[0].removesuffix(".npy")
