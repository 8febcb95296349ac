"""Several processes: the same records, scores and refusals as one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from condvne.data.config import GapConfig
from condvne.tasks.gap import measure_gap
from tests.corpora import gap_settings, write_config, write_corpus
from tests.processes import ONE_THREAD, launched, torchrun

NUMBERS = ("plug_in", "estimate", "low", "high")
SHARED = "2 processes shared the work"
LOST = "another process has ended"


def settings_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """75 pairs: they and the subsamples leave an uneven tail for two processes."""
    changes = {"pairs": {"count": 75}, **changes}
    evaluation = {"sizes": [20, 75], "repeats": 3, "empty_texts": "drop", "robustness_size": 30, "permutations": 20}
    return gap_settings(folder, evaluation=evaluation | changes.pop("evaluation", {}), **changes)


def scores_of(folder: Path) -> dict[str, Any]:
    scores: dict[str, Any] = json.loads((folder / "scores.json").read_text())
    return scores


def assert_same_scores(folder: Path, other: Path) -> None:
    a, b = scores_of(folder), scores_of(other)
    assert len(a["cells"]) == len(b["cells"]) > 0
    for mine, theirs in zip(a["cells"], b["cells"], strict=True):
        assert (mine["group"], mine["metric"], mine["n"]) == (theirs["group"], theirs["metric"], theirs["n"])
        assert mine["values"] == pytest.approx(theirs["values"], rel=1e-6)
    assert len(a["populations"]) == len(b["populations"]) > 0
    for mine, theirs in zip(a["populations"], b["populations"], strict=True):
        assert (mine["group"], mine["metric"], mine["n"]) == (theirs["group"], theirs["metric"], theirs["n"])
        # Other numbers of threads round differently.
        assert [mine[k] for k in NUMBERS] == pytest.approx([theirs[k] for k in NUMBERS], rel=1e-6)
    assert [note for note in a["notes"] if note != SHARED] == b["notes"]


@pytest.mark.parametrize("method", ["exact", "lanczos"])
def test_two_processes_give_the_records_and_scores_of_one(tmp_path: Path, method: str) -> None:
    settings = settings_of(tmp_path, evaluation={"method": method})
    config = write_config(tmp_path / "config.yaml", settings)
    measure_gap(GapConfig.model_validate(settings), tmp_path / "one", progress=lambda *_: None)
    done = launched([*torchrun(), "-m", "condvne", "gap", str(config), "--folder", str(tmp_path / "two")])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "records.jsonl").read_bytes() == (tmp_path / "one" / "records.jsonl").read_bytes()
    assert_same_scores(tmp_path / "two", tmp_path / "one")
    assert SHARED in scores_of(tmp_path / "two")["notes"]
    assert done.stdout.count("Report:") == 1
    assert (tmp_path / "two" / "report.html").exists()


def test_accelerate_launches_two_processes(tmp_path: Path) -> None:
    rows = [{"q": f"question {i % 9}", "a": f"answer {i}", "b": f"answer {i % 5}"} for i in range(41)]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["score", str(table), "--condition", "q", "--outputs", "a", "b", "--reference", "a"]
    arguments += ["--encoder", "hashed_ngrams", "--sizes", "20", "--repeats", "3"]
    accelerate = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    accelerate += [
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        "0",
    ]
    one = launched([sys.executable, "-m", "condvne", *arguments, "--folder", str(tmp_path / "one")])
    two = launched([*accelerate, "-m", "condvne", *arguments, "--folder", str(tmp_path / "two")])
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("Report:") == 1
    assert_same_scores(tmp_path / "two", tmp_path / "one")
    assert SHARED in scores_of(tmp_path / "two")["notes"]


def test_when_one_of_two_processes_is_killed_the_other_ends_and_one_alone_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl", documents=60, paragraphs=25)
    settings = gap_settings(
        tmp_path,
        pairs={"count": 1280, "continuation_tokens": 4},
        paragraphs={"pairs_per_document": 25, "candidates_per_document": 25},
        generation={"batch_size": 32},
        evaluation={"sizes": [50], "repeats": 2, "empty_texts": "drop", "robustness_size": 20, "population_size": 50},
    )
    config = write_config(tmp_path / "config.yaml", settings)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    measure_gap(GapConfig.model_validate(settings), undisturbed, progress=lambda *_: None)
    command = [*torchrun(), "-m", "condvne", "gap", str(config), "--folder", str(killed)]
    log = killed / "records.jsonl"
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ONE_THREAD, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size > 0):
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(ranks_of(process.pid)[0], signal.SIGKILL)
        assert process.wait(timeout=60) == 1
    whole = (undisturbed / "records.jsonl").read_bytes()
    assert whole.startswith(log.read_bytes())
    measure_gap(GapConfig.model_validate(settings), killed, progress=lambda *_: None)
    assert log.read_bytes() == whole
    assert_same_scores(killed, undisturbed)


def ranks_of(launcher: int) -> list[int]:
    import psutil  # type: ignore[import-untyped]

    return [child.pid for child in psutil.Process(launcher).children() if "condvne" in child.cmdline()]


def test_ranks_with_different_settings_are_refused(tmp_path: Path) -> None:
    first = write_config(tmp_path / "first.yaml", settings_of(tmp_path))
    second = write_config(tmp_path / "second.yaml", settings_of(tmp_path, evaluation={"repeats": 4}))
    script = tmp_path / "start.py"
    script.write_text(
        "import os, sys\n"
        f"config = {[str(first), str(second)]!r}[int(os.environ['RANK'])]\n"
        f"sys.argv = ['condvne', 'gap', config, '--folder', {str(tmp_path / 'run')!r}]\n"
        "from condvne.cli import main\n"
        "sys.exit(main())\n"
    )
    done = launched([*torchrun(), str(script)])
    assert done.returncode == 1
    sentence = "rank 1 has other settings than rank 0 (settings.evaluation.repeats is 4 instead of 3)"
    assert done.stderr.count(sentence) == 1
    assert "condvne (rank 0): " in done.stderr
    assert not (tmp_path / "run").exists()


def test_what_rank_zero_is_refused_ends_all(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("not a run folder")
    config = write_config(tmp_path / "config.yaml", settings_of(tmp_path))
    done = launched([*torchrun(), "-m", "condvne", "gap", str(config), "--folder", str(tmp_path / "run")])
    assert done.returncode == 1
    assert "condvne (rank 0): " in done.stderr
    assert done.stderr.count("holds 'mine.txt'") == 1
    assert "[rank1]: Traceback" not in done.stderr


def test_what_one_rank_is_refused_ends_all(tmp_path: Path) -> None:
    """Rank 1 runs in a folder without the model, as on a machine that lacks it."""
    settings = settings_of(tmp_path) | {"model": {"path": "model"}}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    shutil.move(tmp_path / "model", tmp_path / "first" / "model")
    config = write_config(tmp_path / "config.yaml", settings)
    script = tmp_path / "start.py"
    script.write_text(
        "import os, sys\n"
        f"os.chdir([{str(tmp_path / 'first')!r}, {str(tmp_path / 'second')!r}][int(os.environ['RANK'])])\n"
        f"sys.argv = ['condvne', 'gap', {str(config)!r}, '--folder', {str(tmp_path / 'run')!r}]\n"
        "from condvne.cli import main\n"
        "sys.exit(main())\n"
    )
    done = launched([*torchrun(), str(script)])
    assert done.returncode == 1
    assert "condvne (rank 1): model" in done.stderr
    assert "[rank" not in done.stderr  # tracebacks and warnings of the libraries
    if "condvne (rank 0)" in done.stderr:  # unless the launcher was faster
        assert LOST in done.stderr
    log = tmp_path / "run" / "records.jsonl"
    assert log.read_bytes() == b""


def test_a_world_without_a_launcher_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", settings_of(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "condvne", "gap", str(config)],
        capture_output=True,
        text=True,
        env=ONE_THREAD | {"WORLD_SIZE": "2"},
        check=False,
    )
    assert done.returncode == 1
    assert "start with torchrun or accelerate launch" in done.stderr
    assert "Traceback" not in done.stderr
