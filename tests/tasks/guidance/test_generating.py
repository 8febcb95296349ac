"""Guided and plain images of the same seeds: in order, once, and going on after a stop with the same result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from condvne.errors import RunError
from condvne.tasks.guidance import History, HistorySettings
from condvne.tasks.guidance.generating import GUIDED, Order, make_images, orders

CAPTIONS = ["a one", "a two", "a three"]


class Painter:
    """Images that depend on the seed and on how many images the history holds; stops at a chosen call."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.history = History(HistorySettings(route="exact"))
        self.calls, self.stop_at = 0, stop_at

    def load(self, path: str | Path) -> None:
        self.history = History.load(path)

    def sample(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        before = len(self.history)
        values = [(seed + before) % 251 for seed in seeds]
        self.history.add(torch.eye(3)[: len(prompts)], torch.tensor(values, dtype=torch.float32)[:, None])
        return [Image.fromarray(np.full((4, 4), value, dtype=np.uint8)) for value in values]


def make(folder: Path, wanted: list[Order], painter: Painter) -> dict[str, bytes]:
    make_images(
        GUIDED, wanted, folder, painter.sample, batch=2, save_every=2, guide=painter, progress=lambda done, total: None
    )
    return {path.name: path.read_bytes() for path in (folder / GUIDED).iterdir()}


def test_orders_go_round_the_captions_with_seeds_of_their_own() -> None:
    found = orders(CAPTIONS, 2, 0)
    assert [o.caption for o in found] == CAPTIONS * 2
    assert len({o.seed for o in found}) == len({o.file for o in found}) == 6
    assert orders(CAPTIONS, 3, 0)[:6] == found  # more images begin with the same ones
    assert orders(CAPTIONS, 2, 1)[0].seed != found[0].seed


def test_a_stopped_run_goes_on_with_the_images_it_would_have_made(tmp_path: Path) -> None:
    wanted = orders(CAPTIONS, 5, 0)
    whole = make(tmp_path / "whole", wanted, Painter())
    assert len(whole) == 15
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "stopped", wanted, Painter(stop_at=6))  # in the third block: the fifth call is lost
    lines = (tmp_path / "stopped" / "guided.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [order.to_json() for order in wanted[:8]]
    again = Painter()
    assert make(tmp_path / "stopped", wanted, again) == whole
    assert again.calls == 4  # 7 images in calls of two
    assert again.history.images == 15
    assert len(list((tmp_path / "stopped" / "history").iterdir())) == 1
    finished = Painter()
    make(tmp_path / "stopped", wanted, finished)
    assert finished.calls == 0


def test_folders_of_other_orders_or_without_their_history_are_refused(tmp_path: Path) -> None:
    wanted = orders(CAPTIONS, 2, 0)
    make(tmp_path, wanted, Painter())
    with pytest.raises(RunError, match=r"guided\.jsonl: its images are not those of this configuration"):
        make(tmp_path, orders(CAPTIONS, 2, 1), Painter())
    for path in (tmp_path / "history").iterdir():
        path.unlink()
    with pytest.raises(RunError, match="is not there, so guided images cannot go on"):
        make(tmp_path, orders(CAPTIONS, 3, 0), Painter())
