"""`condvne mbr`: one output for each input, chosen from its candidates by minimum Bayes risk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from condvne.cli.display import display, hide_loading_bars
from condvne.data.config.mbr import load_mbr_config
from condvne.ranks import SINGLE


def mbr(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/mbr-xsum-bart.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Choose one output for each input by minimum Bayes risk, and compare ways to weigh the candidates.

    Candidates are drawn from a model or read from a file. Run again, it goes on where it stopped.
    """
    settings = load_mbr_config(config)
    folder = folder or Path("runs") / settings.name
    from condvne.tasks.mbr import decode

    hide_loading_bars()
    with display(SINGLE) as report:
        found = decode(settings, folder, progress=report)
    from condvne.reports.decoding import projection_lines, terminal_decoding, write_decoding
    from condvne.reports.formatting import clean

    write_decoding(found, folder)
    console = Console()
    console.print(terminal_decoding(found))
    for sentence in [*projection_lines(found), *found.notes]:
        console.print(clean(sentence), markup=False)
    console.print(f"Choices: {folder / 'selections.jsonl'}, tables: {folder / 'table.md'}", markup=False)
