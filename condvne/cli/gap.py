"""`condvne gap`: a language model against the text it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from condvne.cli.display import display, hide_loading_bars, present
from condvne.data.config import GapConfig, load_gap_config
from condvne.ranks import joined


def gap(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/quickstart.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name in place of the configuration's.", show_default=False)
    ] = None,
    gguf: Annotated[
        str | None, typer.Option(help="A .gguf file within the model's folder.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done and what it costs.")] = False,
) -> None:
    """Measure a language model against the text it was trained on, under the same prefixes.

    Run again with the same configuration and folder, it goes on where it stopped.
    """
    if dry_run:
        settings = _settings(config, model, gguf)
        _show_plan(settings, folder or Path("runs") / settings.name)
        return
    with joined() as ranks:
        settings = _settings(config, model, gguf)
        folder = folder or Path("runs") / settings.name
        from condvne.tasks.gap import measure_gap

        hide_loading_bars()
        with display(ranks) as report:
            scores = measure_gap(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            present(scores, folder)


def _settings(config: Path, model: str | None, gguf: str | None) -> GapConfig:
    settings = load_gap_config(config)
    if model is None and gguf is None:
        return settings
    changed = settings.model.model_copy(update={"path": model or settings.model.path, "gguf": gguf})
    return settings.model_copy(update={"model": changed})


def _show_plan(settings: GapConfig, folder: Path) -> None:
    from condvne.tasks.plan import gap_plan

    plan = gap_plan(settings, folder)
    console = Console()
    for label, text in plan.lines:
        console.print(f"{label + ':':<12} {text}", markup=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("n", "route", "subsamples", "minutes, about", "memory, about"):
        table.add_column(heading, justify="left" if heading == "route" else "right")
    for cost in plan.costs:
        figures = (str(cost.subsamples), f"{cost.seconds / 60:.2g}", f"{cost.gigabytes:.2g} GB")
        table.add_row(f"{cost.n:,}", cost.route, *figures)
    console.print(table)
    console.print(f"Scoring takes about {plan.scoring_seconds / 60:.2g} minutes here.", markup=False)
