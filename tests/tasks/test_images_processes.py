"""`condvne images` in processes of its own: two that share the work, and one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from condvne.data.config.images import ImagesConfig
from condvne.data.results import Scores
from condvne.tasks.images import measure_images
from tests.processes import ONE_THREAD, launched, torchrun
from tests.tasks.test_images import settings, silent, write_groups


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_groups(tmp_path_factory.mktemp("groups"))


@pytest.fixture(scope="module")
def alone(data: Path) -> Scores:
    return measure_images(ImagesConfig.model_validate(settings(data)), data / "run", progress=silent)[0]


def agree(both: Scores, alone: Scores) -> None:
    for a, b in zip(both.cells, alone.cells, strict=True):
        assert (a.group, a.metric, a.n) == (b.group, b.metric, b.n)
        assert a.values == pytest.approx(b.values, rel=1e-6)


def test_two_processes_give_the_scores_of_one(data: Path, alone: Scores, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings(data), sort_keys=False))
    command = [*torchrun(2), "-m", "condvne", "images", str(tmp_path / "c.yaml"), "--folder", str(tmp_path / "run")]
    done = launched(command)
    assert done.returncode == 0, done.stderr
    agree(Scores.model_validate_json((tmp_path / "run" / "scores.json").read_text()), alone)
    assert "Where diversity is lost" in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "images.jsonl").read_bytes() == (data / "run" / "images.jsonl").read_bytes()


def test_a_run_that_is_killed_goes_on_to_the_same_scores(data: Path, alone: Scores, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings(data), sort_keys=False))
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "condvne", "images", str(tmp_path / "c.yaml"), "--folder", str(folder)]
    process = subprocess.Popen(command, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (folder / "images.jsonl").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not (folder / "scores.json").exists()
    checked = (folder / "checked.jsonl").read_bytes()
    agree(measure_images(ImagesConfig.model_validate(settings(data)), folder, progress=silent)[0], alone)
    assert (folder / "checked.jsonl").read_bytes() == checked
