"""Sample batches in .npz files, mapped into memory: an archive of 50,000 images of 256 × 256 is 10 GB."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from condvne.data.images.sources import ListedImage, Listing, Source
from condvne.errors import DataError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # of a zip member: its last two fields are lengths of name and extra


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
        if "arr_1.npy" not in _members(path):
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


def map_member(path: Path, name: str) -> np.ndarray[Any, Any]:
    """An array of an .npz file without reading it: (n, …), read only.

    Raises DataError when the file is no archive, lacks the array, or holds it compressed or pickled.
    """
    member = _members(path).get(f"{name}.npy")
    if member is None:
        raise DataError(f"{path}: has no array {name!r}; its arrays are {', '.join(sorted(_members(path))) or 'none'}.")
    if member.compress_type != zipfile.ZIP_STORED:
        raise DataError(
            f"{path}: array {name!r} is compressed and cannot be mapped into memory; save it again with numpy.savez."
        )
    try:
        with path.open("rb") as file:
            file.seek(member.header_offset)
            header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(header[-2] + header[-1], 1)
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            if dtype.hasobject:
                raise DataError(f"{path}: array {name!r} holds pickled objects, which are not loaded.")
            order: Any = "F" if fortran else "C"
            return np.memmap(path, dtype, "r", file.tell(), shape, order)
    except (OSError, ValueError, struct.error) as error:
        raise DataError(
            f"{path}: array {name!r} cannot be mapped ({error}); copy or download the file again."
        ) from error


def _members(path: Path) -> dict[str, zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {member.filename: member for member in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as .npz ({reason}); copy or download the file again.") from error


def _first_member(path: Path) -> str:
    names = sorted(_members(path))
    if not names:
        raise DataError(f"{path}: holds no array.")
    return names[0].removesuffix(".npy")
