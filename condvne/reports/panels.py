"""Sheets of equal panels laid out in inches, and the plain axes that all figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from condvne.reports.formatting import number, shortened
from condvne.reports.palette import LIGHT, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_WIDTH = 3.6  # inches, all of it; at this width small text stays legible on a telephone
_TITLE = 0.26
_FOOT = 0.36
_GAP = 0.16


class Sheet:
    """One panel, or several in two columns, each with room for a title above and ticks below, under one legend."""

    def __init__(self, count: int, *, height: float, left: float, right: float, legend: Sequence[str] = ()) -> None:
        """`height`, `left` and `right` are inches of one panel's axes and its margins."""
        from matplotlib.figure import Figure

        columns = min(count, 2)
        rows = -(-count // columns)
        width = columns * _PANEL_WIDTH + (columns - 1) * _GAP
        self._names = [shortened(name, 60) for name in legend]
        self._columns = _legend_columns(self._names, width)
        top = 0.08 + 0.17 * -(-len(self._names) // self._columns) if legend else 0.0
        cell = _TITLE + height + _FOOT
        total = top + rows * cell
        self.figure = Figure(figsize=(width, total))
        self.panels: list[Axes] = []
        for index in range(count):
            row, column = divmod(index, columns)
            x = column * (_PANEL_WIDTH + _GAP) + left
            y = total - top - row * cell - _TITLE - height
            extent = (_PANEL_WIDTH - left - right) / width
            self.panels.append(self.figure.add_axes((x / width, y / total, extent, height / total)))
        self._left = left

    def title(self, axes: Axes, text: str) -> None:
        """A title flush with the panel's left edge, not with its axes."""
        axes.annotate(
            shortened(text, 48),
            (0, 1),
            (-72 * self._left + 1, 7),
            xycoords="axes fraction",
            textcoords="offset points",
            weight="bold",
            size=8.5,
        )

    def draw_legend(self, looks: Sequence[Look]) -> None:
        """Markers and names above the panels."""
        if not looks:
            return
        from matplotlib.lines import Line2D

        self.figure.legend(
            handles=[Line2D([], [], label=n, **look.line_style()) for n, look in zip(self._names, looks, strict=True)],
            loc="upper left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=self._columns,
            frameon=False,
            borderaxespad=0.1,
            handlelength=2.4,
            columnspacing=1.6,
            labelspacing=0.3,
        )


def plain_axes(axes: Axes, numbers: str) -> None:
    """No box; quiet ticks; a fine grid across and readable numbers along the axis `numbers` ("x" or "y")."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=2.5, width=0.6, labelsize=7, pad=2)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis=numbers, color=LIGHT["rule"], linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axis = axes.xaxis if numbers == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis of positive values, with readable numbers: 1, 2, 5, 10, 20, …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 500 * low else (1.0,), numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def symmetric_logarithmic(axes: Axes) -> None:
    """A y axis that is logarithmic on both sides of zero beyond ±1: 0, −1, −10³, −10⁶, … within what is drawn."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.dataLim.intervaly
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(min(1.3 * low, low - 0.1), max(1.3 * high, high + 0.7))
    decades = math.ceil(math.log10(max(10.0, -low, high)))
    step = max(1, -(-decades // 6))
    powers = [10.0**k for k in range(0, decades + 1, step)]
    places = [value for value in (*(-p for p in reversed(powers)), 0.0, *powers) if low <= value <= max(high, 0.0)]
    axes.yaxis.set_major_locator(FixedLocator(places))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    """A power of ten: −1, 100, −10⁶."""
    exponent = round(math.log10(abs(value))) if value else 0
    raised = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return tick(value) if exponent < 4 else f"{'−' if value < 0 else ''}10{raised}"


def tick(value: float) -> str:
    """A tick's number without digits that say nothing: 0.25, 10, −5, 12,500."""
    text = number(value, 6)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _legend_columns(names: Sequence[str], width: float) -> int:
    """As many columns as fit, at about 5 points a character and 36 for the marker and the space around."""
    widest = max((len(n) for n in names), default=1)
    return max(1, min(len(names), int(72 * width // (5 * widest + 36))))
