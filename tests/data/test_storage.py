"""Storage: files whole or not at all, logs that survive full disks and killed writers, folders of one run each."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from condvne.data.records import read_jsonl
from condvne.data.runfolders import claim_run_folder
from condvne.data.storage import AppendLog, load_tensors, save_tensors, whole_file, write_whole
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
