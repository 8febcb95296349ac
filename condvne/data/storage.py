"""Writing that never leaves half a file: whole files by rename, logs that grow by whole blocks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from condvne.data.records import dump
from condvne.errors import DataError, RunError

if TYPE_CHECKING:
    import torch

PARTIAL = ".partial"


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A path in the same folder to write to; on leaving it is synced to disk and renamed to `path`, or removed.

    Missing parent folders are made. Raises RunError when the disk is full or refuses the write; `path` itself then
    is as it was before.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
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
