"""Compressed files: pieces, lines, and files that break off."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from condvne.data.compressed import content_suffix, read_chunks, read_lines, read_text
from condvne.errors import DataError


def zstd(data: bytes) -> bytes:
    return bytes(zstandard.ZstdCompressor().compress(data))


PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": partial(gzip.compress, compresslevel=1), ".zst": zstd}


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_several_members_or_frames_are_one_file(tmp_path: Path, suffix: str) -> None:
    pack = PACK[suffix]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"one\ntw") + pack(b"o\nthree"))
    assert list(read_lines(path)) == [b"one\n", b"two\n", b"three"]


def test_frame_that_may_be_skipped_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstd(b"text"))
    assert b"".join(read_chunks(path)) == b"text"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_file_cut_off_names_file_and_lines_read(tmp_path: Path, suffix: str) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(5000))
    whole = gzip.compress(lines) if suffix == ".gz" else zstd(lines) + zstd(b"last\n")
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole[:-5])
    read: list[bytes] = []
    with pytest.raises(
        DataError, match=rf"a\.jsonl\{suffix}: ends in the middle .*lines read before that: \d+"
    ) as caught:
        read.extend(read_lines(path))
    assert str(caught.value).endswith(f"(whole lines read before that: {len(read)}).")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_other_data_under_a_compressed_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"plain text, not compressed at all\n")
    with pytest.raises(DataError, match=rf"a\{suffix}: is not valid \{suffix} data"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_damaged_or_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(DataError, match=r"none.*cannot be read \(No such file"):
        list(read_lines(tmp_path / f"none{suffix}"))


def test_damage_inside_gzip_data(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"some text that is long enough to be compressed " * 50))
    data[20] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.gz: is not valid \.gz data"):
        list(read_lines(tmp_path / "a.gz"))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    pack = PACK[suffix]
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(b"".join(os.urandom(500).hex().encode() + b"\n" for _ in range(20_000))))
    tracemalloc.start()
    count = sum(1 for _ in read_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 6e6  # of 20 MB


def test_line_over_many_pieces_and_only_newline_splits(tmp_path: Path) -> None:
    long = b"z" * (5 << 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\xe2\x80\xa8b\rc\x0bd\n" + long + b"\nend")
    assert list(read_lines(path)) == [b"a\xe2\x80\xa8b\rc\x0bd\n", long + b"\n", b"end"]


def test_text_without_byte_order_mark_and_wrong_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert read_text(tmp_path / "a.txt") == "hello"
    (tmp_path / "b.txt").write_bytes(b"one\ntwo\n\xff\xfe")
    with pytest.raises(DataError, match=r"b\.txt:3: is not valid UTF-8"):
        read_text(tmp_path / "b.txt")


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.jsonl", ".jsonl"), ("a.JSONL.ZST", ".jsonl"), ("v1.2.txt.gz", ".txt"), ("a.gz", ""), ("a", "")],
)
def test_content_suffix(name: str, suffix: str) -> None:
    assert content_suffix(Path(name)) == suffix


def test_wide_windows_of_long_range_compression(tmp_path: Path) -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=28)  # beyond what decompressors accept by default
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    path = tmp_path / "a.zst"
    path.write_bytes(packer.compress(b"text") + packer.flush())
    with pytest.raises(zstandard.ZstdError, match="memory"):
        zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    assert b"".join(read_chunks(path)) == b"text"
