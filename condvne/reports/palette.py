"""Colours, markers and line styles: safe for colour-blind eyes, with a dark twin for every light colour.

Figures are drawn in the light colours; on the page each becomes a CSS variable, so that one drawing serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from condvne.data.results import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT = {
    "paper": "#fdfcfa",
    "ink": "#1d2125",
    "soft": "#565d64",
    "rule": "#d9d7d2",
    "below": "#a4500c",
    "above": "#5a4aa6",
    "below-fill": "#a5510d",
    "above-fill": "#5b4ba7",
    "series-1": "#0067a8",
    "series-2": "#c2450a",
    "series-3": "#007a5a",
    "series-4": "#b52a82",
    "series-5": "#5c4300",
    "series-6": "#352a86",
}
DARK = {
    "paper": "#16181b",
    "ink": "#e9e6e0",
    "soft": "#a6abb1",
    "rule": "#3a3e43",
    "below": "#f0a35e",
    "above": "#b3a8f2",
    "below-fill": "#b5651d",
    "above-fill": "#7565d6",
    "series-1": "#63b3ee",
    "series-2": "#ff9063",
    "series-3": "#45c79b",
    "series-4": "#f08fc4",
    "series-5": "#f0e08c",
    "series-6": "#8c7be6",
}
_SERIES = [name for name in LIGHT if name.startswith("series")]
_MARKERS = ["s", "^", "D", "v", "P", "X", "p", "*", "h"]


@dataclass(frozen=True)
class Look:
    """How one group is drawn, the same in every figure."""

    color: str
    marker: str
    line: str
    filled: bool
    width: float = 1.2

    def line_style(self) -> dict[str, Any]:
        """Keyword arguments of a matplotlib `Line2D`."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": self.width,
            "markersize": 4.5 if self.marker in "*PX" else 3.6,
            "markeredgewidth": 0.9,
            "markerfacecolor": self.color if self.filled else LIGHT["paper"],
        }

    def plot(
        self,
        axes: Axes,
        x: Sequence[float],
        y: Sequence[float],
        markevery: list[int] | None = None,
        steps: bool = False,
    ) -> None:
        """Draw a curve with markers, or steps that fall behind each point."""
        axes.plot(x, y, markevery=markevery, drawstyle="steps-post" if steps else "default", **self.line_style())


def look(scores: Scores, group: str) -> Look:
    """The reference in ink with discs; the others by hue, marker and, past the sixth, dashes and open markers."""
    if group == scores.reference:
        return Look(LIGHT["ink"], "o", "-", filled=True, width=2.2)
    return series_look([g for g in scores.groups if g != scores.reference].index(group))


def series_look(index: int) -> Look:
    """The look of the series with this number: by hue, marker and, past the sixth, dashes and open markers."""
    first_round = index < len(_SERIES)
    return Look(
        LIGHT[_SERIES[index % len(_SERIES)]],
        _MARKERS[index % len(_MARKERS)],
        "-" if first_round else "--",
        filled=first_round,
    )


def css_variables(colors: dict[str, str]) -> str:
    """The colours as declarations for a style sheet."""
    return "".join(f"--{name}:{value};" for name, value in colors.items())
