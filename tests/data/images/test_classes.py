from __future__ import annotations

from pathlib import Path

import pytest

from condvne.data.images.classes import read_classes, resolved_labels
from condvne.errors import DataError

SYNSETS = "n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane\n"


@pytest.mark.parametrize("label", ["0", "000", "n01440764", "tench"])
def test_a_class_is_known_by_index_synset_and_name(tmp_path: Path, label: str) -> None:
    (tmp_path / "LOC_synset_mapping.txt").write_text(SYNSETS)
    classes = read_classes(tmp_path / "LOC_synset_mapping.txt")
    assert classes.resolve(label) == 0
    assert classes.names == ["tench", "crane", "crane"]


def test_a_name_of_two_classes_stands_for_neither(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(SYNSETS)
    classes = read_classes(tmp_path / "c.txt")
    assert classes.resolve("crane") is None
    assert classes.resolve("n03126707") == 2
    with pytest.raises(DataError, match=r"group 'ldm': 2 classes are not in the list of 3: crane, 3"):
        resolved_labels(["0", "crane", "crane", "3"], classes, "ldm")


@pytest.mark.parametrize(
    "text", ['["cat", "dog"]', '{"1": "dog", "0": "cat"}', '{"0": ["n1", "cat"], "1": ["n2", "dog"]}']
)
def test_json_lists(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    classes = read_classes(tmp_path / "c.json")
    assert classes.names == ["cat", "dog"]
    assert resolved_labels(["dog", "1", "cat"], classes, "g") == ["1", "1", "0"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.txt", "cat\ndog\ncat\n", "classes 0 and 2 are both named 'cat'"),
        ("c.txt", "n01440764 tench\nn01440764 eel\n", "classes 0 and 1 are both named 'n01440764'"),
        ("c.txt", "\n\n", "lists no classes"),
        ("c.json", '{"0": "cat", "2": "dog"}', 'keys must be the class indices "0" to "1"'),
        ("c.json", "[1]", "class 0 must be a name"),
        ("c.json", "3", "must hold a list"),
        ("c.json", "{", "not valid JSON"),
    ],
)
def test_lists_that_do_not_tell_classes_apart_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_classes(tmp_path / name)
