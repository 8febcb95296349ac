"""Guided and unguided images of the same captions and seeds, in a run folder that goes on where it stopped."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from condvne.data.records import read_jsonl
from condvne.data.seeding import seeded_key
from condvne.data.storage import AppendLog, write_whole
from condvne.errors import RunError
from condvne.tasks.guidance.history import History

if TYPE_CHECKING:
    from PIL.Image import Image

UNGUIDED, GUIDED = "unguided", "guided"
Sample = Callable[[Sequence[str], Sequence[int]], "list[Image]"]


class Guide(Protocol):
    """Whatever guides: it has a history, and takes up a saved one."""

    history: History

    def load(self, path: str | Path) -> None: ...


@dataclass(frozen=True)
class Order:
    """One image to be made."""

    file: str
    caption: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "caption": self.caption, "seed": self.seed}


def orders(captions: Sequence[str], images_per_caption: int, seed: int) -> list[Order]:
    """Round by round over the captions, so that a batch holds different ones; seeds depend on caption and round."""
    pairs = [(caption, turn) for turn in range(images_per_caption) for caption in captions]
    return [
        Order(f"{number:08d}.png", caption, seeded_key(seed, caption, turn) % 2**63)
        for number, (caption, turn) in enumerate(pairs)
    ]


def make_images(
    group: str,
    wanted: Sequence[Order],
    folder: Path,
    sample: Sample,
    *,
    batch: int,
    save_every: int,
    guide: Guide | None = None,
    progress: Callable[[int, int], None],
) -> None:
    """Write `folder/group/*.png` and `folder/group.jsonl`, whose lines are finished images in the order of `wanted`.

    After each `save_every` batches the history is saved, then the lines are written: a run killed in between makes
    those batches again from the history before them, and gets the same images.

    Raises RunError where the folder's lines are not the first of `wanted`, or the history of the last one is gone.
    """
    path = folder / f"{group}.jsonl"
    with AppendLog(path) as log:
        done = _finished(path, wanted)
        if guide is not None and done:
            saved = _history_file(folder, done)
            if not saved.exists():
                raise RunError(f"{saved}: is not there, so guided images cannot go on; choose another folder.")
            guide.load(saved)
        progress(done, len(wanted))
        while done < len(wanted):
            block = wanted[done : done + batch * save_every]
            for start in range(0, len(block), batch):
                part = block[start : start + batch]
                images = sample([order.caption for order in part], [order.seed for order in part])
                for order, image in zip(part, images, strict=True):
                    write_whole(folder / group / order.file, _png(image))
                progress(done + start + len(part), len(wanted))
            done += len(block)
            if guide is not None:
                guide.history.save(_made(_history_file(folder, done)))
            log.append([order.to_json() for order in block])
            _keep_only(folder, done)


def _finished(path: Path, wanted: Sequence[Order]) -> int:
    lines = [fields for _, fields in read_jsonl(path)]
    if lines != [order.to_json() for order in wanted[: len(lines)]]:
        raise RunError(f"{path}: its images are not those of this configuration; choose another folder.")
    return len(lines)


def _history_file(folder: Path, done: int) -> Path:
    return folder / "history" / f"{done:08d}.safetensors"


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _keep_only(folder: Path, done: int) -> None:
    """Older histories go once the lines of the newest are on disk."""
    for path in (folder / "history").glob("*.safetensors"):
        if path != _history_file(folder, done):
            path.unlink()


def _png(image: Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
