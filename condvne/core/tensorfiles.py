"""Tensors with JSON metadata in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from condvne.errors import DataError, RunError


def write_tensors(path: str | Path, kind: str, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> None:
    """Write beside `path`, sync, rename. Raises RunError when the file cannot be written; `path` is then as before."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path = Path(path)
    if not path.parent.is_dir():
        raise RunError(f"{path}: there is no folder {path.parent}; make it, or choose another.")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    metadata = {"kind": kind, "settings": json.dumps(settings, allow_nan=False, sort_keys=True)}
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, partial, metadata)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: could not be written ({error}); free space or choose another folder.") from error
    finally:
        partial.unlink(missing_ok=True)


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU, and settings. Raises DataError when the file is unreadable or holds another kind."""
    from safetensors import SafetensorError, safe_open

    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; name the file in it that holds the {kind}.")
    if not Path(path).exists():
        raise DataError(f"{path}: there is no such file; name a saved {kind}.")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
        settings = json.loads(metadata.get("settings", "null"))
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a saved {kind} ({error}); save it again.") from error
    if metadata.get("kind") != kind or not isinstance(settings, dict):
        raise DataError(f"{path}: holds {metadata.get('kind', 'tensors without a kind')!r}, but a {kind} was expected.")
    return tensors, settings
