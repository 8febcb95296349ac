from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from condvne.data.results import Scores
from condvne.errors import RunError
from condvne.reports.tables import markdown
from condvne.reports.write import write_reports
from tests.reports import examples

NAMES = ["table.md", "table.csv", "table.tex", "gap.png", "report.html"]


def test_whole_files_and_nothing_else(tmp_path: Path) -> None:
    scores = examples.hostile()
    assert write_reports(scores, tmp_path) == [tmp_path / name for name in NAMES]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(NAMES)
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == markdown(scores)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        assert {line["group"] for line in csv.DictReader(file)} == set(scores.groups)
    with Image.open(tmp_path / "gap.png") as png:
        png.load()
        assert png.size[0] > 1000
        assert png.info["dpi"][0] == pytest.approx(150, abs=0.1)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_scores_read_back_from_json_give_the_same_files(tmp_path: Path) -> None:
    scores = examples.single_group()
    scores = scores.model_copy(update={"settings": {"seed": 0}})
    again = Scores.model_validate_json(scores.model_dump_json())
    write_reports(scores, tmp_path / "a")
    write_reports(again, tmp_path / "b")
    for name in NAMES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_reports(examples.single_group(), tmp_path)
    first = (tmp_path / "table.csv").read_bytes()
    write_reports(examples.scores({"mine": 0.8}, reference=None, sizes=[800]), tmp_path)
    assert (tmp_path / "table.csv").read_bytes() != first
    assert len(list(tmp_path.iterdir())) == len(NAMES)


def test_a_refused_folder_is_one_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(RunError, match=r"table\.md: could not be written"):
        write_reports(examples.single_group(), blocked)
