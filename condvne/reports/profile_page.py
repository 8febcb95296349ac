"""A profile study as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from condvne.data.curves import FamilyCurves, ProfileStudy
from condvne.reports import formatting
from condvne.reports.page import environment, sentence, setting_lines
from condvne.reports.palette import DARK, LIGHT, css_variables
from condvne.reports.profile_plots import curves_plot, histogram_plot
from condvne.reports.svg import to_svg


@dataclass(frozen=True)
class Tables:
    """The page's tables as text: heads and rows of who is above whom (of three sets and more), rows of the others."""

    matrix: tuple[list[str], list[list[str]]] | None
    singles: Sequence[Sequence[str]]
    pairs: Sequence[Sequence[str]]
    caption: str
    alone: str


def profile_page(study: ProfileStudy, tables: Tables) -> str:
    """The page."""
    templates = environment()
    figures = [
        Markup(to_svg(curves_plot(study, [family.key]), f"family-{k}", described(family)))
        for k, family in enumerate(study.families)
    ]
    return templates.get_template("profiles.html.jinja").render(
        study=study,
        tables=tables,
        crossings=len(study.singles) == 2,
        bracketed=any(c.values != c.ceilings for f in study.families for c in f.curves),
        figures=figures,
        distances=Markup(to_svg(histogram_plot(study), "distances", _distances(study))),
        settings=list(setting_lines(study.settings)),
        style=Markup(templates.get_template("report.css").render()),
        light=Markup(css_variables(LIGHT)),
        dark=Markup(css_variables(DARK)),
        sentence=sentence,
    )


def described(family: FamilyCurves) -> str:
    """A family's panel in words, for who cannot see it."""
    parts = [
        f"{formatting.clean(curve.group)} from {formatting.number(curve.values[0])} to "
        f"{formatting.number(curve.values[-1])}"
        for curve in family.curves
    ]
    return f"{family.title} over the {family.parameter}: {'; '.join(parts)}."


def _distances(study: ProfileStudy) -> str:
    parts = [
        f"{formatting.clean(h.group)}: mean {formatting.number(h.mean)}, standard deviation {formatting.number(h.std)}"
        for h in study.histograms
    ]
    return f"Histograms of pairwise distances. {'; '.join(parts)}."
