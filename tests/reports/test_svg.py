from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from condvne.reports.palette import DARK, LIGHT, css_variables
from condvne.reports.plots import gap_plot
from condvne.reports.svg import to_svg
from tests.reports import examples


def drawing(prefix: str = "a") -> str:
    return to_svg(gap_plot(examples.scores(), ["conditional_vendi"]), prefix, 'a "label" & <more>')


def test_one_labelled_element_without_references_outward() -> None:
    svg = drawing()
    root = ET.fromstring(svg)
    assert root.tag == "svg"
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'a "label" & <more>'
    assert "http" not in svg
    assert "xmlns" not in svg
    assert not root.findall(".//style")
    assert not root.findall(".//metadata")


def test_text_stays_text() -> None:
    texts = {"".join(t.itertext()).strip() for t in ET.fromstring(drawing()).iter("text")}
    assert {"Cond. VNE", "training", "greedy", "2,000"} <= texts


def test_colours_are_variables_of_the_page() -> None:
    svg = drawing()
    assert {"var(--ink)", "var(--series-1)", "var(--rule)"} <= set(re.findall(r"var\([^)]*\)", svg))
    assert not re.findall(r"#[0-9a-f]{6}", svg)
    assert "opacity: 0.16" in svg


def test_identifiers_carry_the_prefix_and_resolve() -> None:
    svg = drawing("panel-1")
    root = ET.fromstring(svg)
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert ids
    assert len(set(ids)) == len(ids)
    assert all(i.startswith("panel-1-") for i in ids)
    used = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', svg)
    assert used
    assert {a or b for a, b in used} <= set(ids)


def test_equal_figures_give_equal_drawings() -> None:
    assert drawing() == drawing()


def luminance(color: str) -> float:
    channels = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_colours_pass_wcag_aa(colors: dict[str, str]) -> None:
    for name, color in colors.items():
        if name not in ("paper", "rule", "below-fill", "above-fill"):
            assert contrast(color, colors["paper"]) >= 4.5, name


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("fill", ["below-fill", "above-fill"])
def test_numbers_on_the_strongest_cell_pass_wcag_aa(colors: dict[str, str], fill: str) -> None:
    mixed = "#" + "".join(
        f"{round(0.6 * int(colors[fill][k : k + 2], 16) + 0.4 * int(colors['paper'][k : k + 2], 16)):02x}"
        for k in (1, 3, 5)
    )
    assert contrast(colors["ink"], mixed) >= 4.5


def test_each_light_colour_is_its_own_and_has_a_dark_twin() -> None:
    assert len(set(LIGHT.values())) == len(LIGHT)
    assert LIGHT.keys() == DARK.keys()
    assert css_variables({"ink": "#000000"}) == "--ink:#000000;"
