"""`condvne audit`: which terms of a lexicon the groups mention, and how evenly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from condvne.errors import ConfigError


def audit(
    source: Annotated[Path, typer.Argument(help="Folder of a `condvne gap` run, or a table as `condvne score` reads.")],
    lexicon: Annotated[
        list[str], typer.Option(help="countries, sports, occupations, or a file of one term a line.")
    ] = ["countries", "sports", "occupations"],  # noqa: B006 (typer copies it)
    condition: Annotated[
        str | None, typer.Option(help="Of a table: field of the condition.", show_default=False)
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="Of a table: fields of the outputs, a group each.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Of a table in long form: field that names the group.", show_default=False)
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Of a table: group that the others are compared with.", show_default=False)
    ] = None,
    matched: Annotated[bool, typer.Option(help="Keep only the conditions that all groups have.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where to write; default the run, or runs/audit-FILE.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
) -> None:
    """Count the terms of lexicons in every group's outputs: distinct ones, their effective number, largest shifts."""
    from condvne.data.text.lexicons import load_lexicon
    from condvne.reports.audit import audit_caption, terminal_audit, write_audit
    from condvne.tasks.audit import audit as audited
    from condvne.tasks.audit import run_source, table_source

    lexicons = [load_lexicon(given) for given in lexicon]
    if source.is_dir():
        texts = run_source(source)
        folder = folder or source
    elif condition is None or not outputs:
        raise ConfigError(f"{source}: a table needs --condition and --outputs; only the folder of a run needs neither.")
    else:
        texts = table_source(source, condition, outputs, group, reference, matched)
        folder = folder or Path("runs") / f"audit-{source.name.split('.')[0]}"
    found = audited(texts, lexicons, seed)
    write_audit(found, folder)
    console = Console()
    for table in terminal_audit(found):
        console.print(table)
    console.print(audit_caption(found), markup=False)
    console.print(f"Written: {folder / 'audit.md'}", markup=False)
