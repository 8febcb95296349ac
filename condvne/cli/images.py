"""`condvne images`: generated images against real ones under the same classes or captions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from condvne.cli.display import display, hide_loading_bars, present
from condvne.data.config.images import ImagesConfig, load_images_config
from condvne.ranks import joined


def images(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/digits-images.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is there and what would be scored; load no model.")
    ] = False,
) -> None:
    """Compare groups of images under the same classes or captions.

    Run again with the same configuration and folder, it goes on where it stopped.
    """
    settings = load_images_config(config)
    folder = folder or Path("runs") / settings.name
    if dry_run:
        _present_plan(settings, folder)
        return
    from condvne.tasks.images import measure_images

    with joined() as ranks:
        hide_loading_bars()
        with display(ranks) as report:
            scores, sheet = measure_images(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            present(scores, folder, sheet)


def _present_plan(settings: ImagesConfig, folder: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from condvne.tasks.images import plan_images

    plan = plan_images(settings)
    table = Table("Group", "Layout", "Path", "Images", "Conditions", title=f"{settings.name}: what is there")
    for group in plan.groups:
        counts = [f"{n:,}" if n is not None else "–" for n in (group.images, group.conditions)]
        name = group.name + (" (reference)" if group.name == settings.reference else "")
        table.add_row(escape(name), group.layout, escape(group.path), *counts)
    console = Console()
    console.print(table)
    for group in plan.groups:
        if group.missing:
            console.print(f"{group.name}: not there: {', '.join(group.missing)}", markup=False)
        if group.fault:
            console.print(f"{group.name}: {group.fault}", markup=False)
    for note in plan.notes:
        console.print(note, markup=False)
    encoder, condition = settings.encoder, settings.condition_encoder
    paths = [getattr(chosen, "path", None) for chosen in (encoder, condition)]
    named = [
        f"{chosen.kind} {path}" if path else chosen.kind
        for chosen, path in zip((encoder, condition), paths, strict=True)
    ]
    console.print(f"Images by {named[0]}, conditions by {named[1]}.", markup=False)
    sizes = ", ".join(f"{n:,}" for n in settings.evaluation.sizes) or "a quarter, a half and all of the pairs"
    pairs = f"{plan.pairs:,} pairs a group" if plan.pairs is not None else "pairs not known yet"
    console.print(f"n = {sizes}; {settings.evaluation.repeats} subsamples each; {pairs}.", markup=False)
    console.print(f"Results would go to {folder}.", markup=False)
