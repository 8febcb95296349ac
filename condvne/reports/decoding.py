"""The report of minimum-Bayes-risk decoding: a row a utility and method, a column a metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.decoding import Decoding, DecodingCell
from condvne.data.listing import counted
from condvne.data.storage import write_whole
from condvne.reports.formatting import MARKS, UNDEFINED, bounded, clean, count, difference, number, percent
from condvne.reports.palette import LIGHT, Look
from condvne.reports.panels import Sheet, plain_axes
from condvne.reports.svg import drawing, to_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table
    from rich.text import Text

CSV_COLUMNS = (
    "utility", "method", "metric", "value", "low", "high", "gap", "gap_low", "gap_high", "direction",
)  # fmt: skip
_LINE = 0.155  # inches from one line of small text to the next


@dataclass(frozen=True)
class Entry:
    """One cell as text; what is None is not shown."""

    value: str  # "0.4114", or "–" where undefined
    interval: str | None = None  # "[0.347, 0.497]"
    direction: str | None = None
    delta: str | None = None  # "▲ +0.0607"
    delta_interval: str | None = None


@dataclass(frozen=True)
class Row:
    """One utility and method; `entries` in the order of the metrics."""

    utility: str
    method: str
    entries: list[Entry]


def rows(found: Decoding) -> Iterator[Row]:
    """Every utility, every method, as text."""
    for utility in found.utilities:
        for method in found.methods:
            cells = [found.cell(utility.key, method.key, metric.key) for metric in found.metrics]
            yield Row(utility.label, method.label, [entry(cell) for cell in cells])


def entry(cell: DecodingCell | None) -> Entry:
    """A cell as text."""
    if cell is None:
        return Entry(UNDEFINED)
    value, interval = number(cell.value), None
    if cell.low is not None and cell.high is not None:
        value, ends = bounded(cell.value, cell.low, cell.high)
        interval = f"[{ends[0]}, {ends[1]}]"
    if cell.gap is None:
        return Entry(value, interval)
    delta, ends_of_delta = difference(cell.gap)
    return Entry(
        value,
        interval,
        cell.gap.direction,
        f"{MARKS[cell.gap.direction]} {delta}",
        f"[{ends_of_delta[0]}, {ends_of_delta[1]}]" if ends_of_delta else None,
    )


def caption(found: Decoding) -> str:
    """What the numbers are."""
    fewest, mean, most = found.candidates
    each = count(fewest) if fewest == most else f"{count(fewest)} to {count(most)}"
    text = (
        f"One output for each of {counted(found.inputs, 'input')}, chosen from {each} candidates ({number(mean, 3)} on "
        f"average, {number(found.distinct_candidates[1], 3)} of them distinct)."
    )
    if any(cell.low is not None for cell in found.cells):
        marks = f"{MARKS['below']} below, {MARKS['above']} above, {MARKS['undecided']} undecided"
        text += (
            f" Brackets are {percent(found.confidence)} intervals from {counted(found.resamples, 'resample')} of the "
            f"inputs, the same for all methods; Δ is the paired difference from {reference_label(found)} with the same "
            f"utility: {marks}."
        )
    if any(metric.key == "self_bleu_2" for metric in found.metrics):
        text += " Lower Self-BLEU-2 is more diverse; of all other metrics higher is better or more diverse."
    return text


def reference_label(found: Decoding) -> str:
    """The name of the method that the others are compared with."""
    return next(method.label for method in found.methods if method.key == found.reference)


def projection_lines(found: Decoding) -> list[str]:
    """What the weights of every CVS-MBR variant reached, and how far from the best they may be: one sentence each."""
    labels = {method.key: method.label for method in found.methods}
    return [
        f"{labels[p.method]}: conditional entropy of the weighted candidates {number(p.entropy_before)} → "
        f"{number(p.entropy)} nats in the features projected ({found.features}), effective candidates an input "
        f"{number(p.candidates_before, 3)} → {number(p.effective_candidates, 3)}; objective within "
        f"{p.certificate:.1e} of its minimum after {counted(p.iterations, 'iteration')}"
        + ("" if p.converged else ", short of the tolerance: raise projection.max_iterations")
        + (
            ""
            if p.reached
            else f"; the target is out of reach, and at most {number(p.largest_entropy or p.entropy)} nats are possible"
        )
        + "."
        for p in found.projections
    ]


def terminal_decoding(found: Decoding) -> Table:
    """One block of rows a utility, one column a metric; intervals and differences stand under the value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(clean(found.title), style="bold"),
        caption=Text(caption(found), style="dim"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1),
    )
    for head in ("utility", "method"):
        table.add_column(head, overflow="fold")
    for metric in found.metrics:
        table.add_column(Text(clean(metric.label)), justify="right")
    last = found.methods[-1].label
    for row in rows(found):
        cells = [_terminal_cell(e) for e in row.entries]
        table.add_row(row.utility, Text(row.method), *cells, end_section=row.method == last)
    return table


def _terminal_cell(entry: Entry) -> Text:
    from rich.text import Text

    text = Text(entry.value)
    if entry.interval is not None:
        text.append(f"\n{entry.interval}", style="dim")
    if entry.delta is not None:
        text.append(f"\n{entry.delta}", style="dim" if entry.direction == "undecided" else "bold")
    if entry.delta_interval is not None:
        text.append(f"\n{entry.delta_interval}", style="dim")
    return text


def markdown_decoding(found: Decoding) -> str:
    """Values and differences, two tables of the same shape, and what the projections reached."""
    values = [[f"{e.value} {e.interval or ''}".strip() for e in row.entries] for row in rows(found)]
    deltas = [[f"{e.delta} {e.delta_interval or ''}".strip() if e.delta else UNDEFINED for e in row.entries]
              for row in rows(found)]  # fmt: skip
    blocks = [f"# `{clean(found.title)}`", caption(found), _table(found, values)]
    if len(found.methods) > 1:
        blocks += [f"Δ from {reference_label(found)}:", _table(found, deltas, skip=reference_label(found))]
    blocks += projection_lines(found)
    return "\n\n".join(blocks) + "\n"


def _table(found: Decoding, cells: list[list[str]], skip: str | None = None) -> str:
    lines = [["utility", "method", *(metric.label for metric in found.metrics)]]
    lines.append(["---", "---", *("---:" for _ in found.metrics)])
    lines += [
        [row.utility, row.method, *texts] for row, texts in zip(rows(found), cells, strict=True) if row.method != skip
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def csv_decoding(found: Decoding) -> str:
    """One line for each utility, method and metric, in full precision; what is undefined is left out (RFC 4180)."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for c in found.cells:
        gap = [c.gap.estimate, c.gap.low, c.gap.high, c.gap.direction] if c.gap else [None] * 4
        writer.writerow([c.utility, c.method, c.metric, c.value, c.low, c.high, *gap])
    return out.getvalue()


def decoding_plot(found: Decoding) -> Figure:
    """A panel a metric: the value of every utility and method with its interval."""
    series = sorted(name for name in LIGHT if name.startswith("series"))
    looks = {
        method.key: Look(LIGHT["ink"], "o", "-", filled=True)
        if method.key == found.reference
        else Look(LIGHT[series[k % len(series)]], "s^DvPXp*h"[k % 9], "-", filled=True)
        for k, method in enumerate(found.methods)
    }
    places: list[tuple[str, str | None]] = [
        (u.key, key) for u in found.utilities for key in (None, *(m.key for m in found.methods))
    ]
    with drawing():
        height = 0.1 + _LINE * len(places)
        sheet = Sheet(len(found.metrics), height=height, left=1.25, right=0.12, legend=[])
        for axes, metric in zip(sheet.panels, found.metrics, strict=True):
            sheet.title(axes, metric.label)
            _panel(axes, found, metric.key, places, looks)
        return sheet.figure


def _panel(
    axes: Axes, found: Decoding, metric: str, places: list[tuple[str, str | None]], looks: dict[str, Look]
) -> None:
    plain_axes(axes, numbers="x")
    utilities = {u.key: u.label for u in found.utilities}
    methods = {m.key: m.label for m in found.methods}
    beside = axes.get_yaxis_transform()
    labels = {}
    for y, (utility, method) in enumerate(places):
        if method is None:
            axes.text(
                0.01, y, f"utility {utilities[utility]}", transform=beside, color=LIGHT["soft"], size=7, va="center"
            )
            continue
        labels[y] = methods[method]
        cell = found.cell(utility, method, metric)
        if cell is None:
            continue
        if cell.low is not None and cell.high is not None:
            axes.plot([cell.low, cell.high], [y, y], color=looks[method].color, linewidth=1.3, solid_capstyle="butt")
        looks[method].plot(axes, [cell.value], [y])
    axes.set_yticks(list(labels), labels=list(labels.values()))
    axes.set_ylim(len(places) - 0.4, -0.7)


def write_decoding(found: Decoding, folder: str | Path) -> list[Path]:
    """Write table.md, table.csv and decoding.png, all made before the first is written; their paths are returned.

    Raises RunError where the disk refuses a file.
    """
    files: dict[str, str | bytes] = {
        "table.md": markdown_decoding(found),
        "table.csv": csv_decoding(found),
        "decoding.png": to_png(decoding_plot(found)),
    }
    paths = [Path(folder) / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_whole(path, content)
    return paths
