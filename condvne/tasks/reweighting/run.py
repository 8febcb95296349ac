"""New weights for candidates that were generated already (CEP-BEG; paper A, section 5 and appendix C).

The projection works on a sketch of the joint kernel of prompts and candidates; what it achieved is then scored with the
exact kernel, weights and all, beside the weights before and the reference outputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.groups import OutputGroup
from condvne.data.config import plain_settings
from condvne.data.config.reweight import ReweightConfig
from condvne.data.embeddings import load_encoder
from condvne.data.records import dump
from condvne.data.results import Cell, Scores
from condvne.data.reweighting import Probe, Reweighting
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.tables import OutputTable
from condvne.data.versions import installed_versions
from condvne.evaluation import (
    RKE,
    VENDI,
    Comparison,
    Embedded,
    Embedder,
    Heading,
    Progress,
    checked_sizes,
    evaluate_embedded,
    resolved_device,
    scored_cells,
    with_kernels,
)
from condvne.evaluation.drawing import drawn
from condvne.evaluation.probing import probes
from condvne.ranks import SINGLE
from condvne.tasks.reweighting.inputs import Candidates, embedded_candidates, read_candidates, rows_of
from condvne.tasks.reweighting.outcome import AFTER, BEFORE, compared, inequality, projected, told

NOT_EQUAL = (
    "the reference has one output a prompt and the candidates several: entropies grow with the number of outputs, so "
    "that as a target the reference's is somewhat too low"
)
DRAWN = (
    f"{BEFORE} and {AFTER} are one candidate a prompt here, drawn by the weights, as many as the reference has; the "
    "scores of all candidates with their weights are in reweighting.md"
)


def reweight_table(config: ReweightConfig, folder: Path, *, progress: Progress) -> tuple[Reweighting, Scores]:
    """Reweight the candidates of a file; `reweighted.jsonl` in `folder` holds its rows with `weights` beside them.

    `resampled.jsonl` is there where draws are asked for.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or the disk is full.
    """
    device = resolved_device(config.device)
    settings, versions = plain_settings(config), installed_versions()
    table = read_candidates(config)
    notes = list(table.notes)
    content = json.dumps([table.ids, table.conditions, table.groups[config.outputs]])
    inputs: dict[str, str | None] = {config.file: hashlib.sha256(content.encode()).hexdigest()}
    with run_folder(folder, settings, versions, SINGLE, inputs) as run:
        encoder = load_encoder(config.encoder, device)
        embedder = Embedder(encoder, run.path / "embeddings", device, progress, notes)
        candidates = embedded_candidates(config, table, embedder)
        embedded = _with_kernels(config, candidates, notes, embedder.warnings)
        progress("projecting", 0, 1)
        found, weights = projected(config, candidates, embedded, run.path)
        progress("projecting", 1, 1)
        notes.extend([*_alone(candidates), told(found)])
        if found.mapped:
            notes.append("the features were larger than memory_share of the free memory and were read from a file")
        if config.target == "reference":
            notes.append(NOT_EQUAL)
        if config.reference is not None:
            notes.append(DRAWN)
        comparison, weighted = compared(config, candidates, table.ids, table.conditions, weights, embedded)
        heading = Heading(Path(config.file).name, "reweight", config.seed, settings, versions, [*run.notes, *notes])
        scores = evaluate_embedded(
            comparison, heading, embedded, (encoder, encoder), config.kernels, config.evaluation, progress=progress
        )
        found = found.model_copy(
            update={
                "probes": _probed(config, table, candidates, weights),
                "cells": _weighted_cells(config, candidates, weights, weighted, embedded, scores, progress),
                "inequality": inequality(config, candidates, weights, embedded),
            }
        )
        _write_rows(config, table, candidates, weights, run.path)
        write_whole(run.path / "reweighting.json", found.model_dump_json(indent=2) + "\n")
        write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        return found, scores


def _alone(candidates: Candidates) -> list[str]:
    single = sum(len(set(texts)) == 1 for texts in candidates.texts)
    if not single:
        return []
    return [f"{single} of {len(candidates.texts)} prompts have one distinct candidate only: nothing can move there"]


def _with_kernels(config: ReweightConfig, candidates: Candidates, notes: list[str], warnings: list[str]) -> Embedded:
    groups = {BEFORE: OutputGroup(candidates.y, candidates.owners, candidates.prior)}
    if candidates.reference is not None:
        owners = torch.arange(len(candidates.x), device=candidates.x.device)
        groups[config.reference or ""] = OutputGroup(candidates.reference, owners)
    return with_kernels(candidates.x, groups, config.kernels, config.reference or BEFORE, notes, warnings)


def _weighted_cells(
    config: ReweightConfig,
    candidates: Candidates,
    weights: Tensor,
    weighted: Comparison,
    embedded: Embedded,
    scores: Scores,
    progress: Progress,
) -> list[Cell]:
    """Exact-kernel scores of all candidates with their weights; beside a reference at the largest size alone."""
    if config.reference is None:  # these are the scores already
        return [cell for cell in scores.cells if cell.metric in (VENDI, RKE)]
    groups = {
        name: OutputGroup(candidates.y, candidates.owners, w)
        for name, w in ((BEFORE, candidates.prior), (AFTER, weights))
    }
    largest = checked_sizes(config.evaluation, len(candidates.x))[-1]
    return scored_cells(
        weighted,
        replace(embedded, groups=groups),
        config.evaluation.model_copy(update={"sizes": [largest]}),
        config.seed,
        progress=progress,
        stage="scoring all candidates",
    )


def _probed(config: ReweightConfig, table: OutputTable, candidates: Candidates, weights: Tensor) -> list[Probe]:
    if config.probe is None:
        return []
    before, after = candidates.split(candidates.prior), candidates.split(weights)
    return probes(table.ids, table.conditions, candidates.texts, before, after, config.probe)


def _write_rows(
    config: ReweightConfig, table: OutputTable, candidates: Candidates, weights: Tensor, folder: Path
) -> None:
    """`reweighted.jsonl`, and `resampled.jsonl` where draws are asked for."""
    rows = [fields for _, fields in rows_of(config, table)]
    parts = candidates.split(weights)
    _write(folder / "reweighted.jsonl", [fields | {"weights": w} for fields, w in zip(rows, parts, strict=True)])
    if config.resample is not None:
        flat = candidates.flat
        places = drawn(weights, candidates.owners, table.ids, config.resample, config.seed).tolist()
        drawn_rows = [
            fields | {config.outputs: [flat[k] for k in found]} for fields, found in zip(rows, places, strict=True)
        ]
        _write(folder / "resampled.jsonl", drawn_rows)


def _write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    write_whole(path, "".join(dump(row) + "\n" for row in rows))
