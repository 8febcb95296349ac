"""The difference of conditional entropies over order and bandwidth, as maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from condvne.data.results import RobustnessMap, Scores
from condvne.reports.formatting import ROUNDING, count, shortened, signed
from condvne.reports.palette import LIGHT
from condvne.reports.panels import Sheet
from condvne.reports.svg import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAINTEST, _STRONGEST = 0.07, 0.6  # opacities: a sign is always seen, and numbers stay legible on the largest
_ROW = 0.23  # inches


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
            _map(axes, robustness, strongest)
        return sheet.figure


def differing(robustness: RobustnessMap) -> list[tuple[int, int]]:
    """(order, multiplier) indices whose sign is not that at order 1 and multiplier 1; none where that is not there."""
    try:
        usual = robustness.gaps[robustness.orders.index(1.0)][robustness.multipliers.index(1.0)]
    except ValueError:
        return []
    return [(i, j) for i, row in enumerate(robustness.gaps) for j, gap in enumerate(row) if _sign(gap) != _sign(usual)]


def _map(axes: Axes, robustness: RobustnessMap, strongest: float) -> None:
    from matplotlib.patches import Rectangle

    framed = set(differing(robustness))
    for i, row in enumerate(robustness.gaps):
        for j, exact in enumerate(row):
            gap = exact if _sign(exact) else 0.0
            color = LIGHT["below-fill" if gap < 0 else "above-fill"]
            alpha = _FAINTEST + (_STRONGEST - _FAINTEST) * abs(gap) / strongest if gap else 0.0
            place = (j + 0.015, i + 0.04), 0.97, 0.92
            axes.add_patch(Rectangle(*place, facecolor=color, alpha=alpha, linewidth=0))
            if (i, j) in framed:
                axes.add_patch(Rectangle(*place, fill=False, edgecolor=LIGHT["ink"], linewidth=1.0))
            axes.text(j + 0.5, i + 0.5, signed(gap), ha="center", va="center", size=7)
    axes.set_facecolor("none")
    axes.set_xlim(0, len(robustness.multipliers))
    axes.set_ylim(len(robustness.orders), 0)
    axes.set_xticks(_middles(robustness.multipliers), labels=[f"×{m:g}" for m in robustness.multipliers])
    axes.set_yticks(_middles(robustness.orders), labels=[_order(o) for o in robustness.orders])
    axes.tick_params(length=0, labelsize=7, pad=2)
    axes.set_xlabel("bandwidth", labelpad=1)
    axes.set_ylabel("order", labelpad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _middles(values: Sequence[object]) -> list[float]:
    return [k + 0.5 for k in range(len(values))]


def _order(order: float | str) -> str:
    return "∞" if float(order) == math.inf else f"{order:g}"


def _sign(value: float) -> int:
    return (value > ROUNDING) - (value < -ROUNDING)
