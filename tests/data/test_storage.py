"""Storage: files whole or not at all, logs that survive full disks and killed writers, folders of one run each."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from condvne.data.config import Evaluation
from condvne.data.records import read_jsonl
from condvne.data.storage import AppendLog, claim_run_folder, load_tensors, save_tensors, whole_file, write_whole
from condvne.errors import DataError, RunError

ROOT = Path(__file__).parents[2]


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(path: Path) -> list[int]:
    return [record["a"] for _, record in read_jsonl(path)]


def test_whole_files_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "a.json"
    write_whole(path, "first é")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert visible(path.parent) == ["a.json"]
    os.umask(mask := os.umask(0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def stopped_halfway() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_halfway()
    assert path.read_text() == "old"
    assert visible(tmp_path) == ["a.json"]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond this size fail as on a file system whose quota is used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


WRITERS: dict[str, Callable[[Path], None]] = {
    "bytes": lambda path: write_whole(path, b"x" * 10_000),
    "tensors": lambda path: save_tensors(path, {"x": torch.zeros(5000)}, {}),
}


@pytest.mark.parametrize("what", WRITERS)
def test_full_disk_on_whole_files(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(RunError) as caught, largest_file(4096):
        WRITERS[what](path)
    message = str(caught.value)
    assert message.startswith(f"{path}: could not be written (")
    assert "File too large" in message
    assert "finished records stay" in message
    assert "run the same command again" in message
    assert path.read_bytes() == b"old"
    assert visible(tmp_path) == ["a.bin"]


def test_full_disk_on_a_log_keeps_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    blocks = 0
    with AppendLog(path) as log:

        def fill() -> None:
            nonlocal blocks
            while True:
                log.append([{"a": 2 * blocks, "text": "t" * 200}, {"a": 2 * blocks + 1, "text": "t" * 200}])
                blocks += 1

        with pytest.raises(RunError, match=r"a\.jsonl: could not be written \(File too large\)"), largest_file(4096):
            fill()
        assert rows(path) == list(range(2 * blocks))
        assert 4096 - 450 < path.stat().st_size <= 4096
        log.append([{"a": -1}])  # space was freed
    assert rows(path) == [*range(2 * blocks), -1]


def test_full_device_on_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.symlink_to("/dev/full")
    with AppendLog(path) as log:
        with pytest.raises(
            RunError, match=r"a\.jsonl: could not be written \(No space left on device\); finished records"
        ):
            log.append([{"a": 1}])
        with pytest.raises(RunError, match="No space left"):
            log.append([{"a": 1}])


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for attempt in (
        lambda: write_whole(tmp_path / "file" / "a.json", "x"),
        lambda: AppendLog(tmp_path / "file" / "a.jsonl"),
        lambda: claim_run_folder(tmp_path / "file", {}, {}),
    ):
        with pytest.raises(RunError, match=r"file.*\((Not a directory|File exists)\)"):
            attempt()


def test_log_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    for start in (0, 2, 4):
        with AppendLog(path) as log:
            log.append([{"a": start}, {"a": start + 1}])
    assert rows(path) == list(range(6))


def test_every_torn_tail_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = b"".join(b'{"a": %d, "t": "\xc3\xa9"}\n' % i for i in range(3))
    ends = [data.index(b"}", data.index(b'"a": %d' % i)) + 1 for i in range(3)]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        before = [record["a"] for _, record in read_jsonl(path, tolerate_torn_tail=True)]
        with AppendLog(path) as log:
            log.append([{"a": 9}])
        assert rows(path) == [*before, 9]
        assert before == [i for i in range(3) if cut >= ends[i]]


def test_torn_tail_longer_than_one_look(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 0}\n{"a": 1, "t": "' + b"x" * 200_000)
    with AppendLog(path) as log:
        log.append([{"a": 2}])
    assert rows(path) == [0, 2]


def test_refused_record_leaves_no_part_of_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with AppendLog(path) as log, pytest.raises(DataError, match="record 'b'"):
        log.append([{"id": "a"}, {"id": "b", "x": math.nan}])
    assert path.read_bytes() == b""


KILLED = """
import os, sys, time
from condvne.data.storage import AppendLog, claim_run_folder
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


def test_tensors_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    x = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    save_tensors(path, {"x": x, "n": torch.tensor([1, 2])}, {"encoder": "é"})
    tensors, metadata = load_tensors(path)
    assert torch.equal(tensors["x"], x)
    assert tensors["n"].dtype == torch.int64
    assert metadata == {"encoder": "é"}


def test_damaged_tensors_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"x": torch.zeros(100)}, {})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"a\.safetensors: cannot be read as safetensors .* remove it"):
        load_tensors(path)
    with pytest.raises(DataError, match=r"none: cannot be read as safetensors"):
        load_tensors(tmp_path / "none")
