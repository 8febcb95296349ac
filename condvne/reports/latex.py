"""Tables as LaTeX (booktabs): the scores of a run, and those of a study's cells."""

from __future__ import annotations

from collections.abc import Sequence

from condvne.data.results import Scores
from condvne.reports.formatting import clean, count
from condvne.reports.tables import Entry, caption, rows

MARKS = {"below": r"$\downarrow$", "above": r"$\uparrow$", "undecided": r"$\cdot$"}
_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "\N{NO-BREAK SPACE}": "~",
    "\N{EN DASH}": "--",
    "▼": MARKS["below"],
    "▲": MARKS["above"],
    "·": MARKS["undecided"],
}


def latex(scores: Scores) -> str:
    """A `tabular` of every n, group and metric, with the direction of each difference; needs the package booktabs."""
    heads = ["$n$", "group", *(escaped(m.label) for m in scores.metrics)]
    lines: list[str] = []
    for row in rows(scores):
        if row.group == scores.groups[0] and lines:
            lines.append(r"\midrule")
        lines.append(line([count(row.n), escaped(row.group), *(cell(e) for e in row.entries)]))
    return tabular(heads, "rl", lines, caption(scores))


def cell(entry: Entry) -> str:
    """The score of an entry, with the mark of its direction."""
    return escaped(entry.score) + (f" {MARKS[entry.direction]}" if entry.direction else "")


def tabular(heads: Sequence[str], labels: str, lines: Sequence[str], said: str) -> str:
    """A booktabs table: `labels` are the columns before the numbers; what it shows stands above as a comment."""
    columns = labels + "r" * (len(heads) - len(labels))
    return "\n".join(
        [
            f"% {clean(said)}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(heads),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Text without a meaning in LaTeX."""
    return "".join(_SPECIAL.get(c, c) for c in clean(text))


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return " & ".join(cells) + r" \\"
