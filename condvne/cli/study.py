"""`condvne study`: a gap over a grid of lengths, chunks, encoders and kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from condvne.cli.display import display, hide_loading_bars
from condvne.data.config.study import load_study_config
from condvne.ranks import joined


def study(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/quickstart-study.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Measure a gap over a grid of prefix and continuation lengths, chunks, encoders and kernels.

    Cells share pairs, continuations and embeddings. Run again, it goes on with the cells that are not finished.
    """
    with joined() as ranks:
        settings = load_study_config(config)
        folder = folder or Path("runs") / settings.name
        from condvne.tasks.study import run_study

        hide_loading_bars()
        with display(ranks) as report:
            cells = run_study(settings, folder, progress=report, ranks=ranks)
        if not ranks.main:
            return
        from condvne.reports.study import robust, terminal_study, write_study

        found = {cell.name: scores for cell, scores in cells.items()}
        write_study(settings.name, found, folder)
        console = Console()
        for table in terminal_study(settings.name, found):
            console.print(table)
        for sentence in robust(found):
            console.print(sentence, markup=False)
        console.print(f"Report: {folder / 'report.html'}", markup=False)
