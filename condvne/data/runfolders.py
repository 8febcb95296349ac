"""Run folders: locked for one process, bound to one configuration and one state of the inputs, taken up again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condvne.data.storage import PARTIAL, write_whole
from condvne.errors import RunError
from condvne.ranks import Ranks

_LOCK = ".lock"
_CONFIG = "config.json"
_VERSIONS = "versions.json"
_INPUTS = "inputs.json"
_OWN = {_CONFIG, _VERSIONS, _INPUTS}  # written when a folder is claimed


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


def claim_run_folder(
    folder: str | Path,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    inputs: Mapping[str, str | None] | None = None,
) -> RunFolder:
    """Make the run folder, or take up again one of the same configuration, and lock it for this process.

    A new folder gets `config.json`, `versions.json` and `inputs.json`. Infinite settings are stored as "inf" and
    "-inf". Versions that differ from those of the folder become a note. A folder that holds nothing but these files,
    since its run failed early, is free for any run. The lock goes with the process, however it ends.

    Args:
        inputs: for each file or folder that the run reads, by the name that messages call it, a fingerprint of what
            it holds; None where it cannot be looked at, which compares with nothing.

    Raises RunError when another process writes to the folder, when it belongs to another configuration (the first
    settings that differ are named) or its inputs have changed since, when it holds other files, or cannot be made.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock, notes = _lock(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be used as a run folder ({error.strerror}); choose another folder.") from error
    claimed = RunFolder(path, resumed=(path / _CONFIG).exists(), notes=notes, _lock=lock)
    try:
        for partial in path.glob(f".*{PARTIAL}"):  # left by a writer that was killed
            partial.unlink(missing_ok=True)
        wanted, read = _plain(config), dict(inputs or {})
        if claimed.resumed and _unused(path):
            claimed.resumed = False
        if claimed.resumed:
            _compare_config(path, wanted)
            read |= _compare_inputs(path, read)
            notes.extend(_version_notes(path, versions))
        else:
            _refuse_foreign_files(path)
            write_whole(path / _VERSIONS, json.dumps(dict(versions), indent=2, ensure_ascii=False) + "\n")
            write_whole(path / _CONFIG, json.dumps(wanted, indent=2, allow_nan=False) + "\n")
        if read:
            write_whole(path / _INPUTS, json.dumps(read, indent=2, ensure_ascii=False) + "\n")
    except BaseException:
        claimed.release()
        raise
    return claimed


@contextlib.contextmanager
def run_folder(
    folder: str | Path,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    ranks: Ranks,
    inputs: Mapping[str, str | None] | None = None,
) -> Iterator[RunFolder]:
    """The run folder, claimed by rank 0; the other ranks know its path and notes. Raises as `claim_run_folder`."""
    if not ranks.main:
        yield RunFolder(Path(folder), resumed=False, notes=ranks.broadcast())
        return
    with claim_run_folder(folder, config, versions, inputs) as run:
        ranks.broadcast(run.notes)
        yield run


def _lock(path: Path) -> tuple[int, list[str]]:
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


def _unused(path: Path) -> bool:
    """Whether it is a run folder in which no stage has left anything."""
    return (path / _VERSIONS).exists() and all(p.name.startswith(".") or p.name in _OWN for p in path.iterdir())


def _refuse_foreign_files(path: Path) -> None:
    foreign = sorted(p.name for p in path.iterdir() if not p.name.startswith(".") and p.name not in _OWN)
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


def _compare_inputs(path: Path, now: Mapping[str, str | None]) -> dict[str, str]:
    """What is known of the inputs from before."""
    before: dict[str, str] = _read_json(path / _INPUTS) if (path / _INPUTS).exists() else {}
    changed = [name for name, found in now.items() if found and before.get(name) and found != before[name]]
    if changed:
        raise RunError(
            f"{path}: its results are of {changed[0]} as it was before it was changed; choose another folder for the "
            "new state, or remove this one."
        )
    return {name: found for name, found in before.items() if found}


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
