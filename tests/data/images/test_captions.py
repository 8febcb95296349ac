from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from condvne.data.images.captions import list_coco
from condvne.errors import DataError
from tests.images import save_image, write_coco

CAPTIONS = {
    "COCO_val2014_000000000042.jpg": ["A dog on a sofa.", " A brown dog rests.\n"],
    "COCO_val2014_000000000007.jpg": ["A train."],
}


def test_first_captions_are_those_of_the_lowest_annotation_id(tmp_path: Path) -> None:
    for name in CAPTIONS:
        save_image(tmp_path / "val2014" / name)
    path = write_coco(tmp_path, CAPTIONS)
    first = list_coco(tmp_path / "val2014", path, "first").images
    assert [image.condition for image in first] == ["A dog on a sofa.", "A train."]
    every = list_coco(tmp_path / "val2014", path, "all").images
    assert [image.condition for image in every] == ["A dog on a sofa.", "A brown dog rests.", "A train."]
    assert every[0].source == every[1].source


@pytest.mark.parametrize("name", ["COCO_val2014_000000000042.png", "42.png", "000000000042.webp"])
def test_generated_images_are_found_by_name_or_id(tmp_path: Path, name: str) -> None:
    save_image(tmp_path / "sdxl" / name)
    listing = list_coco(tmp_path / "sdxl", write_coco(tmp_path, CAPTIONS), "first")
    assert [image.condition for image in listing.images] == ["A dog on a sofa."]
    assert listing.notes == [
        f"{tmp_path / 'sdxl'}: 1 of 2 images of captions_val2014.json are not there or have no caption "
        "(COCO_val2014_000000000007.jpg)"
    ]


def test_two_files_of_one_image_are_refused(tmp_path: Path) -> None:
    for name in ("42.png", "0042.png"):
        save_image(tmp_path / "s" / name)
    with pytest.raises(DataError, match=r"0042\.png and 42\.png stand for one image"):
        list_coco(tmp_path / "s", write_coco(tmp_path, CAPTIONS), "first")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must be a JSON object"),
        ({"images": []}, "must hold a list 'annotations'"),
        ({"images": [{"id": "1", "file_name": "a.jpg"}], "annotations": []}, "image 1 needs an integer id"),
        ({"images": [], "annotations": [{"image_id": 9, "id": 1, "caption": "x"}]}, "belongs to image 9"),
        ({"images": [], "annotations": [{"image_id": 9, "id": 1}]}, "annotation 1 needs an integer image_id and a cap"),
        (
            {"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}], "annotations": []},
            r"image id 1 comes twice, for a\.jpg and b\.jpg",
        ),
    ],
)
def test_files_of_another_form_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        list_coco(tmp_path, path, "first")


def test_a_folder_without_any_of_the_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds none of the 2 images"):
        list_coco(tmp_path / "empty", write_coco(tmp_path, CAPTIONS), "first")
    with pytest.raises(DataError, match="absent: cannot be read as a folder"):
        list_coco(tmp_path / "absent", write_coco(tmp_path, CAPTIONS), "first")
