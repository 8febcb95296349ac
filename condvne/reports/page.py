"""The report: one HTML file that needs nothing else, no network and no script, light or dark as the reader prefers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from markupsafe import Markup, escape

from condvne.data.listing import counted
from condvne.data.pictures import ContactSheet
from condvne.data.results import Scores
from condvne.data.storage import write_whole
from condvne.reports import alternatives, formatting
from condvne.reports.findings import compared, findings
from condvne.reports.maps import bandwidths_plot, robustness_plot
from condvne.reports.palette import DARK, LIGHT, css_variables
from condvne.reports.pictures import loss_panels, mode_panels
from condvne.reports.plots import gap_difference_plot, gap_plot, needs_legend, swatch
from condvne.reports.populations import population_caption, population_rows
from condvne.reports.svg import to_svg
from condvne.reports.tables import caption, rows

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Setting:
    """One line of the settings; without a value it heads the lines below it."""

    depth: int
    key: str
    value: str | None


def write_page(scores: Scores, path: str | Path, pictures: ContactSheet | None = None) -> None:
    """Write the report, whole or not at all. Raises RunError where the disk refuses it."""
    write_whole(path, render(scores, pictures))


def environment() -> Environment:
    """The templates, with the filters that they use; what comes from the user is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("condvne.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(sentence=sentence, name=formatting.clean, count=formatting.count, counted=counted)
    return templates


def render(scores: Scores, pictures: ContactSheet | None = None) -> str:
    """The report as HTML. Every text that comes from the user is escaped; figures are inline SVG, pictures inline."""
    templates = environment()
    text = templates.get_template("report.html.jinja").render(
        scores=scores,
        findings=findings(scores),
        compared=compared(scores),
        caption=caption(scores),
        blocks=[(n, list(block)) for n, block in itertools.groupby(rows(scores), key=lambda row: row.n)],
        populations=list(population_rows(scores)),
        population_caption=population_caption(scores),
        legend=_legend(scores),
        curves=_curves(scores),
        differences=_differences(scores),
        maps=_maps(scores),
        bandwidths=_bandwidths(scores),
        modes=mode_panels(pictures),
        losses=loss_panels(pictures),
        settings=list(setting_lines(scores.settings)),
        number=formatting.number,
        style=Markup(templates.get_template("report.css").render()),
        light=Markup(css_variables(LIGHT)),
        dark=Markup(css_variables(DARK)),
    )
    return text if text.endswith("\n") else text + "\n"


def setting_lines(value: Mapping[str, object], depth: int = 0) -> Iterator[Setting]:
    """The settings, line by line, nested ones deeper; lists of plain values on one line."""
    for key, item in value.items():
        label = formatting.clean(str(key))
        if isinstance(item, Mapping) and item:
            yield Setting(depth, label, None)
            yield from setting_lines(item, depth + 1)
        elif _is_list(item) and any(isinstance(i, Mapping) or _is_list(i) for i in item):
            yield Setting(depth, label, None)
            yield from setting_lines({str(k): i for k, i in enumerate(item, 1)}, depth + 1)
        else:
            yield Setting(depth, label, _plain(item))


def _plain(item: object) -> str:
    if item is None:
        return "not set"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, float) and math.isinf(item):
        return "∞" if item > 0 else "−∞"
    if _is_list(item) or isinstance(item, Mapping):
        return ", ".join(_plain(i) for i in item) or "none"
    return formatting.clean(str(item))


def _is_list(item: object) -> TypeGuard[Sequence[object]]:
    return isinstance(item, Sequence) and not isinstance(item, str | bytes)


def sentence(text: str) -> Markup:
    """A sentence of the findings, with its isolated names as `<bdi>`, and "Distinct-2" kept on one line."""
    html = str(escape(text)).replace("\u2068", "<bdi>").replace("\u2069", "</bdi>")
    return Markup(re.sub(r"\b\w{1,12}-\d{1,3}\b", r'<span class="whole">\g<0></span>', html))


def _legend(scores: Scores) -> list[tuple[str, Markup]]:
    """Names too long to stand beside their curves, each with a stretch of its curve."""
    if not needs_legend(scores):
        return []
    return [
        (formatting.clean(group), Markup(to_svg(swatch(scores, group), f"key-{k}", "")))
        for k, group in enumerate(scores.groups)
    ]


def _curves(scores: Scores) -> list[Markup]:
    return [
        Markup(to_svg(gap_plot(scores, [m.key], legend=False), f"curve-{k}", alternatives.describe_curves(scores, m)))
        for k, m in enumerate(scores.metrics)
    ]


def _differences(scores: Scores) -> list[Markup]:
    if not compared(scores):
        return []
    return [
        Markup(to_svg(gap_difference_plot(scores, [m.key]), f"gap-{k}", alternatives.describe_differences(scores, m)))
        for k, m in enumerate(scores.metrics)
    ]


def _maps(scores: Scores) -> list[Markup]:
    return [
        Markup(to_svg(robustness_plot(scores, [m.group]), f"map-{k}", alternatives.describe_map(m)))
        for k, m in enumerate(scores.robustness)
    ]


def _bandwidths(scores: Scores) -> list[tuple[str, Markup]]:
    """Names of groups, with their maps over both bandwidths."""
    drawn = [(m, bandwidths_plot(m)) for m in scores.robustness]
    return [
        (m.group, Markup(to_svg(figure, f"bandwidths-{k}", alternatives.describe_map(m))))
        for k, (m, figure) in enumerate(drawn)
        if figure is not None
    ]
