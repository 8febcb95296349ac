"""Arrays of .npz files, mapped into memory: a batch of 50,000 images of 256 × 256 is 10 GB."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from condvne.errors import DataError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # of a zip member: its last two fields are lengths of name and extra


def map_member(path: Path, name: str) -> np.ndarray[Any, Any]:
    """An array of an .npz file without reading it: (n, …), read only.

    Raises DataError when the file is no archive, lacks the array, or holds it compressed or pickled.
    """
    member = members(path).get(f"{name}.npy")
    if member is None:
        raise DataError(f"{path}: has no array {name!r}; its arrays are {', '.join(sorted(members(path))) or 'none'}.")
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


def members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Members of the archive by name. Raises DataError when it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {member.filename: member for member in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as .npz ({reason}); copy or download the file again.") from error
