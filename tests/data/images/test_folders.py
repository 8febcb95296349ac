from __future__ import annotations

from pathlib import Path

import pytest

from condvne.data.images.folders import list_class_folders, list_dgm_eval, list_table
from condvne.errors import DataError
from tests.images import save_image, write_class_folders


def test_class_folders_give_the_folder_as_class(tmp_path: Path) -> None:
    root = write_class_folders(tmp_path / "val", {"n01440764": 2, "n01443537": 1})
    save_image(root / "n01443537" / "inner" / "x.JPEG", 9)
    listing = list_class_folders(root)
    found = [(image.condition, Path(image.source.path).name) for image in listing.images]
    assert found == [
        ("n01440764", "000000.png"),
        ("n01440764", "000001.png"),
        ("n01443537", "000000.png"),
        ("n01443537", "x.JPEG"),
    ]
    assert listing.notes == []


def test_files_that_are_no_images_are_counted_and_named(tmp_path: Path) -> None:
    root = write_class_folders(tmp_path / "val", {"cat": 1})
    for name in ("README.md", "cat/Thumbs.db"):
        (root / name).write_text("x")
    (root / "cat" / ".hidden.png").write_text("x")
    listing = list_class_folders(root)
    assert len(listing.images) == 1
    assert listing.notes == [f"{root}: 2 files that are no images were passed over (README.md, Thumbs.db)"]


def test_folders_without_classes_or_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read as a folder"):
        list_class_folders(tmp_path / "absent")
    save_image(tmp_path / "flat" / "a.png")
    with pytest.raises(DataError, match="has no folders, so no classes; use layout table"):
        list_class_folders(tmp_path / "flat")
    (tmp_path / "half" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"half/cat: class folder without an image"):
        list_class_folders(tmp_path / "half")


def test_dgm_eval_orders_classes_by_number(tmp_path: Path) -> None:
    root = write_class_folders(tmp_path / "LDM", {"10": 1, "2": 2, "003": 1})
    assert [image.condition for image in list_dgm_eval(root).images] == ["2", "2", "3", "10"]


def test_dgm_eval_refuses_what_is_no_class_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="folders cat are no class indices"):
        list_dgm_eval(write_class_folders(tmp_path / "a", {"1": 1, "cat": 1}))
    with pytest.raises(DataError, match="class 1 has two folders"):
        list_dgm_eval(write_class_folders(tmp_path / "b", {"1": 1, "001": 1}))
    save_image(tmp_path / "flat" / "000000.png")
    with pytest.raises(DataError, match="unconditional samples have no condition"):
        list_dgm_eval(tmp_path / "flat")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_table_gives_each_image_its_caption(tmp_path: Path, kind: str) -> None:
    for number in range(3):
        save_image(tmp_path / "samples" / f"{number}.png", number)
    if kind == "csv":
        (tmp_path / "t.csv").write_text('file,caption\n1.png,"a cat, asleep"\n0,a dog\n')
    else:
        (tmp_path / "t.jsonl").write_text(
            '{"file": "1.png", "caption": "a cat, asleep"}\n{"file": "0", "caption": "a dog"}\n'
        )
    listing = list_table(tmp_path / "samples", tmp_path / f"t.{kind}", "file", "caption")
    assert [(i.condition, Path(i.source.path).name) for i in listing.images] == [
        ("a cat, asleep", "1.png"),
        ("a dog", "0.png"),  # named without its suffix
    ]
    assert listing.notes == [f"{tmp_path / 'samples'}: 1 images without a row in t.{kind} were passed over (2.png)"]


def test_a_table_may_hold_class_indices(tmp_path: Path) -> None:
    save_image(tmp_path / "s" / "a.png")
    (tmp_path / "t.jsonl").write_text('{"file": "a.png", "label": 7}\n')
    assert list_table(tmp_path / "s", tmp_path / "t.jsonl", "file", "label").images[0].condition == "7"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("file,caption\na.png,x\nb.png,y\n", r"1 images of t\.csv are not there: b\.png \(.*t\.csv:3\)"),
        ("file,caption\na.png,x\na.png,x\n", r"t\.csv:3: names a\.png under the same condition as .*t\.csv:2"),
        ("name,caption\na.png,x\n", r"t\.csv:2: has no field 'file'"),
        ("file,caption\n", "has no rows"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    save_image(tmp_path / "s" / "a.png")
    (tmp_path / "t.csv").write_text(rows)
    with pytest.raises(DataError, match=message):
        list_table(tmp_path / "s", tmp_path / "t.csv", "file", "caption")
