"""Fingerprints of what files hold: short digests that change with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

WHOLE_MODEL_BYTES = 200 << 20  # larger files of a model count by samples: different weights differ nearly everywhere
WHOLE_CORPUS_BYTES = 4 << 20  # a corpus may have thousands of shards, and every start looks at them
SAMPLES, SAMPLE_BYTES = 64, 1 << 16


def fingerprint(folder: Path) -> str:
    """12 hexadecimal digits that change with the model in a folder (or one file): names, sizes, contents of its files.

    Of files over 200 MB only the size and 64 samples of 64 KiB count; different weights differ nearly everywhere.
    """
    digest = hashlib.blake2b(digest_size=6)
    root, files = (folder, folder.rglob("*")) if folder.is_dir() else (folder.parent, iter([folder]))
    for file in sorted(path for path in files if path.is_file()):
        name = file.relative_to(root).as_posix()
        if not name.endswith(".md") and not any(part.startswith(".") for part in name.split("/")):
            _add(digest, name, file, WHOLE_MODEL_BYTES)
    return digest.hexdigest()


def files_fingerprint(files: Iterable[Path]) -> str:
    """12 hexadecimal digits that change with the names, order, sizes and contents of files.

    Of files over 4 MB only the size and 64 samples of 64 KiB count, so that a change of a few bytes in a large file
    can go unseen when it keeps the size.
    """
    digest = hashlib.blake2b(digest_size=6)
    for file in files:
        _add(digest, file.name, file, WHOLE_CORPUS_BYTES)
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, name: str, file: Path, whole_bytes: int) -> None:
    size = file.stat().st_size
    digest.update(f"{name}\0{size}\0".encode())
    with file.open("rb") as content:
        if size <= whole_bytes:
            digest.update(content.read())
            return
        for sample in range(SAMPLES):
            content.seek(sample * (size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(content.read(SAMPLE_BYTES))
