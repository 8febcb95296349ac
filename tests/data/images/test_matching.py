from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from condvne.data.config.images import Decoding, Matching
from condvne.data.images.checking import Checker
from condvne.data.images.folders import list_class_folders
from condvne.data.images.matching import Matched, match
from condvne.errors import DataError
from tests.images import write_class_folders


def matched(
    folder: Path, counts: dict[str, dict[str, int]], *, seed: int = 0, faulty: str = "refuse", **settings: Any
) -> Matched:
    """Match groups with so many images of each class; folders that exist stay as they are."""
    groups = {}
    for number, (name, classes) in enumerate(counts.items()):
        if not (folder / name).exists():
            write_class_folders(folder / name, classes, seed=number)
        groups[name] = list_class_folders(folder / name)
    with Checker(folder / "checked.jsonl", Decoding(), 2) as checker:
        return match(
            groups, Matching(**settings), checker, seed, faulty=faulty, progress=lambda stage, done, total: None
        )


def names(images: Any) -> list[str]:
    return ["/".join(Path(image.source.path).parts[-2:]) for image in images]


BALANCED = {"real": {"cat": 3, "dog": 2}, "fake": {"cat": 3, "dog": 2}}
UNEVEN = {"real": {"cat": 4, "dog": 2, "owl": 1}, "fake": {"cat": 3, "dog": 2}}


def test_rows_of_all_groups_stand_under_the_same_conditions(tmp_path: Path) -> None:
    found = matched(tmp_path, BALANCED)
    assert found.conditions == ["cat", "cat", "cat", "dog", "dog"]
    for images in found.images.values():
        assert [name.split("/")[0] for name in names(images)] == found.conditions
        assert len(set(names(images))) == 5
    assert found.notes == ["conditions weigh differently, the same in every group: 2 to 3 images over 2 conditions"]


def test_unbalanced_conditions_are_refused_by_name_and_number(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        matched(tmp_path, UNEVEN)
    assert str(error.value) == (
        "2 of 3 conditions are unbalanced across groups: 'cat' has 4 in real, 3 in fake; 'owl' has 1 in real, 0 in "
        "fake; matching.unbalanced: trim keeps what all groups have."
    )
    with pytest.raises(DataError, match=r"matching\.per_condition: 2 draws equally many of each"):
        matched(tmp_path / "b", {"real": {"cat": 4, "dog": 2}, "fake": {"cat": 3, "dog": 2}})


def test_trimming_keeps_what_all_groups_have_and_reports_the_rest(tmp_path: Path) -> None:
    found = matched(tmp_path, UNEVEN, unbalanced="trim")
    assert Counter(found.conditions) == {"cat": 3, "dog": 2}
    assert found.notes[0] == (
        "2 of 3 conditions are unbalanced across groups and were trimmed to what all groups have, 1 of them left out: "
        "'cat' has 4 in real, 3 in fake; 'owl' has 1 in real, 0 in fake"
    )


def test_groups_without_a_common_condition_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no condition has an image in every group"):
        matched(tmp_path, {"real": {"cat": 1}, "fake": {"dog": 1}}, unbalanced="trim")


def test_as_many_of_each_are_drawn_by_the_seed(tmp_path: Path) -> None:
    counts = {"real": {"cat": 9, "dog": 5}, "fake": {"cat": 5, "dog": 9}}
    found = matched(tmp_path, counts, per_condition=3)
    assert Counter(found.conditions) == {"cat": 3, "dog": 3}
    assert "images beyond 3 of a condition were not drawn: 8 of real, 8 of fake" in found.notes
    assert names(matched(tmp_path, counts, per_condition=3).images["real"]) == names(found.images["real"])
    other = matched(tmp_path, counts, per_condition=3, seed=1)
    assert names(other.images["real"]) != names(found.images["real"])
    with pytest.raises(DataError, match="2 of 2 conditions are unbalanced"):
        matched(tmp_path, counts, per_condition=6)


def test_rows_are_drawn_for_all_groups_together(tmp_path: Path) -> None:
    found = matched(tmp_path, {"real": {"cat": 9, "dog": 5}, "fake": {"cat": 9, "dog": 5}}, rows=6)
    assert len(found.conditions) == 6
    assert "6 of 14 pairs were drawn at random" in found.notes
    assert all([n.split("/")[0] for n in names(images)] == found.conditions for images in found.images.values())


def test_a_faulty_image_is_refused_or_replaced(tmp_path: Path) -> None:
    counts = {"real": {"cat": 4}, "fake": {"cat": 4}}
    first = matched(tmp_path, counts, per_condition=2)
    broken = Path(first.images["fake"][0].source.path)
    (tmp_path / "checked.jsonl").unlink()
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(DataError, match=rf"group 'fake': 1 images cannot be used: .*{broken.name}: is damaged"):
        matched(tmp_path, counts, per_condition=2)
    found = matched(tmp_path, counts, per_condition=2, faulty="drop")
    assert found.conditions == ["cat", "cat"]
    assert str(broken) not in [image.source.path for image in found.images["fake"]]
    assert found.images["real"] == first.images["real"]
    assert any("1 images cannot be used and were left out" in note for note in found.notes)


def test_without_a_replacement_all_groups_lose_the_pair(tmp_path: Path) -> None:
    counts = {"real": {"cat": 2, "dog": 1}, "fake": {"cat": 2, "dog": 1}}
    matched(tmp_path, counts)
    (tmp_path / "checked.jsonl").unlink()
    (tmp_path / "fake" / "dog" / "000000.png").write_bytes(b"x")
    found = matched(tmp_path, counts, faulty="drop")
    assert found.conditions == ["cat", "cat"]
    assert {len(images) for images in found.images.values()} == {2}
    assert any("no replacement under 1 conditions ('dog'): 1 pairs were left out" in note for note in found.notes)


def test_conversions_are_counted(tmp_path: Path) -> None:
    from PIL import Image

    matched(tmp_path, BALANCED)
    Image.new("CMYK", (8, 8)).save(tmp_path / "fake" / "cat" / "000000.png".replace("png", "tif"))
    (tmp_path / "fake" / "cat" / "000000.png").unlink()
    assert "group fake: converted to RGB, 1 images (CMYK)" in matched(tmp_path, BALANCED).notes
