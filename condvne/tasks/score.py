"""Outputs that the user already has, in a JSONL or CSV file: embeddings and scores."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from condvne.data.config import ScoreConfig, plain_settings
from condvne.data.embeddings import load_encoder
from condvne.data.results import Scores
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.tables import OutputTable, read_table
from condvne.data.text.lexical import DistinctCounter, text_ngrams
from condvne.data.versions import installed_versions
from condvne.errors import ConfigError, DataError
from condvne.evaluation import Comparison, Heading, Progress, evaluate, resolved_device
from condvne.ranks import SINGLE, Ranks


def score_table(config: ScoreConfig, folder: Path, *, progress: Progress, ranks: Ranks = SINGLE) -> Scores:
    """Score the groups of a table file; the scores are also written to `scores.json` in `folder`.

    Several ranks read the same file and share embedding and scoring; only the first knows the folder.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or the disk is full.
    """
    device = resolved_device(config.device, ranks.local)
    settings, versions = plain_settings(config), installed_versions()
    ranks.agree({"settings": settings, "versions": versions}, "settings")
    progress("reading the file", 0, 1)
    table = read_table(
        config.file,
        condition=config.condition,
        outputs=config.outputs,
        group=config.group,
        matched=config.matched,
        outputs_per_condition=config.outputs_per_condition,
        empty=config.evaluation.empty_texts,
        seed=config.seed,
    )
    progress("reading the file", 1, 1)
    if config.reference is not None and config.reference not in table.groups:
        raise ConfigError(f"reference {config.reference!r} is none of the groups, {', '.join(table.groups)}.")
    content = _content(table)
    ranks.agree({"sha256": content}, "contents of the file")
    comparison = _comparison(config, table)
    with run_folder(folder, settings, versions, ranks, {config.file: content}) as run:
        scores = evaluate(
            comparison,
            Heading(Path(config.file).name, "score", config.seed, settings, versions, [*run.notes, *table.notes]),
            encoder=load_encoder(config.encoder, device),
            kernels=config.kernels,
            settings=config.evaluation,
            cache=run.path / "embeddings",
            device=device,
            progress=progress,
            ranks=ranks,
        )
        if ranks.main:
            write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        return scores


def _content(table: OutputTable) -> str:
    """A hash of what was read from the file."""
    whole = json.dumps([table.ids, table.conditions, {name: table.groups[name] for name in table.groups}])
    return hashlib.sha256(whole.encode()).hexdigest()


def _comparison(config: ScoreConfig, table: OutputTable) -> Comparison:
    distinct = config.evaluation.distinct
    if distinct.unit == "tokens":
        raise DataError("a table holds no token ids; choose words or characters for Distinct-n.")
    unit = distinct.unit
    return Comparison(
        ids=table.ids,
        conditions=table.conditions,
        outputs=table.groups,
        distinct={
            n: {g: DistinctCounter(text_ngrams(lists, n, unit)) for g, lists in table.groups.items()}
            for n in distinct.orders
        },
        distinct_unit=unit,
        reference=config.reference,
    )
