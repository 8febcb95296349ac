"""The command line: one verb a task, a module a verb."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Literal

import typer

from condvne.cli import audit, axioms, gap, guide, images, mbr, profile, reweight, score, study, temperature
from condvne.cli.options import ManyValues
from condvne.errors import CondvneError
from condvne.ranks import rank_label

app = typer.Typer(
    help="Conditional diversity of generative models: measure it against the data a model was trained on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _program(verbose: Annotated[bool, typer.Option(help="Show what the libraries log.")] = False) -> None:
    if not verbose:
        # Their progress bars and advice would tear the display; faults come as exceptions all the same.
        for library in ("sentence_transformers", "datasets", "httpx", "huggingface_hub"):
            logging.getLogger(library).setLevel(logging.ERROR)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # it sets its loggers' level when it is imported
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


app.command()(gap.gap)
app.command()(guide.guide)
app.command(cls=ManyValues)(images.images)
app.command()(mbr.mbr)
app.command(cls=ManyValues)(score.score)
app.command(cls=ManyValues)(reweight.reweight)
app.command()(study.study)
app.command()(temperature.temperature)
app.command(cls=ManyValues)(audit.audit)
app.command(cls=ManyValues)(profile.profile)
app.command()(axioms.axioms)


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
