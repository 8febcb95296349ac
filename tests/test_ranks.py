"""Shares and exchanges of several processes, in real gloo processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from condvne.ranks import SINGLE, Ranks


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 6, 7, 20])
def test_shares_cover_everything_once_in_order(size: int, count: int) -> None:
    items = list(range(count))
    parts = [items[Ranks(rank, size).share(count)] for rank in range(size)]
    assert [item for part in parts for item in part] == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_one_rank_sends_nothing() -> None:
    import torch

    rows = torch.ones(2, 3)
    assert SINGLE.gather([1, "a"]) == [1, "a"]
    assert SINGLE.broadcast({"a": None}) == {"a": None}
    assert SINGLE.gather_rows(rows) is rows
    assert SINGLE.broadcast_rows(rows) is rows
    assert SINGLE.sum(rows) is rows
    SINGLE.agree({"a": 1}, "settings")


PROGRAM = """
import json, sys, torch
from condvne.core.density import DensityState
from condvne.core.kernels import Gaussian
from condvne.core.lanczos import difference, lanczos_entropies
from condvne.core.operators import KernelOperators
from condvne.errors import ConfigError
from condvne.ranks import joined

with joined() as ranks:
    r = ranks.rank
    found = {"gathered": ranks.gather(["é\\ud800", r][: 2 - r])}
    found["broadcast"] = ranks.broadcast({"of": r, "x": 0.1 + 0.2})
    found["rows"] = ranks.gather_rows(torch.full((3 * r, 2), float(r))).tolist()
    found["from_first"] = ranks.broadcast_rows(torch.full((2 - r, 2), float(r + 5))).tolist()
    found["sum"] = ranks.sum(torch.tensor([1.0 + r], dtype=torch.float64)).tolist()
    try:
        ranks.agree({"a": {"b": 1, "c": r}}, "settings")
    except ConfigError as error:
        found["refused"] = str(error)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(700, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    y = torch.randn(700, 3, generator=draw, dtype=torch.float64)
    state = DensityState((Gaussian(1.0), Gaussian(1.0)), (x, y))
    for name, memory in (("stored", None), ("tiled", 0)):
        operators = KernelOperators.from_state(state, ((0,), (0, 1)), memory=memory, ranks=ranks)
        operators.tile = 128
        conditional = difference(*reversed(lanczos_entropies(operators)))
        (gradient,) = torch.autograd.grad(conditional.value, x)
        found[name] = [float(conditional.value), conditional.standard_error, *gradient.flatten()[:40].tolist()]
    print("FOUND", json.dumps(found), flush=True)
"""


def found_by(processes: int, folder: Path) -> list[dict[str, object]]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line.partition("FOUND ")[2]) for line in done.stdout.splitlines() if "FOUND " in line]


def test_two_processes_exchange_values_rows_and_tiles(tmp_path: Path) -> None:
    (alone,) = found_by(1, tmp_path)
    both = found_by(2, tmp_path)
    assert len(both) == 2
    for found in both:
        assert found["gathered"] == ["é\ud800", 0, "é\ud800"]
        assert found["broadcast"] == {"of": 0, "x": 0.1 + 0.2}
        assert found["rows"] == [[1.0, 1.0]] * 3
        assert found["from_first"] == [[5.0, 5.0]] * 2
        assert found["sum"] == [3.0]
        assert "rank 1 has other settings than rank 0 (a.c is 1 instead of 0)" in str(found["refused"])
        for name in ("stored", "tiled"):
            assert found[name] == pytest.approx(alone[name], rel=1e-6, abs=1e-10)
