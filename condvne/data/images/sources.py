"""Where an image's bytes lie: a file, a member of a tar, a row of a sample batch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from condvne.data.images.arrays import map_member
from condvne.errors import DataError

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})


@dataclass(frozen=True)
class Source:
    """A place that holds one image.

    Attributes:
        path: a file, a tar with `offset` and `size` of a member, or an .npz with `row` of its arr_0.
        member: the member's name, for messages.
    """

    path: str
    offset: int | None = None
    size: int | None = None
    row: int | None = None
    member: str | None = None

    @property
    def name(self) -> str:
        """The image as messages name it: file, tar::member or batch[row]."""
        if self.row is not None:
            return f"{self.path}[{self.row}]"
        return self.path if self.member is None else f"{self.path}::{self.member}"

    def content(self) -> bytes | np.ndarray[Any, Any]:
        """The encoded file's bytes, or the pixels (height, width, 3) uint8 of a batch's row.

        Raises DataError naming the image when it cannot be read.
        """
        if self.row is not None:
            pixels: np.ndarray[Any, Any] = mapped_batch(self.path)[self.row]
            return pixels
        try:
            with open(self.path, "rb") as file:
                if self.offset is None:
                    return file.read()
                file.seek(self.offset)
                return file.read(self.size or 0)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror or error}); restore the file.") from error

    def to_json(self) -> dict[str, Any]:
        """Fields that are set."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class ListedImage:
    """An image of a group and the condition that it stands under: a caption, or a class as the layout names it."""

    condition: str
    source: Source


@dataclass
class Listing:
    """All images of a group, in the order of its layout; `notes` tell what was passed over."""

    images: list[ListedImage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def content_digest(content: bytes | np.ndarray[Any, Any]) -> str:
    """32 hexadecimal digits that change with an image's bytes, or with shape and values of its pixels."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, bytes):
        digest.update(content)
    else:
        digest.update(f"pixels {content.shape}".encode() + content.tobytes())
    return digest.hexdigest()


def is_image(path: str | Path) -> bool:
    """Whether a name ends as images' names do and is not hidden."""
    path = Path(path)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


@lru_cache(maxsize=16)
def mapped_batch(path: str) -> np.ndarray[Any, Any]:
    """arr_0 of a sample batch, mapped: rows are read from disk when they are used."""
    return map_member(Path(path), "arr_0")
