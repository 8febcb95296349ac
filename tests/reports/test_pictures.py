from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from condvne.data.pictures import ContactSheet, GroupLosses, GroupModes, Loss, Mode, Picture
from condvne.reports.page import render
from condvne.reports.pictures import loss_panels, mode_panels
from condvne.reports.write import write_reports
from tests.reports.examples import scores

DOT = "data:image/png;base64,iVBORw0KGgo="


def sheet(gap: float = -0.5, condition: str = "a cat") -> ContactSheet:
    picture = Picture(image="cat/1.png", condition=condition, thumbnail="aa")
    loss = Loss(condition=condition, gap=-0.2, count=20, pictures=[picture] * 2, reference_pictures=[picture])
    return ContactSheet(
        modes=[GroupModes(group="greedy", n=800, modes=[Mode(share=0.1234, pictures=[picture], weights=[0.3])])],
        losses=[
            GroupLosses(group="greedy", reference="training", n=800, conditions=10, below=7, gap=gap, losses=[loss])
        ],
        thumbnails={"aa": DOT},
    )


class Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.found.append(dict(attrs))


def images(html: str) -> list[dict[str, str | None]]:
    parser = Images()
    parser.feed(html)
    return parser.found


def test_losses_say_how_much_of_the_gap_they_are() -> None:
    (panel,) = loss_panels(sheet())
    assert panel.rows[0].gap == "−0.20"
    assert panel.rows[0].share == "40\N{NO-BREAK SPACE}% of the gap"
    assert "7 of 10 conditions lose" in panel.caption
    assert loss_panels(sheet(gap=0.1))[0].rows[0].share == ""  # a part of a gain is no loss


def test_modes_say_their_share() -> None:
    (panel,) = mode_panels(sheet())
    assert panel.rows[0].share == "12\N{NO-BREAK SPACE}%"
    assert mode_panels(None) == []


def test_the_page_shows_every_picture_with_its_words() -> None:
    found = images(render(scores(), sheet()))
    assert len(found) == 4
    assert {image["src"] for image in found} == {DOT}
    assert {image["alt"] for image in found} == {"a cat (cat/1.png)"}


def test_without_pictures_the_page_has_no_such_section() -> None:
    for page in (render(scores()), render(scores(), ContactSheet())):
        assert images(page) == []
        assert "Modes of the joint spectrum" not in page


@pytest.mark.parametrize("hostile", ['"><script>alert(1)</script>', "<b>&", "\u202eabc"])
def test_captions_are_escaped(hostile: str) -> None:
    page = render(scores(), sheet(condition=hostile))
    assert "<script>" not in page
    assert "<b>&" not in page
    assert "\u202e" not in page
    assert len(images(page)) == 4


def test_reports_with_pictures_are_written(tmp_path: Path) -> None:
    write_reports(scores(), tmp_path, sheet())
    assert DOT in (tmp_path / "report.html").read_text()


def test_a_sheet_comes_back_from_its_file() -> None:
    assert ContactSheet.model_validate_json(sheet().model_dump_json()) == sheet()
