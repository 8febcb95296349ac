"""Captions to make images for: listed, from text files, from MS-COCO's JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from condvne.data.config.guide import CocoCaptionFile, ListedCaptions, TextCaptions
from condvne.data.images.prompts import read_prompts
from condvne.errors import DataError


def test_captions_are_distinct_and_in_order(tmp_path: Path) -> None:
    assert read_prompts(ListedCaptions(source="list", texts=["b", "a", " b "])) == ["b", "a"]
    file = tmp_path / "captions.txt.gz"
    file.write_bytes(gzip.compress("one\ntwo\none\nthrée\n".encode()))
    assert read_prompts(TextCaptions(source="text", path=str(file))) == ["one", "two", "thrée"]
    assert read_prompts(TextCaptions(source="text", path=str(file), count=2)) == ["one", "two"]


def test_coco_gives_one_caption_an_image(tmp_path: Path) -> None:
    notes = [
        {"image_id": 7, "id": 3, "caption": "second of seven"},
        {"image_id": 7, "id": 1, "caption": "first of seven"},
        {"image_id": 2, "id": 2, "caption": "of two"},
    ]
    images = [{"id": 7, "file_name": "7.jpg"}, {"id": 2, "file_name": "2.jpg"}]
    file = tmp_path / "captions_val2014.json"
    file.write_text(json.dumps({"images": images, "annotations": notes}))
    assert sorted(read_prompts(CocoCaptionFile(source="coco", path=str(file)))) == ["first of seven", "of two"]


def test_empty_captions_and_too_few_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_text("one\n \ntwo\n")
    with pytest.raises(DataError, match=r"captions\.txt:2: is an empty caption; remove the line"):
        read_prompts(TextCaptions(source="text", path=str(file)))
    file.write_text("one\ntwo\none\n")
    with pytest.raises(DataError, match="holds 2 distinct captions; 3 are needed"):
        read_prompts(TextCaptions(source="text", path=str(file), count=3))
    file.write_text("")
    with pytest.raises(DataError, match="holds 0 distinct captions; 1 are needed"):
        read_prompts(TextCaptions(source="text", path=str(file)))
