"""The difference of conditional entropies over order and bandwidth, as maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from condvne.data.results import ROUNDING, RobustnessMap, Scores
from condvne.reports.formatting import count, shortened, signed
from condvne.reports.palette import LIGHT
from condvne.reports.panels import Sheet
from condvne.reports.svg import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAINTEST, _STRONGEST = 0.07, 0.6  # opacities: a sign is always seen, and numbers stay legible on the largest
_ROW = 0.23  # inches
Places = set[tuple[int, int]]


def robustness_plot(scores: Scores, groups: Sequence[str] | None = None) -> Figure:
    """For each group, Δ of the conditional entropy (nats) over order (down) and bandwidth multiplier (across).

    Colour runs from below through nothing at zero to above, on one scale for all groups of `scores`; every cell prints
    its number, and a cell whose sign differs from the one at order 1 and multiplier 1 has a frame.
    """
    chosen = [m for m in scores.robustness if groups is None or m.group in groups]
    strongest = max((abs(g) for m in scores.robustness for row in m.gaps for g in row), default=0.0)
    with drawing():
        height = _ROW * max((len(m.orders) for m in chosen), default=1)
        sheet = Sheet(len(chosen), height=height, left=0.5, right=0.06)
        for axes, robustness in zip(sheet.panels, chosen, strict=True):
            sheet.title(axes, f"{shortened(robustness.group, 28)}, n = {count(robustness.n)}")
            _map(axes, robustness.gaps, strongest, framed=set(differing(robustness)))
            _ticks(axes, _times(robustness.multipliers), [_order(o) for o in robustness.orders], "bandwidth", "order")
        return sheet.figure


def bandwidths_plot(robustness: RobustnessMap) -> Figure | None:
    """For each order, Δ of the conditional entropy (nats) over the condition's bandwidth (down) and the output's.

    A frame marks a sign that differs from the one at order 1 and both bandwidths ×1. None where one side alone has a
    bandwidth.
    """
    if not robustness.separate:
        return None
    strongest = max(map(abs, robustness.differences()), default=0.0)
    usual = _usual(robustness)
    names = _times(robustness.multipliers)
    with drawing():
        sheet = Sheet(len(robustness.orders), height=_ROW * len(names), left=0.5, right=0.06)
        for axes, order, plane in zip(sheet.panels, robustness.orders, robustness.separate, strict=True):
            sheet.title(axes, f"order {_order(order)}")
            _map(axes, plane, strongest, framed=_other(plane, usual))
            _ticks(axes, names, names, "output's bandwidth", "condition's")
        return sheet.figure


def differing(robustness: RobustnessMap) -> list[tuple[int, int]]:
    """(order, multiplier) indices whose sign is not that at order 1 and multiplier 1; none where that is not there."""
    return sorted(_other(robustness.gaps, _usual(robustness)))


def _usual(robustness: RobustnessMap) -> float | None:
    """The difference at order 1 and multiplier 1, or None where the map lacks it."""
    try:
        return robustness.gaps[robustness.orders.index(1.0)][robustness.multipliers.index(1.0)]
    except ValueError:
        return None


def _other(gaps: Sequence[Sequence[float]], usual: float | None) -> Places:
    """Where the sign is not that of `usual`; nowhere without it."""
    if usual is None:
        return set()
    return {(i, j) for i, row in enumerate(gaps) for j, gap in enumerate(row) if _sign(gap) != _sign(usual)}


def _map(axes: Axes, gaps: Sequence[Sequence[float]], strongest: float, framed: Places) -> None:
    """One cell for each difference, coloured by it."""
    from matplotlib.patches import Rectangle

    for i, row in enumerate(gaps):
        for j, exact in enumerate(row):
            gap = exact if _sign(exact) else 0.0
            color = LIGHT["below-fill" if gap < 0 else "above-fill"]
            alpha = _FAINTEST + (_STRONGEST - _FAINTEST) * abs(gap) / strongest if gap else 0.0
            place = (j + 0.015, i + 0.04), 0.97, 0.92
            axes.add_patch(Rectangle(*place, facecolor=color, alpha=alpha, linewidth=0))
            if (i, j) in framed:
                axes.add_patch(Rectangle(*place, fill=False, edgecolor=LIGHT["ink"], linewidth=1.0))
            axes.text(j + 0.5, i + 0.5, signed(gap), ha="center", va="center", size=7)


def _ticks(axes: Axes, across: Sequence[str], down: Sequence[str], across_label: str, down_label: str) -> None:
    axes.set_facecolor("none")
    axes.set_xlim(0, len(across))
    axes.set_ylim(len(down), 0)
    axes.set_xticks(_middles(across), labels=across)
    axes.set_yticks(_middles(down), labels=down)
    axes.tick_params(length=0, labelsize=7, pad=2)
    axes.set_xlabel(across_label, labelpad=1)
    axes.set_ylabel(down_label, labelpad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _middles(values: Sequence[object]) -> list[float]:
    return [k + 0.5 for k in range(len(values))]


def _times(multipliers: Sequence[float]) -> list[str]:
    return [f"×{m:g}" for m in multipliers]


def _order(order: float | str) -> str:
    return "∞" if float(order) == math.inf else f"{order:g}"


def _sign(value: float) -> int:
    return (value > ROUNDING) - (value < -ROUNDING)
