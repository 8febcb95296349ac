"""Writing that never leaves half a file: whole files by rename, logs that grow by whole blocks, locked run folders."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from condvne.data.records import dump
from condvne.errors import DataError, RunError
from condvne.ranks import Ranks

if TYPE_CHECKING:
    import torch

_PARTIAL = ".partial"
_LOCK = ".lock"
_CONFIG = "config.json"
_VERSIONS = "versions.json"


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A path in the same folder to write to; on leaving it is synced to disk and renamed to `path`, or removed.

    Missing parent folders are made. Raises RunError when the disk is full or refuses the write; `path` itself then
    is as it was before.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with contextlib.suppress(OSError):  # gone by the rename, or never made
            partial.unlink()


def write_whole(path: str | Path, data: bytes | str) -> None:
    """Write a file that is there whole or not at all; text is written as UTF-8. Raises RunError as `whole_file`."""
    with whole_file(path) as partial:
        partial.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


def save_tensors(path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write named tensors as safetensors, whole or not at all. Raises RunError as `whole_file`."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as partial:
        try:
            save_file(ready, partial, dict(metadata))
        except SafetensorError as error:  # it wraps the system's error and loses its number
            raise OSError(errno.EIO, str(error)) from error


def load_tensors(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The named tensors of a safetensors file, on the CPU, and its metadata. Raises DataError naming the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: cannot be read as safetensors ({error}); remove it to have it made again.") from error


class AppendLog:
    """A JSONL file that grows by blocks of records, each synced to disk; a block that is refused leaves no trace.

    A writer that is killed within a block may leave its first records and a part of the next one. Opening mends that:
    a last line without newline is completed when it parses, else removed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _refused(self.path, error) from error
        try:
            self._end = self._mend_tail()
            _sync_folder(self.path.parent)
        except OSError as error:
            os.close(self._file)
            raise _refused(self.path, error) from error

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write one block. Raises RunError when the disk is full or refuses it; earlier blocks then stay."""
        block = "".join(dump(record) + "\n" for record in records).encode("utf-8")
        try:
            self._write(block)
        except OSError as error:
            with contextlib.suppress(OSError):  # a device has no length to cut
                os.ftruncate(self._file, self._end)
            raise _refused(self.path, error) from error
        self._end += len(block)

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> AppendLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, block: bytes) -> None:
        rest = memoryview(block)
        os.lseek(self._file, self._end, os.SEEK_SET)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)

    def _mend_tail(self) -> int:
        size = os.fstat(self._file).st_size
        tail = b""
        start = size
        while start > 0 and b"\n" not in tail:
            step = min(start, 1 << 16)
            start -= step
            tail = os.pread(self._file, step, start) + tail
        torn = tail.rpartition(b"\n")[2]
        if not torn:
            return size
        self._end = size
        try:
            json.loads(torn)
        except ValueError:
            os.ftruncate(self._file, size - len(torn))
            return size - len(torn)
        self._write(b"\n")
        return size + 1


@dataclass
class RunFolder:
    """A run folder that this process alone may write until `release` or its end; `notes` say what is odd about it."""

    path: Path
    resumed: bool
    notes: list[str] = field(default_factory=list)
    _lock: int = -1

    def release(self) -> None:
        """Give the folder free for other processes; releasing twice does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claim_run_folder(folder: str | Path, config: Mapping[str, Any], versions: Mapping[str, str]) -> RunFolder:
    """Make the run folder, or take up again one of the same configuration, and lock it for this process.

    A new folder gets `config.json` and `versions.json`. Infinite settings are stored as "inf" and "-inf". Versions that
    differ from those of the folder become a note. The lock goes with the process, however it ends.

    Raises RunError when another process writes to the folder, when it belongs to another configuration (the first
    settings that differ are named), when it holds other files, or cannot be made.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock, notes = _lock(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be used as a run folder ({error.strerror}); choose another folder.") from error
    claimed = RunFolder(path, resumed=(path / _CONFIG).exists(), notes=notes, _lock=lock)
    try:
        for partial in path.glob(f".*{_PARTIAL}"):  # left by a writer that was killed
            partial.unlink(missing_ok=True)
        wanted = _plain(config)
        if claimed.resumed:
            _compare_config(path, wanted)
            notes.extend(_version_notes(path, versions))
        else:
            _refuse_foreign_files(path)
            write_whole(path / _VERSIONS, json.dumps(dict(versions), indent=2, ensure_ascii=False) + "\n")
            write_whole(path / _CONFIG, json.dumps(wanted, indent=2, allow_nan=False) + "\n")
    except BaseException:
        claimed.release()
        raise
    return claimed


@contextlib.contextmanager
def run_folder(
    folder: str | Path, config: Mapping[str, Any], versions: Mapping[str, str], ranks: Ranks
) -> Iterator[RunFolder]:
    """The run folder, claimed by rank 0; the other ranks know its path and notes. Raises as `claim_run_folder`."""
    if not ranks.main:
        yield RunFolder(Path(folder), resumed=False, notes=ranks.broadcast())
        return
    with claim_run_folder(folder, config, versions) as run:
        ranks.broadcast(run.notes)
        yield run


def _lock(path: Path) -> tuple[int, list[str]]:
    import fcntl  # POSIX only

    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise RunError(
            f"{path}: process {holder or 'unknown'} is writing to this folder; wait for it or choose another folder."
        ) from error
    except OSError as error:  # some network file systems know no locks
        return lock, [f"the run folder could not be locked ({error.strerror}): start no second run in it"]
    with contextlib.suppress(OSError):  # the holder's number only serves the message above
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock, []


def _refuse_foreign_files(path: Path) -> None:
    foreign = sorted(p.name for p in path.iterdir() if not p.name.startswith(".") and p.name != _VERSIONS)
    if foreign:
        raise RunError(
            f"{path}: holds {foreign[0]!r} but no {_CONFIG}, so it is no run folder; choose another or an empty folder."
        )


def _compare_config(path: Path, wanted: Any) -> None:
    stored = _read_json(path / _CONFIG)
    there, here = dict(_leaves(stored)), dict(_leaves(wanted))
    differing = [key for key in [*here, *(k for k in there if k not in here)] if there.get(key) != here.get(key)]
    if differing:
        shown = ", ".join(
            f"{key} ({there.get(key, 'not set')} there, {here.get(key, 'not set')} now)" for key in differing[:3]
        )
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise RunError(
            f"{path}: belongs to a run with other settings, {shown}{more}; choose another folder or that configuration."
        )


def _version_notes(path: Path, versions: Mapping[str, str]) -> list[str]:
    stored = _read_json(path / _VERSIONS) if (path / _VERSIONS).exists() else {}
    changed = [f"{k} {stored.get(k)} → {v}" for k, v in versions.items() if stored.get(k) != v]
    return [f"the run was begun with other versions: {', '.join(changed)}"] if changed else []


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read as JSON ({error}); choose another folder.") from error


def _plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _sync_folder(folder: Path) -> None:
    # a rename or a new name is safe only once the folder itself is on disk; some file systems refuse to sync folders
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refused(path: Path, error: OSError) -> RunError:
    return RunError(
        f"{path}: could not be written ({error.strerror or error}); finished records stay, "
        "so free space or permit writing and run the same command again."
    )
