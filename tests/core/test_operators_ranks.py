"""How several processes cut and keep tiles; that they multiply alike is seen in tests/test_ranks.py."""

from __future__ import annotations

import pytest
import torch

from condvne.core.tiles import LEAST_SHARE, LEAST_TILE, tile_layout

CPU = torch.device("cpu")
GRAM = 4 * 10_000**2 // 2  # half a Gram matrix of 10,000 points in float32


@pytest.mark.parametrize("processes", [2, 3, 8, 64])
@pytest.mark.parametrize("n", [2_000, 20_000])
def test_every_process_has_several_tiles(processes: int, n: int) -> None:
    tile, _ = tile_layout(n, 2, 2, torch.float32, CPU, None, processes)
    spans = -(-n // tile)
    assert tile == LEAST_TILE or spans * (spans + 1) // 2 >= LEAST_SHARE * processes


def test_tiles_of_one_process_are_as_large_as_ever() -> None:
    assert tile_layout(1_000, 1, 1, torch.float32, CPU, 1 << 30)[0] == 512


def test_what_one_process_cannot_keep_four_can() -> None:
    memory = GRAM // 2
    assert tile_layout(10_000, 1, 1, torch.float32, CPU, memory)[1] == (False,)
    assert tile_layout(10_000, 1, 1, torch.float32, CPU, memory, 4)[1] == (True,)


def test_processes_on_other_machines_take_no_memory_from_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("condvne.core.tiles.free_memory", lambda device: GRAM // 2)
    assert tile_layout(10_000, 1, 1, torch.float32, CPU, None, 8, sharing=8)[1] == (False,)
    assert tile_layout(10_000, 1, 1, torch.float32, CPU, None, 8, sharing=1)[1] == (True,)
