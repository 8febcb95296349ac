from __future__ import annotations

from pathlib import Path

import pytest

from condvne.data.config.images import Decoding
from condvne.data.images import checking
from condvne.data.images.checking import Checker
from condvne.data.images.sources import Source
from condvne.errors import DataError
from tests.images import save_image


def sources(folder: Path, count: int = 6) -> list[Source]:
    return [Source(str(save_image(folder / f"{number}.png", number))) for number in range(count)]


def test_good_images_are_known_with_digest_and_size_and_faults_by_name(tmp_path: Path) -> None:
    images = sources(tmp_path)
    Path(images[2].path).write_bytes(b"nothing")
    with Checker(tmp_path / "log.jsonl", Decoding(), 2) as checker:
        found = checker.check(images)
    assert list(found) == [images[k] for k in (0, 1, 3, 4, 5)]
    assert {(image.width, image.height) for image in found.values()} == {(16, 12)}
    assert len({image.digest for image in found.values()}) == 5
    assert list(checker.faults) == [images[2].name]


def test_a_stopped_run_checks_no_image_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = sources(tmp_path)
    monkeypatch.setattr(checking, "BLOCK", 2)

    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Checker(tmp_path / "log.jsonl", Decoding(), 2) as checker:
        checker.check(images, stop)
    for image in images[:4]:
        Path(image.path).unlink()  # were they looked at again, they would be missed
    with Checker(tmp_path / "log.jsonl", Decoding(), 2) as checker:
        found = checker.check(images)
    assert [image.source for image in found.values()] == [*images[:4], *images[4:]]
    assert checker.faults == {}
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 6


def test_faults_are_looked_at_again(tmp_path: Path) -> None:
    images = sources(tmp_path, 1)
    good = Path(images[0].path).read_bytes()
    Path(images[0].path).write_bytes(good[:50])
    with Checker(tmp_path / "log.jsonl", Decoding(), 1) as checker:
        assert checker.check(images) == {}
    Path(images[0].path).write_bytes(good)
    with Checker(tmp_path / "log.jsonl", Decoding(), 1) as checker:
        assert list(checker.check(images)) == images
        assert checker.faults == {}


def test_a_log_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"image": "a.png"}\n')
    with pytest.raises(DataError, match="has no field 'digest'"):
        Checker(tmp_path / "log.jsonl", Decoding(), 1)
