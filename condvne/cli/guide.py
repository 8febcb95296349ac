"""`condvne guide`: images of a pipeline with and without conditional-VNE guidance, scored."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from condvne.cli.display import display, hide_loading_bars, present
from condvne.data.config import plain_settings
from condvne.data.config.guide import GuideConfig, load_guide_config
from condvne.evaluation import Progress, kernel_of, resolved_device
from condvne.ranks import SINGLE

if TYPE_CHECKING:
    from condvne.integrations.diffusers import ConditionalVNEGuidance
    from condvne.tasks.guidance.generating import Order
    from condvne.tasks.guidance.quality import Quality


def guide(
    config: Annotated[Path, typer.Argument(help="A YAML configuration, e.g. configs/tiny-sdxl.yaml.")],
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Make images with and without guidance from the same seeds, and compare their conditional diversity and quality.

    Run again with the same configuration and folder, it goes on where it stopped.
    """
    settings = load_guide_config(config)
    folder = folder or Path("runs") / settings.name
    from condvne.data.images.prompts import read_prompts
    from condvne.data.runfolders import run_folder
    from condvne.data.storage import write_whole
    from condvne.data.versions import installed_versions
    from condvne.tasks.guidance.generating import orders
    from condvne.tasks.guidance.measuring import image_qualities, scored_images
    from condvne.tasks.images import measure_images

    hide_loading_bars()
    captions = read_prompts(settings.captions)
    wanted = orders(captions, settings.images_per_caption, settings.seed)
    with run_folder(folder, plain_settings(settings), installed_versions(), SINGLE) as run, display(SINGLE) as report:
        images = run.path / "images"
        _generate(settings, wanted, images, report)
        scores, sheet = measure_images(scored_images(settings, images), run.path / "scores", progress=report)
        found = image_qualities(settings, images, run.path / "scores" / "embeddings", report)
        write_whole(run.path / "quality.json", json.dumps({n: asdict(q) for n, q in found.items()}, indent=2) + "\n")
        _write_grid(settings, wanted, images, run.path / "grid.png")
    present(scores, run.path / "scores", sheet)
    _present_quality(found)
    typer.echo(f"Images side by side: {run.path / 'grid.png'}")


def _generate(settings: GuideConfig, wanted: list[Order], images: Path, report: Progress) -> None:
    """Both groups; a pipeline is loaded only where images are missing."""
    from condvne.data.storage import write_whole
    from condvne.integrations.diffusers.sampling import PipelineSampler, load_pipeline
    from condvne.tasks.guidance.generating import GUIDED, UNGUIDED, make_images

    last = images / wanted[-1].file
    if all(_lines(images / f"{name}.jsonl") == len(wanted) for name in (UNGUIDED, GUIDED)):
        return
    last.parent.mkdir(parents=True, exist_ok=True)
    chosen, device = settings.pipeline, resolved_device(settings.device)
    pipe = load_pipeline(chosen.path, chosen.dtype, device, chosen.revision, chosen.variant)
    drawing = settings.sampling.model_dump(exclude={"batch", "steps"}) | {
        "num_inference_steps": settings.sampling.steps
    }
    guiding = guide_of(settings, pipe)
    for name, guide in ((UNGUIDED, None), (GUIDED, guiding)):
        make_images(
            name,
            wanted,
            images,
            PipelineSampler(pipe, drawing, guide, watch=settings.guidance.watch),
            batch=settings.sampling.batch,
            save_every=settings.save_every,
            guide=guide,
            progress=lambda done, total, name=name: report(f"{name} images", done, total),  # type: ignore[misc]
        )
    seconds = [record.seconds for record in guiding.records if record.skipped is None]
    told = {
        "steps": dict(guiding.counts),
        "seconds_a_step": median(seconds) if seconds else None,
        "sources": sorted({record.source for record in guiding.records if record.source}),
        "latent_entropy": guiding.entropy(),
    }
    write_whole(images.parent / "guidance.json", json.dumps(told, indent=2) + "\n")


def guide_of(settings: GuideConfig, pipe: Any) -> ConditionalVNEGuidance:
    """The guide that a configuration names. Raises InputError where options do not go together."""
    from condvne.integrations.diffusers import ConditionalVNEGuidance, HistorySettings
    from condvne.integrations.diffusers.sampling import takes_new_callbacks

    chosen = settings.history
    kept = HistorySettings(
        route=chosen.route,
        kernel_x=None if chosen.caption == type(chosen.caption)() else kernel_of(chosen.caption),
        kernel_y=kernel_of(chosen.latent),
        num_features=chosen.num_features,
        fit_after=chosen.fit_after,
        capacity=chosen.capacity,
        seed=settings.seed,
    )
    options = settings.guidance.model_dump(exclude={"watch"})
    return ConditionalVNEGuidance(pipe if takes_new_callbacks(pipe) else None, history=kept, **options)


def _write_grid(settings: GuideConfig, wanted: list[Order], images: Path, path: Path) -> None:
    from condvne.reports.grid import write_grid

    files: dict[str, list[str]] = {}
    for order in wanted:
        files.setdefault(order.caption, []).append(order.file)
    shown = list(files.items())[: max(1, settings.grid.conditions)]
    names = ("unguided", "guided")
    rows = {c: [[images / name / f for f in held[: settings.grid.images]] for name in names] for c, held in shown}
    write_grid(path, rows, names, settings.grid.thumbnail)


def _present_quality(found: dict[str, Quality]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not found:
        return
    table = Table("Group", "Images", "Precision", "Recall", "Agrees with caption", title="Quality against real images")
    for name, quality in found.items():
        agreement = "–" if quality.agreement is None else f"{quality.agreement:.1%}"
        table.add_row(name, f"{quality.images:,}", f"{quality.precision:.1%}", f"{quality.recall:.1%}", agreement)
    Console().print(table)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
