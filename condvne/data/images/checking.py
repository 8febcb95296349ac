"""Every image decoded once before anything is computed: what is odd is known by name, and equal images are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condvne.data.config.images import Decoding
from condvne.data.images.decoding import decode
from condvne.data.images.sources import Source
from condvne.data.records import read_jsonl, require_field
from condvne.data.storage import AppendLog
from condvne.errors import DataError

BLOCK = 512  # images checked between two writes: a kill loses at most these


@dataclass(frozen=True)
class Checked:
    """An image that decodes.

    Attributes:
        source: where it lies.
        digest: of its content; equal images have equal digests.
        width, height: upright, in pixels.
        conversions: what decoding changed.
    """

    source: Source
    digest: str
    width: int
    height: int
    conversions: tuple[str, ...]


class Checker:
    """Decodes images in threads and remembers the good ones in a file, so that a stopped run checks none twice.

    Faults are kept in `faults`, by the image's name, and are looked at again in the next run.
    """

    def __init__(self, log: Path, settings: Decoding, workers: int) -> None:
        self.settings, self.workers = settings, workers
        self.faults: dict[str, str] = {}
        self._log = AppendLog(log)
        try:
            self._known = {flat["image"]: flat for _, flat in read_jsonl(log) if _usable(flat, log)}
        except DataError:
            self._log.close()
            raise

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def check(
        self, sources: Sequence[Source], progress: Callable[[int, int], None] = lambda done, total: None
    ) -> dict[Source, Checked]:
        """The images among `sources` that decode; the others are in `faults`. Raises RunError when the disk is full."""
        found = {source: _of_record(source, self._known[source.name]) for source in sources if self._is_known(source)}
        new = list(dict.fromkeys(source for source in sources if source not in found))
        progress(len(sources) - len(new), len(sources))
        with ThreadPoolExecutor(self.workers, "decode") as pool:
            for start in range(0, len(new), BLOCK):
                block = list(self._good(pool.map(self._one, new[start : start + BLOCK])))
                self._log.append(_record(image) for image in block)
                self._known |= {image.source.name: _record(image) for image in block}
                found |= {image.source: image for image in block}
                progress(len(sources) - len(new) + min(start + BLOCK, len(new)), len(sources))
        return found

    def _is_known(self, source: Source) -> bool:
        return source.name in self._known

    def _one(self, source: Source) -> Checked | tuple[str, str]:
        try:
            decoded = decode(source, self.settings)
        except DataError as error:
            return source.name, str(error)
        return Checked(source, decoded.digest, decoded.image.width, decoded.image.height, decoded.conversions)

    def _good(self, results: Iterable[Checked | tuple[str, str]]) -> Iterable[Checked]:
        for result in results:
            if isinstance(result, Checked):
                yield result
            else:
                self.faults[result[0]] = result[1]


def _record(image: Checked) -> dict[str, Any]:
    return {
        "image": image.source.name,
        "digest": image.digest,
        "width": image.width,
        "height": image.height,
        "conversions": list(image.conversions),
    }


def _usable(flat: dict[str, Any], log: Path) -> bool:
    for key in ("image", "digest", "width", "height", "conversions"):
        require_field(flat, key, str(log))
    return True


def _of_record(source: Source, flat: dict[str, Any]) -> Checked:
    return Checked(source, flat["digest"], flat["width"], flat["height"], tuple(flat["conversions"]))
