from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from condvne.data.config.images import Decoding
from condvne.data.images.decoding import decode
from condvne.data.images.shards import list_shards
from condvne.errors import DataError
from tests.images import encoded, write_tar

MEMBERS = [
    ("a/0001.jpg", encoded(1, "JPEG")),
    ("a/0001.cls", b"7\n"),
    ("a/0001.txt", "ein Hund, schläft".encode()),
    ("a/0001.json", b'{"label": 7, "caption": "a dog"}'),
    ("a/0002.cls", b"3"),
    ("a/0002.png", encoded(2)),
    ("a/0002.txt", b"a cat"),
    ("a/0002.json", b'{"label": 3, "caption": "a cat"}'),
]


@pytest.mark.parametrize(
    ("condition", "field", "expected"),
    [
        ("cls", None, ["7", "3"]),
        ("txt", None, ["ein Hund, schläft", "a cat"]),
        ("json", "caption", ["a dog", "a cat"]),
        ("json", "label", ["7", "3"]),
    ],
)
def test_members_of_one_stem_belong_together(
    tmp_path: Path, condition: str, field: str | None, expected: list[str]
) -> None:
    shard = write_tar(tmp_path / "00000.tar", MEMBERS)
    listing = list_shards([shard], condition, field)
    assert [image.condition for image in listing.images] == expected
    assert [image.source.name for image in listing.images] == [f"{shard}::a/0001.jpg", f"{shard}::a/0002.png"]


def test_images_are_read_in_place(tmp_path: Path) -> None:
    shards = [write_tar(tmp_path / f"{k}.tar", [(f"{k}.png", encoded(k)), (f"{k}.cls", b"0")]) for k in range(2)]
    for seed, image in enumerate(list_shards(shards, "cls", None).images):
        assert image.source.content() == encoded(seed)
        assert decode(image.source, Decoding()).image.size == (16, 12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tar", "1.tar"]


def test_samples_without_an_image_are_counted(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "s.tar", [*MEMBERS, ("b.cls", b"1")])
    assert list_shards([shard], "cls", None).notes == ["1 samples without an image were passed over (s.tar::b)"]


@pytest.mark.parametrize(
    ("members", "condition", "message"),
    [
        (MEMBERS[:1], "cls", r"s\.tar::a/0001: has no member \.cls with the condition, only jpg"),
        ([*MEMBERS[:2], ("a/0001.png", encoded(3))], "cls", r"s\.tar::a/0001: has 2 images"),
        ([*MEMBERS[:2], MEMBERS[0]], "cls", r"a/0001\.jpg: comes twice"),
        ([MEMBERS[0], ("a/0001.txt", b"\xff\xfe")], "txt", r"a/0001\.txt: is not valid UTF-8"),
        ([MEMBERS[0], ("a/0001.json", b"[1]")], "json", "must be a JSON object"),
        ([MEMBERS[0], ("a/0001.json", b'{"caption": null}')], "json", "must be a text or a class index"),
        ([("x.cls", b"1")], "cls", "hold no images"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], condition: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        list_shards([write_tar(tmp_path / "s.tar", members)], condition, "caption")


def test_torn_and_compressed_tars_are_refused(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "s.tar", MEMBERS).read_bytes()
    (tmp_path / "torn.tar").write_bytes(whole[:700])
    with pytest.raises(DataError, match=r"torn\.tar.*(ends inside|cannot be read as a tar)"):
        list_shards([tmp_path / "torn.tar"], "cls", None)
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(DataError, match=r"s\.tar\.gz: is compressed"):
        list_shards([tmp_path / "s.tar.gz"], "cls", None)
    (tmp_path / "no.tar").write_text("no tar at all, but text that is long enough " * 30)
    with pytest.raises(DataError, match=r"no\.tar: cannot be read as a tar"):
        list_shards([tmp_path / "no.tar"], "cls", None)
    with pytest.raises(DataError, match="name the field"):
        list_shards([tmp_path / "s.tar"], "json", None)
