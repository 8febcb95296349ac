"""Run folders: one process, one configuration, one state of the inputs each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from condvne.data.config import Evaluation
from condvne.data.runfolders import claim_run_folder
from condvne.data.storage import AppendLog
from condvne.errors import RunError
from tests.data.test_storage import ROOT, rows, visible

KILLED = """
import os, sys, time
from condvne.data.runfolders import claim_run_folder
from condvne.data.storage import AppendLog
claim_run_folder(sys.argv[1], {"n": 1}, {})
with AppendLog(sys.argv[1] + "/a.jsonl") as log:
    log.append({"a": i} for i in range(3))
    os.write(log._file, b'{"a": 3, "te')
    open(sys.argv[1] + "/.b.json.1-ab.partial", "w").close()
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_and_a_killed_one_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=rf"run: process {writer.pid} is writing to this folder"):
            claim_run_folder(folder, {"n": 1}, {})
        writer.send_signal(signal.SIGKILL)
    assert visible(folder) == [".b.json.1-ab.partial", ".lock", "a.jsonl", "config.json", "versions.json"]
    with claim_run_folder(folder, {"n": 1}, {}) as claimed, AppendLog(folder / "a.jsonl") as log:
        assert claimed.resumed
        log.append([{"a": 3}])
    assert rows(folder / "a.jsonl") == [0, 1, 2, 3]
    assert visible(folder) == [".lock", "a.jsonl", "config.json", "versions.json"]


def test_lock_is_held_until_release(tmp_path: Path) -> None:
    claimed = claim_run_folder(tmp_path, {"n": 1}, {})
    with pytest.raises(RunError, match=f"process {os.getpid()} is writing"):
        claim_run_folder(tmp_path, {"n": 1}, {})
    claimed.release()
    claimed.release()
    claim_run_folder(tmp_path, {"n": 1}, {}).release()


def test_run_folder_holds_configuration_and_versions(tmp_path: Path) -> None:
    config = {"name": "é", "seed": 0, "evaluation": Evaluation.model_validate({}).model_dump(mode="json"), "t": (1, 2)}
    with claim_run_folder(tmp_path / "run", config, {"torch": "2.0"}) as claimed:
        assert not claimed.resumed
        assert claimed.notes == []
        (tmp_path / "run" / "pairs.jsonl").touch()
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["evaluation"]["robustness_orders"][-1] == "inf"
    assert stored["t"] == [1, 2]
    assert json.loads((tmp_path / "run" / "versions.json").read_text()) == {"torch": "2.0"}
    with claim_run_folder(tmp_path / "run", config, {"torch": "2.1", "numpy": "2"}) as claimed:
        assert claimed.resumed
        assert claimed.notes == ["the run was begun with other versions: torch 2.0 → 2.1, numpy None → 2"]


def test_other_configuration_is_refused_by_name(tmp_path: Path) -> None:
    first = {"seed": 0, "pairs": {"count": 10, "prefix_tokens": 3}, "old": True, "sizes": [1, 2]}
    claim_run_folder(tmp_path, first, {}).release()
    (tmp_path / "pairs.jsonl").touch()
    other = {"seed": 0, "pairs": {"count": 20, "prefix_tokens": 3}, "sizes": [1]}
    with pytest.raises(RunError) as caught:
        claim_run_folder(tmp_path, other, {})
    assert "pairs.count (10 there, 20 now), sizes ([1, 2] there, [1] now), old (True there, not set now)" in str(
        caught.value
    )
    assert "choose another folder" in str(caught.value)
    assert json.loads((tmp_path / "config.json").read_text()) == first
    claim_run_folder(tmp_path, first, {}).release()  # the refusal gave the lock back


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"holds 'thesis\.tex' but no config\.json"):
        claim_run_folder(tmp_path, {}, {})
    assert visible(tmp_path) == [".lock", "thesis.tex"]


def test_unreadable_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"config\.json: cannot be read as JSON"):
        claim_run_folder(tmp_path, {}, {})


def test_folder_of_a_run_that_left_nothing_is_free_for_another(tmp_path: Path) -> None:
    claim_run_folder(tmp_path, {"model": "mistyped"}, {"torch": "1"}, {"the corpus": "a"}).release()
    with claim_run_folder(tmp_path, {"model": "right"}, {"torch": "2"}, {"the corpus": "b"}) as claimed:
        assert not claimed.resumed
        assert claimed.notes == []
    assert json.loads((tmp_path / "config.json").read_text()) == {"model": "right"}
    assert json.loads((tmp_path / "inputs.json").read_text()) == {"the corpus": "b"}


def test_configuration_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"theirs": 1}')
    with pytest.raises(RunError, match="belongs to a run with other settings"):
        claim_run_folder(tmp_path, {"ours": 1}, {})
    assert (tmp_path / "config.json").read_text() == '{"theirs": 1}'


def test_inputs_that_have_changed_are_refused_by_name(tmp_path: Path) -> None:
    claim_run_folder(tmp_path, {}, {}, {"a.jsonl": "1", "the model": None}).release()
    (tmp_path / "scores.json").touch()
    with pytest.raises(RunError, match=r"its results are of a\.jsonl as it was before it was changed; choose another"):
        claim_run_folder(tmp_path, {}, {}, {"a.jsonl": "2"})
    # What cannot be looked at is not compared, nor forgotten; what was unknown is known from then on.
    claim_run_folder(tmp_path, {}, {}, {"a.jsonl": None, "the model": "m"}).release()
    assert json.loads((tmp_path / "inputs.json").read_text()) == {"a.jsonl": "1", "the model": "m"}
    for changed in ({"a.jsonl": "2"}, {"the model": "n"}):
        with pytest.raises(RunError, match="as it was before it was changed"):
            claim_run_folder(tmp_path, {}, {}, changed)
