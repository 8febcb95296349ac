from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condvne.data.config.images import ImagesConfig
from condvne.data.images.reading import read_groups
from condvne.errors import DataError
from tests.images import encoded, pixels, save_image, write_class_folders, write_tar


def settings(groups: dict[str, Any], reference: str = "real", **changes: Any) -> ImagesConfig:
    base = {"name": "n", "encoder": {"kind": "pixels"}, "condition_encoder": {"kind": "one_hot"}}
    return ImagesConfig.model_validate(base | {"reference": reference, "groups": groups} | changes)


def test_synsets_indices_and_names_meet_through_the_list_of_classes(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish\n")
    write_class_folders(tmp_path / "val", {"n01440764": 1, "n01443537": 1})
    write_class_folders(tmp_path / "dgm", {"0": 1, "1": 1})
    np.savez(tmp_path / "adm.npz", np.stack([pixels(1), pixels(2)]), np.array([1, 0]))
    write_tar(
        tmp_path / "00.tar", [("a.png", encoded(1)), ("a.txt", b"goldfish"), ("b.png", encoded(2)), ("b.txt", b"tench")]
    )
    groups = {
        "ldm": {"layout": "dgm_eval", "path": str(tmp_path / "dgm")},
        "real": {"layout": "class_folders", "path": str(tmp_path / "val")},
        "adm": {"layout": "npz", "path": str(tmp_path / "*.npz")},
        "wds": {"layout": "webdataset", "path": str(tmp_path), "condition": "txt"},
    }
    config = settings(groups, classes=str(tmp_path / "classes.txt"), template="a photo of a {}")
    found, texts = read_groups(config)
    assert list(found) == ["real", "ldm", "adm", "wds"]  # the reference first
    assert {name: sorted(i.condition for i in listing.images) for name, listing in found.items()} == {
        name: ["0", "1"] for name in found
    }
    assert texts == {"0": "a photo of a tench", "1": "a photo of a goldfish"}


def test_without_a_list_conditions_are_what_the_layout_says(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_class_folders(tmp_path / name, {"cat": 1})
    groups = {n: {"layout": "class_folders", "path": str(tmp_path / d)} for n, d in (("real", "a"), ("fake", "b"))}
    assert read_groups(settings(groups))[1] == {"cat": "cat"}


def test_absent_groups_are_refused_or_noted(tmp_path: Path) -> None:
    groups: dict[str, Any] = {}
    for name in ("real", "fake"):
        groups[name] = {"layout": "class_folders", "path": str(write_class_folders(tmp_path / name, {"cat": 1}))}
    groups["gone"] = {"layout": "class_folders", "path": str(tmp_path / "gone"), "optional": True}
    found, _ = read_groups(settings(groups))
    assert list(found) == ["real", "fake"]
    assert found["real"].notes == [f"group gone is optional and was left out; not there: {tmp_path / 'gone'}"]
    groups["gone"]["optional"] = False
    with pytest.raises(DataError, match=r"group 'gone': not there: .*gone; give a path that exists"):
        read_groups(settings(groups))
    groups["gone"]["optional"] = True
    with pytest.raises(DataError, match="nothing to compare it with"):
        read_groups(settings({name: groups[name] for name in ("real", "gone")}))


def test_blank_captions_are_refused_or_left_out(tmp_path: Path) -> None:
    groups = {}
    for name in ("real", "fake"):
        for number in range(2):
            save_image(tmp_path / name / f"{number}.png", number)
        (tmp_path / f"{name}.csv").write_text("file,caption\n0.png,a cat \n1.png, \n")
        groups[name] = {"layout": "table", "path": str(tmp_path / name), "table": str(tmp_path / f"{name}.csv")}
    with pytest.raises(DataError, match=r"group 'real': 1 images have an empty condition \(.*1\.png\)"):
        read_groups(settings(groups))
    found, texts = read_groups(settings(groups, evaluation={"empty_texts": "drop"}))
    assert texts == {"a cat": "a cat"}
    assert all(len(listing.images) == 1 for listing in found.values())
    assert "1 images with an empty condition were left out" in found["fake"].notes[0]


def test_patterns_that_match_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    groups = {n: {"layout": "webdataset", "path": str(tmp_path / "empty")} for n in ("real", "fake")}
    with pytest.raises(DataError, match=r"group 'real': .*empty holds no \.tar files"):
        read_groups(settings(groups))
