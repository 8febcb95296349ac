"""`condvne axioms`: which axioms of diversity each score breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from condvne.core.axioms import Finding

SENTENCES = {
    "distances": "items moved apart are not less diverse",
    "new item": "one more item, away from all others, does not lower the score",
    "twin": "one more copy of an item leaves the score as it is",
    "continuity": "a vanishing change of distances changes the score by a vanishing amount",
}


def axioms(
    trials: Annotated[int, typer.Option(min=10, help="Random changes that each search tries.")] = 300,
    examples: Annotated[bool, typer.Option(help="Show the first violation of each score.")] = False,
) -> None:
    """Search small sets for violations of the four axioms, for one score of each kind (paper B, table 1).

    A violation is a proof; where none was found, the number of changes tried is shown.
    """
    from rich import box
    from rich.table import Table

    from condvne.core.axioms import AXIOMS, axiom_table

    found = axiom_table(trials=trials)
    table = Table(title="Axioms of diversity", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("score")
    for axiom in AXIOMS:
        table.add_column(axiom, justify="right")
    for score, findings in found.items():
        table.add_row(score, *(cell(findings[axiom]) for axiom in AXIOMS))
    console = Console()
    console.print(table)
    for axiom in AXIOMS:
        console.print(f"{axiom}: {SENTENCES[axiom]}.", markup=False)
    kept = [score for score, findings in found.items() if not any(f.violation for f in findings.values())]
    told = f"No violation was found for {', '.join(kept)}." if kept else "Every score breaks at least one of them."
    console.print(told, markup=False)
    if examples:
        for score, findings in found.items():
            for axiom in AXIOMS:
                show(console, score, findings[axiom])


def cell(found: Finding) -> str:
    """A finding in a word: broken, kept in so many trials, or no meaning for the score."""
    if found.violation is not None:
        return "broken"
    return f"kept in {found.tried}" if found.tried else "–"


def show(console: Console, score: str, found: Finding) -> None:
    """A violation with its distances."""
    violation = found.violation
    if violation is None:
        return
    told = f"{violation.score_before:.6g} before, {violation.score_after:.6g} after"
    console.print(f"\n{score}, {found.axiom}: {told}", markup=False)
    for D in (violation.before, violation.after):
        rows = ["  ".join(f"{float(value):.4f}" for value in row) for row in D]
        console.print("\n".join(f"  {row}" for row in rows) + "\n", markup=False)
