"""The figures of a profile study: a panel a family, and the histograms of distances with where the grids lie."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from condvne.data.curves import Curve, CurveCrossing, FamilyCurves, ProfileStudy
from condvne.reports.formatting import clean, number, shortened
from condvne.reports.palette import LIGHT, Look, series_look
from condvne.reports.panels import Sheet, logarithmic, plain_axes, symmetric_logarithmic, tick
from condvne.reports.svg import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 1.95  # inches of a panel's axes


def looks(study: ProfileStudy) -> dict[str, Look]:
    """How each set is drawn."""
    return {single.group: series_look(k) for k, single in enumerate(study.singles)}


def curves_plot(study: ProfileStudy, families: Sequence[str] | None = None, legend: bool = True) -> Figure:
    """Curves over the parameter, a panel a family, with bands of half-samples; bounds on Circles as a hatched span.

    Effective numbers and counts are on a logarithmic axis; dotted lines mark the crossings of two sets. `families` are
    keys, all by default.
    """
    chosen = [family for family in study.families if families is None or family.key in families]
    styles = looks(study)
    names = list(styles) if legend else []
    with drawing():
        sheet = Sheet(len(chosen), height=HEIGHT, left=0.48, right=0.12, legend=[clean(name) for name in names])
        for axes, family in zip(sheet.panels, chosen, strict=True):
            sheet.title(axes, f"{family.title} over the {family.parameter} {family.symbol}")
            _family(axes, family, styles)
        sheet.draw_legend([styles[name] for name in names])
        return sheet.figure


def histogram_plot(study: ProfileStudy) -> Figure:
    """Pairwise distances, a panel a set; below, where the thresholds of Circles lie."""
    styles = looks(study)
    grid = next((family.grid for family in study.families if family.key == "circles"), None)
    with drawing():
        sheet = Sheet(len(study.histograms), height=1.3, left=0.48, right=0.12)
        widest = max(histogram.edges[-1] for histogram in study.histograms)
        tallest = max(100 * share for histogram in study.histograms for share in histogram.shares)
        for axes, histogram in zip(sheet.panels, study.histograms, strict=True):
            contrast = histogram.relative_contrast
            told = "copies" if contrast is None else f"contrast {number(contrast, 3)}"
            sheet.title(axes, f"{shortened(histogram.group, 28)}, {told}")
            plain_axes(axes, numbers="y")
            widths = [b - a for a, b in zip(histogram.edges[:-1], histogram.edges[1:], strict=True)]
            shares = [100 * share for share in histogram.shares]
            color = styles[histogram.group].color
            axes.bar(histogram.edges[:-1], shares, widths, align="edge", color=color, alpha=0.55, linewidth=0)
            axes.axvline(histogram.mean, color=LIGHT["ink"], linewidth=0.8)
            if grid is not None:
                axes.plot([float(p) for p in grid], [0.0] * len(grid), "|", color=LIGHT["soft"], markersize=5)
            axes.set_xlim(0, 1.02 * widest)
            axes.set_ylim(0, 1.05 * tallest)
            axes.set_xlabel("distance", labelpad=1)
            axes.set_ylabel("% of pairs", labelpad=2)
        return sheet.figure


def _family(axes: Axes, family: FamilyCurves, styles: dict[str, Look]) -> None:
    plain_axes(axes, numbers="y")
    for curve in family.curves:
        _curve(axes, family.positions, curve, styles[curve.group], steps=family.key == "circles")
    for comparison in family.comparisons if len(family.curves) == 2 else []:  # of more sets they would be a thicket
        for crossing in comparison.crossings:
            axes.axvline(_crossing_position(family, crossing), color=LIGHT["soft"], linewidth=0.7, linestyle=":")
    if family.positions != family.grid:
        ticks = _ticks(family)
        axes.set_xticks(list(ticks.values()), labels=list(ticks))
        axes.set_xticks([], minor=True)
    if family.key == "energy":  # large exponents see the nearest pair alone, by orders of magnitude
        symmetric_logarithmic(axes)
    else:  # effective numbers: sets are compared by ratios, near 1 as well as near n
        logarithmic(axes)
    axes.set_xlabel(family.symbol, labelpad=1)


def _curve(axes: Axes, positions: Sequence[float], curve: Curve, style: Look, steps: bool) -> None:
    """A curve with its band; a count of items falls in steps, right behind a threshold."""
    step: Literal["post"] | None = "post" if steps else None
    if curve.lower is not None and curve.upper is not None:
        axes.fill_between(positions, curve.lower, curve.upper, step=step, color=style.color, alpha=0.16, linewidth=0)
    if curve.ceilings != curve.values:
        axes.fill_between(
            positions, curve.values, curve.ceilings,
            step=step, facecolor="none", edgecolor=style.color, hatch="////", linewidth=0,
        )  # fmt: skip
    marks = max(1, len(positions) // 6)
    places = list(range(marks // 2, len(positions), marks))
    style.plot(axes, positions, curve.values, markevery=places, steps=steps)


def _ticks(family: FamilyCurves) -> dict[str, float]:
    """Round numbers of a geometric grid with their places, and infinity where it has one."""
    finite = [float(p) for p in family.grid if p != "inf"]
    ticks = {}
    for k in range(math.floor(math.log10(finite[0])), math.ceil(math.log10(finite[-1])) + 1):
        for value in (10.0**k, 3 * 10.0**k):
            if finite[0] <= value <= finite[-1]:
                ticks[tick(value)] = _place(family, value)
    return ticks | ({"∞": family.positions[-1]} if family.grid[-1] == "inf" else {})


def _crossing_position(family: FamilyCurves, crossing: CurveCrossing) -> float:
    at = crossing.at
    if at == "inf" or family.grid == family.positions:
        return family.positions[-1] if at == "inf" else at
    return _place(family, at)


def _place(family: FamilyCurves, value: float) -> float:
    """Where a parameter lies between its neighbours in the grid, on a logarithmic axis."""
    finite = [float(p) for p in family.grid if p != "inf"]
    k = bisect.bisect_right(finite, value) - 1
    if k < 0 or k == len(finite) - 1:  # before the first, or between the last and infinity
        return family.positions[max(k, 0)]
    share = math.log(value / finite[k]) / math.log(finite[k + 1] / finite[k])
    return family.positions[k] + share * (family.positions[k + 1] - family.positions[k])
