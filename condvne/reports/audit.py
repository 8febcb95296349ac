"""An audit's tables: mentions, distinct terms and their effective number, and the largest shifts from the reference."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.results import Audit, GroupAudit, LexiconAudit
from condvne.data.storage import write_whole
from condvne.reports.formatting import MARKS, UNDEFINED, clean, count, difference, percent, signed, spread
from condvne.reports.tables import markdown_text

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("group", "mentions", "distinct terms", "effective terms (2^H)", "Δ", "largest shifts of shares")
COLUMNS = (
    "lexicon", "terms", "group", "mentions", "distinct", "effective", "standard_error", "gap", "gap_low", "gap_high",
)  # fmt: skip
SHIFTS_IN_A_ROW = 3


def audit_rows(found: LexiconAudit) -> list[list[str]]:
    """One row a group, as text, in the order of HEADS."""
    return [
        [
            clean(g.group),
            count(g.mentions),
            count(g.distinct),
            UNDEFINED if g.effective is None else spread(g.effective, g.standard_error),
            _delta(g),
            _shifts(g),
        ]
        for g in found.groups
    ]


def _delta(found: GroupAudit) -> str:
    if found.gap is None:
        return UNDEFINED
    delta, ends = difference(found.gap)
    return f"{MARKS[found.gap.direction]} {delta}" + (f" [{ends[0]}, {ends[1]}]" if ends else "")


def _shifts(found: GroupAudit) -> str:
    shown = found.shifts[:SHIFTS_IN_A_ROW]
    return ", ".join(f"{clean(s.term)} {signed(100 * (s.share - s.reference_share))} %" for s in shown) or UNDEFINED


def audit_caption(found: Audit) -> str:
    """What the tables show."""
    text = (
        f"Mentions of the lexicon's terms in the outputs of {count(found.conditions)} conditions; the effective number "
        "of terms is 2 to the entropy of their shares in bits, ± its bootstrap standard error over conditions."
    )
    if found.reference is not None:
        text += f" Δ is its paired difference from {clean(found.reference)} with a {percent(0.95)} interval."
    return text


def audit_markdown(found: Audit) -> str:
    """A table for each lexicon, then the shifts of every group."""
    blocks = [f"# {markdown_text(found.title)}", markdown_text(audit_caption(found))]
    for lexicon in found.audits:
        lines = [list(HEADS), ["---", "---:", "---:", "---:", "---:", "---"]]
        lines += [[markdown_text(text) for text in row] for row in audit_rows(lexicon)]
        blocks.append(f"## {markdown_text(lexicon.lexicon)} ({count(lexicon.terms)} terms)")
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        blocks += [_shift_list(g, found.reference or "") for g in lexicon.groups if g.shifts]
    return "\n\n".join(blocks) + "\n"


def _shift_list(found: GroupAudit, reference: str) -> str:
    lines = [f"{markdown_text(found.group)}, share of mentions (share in {markdown_text(reference)}):", ""]
    lines += [
        f"* {markdown_text(s.term)}: {100 * s.share:.1f} % ({100 * s.reference_share:.1f} %)" for s in found.shifts
    ]
    return "\n".join(lines)


def audit_csv(found: Audit) -> str:
    """One line for each lexicon and group, in full precision."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for lexicon in found.audits:
        for g in lexicon.groups:
            gap = [g.gap.estimate, g.gap.low, g.gap.high] if g.gap else [None] * 3
            head = [lexicon.lexicon, lexicon.terms, g.group, g.mentions, g.distinct]
            writer.writerow([*head, g.effective, g.standard_error, *gap])
    return out.getvalue()


def terminal_audit(found: Audit) -> list[Table]:
    """A table for each lexicon."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    for lexicon in found.audits:
        title = Text(f"{clean(lexicon.lexicon)} ({count(lexicon.terms)} terms)", style="bold")
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for k, head in enumerate(HEADS):
            table.add_column(head, justify="left" if k in (0, 5) else "right", overflow="fold")
        for row in audit_rows(lexicon):
            table.add_row(*map(Text, row))
        tables.append(table)
    return tables


def write_audit(found: Audit, folder: str | Path) -> None:
    """Write audit.json, audit.md and audit.csv. Raises RunError where the disk refuses a file."""
    write_whole(Path(folder) / "audit.json", found.model_dump_json(indent=2) + "\n")
    write_whole(Path(folder) / "audit.md", audit_markdown(found))
    write_whole(Path(folder) / "audit.csv", audit_csv(found))
