"""`condvne gap`: a language model against the text it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from condvne.cli.display import display, hide_loading_bars, present
from condvne.data.config import load_gap_config
from condvne.ranks import joined


def gap(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/quickstart.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Measure a language model against the text it was trained on, under the same prefixes.

    Run again with the same configuration and folder, it goes on where it stopped.
    """
    with joined() as ranks:
        settings = load_gap_config(config)
        folder = folder or Path("runs") / settings.name
        from condvne.tasks.gap import measure_gap

        hide_loading_bars()
        with display(ranks) as report:
            scores = measure_gap(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            present(scores, folder)
