from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from condvne.data.results import Scores
from condvne.reports.findings import compared, findings
from condvne.reports.formatting import clean, difference, spread
from condvne.reports.page import Setting, render, setting_lines, write_page
from tests.reports import examples

VOID = {"meta", "br", "img", "input", "link", "hr"}
SHAPES: list[Callable[[], Scores]] = [
    examples.scores,
    examples.without_reference,
    examples.single_size,
    examples.single_group,
    examples.hostile,
]


class Page(HTMLParser):
    """The page's elements, and its text without style sheets."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if self.open and {"td", "th"} & set(self.open):
            self.cells[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def html_of(make: Callable[[], Scores]) -> str:
    return render(make())


def page_of(make: Callable[[], Scores]) -> Page:
    return Page(html_of(make))


def plain(text: str) -> str:
    return " ".join(text.replace("\u2068", " ").replace("\u2069", " ").replace("\xa0", " ").split())


@pytest.mark.parametrize("make", SHAPES)
def test_the_page_is_well_formed_and_self_contained(make: Callable[[], Scores]) -> None:
    html, page = html_of(make), page_of(make)
    assert html.startswith("<!DOCTYPE html>")
    assert page.open == []
    assert page.all("html")[0]["lang"] == "en"
    assert {a.get("name") for a in page.all("meta")} >= {"viewport", "color-scheme"}
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "a"} & {t for t, _ in page.elements}
    for _, attributes in page.elements:
        assert not [k for k in attributes if k.startswith("on") or k in ("src", "srcset", "data")]
        assert all((attributes.get(k) or "#").startswith("#") for k in ("href", "xlink:href"))
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


@pytest.mark.parametrize("make", SHAPES)
def test_identifiers_are_unique_and_labels_resolve(make: Callable[[], Scores]) -> None:
    page = page_of(make)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    labels = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
    assert labels
    assert set(labels) <= set(ids)


@pytest.mark.parametrize("make", SHAPES)
def test_no_number_is_missing_or_undefined(make: Callable[[], Scores]) -> None:
    scores, page = make(), page_of(make)
    cells = [" ".join(c.split()) for c in page.cells]
    for cell in scores.cells:
        assert any(spread(cell.mean, cell.std) in text for text in cells)
        if cell.gap:
            delta, ends = difference(cell.gap)
            assert any(delta in text and (ends is None or f"[{ends[0]}, {ends[1]}]" in text) for text in cells)
    words = page.text.replace("(", " ").replace(",", " ").split()
    assert not {"nan", "NaN", "None", "null", "inf", "-inf", "undefined,"} & set(words)


@pytest.mark.parametrize("make", SHAPES)
def test_the_answer_comes_first(make: Callable[[], Scores]) -> None:
    scores, page = make(), page_of(make)
    found = findings(scores)
    text = plain(page.text).replace(" ", "")
    position = -1
    for sentence in [found.lead, *found.groups]:
        at = text.find(plain(sentence).replace(" ", ""))
        assert at > position
        position = at
    assert position < text.index("Mean±" if scores.repeats > 1 else "Scoresof1")
    for sentence in [*found.warnings, found.robustness, *found.method]:
        assert plain(sentence).replace(" ", "") in text
    assert ("Readwithcare" in text) == bool(found.warnings)


def test_a_dependence_on_order_or_bandwidth_is_a_warning_in_its_own_box() -> None:
    scores = examples.scores({"training": 1.0, "close": 0.985}, sizes=[500])
    assert scores.robustness[0].verdict == "undecided"
    page = Page(render(scores))
    assert page.all("aside")
    assert scores.robustness[0].sentence in plain(page.text)


@pytest.mark.parametrize("make", SHAPES)
def test_figures_say_their_key_numbers(make: Callable[[], Scores]) -> None:
    scores = make()
    drawings = [a for a in page_of(make).all("svg") if a.get("aria-label")]
    others = len(compared(scores))
    panels = len(scores.metrics) * (2 if others else 1) + len(scores.robustness)
    assert len(drawings) == panels
    assert all(a["role"] == "img" for a in drawings)
    for metric, drawing in zip(scores.metrics, drawings, strict=False):
        label = drawing["aria-label"] or ""
        assert label.startswith(clean(metric.label))
        for group in scores.groups:
            cell = scores.cell(group, metric.key, scores.sizes[-1])
            assert clean(group) in label
            assert (spread(cell.mean, cell.std) if cell else "undefined") in label


@pytest.mark.parametrize("make", SHAPES)
def test_tables_have_captions_and_scopes(make: Callable[[], Scores]) -> None:
    page = page_of(make)
    assert len(page.all("table")) == len(page.all("caption")) == 4
    assert all(a.get("scope") in ("col", "row", "rowgroup") for a in page.all("th"))
    scrolling = [a for a in page.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["role"] == "region" for a in scrolling)


def test_hostile_text_is_text() -> None:
    html, page = html_of(examples.hostile), page_of(examples.hostile)
    assert "<script" not in html
    assert "<img" not in html
    assert "alert(2)> & <b>" in page.text
    assert "3 rows of </section> skipped" in page.text
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "مجموعة" in page.text
    assert html.count("<bdi>") == html.count("</bdi>")


def test_everything_about_the_run_is_there() -> None:
    scores = examples.scores(
        {"training": 1.0, "greedy": 0.5}, sizes=[500], notes=["2 of 5,002 documents had no paragraph."]
    )
    page = Page(render(scores))
    for text in (
        "2 of 5,002 documents had no paragraph.",
        "Gaussian",
        "0.9137",
        "1.024",
        "MiniLM-L6",
        "384",
        "continuation_tokens",
        "texts/*.jsonl.zst, more/",
        "2.14.1",
        "seed 0",
        *(m.description for m in scores.metrics),
        *(m.sentence for m in scores.robustness),
    ):
        assert text in page.text, text
    assert "Nothing was skipped." not in page.text
    assert "Nothing was skipped." in page_of(examples.scores).text


def test_without_reference_nothing_is_said_of_differences() -> None:
    page = page_of(examples.without_reference)
    assert "Δ" not in page.text
    assert "Differences from" not in page.text
    assert "Order and bandwidth" not in page.text


def test_long_names_have_a_legend() -> None:
    name = "a name that is too long to stand beside a curve"
    page = Page(render(examples.scores({name: 0.5}, reference=None, sizes=[250, 500])))
    assert name in page.text
    assert [a for a in page.all("ul") if a.get("class") == "legend"]
    assert not [a for a in page_of(examples.scores).all("ul") if a.get("class") == "legend"]


def test_settings_are_nested_line_by_line() -> None:
    settings = {
        "a": {"b": None, "c": [1, 2.5], "d": {}},
        "list": [{"x": True}, [float("inf"), "\x1b<"]],
        "e": [],
    }
    assert list(setting_lines(settings)) == [
        Setting(0, "a", None),
        Setting(1, "b", "not set"),
        Setting(1, "c", "1, 2.5"),
        Setting(1, "d", "none"),
        Setting(0, "list", None),
        Setting(1, "1", None),
        Setting(2, "x", "yes"),
        Setting(1, "2", "∞, \\u001b<"),
        Setting(0, "e", "none"),
    ]


def test_write_page(tmp_path: Path) -> None:
    write_page(examples.single_group(), tmp_path / "deep" / "report.html")
    assert (tmp_path / "deep" / "report.html").read_text(encoding="utf-8") == html_of(examples.single_group)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["report.html"]
