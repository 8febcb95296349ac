"""Importing the package costs hardly more than importing torch, and loads none of the heavy libraries."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

ROUNDS = 3  # the first may have to compile the package: the median does not see it
HEAVY = (
    *("transformers", "sentence_transformers", "diffusers", "datasets", "open_clip", "sklearn", "scipy", "pandas"),
    *("matplotlib", "torchvision", "torchmetrics", "accelerate", "pydantic", "rich", "typer", "yaml"),
)


def in_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def import_seconds(module: str) -> float:
    """Processor time, which a busy machine does not stretch as it does the clock's."""
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    return float(in_fresh_process(code))


@pytest.mark.slow
def test_import_takes_hardly_longer_than_torch() -> None:
    pairs = [(import_seconds("torch"), import_seconds("condvne")) for _ in range(ROUNDS)]
    of_torch, of_condvne = (statistics.median(times) for times in zip(*pairs, strict=True))
    assert of_condvne <= 1.3 * of_torch, f"import condvne takes {of_condvne:.2f} s, import torch {of_torch:.2f} s"


def test_import_loads_nothing_heavy() -> None:
    code = "import torch, sys; before = set(sys.modules); import condvne; print(*set(sys.modules) - before)"
    loaded = {name.split(".")[0] for name in in_fresh_process(code).split()}
    assert "condvne" in loaded
    assert loaded.isdisjoint(HEAVY)
