"""A study's cells side by side: one table a metric, a row a cell; in the terminal, Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from condvne.data.listing import counted
from condvne.data.results import Scores
from condvne.data.storage import write_whole
from condvne.reports import formatting, latex
from condvne.reports.page import environment, sentence
from condvne.reports.palette import DARK, LIGHT, css_variables
from condvne.reports.tables import CSV_COLUMNS, Entry, csv_lines, entry, markdown_text
from condvne.reports.write import write_reports

if TYPE_CHECKING:
    from rich.table import Table

MARKS = "▼ below, ▲ above, · undecided"


@dataclass(frozen=True)
class StudyTable:
    """One metric: for each cell its largest n and an entry for each group."""

    key: str
    label: str
    groups: list[str]
    rows: list[tuple[str, int, list[Entry]]]


def study_tables(cells: Mapping[str, Scores]) -> list[StudyTable]:
    """A table for each metric, cells in the order given. All cells have the same groups and metrics."""
    first = next(iter(cells.values()))
    return [
        StudyTable(
            metric.key,
            metric.label,
            first.groups,
            [
                (name, scores.sizes[-1], [entry(scores.cell(g, metric.key, scores.sizes[-1])) for g in scores.groups])
                for name, scores in cells.items()
            ],
        )
        for metric in first.metrics
    ]


def study_caption(cells: Mapping[str, Scores]) -> str:
    """What the tables show."""
    first = next(iter(cells.values()))
    compared = f"; the mark is the difference from {formatting.clean(first.reference or '')}: {MARKS}"
    return (
        f"Each cell of the grid at its largest n, mean ± standard deviation over subsamples{compared}. Scores of "
        "different cells are measured by different bandwidths or encoders: compare groups within a row, not rows."
    )


def robust(cells: Mapping[str, Scores]) -> list[str]:
    """For each group and metric whether all cells agree on its direction, in one sentence each."""
    first = next(iter(cells.values()))
    sentences = []
    for metric in first.metrics:
        for group in first.groups:
            found = [s.cell(group, metric.key, s.sizes[-1]) for s in cells.values()]
            directions = [c.gap.direction for c in found if c and c.gap]
            if not directions:
                continue
            total = counted(len(directions), "cell")
            counts = {d: directions.count(d) for d in ("below", "above", "undecided") if d in directions}
            said = ", ".join(f"{d} in {k}" for d, k in counts.items())
            if len(counts) == 1:
                said = f"{directions[0]} in all {total}" if len(directions) > 1 else directions[0]
            against = f"against {formatting.clean(first.reference or '')}"
            sentences.append(f"{formatting.clean(group)} {against} by {formatting.clean(metric.label)}: {said}.")
    return sentences


def study_markdown(title: str, cells: Mapping[str, Scores]) -> str:
    """All tables as Markdown."""
    blocks = [f"# {markdown_text(title)}", markdown_text(study_caption(cells))]
    for table in study_tables(cells):
        heads = ["cell", "n", *map(markdown_text, table.groups)]
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
        lines += [[markdown_text(name), formatting.count(n), *(_marked(e) for e in row)] for name, n, row in table.rows]
        blocks += [f"## {markdown_text(table.label)}", "\n".join(f"| {' | '.join(cells_)} |" for cells_ in lines)]
    blocks.append("\n".join(f"* {markdown_text(text)}" for text in robust(cells)))
    return "\n\n".join(blocks) + "\n"


def study_csv(cells: Mapping[str, Scores]) -> str:
    """One line for each cell of the grid, group, metric and n, in full precision."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["cell", *CSV_COLUMNS])
    for name, scores in cells.items():
        writer.writerows([name, *line] for line in csv_lines(scores))
    return out.getvalue()


def study_latex(cells: Mapping[str, Scores]) -> str:
    """A `tabular` for each metric; needs the package booktabs."""
    blocks = []
    for table in study_tables(cells):
        heads = ["cell", "$n$", *map(latex.escaped, table.groups)]
        lines = [
            latex.line([latex.escaped(name), formatting.count(n), *map(latex.cell, row)]) for name, n, row in table.rows
        ]
        blocks.append(latex.tabular(heads, "lr", lines, f"{table.label}. {study_caption(cells)}"))
    return "\n".join(blocks)


def study_page(title: str, cells: Mapping[str, Scores]) -> str:
    """The study as one HTML file, with a link to each cell's own report."""
    templates = environment()
    return templates.get_template("study.html.jinja").render(
        title=title,
        caption=study_caption(cells),
        tables=study_tables(cells),
        agreement=robust(cells),
        cells=cells,
        warnings=[f"{name}: {text}" for name, scores in cells.items() for text in scores.warnings],
        style=Markup(templates.get_template("report.css").render()),
        light=Markup(css_variables(LIGHT)),
        dark=Markup(css_variables(DARK)),
        sentence=sentence,
    )


def terminal_study(title: str, cells: Mapping[str, Scores]) -> list[Table]:
    """One table a metric for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    for found in study_tables(cells):
        heading = Text(f"{formatting.clean(title)}: {formatting.clean(found.label)}", style="bold")
        table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left")
        table.add_column("cell", overflow="fold")
        table.add_column("n", justify="right")
        for group in found.groups:
            table.add_column(Text(formatting.clean(group)), justify="right")
        for name, n, row in found.rows:
            table.add_row(Text(name), formatting.count(n), *(Text(_marked(e)) for e in row))
        tables.append(table)
    return tables


def write_study(title: str, cells: Mapping[str, Scores], folder: str | Path) -> list[Path]:
    """Write table.md, table.csv, table.tex and report.html of the study, and the reports of every cell in its folder.

    Raises RunError where the disk refuses a file.
    """
    for name, scores in cells.items():
        write_reports(scores, Path(folder) / "cells" / name)
    files = {
        "table.md": study_markdown(title, cells),
        "table.csv": study_csv(cells),
        "table.tex": study_latex(cells),
        "report.html": study_page(title, cells),
    }
    paths = [Path(folder) / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_whole(path, content)
    return paths


def _marked(entry: Entry) -> str:
    return f"{entry.score} {entry.mark}" if entry.mark else entry.score
