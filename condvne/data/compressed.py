"""Reading files that may be compressed (.gz, .zst), in chunks and in lines, without holding them whole in memory."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

from condvne.errors import DataError

CHUNK_BYTES = 1 << 20
COMPRESSED_SUFFIXES = (".gz", ".zst")
_ZSTD_BYTES = 1 << 15  # a piece is expanded at once, whatever it expands to
_UNOPENED = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_MAX_WINDOW_BYTES = 1 << 31  # The Pile and its like are written with `zstd --long`, whose windows exceed the default


class _CompressionError(Exception):
    """Data that a decompressor refuses."""


def content_suffix(path: Path) -> str:
    """The suffix that tells what a file holds, in lower case: ".jsonl" for `a.jsonl` and for `a.JSONL.zst`."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_chunks(path: str | Path) -> Generator[bytes, None, None]:
    """The decompressed bytes of a file, a piece at a time; several gzip members or zstd frames count as one file.

    Raises DataError when the file cannot be opened or read, is not of the compression that its suffix says,
    or ends in the middle of its compressed data.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            yield from _decompressed(raw, path.suffix.lower())
    except EOFError as error:
        raise DataError(
            f"{path}: ends in the middle of its compressed data; it was cut off, so copy or download it again."
        ) from error
    except (gzip.BadGzipFile, zlib.error, _CompressionError) as error:
        raise DataError(f"{path}: is not valid {path.suffix} data ({error}).") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); give the path of a readable file."
        ) from error


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, each with its "\\n" (the last may lack it); only "\\n" ends a line.

    Raises DataError as `read_chunks` does; the message says after how many whole lines.
    """
    unfinished: list[bytes] = []  # joined once, so that a line over many chunks is not copied again for each
    count = 0
    with contextlib.closing(read_chunks(path)) as chunks:
        while True:
            try:
                chunk = next(chunks, None)
            except DataError as error:
                if isinstance(error.__cause__, _UNOPENED):
                    raise
                raise DataError(f"{str(error).removesuffix('.')} (whole lines read before that: {count}).") from error
            if chunk is None:
                break
            *whole, last = chunk.split(b"\n")
            for piece in whole:
                yield b"".join([*unfinished, piece, b"\n"])
                unfinished.clear()
            unfinished.append(last)
            count += len(whole)
    if any(unfinished):
        yield b"".join(unfinished)


def read_text(path: str | Path) -> str:
    """A whole file as UTF-8 text, a byte order mark skipped. Raises DataError as `read_chunks`, or for non-UTF-8."""
    data = b"".join(read_chunks(path)).removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: is not valid UTF-8 ({error.reason}); save the file as UTF-8.") from error


def _decompressed(raw: IO[bytes], suffix: str) -> Iterator[bytes]:
    if suffix == ".gz":
        with gzip.open(raw) as stream:
            yield from iter(lambda: stream.read(CHUNK_BYTES), b"")
    elif suffix == ".zst":
        yield from _zstd(raw)
    else:
        yield from iter(lambda: raw.read(CHUNK_BYTES), b"")


def _zstd(raw: IO[bytes]) -> Iterator[bytes]:
    # zstandard's stream_reader ends quietly on a frame that is cut off; its decompression objects tell (`eof`)
    import zstandard

    context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    frame = None
    for chunk in iter(lambda: raw.read(_ZSTD_BYTES), b""):
        pending = chunk
        while pending:
            frame = frame or context.decompressobj()
            try:
                yield frame.decompress(pending)
            except zstandard.ZstdError as error:
                raise _CompressionError(str(error)) from error
            pending, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError
