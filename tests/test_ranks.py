"""Shares and exchanges of several processes, in real gloo processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from condvne.ranks import SINGLE, Ranks
from tests.processes import found_by, launched


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
    SINGLE.keep_step([3, None])


def test_ranks_on_one_machine_share_its_memory() -> None:
    import torch

    assert SINGLE.sharing(torch.device("cpu")) == 1
    assert Ranks(1, 8, 1, neighbours=4).sharing(torch.device("cpu")) == 4


PROGRAM = """
import json, os, torch
from condvne.core.density import DensityState
from condvne.core.kernels import Gaussian
from condvne.core.lanczos import difference, lanczos_entropies
from condvne.core.operators import KernelOperators
from condvne.errors import ConfigError, RunError
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
    long = ranks.broadcast(["x" * 3_000_000] if ranks.main else None)
    found["long"] = len(long[0])
    state = DensityState((Gaussian(1.0),), (torch.ones(80, 1, dtype=torch.float64),))
    vectors = torch.ones(80, 1 + r, dtype=torch.float64)
    try:
        KernelOperators.from_state(state, ranks=ranks).multiply([vectors])
    except RunError as error:
        found["strayed"] = str(error)
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
    open(os.environ["FOUND"] + "." + os.environ["RANK"], "w").write(json.dumps(found))
"""


def test_two_processes_exchange_values_rows_and_tiles(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (alone,) = found_by(1, script)
    both = found_by(2, script)
    assert len(both) == 2
    for found in both:
        assert found["gathered"] == ["é\ud800", 0, "é\ud800"]
        assert found["broadcast"] == {"of": 0, "x": 0.1 + 0.2}
        assert found["rows"] == [[1.0, 1.0]] * 3
        assert found["from_first"] == [[5.0, 5.0]] * 2
        assert found["sum"] == [3.0]
        assert "rank 1 has other settings than rank 0 (a.c is 1 instead of 0)" in found["refused"]
        assert "ranks 1 take other steps than rank 0" in found["strayed"]
        assert found["long"] == 3_000_000
        for name in ("stored", "tiled"):
            assert found[name] == pytest.approx(alone[name], rel=1e-6, abs=1e-10)


MEETING = """
import datetime, sys
import condvne.ranks
condvne.ranks.MEETING = datetime.timedelta(seconds=1)
from condvne.cli import main
sys.argv = ["condvne", "gap", "none.yaml"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "the 2 processes of WORLD_SIZE did not all come to localhost:"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', which is no number"),
        ({"RANK": "2"}, "the 2 processes of WORLD_SIZE did not all come"),
    ],
)
def test_a_world_that_does_not_meet_is_refused(changed: dict[str, str], said: str) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    done = launched([sys.executable, "-c", MEETING], world | changed)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
