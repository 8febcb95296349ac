"""A temperature study's table: diversity, support and likelihood of every group beside the training text."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.listing import counted
from condvne.data.results import TemperatureReweighting, TemperatureRow, TemperatureStudy
from condvne.data.storage import write_whole
from condvne.reports.formatting import MARKS, UNDEFINED, clean, count, difference, number, signed, spread
from condvne.reports.tables import markdown_text

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("group", "Cond. VNE", "Δ from the text", "precision", "recall", "NLL a token")


def temperature_rows(study: TemperatureStudy) -> list[list[str]]:
    """One row a group, as text, in the order of HEADS."""
    return [
        [
            clean(row.group) + (" (matched)" if row.matched else ""),
            number(row.conditional_vendi),
            _delta(row),
            _with_error(row.precision, row.precision_error),
            _with_error(row.recall, row.recall_error),
            _with_error(row.nll, row.nll_error),
        ]
        for row in study.rows
    ]


def temperature_caption(study: TemperatureStudy) -> str:
    """What the table shows, and how the search ended."""
    text = (
        f"At n = {count(study.n)}. Precision: share of a group's outputs within the training outputs' balls to their "
        f"{counted(study.neighbours, 'nearest neighbour')}; recall: the other way round; ± binomial standard errors."
    )
    if study.judge is not None:
        text += f" NLL: nats a token under {clean(study.judge)} given the prefix, ± standard error over conditions."
    if study.reweighting is not None:
        text += f" {reweighting_sentence(study.reweighting)}"
    match = study.match
    if match is None:
        return text
    away = f"{signed(match.difference)} nats from the training text's conditional entropy"
    if match.reached:
        return f"{text} The search ended at temperature {number(match.temperature)}, {away}."
    if match.bracket is None:
        return f"{text} No temperature searched brackets it: the nearest is {number(match.temperature)}, {away}."
    low, high = match.bracket
    return (
        f"{text} The search stopped after {counted(match.generations, 'generation')} between temperatures "
        f"{number(low)} and {number(high)}; the nearest is {number(match.temperature)}, {away}."
    )


def reweighting_sentence(found: TemperatureReweighting) -> str:
    """What the row of reweighted candidates is, and how near it came."""
    drawn = (
        f"Reweighted: one of {counted(found.candidates, 'candidate')} a prefix at temperature "
        f"{number(found.temperature)}, drawn by its weight"
    )
    if found.above:
        return f"{drawn}; equal draws are {signed(found.before)} nats above the text already, so the weights were left."
    if found.lam == 0:
        return f"{drawn}; equal draws are within {signed(found.before)} nats of the text, so the weights were left."
    way = (
        "" if found.share == 1 else f" and {number(100 * found.share, 3)} % of the way there, since any λ goes too far,"
    )
    near = "" if found.reached else ", the nearest there is"
    return (
        f"{drawn}; λ = {number(found.lam)}{way} moves the draws from {signed(found.before)} to "
        f"{signed(found.difference)} nats from the text{near}, with {number(found.effective_candidates)} effective "
        f"candidates a prefix (projection certified within {found.certificate:.1e} λ log M)."
    )


def temperature_markdown(study: TemperatureStudy) -> str:
    """The table as Markdown."""
    lines = [list(HEADS), ["---", *["---:"] * (len(HEADS) - 1)]]
    lines += [[markdown_text(text) for text in row] for row in temperature_rows(study)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# {markdown_text(study.title)}\n\n{table}\n\n{markdown_text(temperature_caption(study))}\n"


def temperature_csv(study: TemperatureStudy) -> str:
    """One line a group, in full precision."""
    columns = [name for name in TemperatureRow.model_fields if name != "gap"]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([*columns, "gap", "gap_low", "gap_high"])
    for row in study.rows:
        gap = [row.gap.estimate, row.gap.low, row.gap.high] if row.gap else [None] * 3
        writer.writerow([*(getattr(row, name) for name in columns), *gap])
    return out.getvalue()


def terminal_temperature(study: TemperatureStudy) -> Table:
    """The table for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(clean(study.title), style="bold"), box=box.SIMPLE_HEAD, title_justify="left")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "group" else "right", overflow="fold")
    for row in temperature_rows(study):
        table.add_row(*map(Text, row))
    return table


def write_temperature(study: TemperatureStudy, folder: str | Path) -> None:
    """Write temperature.md and temperature.csv. Raises RunError where the disk refuses a file."""
    write_whole(Path(folder) / "temperature.md", temperature_markdown(study))
    write_whole(Path(folder) / "temperature.csv", temperature_csv(study))


def _delta(row: TemperatureRow) -> str:
    if row.gap is None:
        return UNDEFINED
    delta, ends = difference(row.gap)
    return f"{MARKS[row.gap.direction]} {delta}" + (f" [{ends[0]}, {ends[1]}]" if ends else "")


def _with_error(value: float | None, error: float | None) -> str:
    return UNDEFINED if value is None else spread(value, error)
