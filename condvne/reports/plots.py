"""The figures: scores over n, differences from the reference, and differences over order and bandwidth.

Each function returns a matplotlib `Figure` (no pyplot, nothing global) that `svg.to_png` and `svg.to_svg` save.
All take the whole of the scores; `metrics` or `groups` choose panels, so that a page can lay them out itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from condvne.data.results import Cell, Metric, Scores
from condvne.reports.findings import compared
from condvne.reports.formatting import MARKS, UNDEFINED, clean, count, difference, distinct, shortened
from condvne.reports.palette import LIGHT, look
from condvne.reports.panels import Sheet, plain_axes
from condvne.reports.svg import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_WIDTH = 14  # characters of a group's name beside its curve
_LINE = 0.155  # inches from one line of small text to the next


def gap_plot(scores: Scores, metrics: Sequence[str] | None = None, legend: bool = True) -> Figure:
    """Each metric over n: a curve for each group with a band of one standard deviation over subsamples.

    With a single n, points with error bars. `metrics` are keys, all by default.
    """
    chosen = _chosen(scores, metrics)
    curves = len(scores.sizes) > 1
    names = scores.groups if legend and needs_legend(scores) else []
    with drawing():
        sheet = Sheet(
            len(chosen),
            height=1.95 if curves else 0.1 + 0.2 * len(scores.groups),
            left=0.48 if curves else 1.1,
            right=_label_margin(scores) if curves else 0.12,
            legend=[clean(g) for g in names],
        )
        for axes, metric in zip(sheet.panels, chosen, strict=True):
            sheet.title(axes, clean(metric.label))
            if curves:
                _curves(axes, scores, metric)
            else:
                _points(axes, scores, metric)
        sheet.draw_legend([look(scores, g) for g in names])
        return sheet.figure


def needs_legend(scores: Scores) -> bool:
    """Whether some group's name is too long to stand in full beside its curve or point."""
    return any(shortened(g, _LABEL_WIDTH) != clean(g) for g in scores.groups)


def gap_difference_plot(scores: Scores, metrics: Sequence[str] | None = None) -> Figure:
    """Δ of each group from the reference with its interval, for every n, around a line at zero.

    A point without an interval (one subsample) is drawn alone. Groups that nothing compares are left out.
    """
    chosen = _chosen(scores, metrics)
    rows = _forest_rows(scores)
    with drawing():
        sheet = Sheet(len(chosen), height=0.1 + _LINE * len(rows), left=0.46, right=0.72)
        for axes, metric in zip(sheet.panels, chosen, strict=True):
            sheet.title(axes, clean(metric.label))
            _forest(axes, scores, metric, rows)
        return sheet.figure


def swatch(scores: Scores, group: str) -> Figure:
    """A short stretch of the group's curve, for a legend."""
    from matplotlib.figure import Figure

    with drawing():
        figure = Figure(figsize=(0.36, 0.14))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.axis("off")
        look(scores, group).plot(axes, [0, 0.5, 1], [0, 0, 0], markevery=[1])
        return figure


def _chosen(scores: Scores, metrics: Sequence[str] | None) -> list[Metric]:
    return [m for m in scores.metrics if metrics is None or m.key in metrics]


def _cells(scores: Scores, group: str, metric: Metric) -> list[Cell]:
    return [c for n in scores.sizes if (c := scores.cell(group, metric.key, n))]


def _short_names(scores: Scores) -> dict[str, str]:
    """Names short enough to stand beside a curve; none where they would no longer tell the groups apart."""
    names = {g: shortened(g, _LABEL_WIDTH) for g in scores.groups}
    return names if distinct(names.values()) else {}


def _label_margin(scores: Scores) -> float:
    """Inches that the names beside the curves need."""
    return 0.14 + 0.068 * max((len(n) for n in _short_names(scores).values()), default=0)


def _curves(axes: Axes, scores: Scores, metric: Metric) -> None:
    plain_axes(axes, numbers="y")
    _size_axis(axes, scores.sizes)
    ends: dict[str, float] = {}
    for group in scores.groups:  # the reference first: its thicker line stays visible under another that meets it
        cells = _cells(scores, group, metric)
        if not cells:
            continue
        style = look(scores, group)
        n = [c.n for c in cells]
        if all(c.std is not None for c in cells):
            low, high = ([c.mean + sign * (c.std or 0.0) for c in cells] for sign in (-1, 1))
            axes.fill_between(n, low, high, color=style.color, alpha=0.16, linewidth=0)
        style.plot(axes, n, [c.mean for c in cells])
        ends[group] = cells[-1].mean
    if not ends:
        _nothing(axes)
        return
    _direct_labels(axes, scores, ends)


def _size_axis(axes: Axes, sizes: list[int]) -> None:
    """Ticks at the sizes themselves, on a logarithmic axis where they span more than a factor of three."""
    if sizes[-1] > 3 * sizes[0]:
        axes.set_xscale("log")
    kept = sizes if len(sizes) <= 5 else sizes[:: -(-len(sizes) // 5)]
    axes.set_xticks(kept, labels=[count(n) for n in kept])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("n", labelpad=1)


def _direct_labels(axes: Axes, scores: Scores, ends: dict[str, float]) -> None:
    """Each curve's name at its right end, pushed apart where they would overlap."""
    names = _short_names(scores)
    if not names:
        return
    low, high = axes.get_ylim()
    inches = axes.get_position().height * axes.figure.get_figheight()  # type: ignore[union-attr]
    order = sorted(ends, key=lambda g: ends[g])
    wanted = [(ends[g] - low) / (high - low) for g in order]
    for group, y in zip(order, _apart(wanted, 0.13 / inches), strict=True):
        weight = "bold" if group == scores.reference else "normal"
        color = look(scores, group).color
        axes.text(1.03, y, names[group], transform=axes.transAxes, color=color, weight=weight, size=7, va="center")


def _apart(wanted: list[float], least: float) -> list[float]:
    """Increasing positions at least `least` apart, close to the increasing `wanted` ones."""
    blocks: list[tuple[float, int]] = []  # (sum of wanted first positions, members): each block is one run of labels
    for position in wanted:
        total, members = position, 1
        while blocks and blocks[-1][0] / blocks[-1][1] + least * blocks[-1][1] > total / members:
            before, size = blocks.pop()
            total, members = before + total - least * size * members, size + members
        blocks.append((total, members))
    return [total / members + least * k for total, members in blocks for k in range(members)]


def _points(axes: Axes, scores: Scores, metric: Metric) -> None:
    """One n: groups from top to bottom, their scores to the right."""
    plain_axes(axes, numbers="x")
    for y, group in enumerate(scores.groups):
        for cell in _cells(scores, group, metric):
            look(scores, group).plot(axes, [cell.mean], [y])
            axes.errorbar(cell.mean, y, xerr=cell.std or 0.0, color=look(scores, group).color, linewidth=1.1)
    if not axes.has_data():
        _nothing(axes)
    labels = [shortened(g, _LABEL_WIDTH + 4) for g in scores.groups]
    axes.set_yticks(range(len(labels)), labels=labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(f"score at n = {count(scores.sizes[0])}", labelpad=1)


def _forest_rows(scores: Scores) -> list[tuple[str, int | None]]:
    """A row with the group's name, then one for each n."""
    return [(g, n) for g in compared(scores) for n in (None, *scores.sizes)]


def _forest(axes: Axes, scores: Scores, metric: Metric, rows: list[tuple[str, int | None]]) -> None:
    plain_axes(axes, numbers="x")
    axes.axvline(0, color=LIGHT["soft"], linewidth=0.8)
    beside = axes.get_yaxis_transform()
    labels = {0: "n"}
    for y, (group, n) in enumerate(rows):
        style = look(scores, group)
        if n is None:
            axes.text(0.02, y, shortened(group, 40), transform=beside, color=style.color, size=7, va="center")
            continue
        labels[y] = count(n)
        cell = scores.cell(group, metric.key, n)
        if cell is None or cell.gap is None:
            axes.text(1.05, y, UNDEFINED, transform=beside, color=LIGHT["soft"], size=7, va="center", ha="center")
            continue
        gap = cell.gap
        if gap.low is not None and gap.high is not None:
            axes.plot([gap.low, gap.high], [y, y], color=style.color, linewidth=1.3, solid_capstyle="butt")
        style.plot(axes, [gap.estimate], [y])
        axes.text(1.05, y, MARKS[gap.direction], transform=beside, size=7, va="center", ha="center")
        axes.text(1.09, y, difference(gap)[0], transform=beside, size=7, va="center")
    axes.set_yticks(list(labels), labels=list(labels.values()))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.set_xlabel(f"Δ from {shortened(scores.reference or '', 30)}", labelpad=1)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "undefined", transform=axes.transAxes, color=LIGHT["soft"], ha="center", va="center")
