"""The scores as a table: in the terminal, in Markdown, in CSV, and as the rows that the page shows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from condvne.data.listing import counted
from condvne.data.results import Cell, Scores
from condvne.reports.findings import compared, confidence
from condvne.reports.formatting import MARKS, UNDEFINED, clean, count, difference, listed, percent, spread
from condvne.reports.populations import population_caption, population_rows

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

CSV_COLUMNS = (
    "group", "metric", "n", "mean", "std", "repeats", "gap", "gap_low", "gap_high", "direction", "numerical_error",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One cell as text; what is None is not shown."""

    score: str  # "41.72 ± 0.31", or "–" where undefined
    direction: str | None = None  # below, above, undecided
    mark: str | None = None  # ▼ ▲ ·
    delta: str | None = None  # "−18.6"
    interval: str | None = None  # "[−19.4, −17.8]"


@dataclass(frozen=True)
class Row:
    """One group at one n; `entries` in the order of the metrics."""

    n: int
    group: str
    entries: list[Entry]


def rows(scores: Scores) -> Iterator[Row]:
    """Every n, every group, in display order."""
    for n in scores.sizes:
        for group in scores.groups:
            yield Row(n, group, [entry(scores.cell(group, m.key, n)) for m in scores.metrics])


def entry(cell: Cell | None) -> Entry:
    """A cell as text."""
    if cell is None:
        return Entry(UNDEFINED)
    score = spread(cell.mean, cell.std)
    if cell.gap is None:
        return Entry(score)
    delta, ends = difference(cell.gap)
    interval = f"[{ends[0]}, {ends[1]}]" if ends else None
    return Entry(score, cell.gap.direction, MARKS[cell.gap.direction], delta, interval)


def caption(scores: Scores) -> str:
    """What the numbers of the table are, in one or two sentences."""
    drawn = f"{counted(scores.repeats, 'subsample')} of n conditions"
    text = f"Mean ± standard deviation over {drawn}." if scores.repeats > 1 else f"Scores of {drawn}."
    if scores.repeats > 1 and 2 * scores.sizes[-1] > scores.available > 1:
        text += f" Above n = {count(scores.available // 2)} the deviation is that of subsamples of half the pool."
    if compared(scores):
        within = f" with its {confidence(scores)} interval" if scores.repeats > 1 else ""
        text += f" Δ is the difference from {clean(scores.reference or '')} at the same n{within}:"
        text += f" {MARKS['below']} below, {MARKS['above']} above, {MARKS['undecided']} undecided."
    return text + _numerical_caption(scores)


def _numerical_caption(scores: Scores) -> str:
    """Which sizes were estimated from products with the kernel matrix, and how far off they may be."""
    estimated = [cell for cell in scores.cells if cell.numerical_error > 0]
    if not estimated:
        return ""
    sizes = listed([count(n) for n in sorted({cell.n for cell in estimated})])
    worst = max(cell.numerical_error / cell.mean for cell in estimated)
    within = percent(_two_digits(worst))
    return f" At n = {sizes} entropies are matrix-free estimates: exact scores lie within {within} of them."


def _two_digits(share: float) -> float:
    return float(f"{share:.1e}")


def terminal_table(scores: Scores) -> Table:
    """One block of rows for each n, one column for each metric; differences stand under their score."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(clean(scores.title), style="bold"),
        caption=Text(caption(scores), style="dim"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1),
    )
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("group", overflow="fold")
    for metric in scores.metrics:
        table.add_column(Text(clean(metric.label)), justify="right")
    for row in rows(scores):
        last = row.group == scores.groups[-1]
        cells = [_terminal_cell(e) for e in row.entries]
        table.add_row(count(row.n), Text(clean(row.group)), *cells, end_section=last)
    return table


def terminal_populations(scores: Scores) -> Table | None:
    """Scores at infinite n, a line for each metric and group; None where there are none."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not scores.populations:
        return None
    table = Table(
        title=Text("At infinite n", style="bold"),
        caption=Text(population_caption(scores), style="dim"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1),
    )
    for head in ("score", "group"):
        table.add_column(head, overflow="fold")
    for head in ("at n", "at infinite n", *(["Δ"] if compared(scores) else []), *(["p"] if scores.swap_tests else [])):
        table.add_column(head, justify="right")
    for row in population_rows(scores):
        texts = [Text(clean(row.metric)), Text(clean(row.group)), Text(row.plug_in), Text(row.estimate)]
        texts[-1].append(f"\n{row.interval}", style="dim")
        if compared(scores):
            delta = Text(f"{row.mark} {row.delta}" if row.delta else "")
            delta.append(f"\n{row.delta_interval}" if row.delta_interval else "", style="dim")
            texts.append(delta)
        if scores.swap_tests:
            texts.append(Text(row.p_value or ""))
        table.add_row(*texts)
    return table


def _terminal_cell(entry: Entry) -> Text:
    from rich.text import Text

    text = Text(entry.score)
    if entry.delta is not None:
        style = "dim" if entry.direction == "undecided" else "bold"
        text.append(f"\n{entry.mark} {entry.delta}", style=style)
    if entry.interval is not None:
        text.append(f"\n{entry.interval}", style="dim")
    return text


def markdown(scores: Scores) -> str:
    """The scores and, where there is a reference, the differences from it: two tables of the same shape."""
    blocks = [f"# {markdown_text(scores.title)}"]
    blocks += [f"**Read with care.** {markdown_text(text)}" for text in scores.warnings]
    blocks.append(markdown_text(caption(scores)))
    blocks.append(_markdown_table(scores, [[e.score for e in row.entries] for row in rows(scores)]))
    if compared(scores):
        differences = [[_markdown_difference(e) for e in row.entries] for row in rows(scores)]
        blocks.append(f"Δ from {markdown_text(scores.reference or '')}:")
        blocks.append(_markdown_table(scores, differences, skip=scores.reference))
    if scores.populations:
        blocks += [markdown_text(population_caption(scores)), _markdown_populations(scores)]
    return "\n\n".join(blocks) + "\n"


def _markdown_populations(scores: Scores) -> str:
    heads = ["score", "group", "at n", "at infinite n", "Δ", "p"]
    lines = [heads, ["---", "---", "---:", "---:", "---:", "---:"]]
    for row in population_rows(scores):
        delta = f"{row.mark} {row.delta} {row.delta_interval}" if row.delta else UNDEFINED
        texts = [row.plug_in, f"{row.estimate} {row.interval}", delta, row.p_value or UNDEFINED]
        lines.append([markdown_text(row.metric), markdown_text(row.group), *texts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_difference(entry: Entry) -> str:
    if entry.delta is None:
        return UNDEFINED
    return f"{entry.mark} {entry.delta}" + (f" {entry.interval}" if entry.interval else "")


def _markdown_table(scores: Scores, cells: list[list[str]], skip: str | None = None) -> str:
    heads = ["n", "group", *(markdown_text(m.label) for m in scores.metrics)]
    lines = [heads, ["---:", "---", *("---:" for _ in scores.metrics)]]
    for row, texts in zip(rows(scores), cells, strict=True):
        if row.group != skip:
            lines.append([count(row.n), markdown_text(row.group), *texts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_text(text: str) -> str:
    """Text without a meaning in Markdown or HTML."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#~$" else c for c in text)


def csv_text(scores: Scores) -> str:
    """One line for each group, metric and n, in full precision; an undefined score has empty fields (RFC 4180)."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    writer.writerows(csv_lines(scores))
    return out.getvalue()


def csv_lines(scores: Scores) -> Iterator[list[object]]:
    """The values of the CSV columns, for each n, group and metric."""
    for n in scores.sizes:
        for group in scores.groups:
            for metric in scores.metrics:
                yield [group, metric.key, n, *_csv_values(scores.cell(group, metric.key, n))]


def _csv_values(cell: Cell | None) -> list[object]:
    """mean, std, repeats, gap, gap_low, gap_high, direction, numerical_error; None is written as an empty field."""
    if cell is None:
        return [None] * 8
    gap = cell.gap
    differences = [gap.estimate, gap.low, gap.high, gap.direction] if gap else [None] * 4
    return [cell.mean, cell.std, len(cell.values), *differences, cell.numerical_error]
