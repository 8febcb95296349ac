"""A profile study's tables: scores without a parameter, and every comparison; in the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.curves import CurveComparison, FamilyCurves, Parameter, ProfileStudy
from condvne.data.listing import counted
from condvne.data.storage import write_whole
from condvne.reports.formatting import UNDEFINED, clean, count, listed, number, percent
from condvne.reports.profile_page import Tables, profile_page
from condvne.reports.profile_plots import curves_plot, histogram_plot
from condvne.reports.svg import to_png
from condvne.reports.tables import markdown_text

if TYPE_CHECKING:
    from rich.table import Table

SINGLE_HEADS = ("set", "items", "distinct", "average distance", "relative contrast of distances")
PAIR_HEADS = ("pair", "scores", "verdict", "crossings", "first above", "so in half-samples")
ALONE = "One set alone: there is nothing to compare."
CSV_COLUMNS = ("family", "parameter", "value_of_parameter", "set", "value", "ceiling", "lower", "upper")


def shown(parameter: Parameter) -> str:
    """A parameter as text."""
    return "∞" if parameter == "inf" else number(float(parameter), 3)


def single_rows(study: ProfileStudy) -> list[list[str]]:
    """One row a set, as text, in the order of SINGLE_HEADS."""
    contrasts = {h.group: h.relative_contrast for h in study.histograms}
    rows = []
    for single in study.singles:
        contrast = contrasts[single.group]
        told = UNDEFINED if contrast is None else number(contrast)
        rows.append(
            [clean(single.group), count(single.n), count(round(single.richness)), number(single.average_distance), told]
        )
    return rows


def pair_rows(study: ProfileStudy) -> list[list[str]]:
    """One row for each pair of sets and family, as text, in the order of PAIR_HEADS."""
    return [_pair_row(family, comparison) for family in study.families for comparison in family.comparisons]


def _pair_row(family: FamilyCurves, found: CurveComparison) -> list[str]:
    first, second = clean(found.first), clean(found.second)
    verdicts = {
        "above": f"{first} above",
        "below": f"{second} above",
        "equal": "equal",
        "crosses": "cross",
        "undecided": "undecided",
    }
    at = [f"{family.symbol} = {shown(c.at)}" for c in found.crossings]
    more = f" and {len(at) - 3} more" if len(at) > 3 else ""
    return [
        f"{first}, {second}",
        family.title,
        verdicts[found.verdict],
        ", ".join(at[:3]) + more or UNDEFINED,
        _share(found.above),
        UNDEFINED if found.confidence is None else _share(found.confidence),
    ]


def matrix_rows(study: ProfileStudy) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of who is above whom: the families in which the row's set is above the column's, where decided."""
    names = [single.group for single in study.singles]
    heads = ["set", *(f"above {clean(name)}" for name in names)]
    return heads, [[clean(a), *(_won(study, a, b) for b in names)] for a in names]


def _won(study: ProfileStudy, a: str, b: str) -> str:
    """In which families a is above b in enough of the half-samples."""
    won = [f.title for f in study.families for c in f.comparisons if _decided(study, c, a, b)]
    if len(won) == len(study.families) > 1:
        return f"all {len(won)}"
    return ", ".join(won) or UNDEFINED


def _decided(study: ProfileStudy, found: CurveComparison, a: str, b: str) -> bool:
    verdict = {(found.first, found.second): "above", (found.second, found.first): "below"}.get((a, b))
    sure = found.confidence is not None and found.confidence >= study.confidence
    return sure and found.verdict == verdict


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def profile_caption(study: ProfileStudy) -> str:
    """What the tables show."""
    text = f"Items are compared by {clean(study.representation)}."
    if len(study.singles) > 1:
        text += (
            " A set is above another where its curve is nowhere below on the whole grid of parameters; “first above” "
            "is the share of the grid on which the first set is above."
        )
    if study.resamples:
        text += (
            f" Bands are the relative spread of {percent(study.confidence)} of "
            f"{counted(study.resamples, 'half-sample')}, laid around the curve of all items."
        )
        if len(study.singles) > 1:
            text += " The last column is the share of pairs of half-samples with the same verdict (of a crossing: any)."
        if len(study.singles) > 2:
            text += (
                " The first table names the scores that put the row’s set above the column’s in at least "
                f"{percent(study.confidence)} of half-samples."
            )
    bracketed = [f.title for f in study.families if any(c.values != c.ceilings for c in f.curves)]
    if bracketed:
        text += f" {listed(bracketed)} is known between bounds at some parameters."
    return text


def profile_markdown(study: ProfileStudy) -> str:
    """The findings and both tables as Markdown."""
    blocks = [f"# {markdown_text(study.title)}"]
    if len(study.singles) > 2:
        heads, rows = matrix_rows(study)
        blocks.append(_markdown_table(heads, rows, len(heads)))
    blocks += [markdown_text(text) for text in study.sentences or [ALONE]]
    blocks += [f"Read with care: {markdown_text(text)}" for text in study.warnings]
    blocks.append(_markdown_table(SINGLE_HEADS, single_rows(study), 1))
    if len(study.singles) > 1:
        blocks.append(_markdown_table(PAIR_HEADS, pair_rows(study), 4))
    blocks.append(markdown_text(profile_caption(study)))
    blocks += [f"* {markdown_text(note)}" for note in study.notes]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(heads: Sequence[str], rows: list[list[str]], texts: int) -> str:
    lines = [[markdown_text(head) for head in heads], ["---"] * texts + ["---:"] * (len(heads) - texts)]
    lines += [[markdown_text(text) for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def profile_csv(study: ProfileStudy) -> str:
    """One line for each family, parameter and set, in full precision."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for family in study.families:
        for curve in family.curves:
            nothing = [None] * len(curve.values)
            columns = (family.grid, curve.values, curve.ceilings, curve.lower or nothing, curve.upper or nothing)
            for at, value, ceiling, lower, upper in zip(*columns, strict=True):
                writer.writerow([family.key, family.symbol, at, curve.group, value, ceiling, lower, upper])
    return out.getvalue()


def terminal_profiles(study: ProfileStudy) -> list[Table]:
    """The tables for the terminal: of three sets and more, who is above whom comes first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    shapes: list[tuple[Sequence[str], list[list[str]], int]] = [(SINGLE_HEADS, single_rows(study), 1)]
    if len(study.singles) > 2:
        matrix_heads, won = matrix_rows(study)
        shapes.insert(0, (matrix_heads, won, len(matrix_heads)))
    if len(study.singles) > 1:
        shapes.append((PAIR_HEADS, pair_rows(study), 4))
    for heads, rows, texts in shapes:
        table = Table(title=Text(clean(study.title), style="bold"), box=box.SIMPLE_HEAD, title_justify="left")
        for k, head in enumerate(heads):
            table.add_column(head, justify="left" if k < texts else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        tables.append(table)
    return tables


def write_profiles(study: ProfileStudy, folder: str | Path) -> None:
    """Write profile.md, profile.csv, profile.png, distances.png and report.html. Raises RunError as `write_whole`."""
    folder = Path(folder)
    write_whole(folder / "profile.md", profile_markdown(study))
    write_whole(folder / "profile.csv", profile_csv(study))
    write_whole(folder / "profile.png", to_png(curves_plot(study)))
    write_whole(folder / "distances.png", to_png(histogram_plot(study)))
    tables = Tables(
        matrix_rows(study) if len(study.singles) > 2 else None,
        single_rows(study),
        pair_rows(study),
        profile_caption(study),
        ALONE,
    )
    write_whole(folder / "report.html", profile_page(study, tables))
