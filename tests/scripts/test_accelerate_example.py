"""The accelerate example runs in one process and in two, and brings the score towards the data's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.processes import launched, torchrun

SCRIPT = str(Path(__file__).parents[2] / "scripts" / "accelerate_example.py")


@pytest.mark.parametrize(("command", "batch"), [([sys.executable], "60"), (torchrun(), "30")])
def test_the_example_approaches_the_data(command: list[str], batch: str) -> None:
    done = launched([*command, SCRIPT, "--epochs", "4", "--batch", batch])  # the last batch of 2,048 rows is smaller
    assert done.returncode == 0, done.stderr
    found = re.search(r"([\d.]+) before, ([\d.]+) after, data ([\d.]+)", done.stdout)
    assert found is not None
    before, after, data = map(float, found.groups())
    assert abs(after - data) < 0.5 * abs(before - data)
