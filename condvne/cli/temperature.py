"""`condvne temperature`: temperature scaling beside the training text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from condvne.cli.display import display, hide_loading_bars
from condvne.data.config.temperature import load_temperature_config
from condvne.ranks import SINGLE


def temperature(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/quickstart-temperature.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Sample at several temperatures, find the one that is as diverse as the text, and say what it costs.

    Diversity, precision and recall of support, and likelihood under an independent model. Run again, it goes on.
    """
    settings = load_temperature_config(config)
    folder = folder or Path("runs") / settings.name
    from condvne.reports.temperature import temperature_caption, terminal_temperature, write_temperature
    from condvne.reports.write import write_reports
    from condvne.tasks.temperature import measure_temperatures

    hide_loading_bars()
    with display(SINGLE) as report:
        study, scores = measure_temperatures(settings, folder, progress=report)
    write_reports(scores, folder)
    write_temperature(study, folder)
    console = Console()
    console.print(terminal_temperature(study))
    console.print(temperature_caption(study), markup=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False)
