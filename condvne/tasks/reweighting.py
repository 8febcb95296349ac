"""New weights for candidates that were generated already (CEP-BEG; paper A, section 5 and appendix C).

The projection works on a sketch of the joint kernel of prompts and candidates; what it achieved is then scored with the
exact kernel, weights and all, beside the weights before and the reference outputs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from condvne.core.groups import OutputGroup
from condvne.data.config import plain_settings
from condvne.data.config.reweight import ReweightConfig
from condvne.data.embeddings import load_encoder
from condvne.data.records import dump
from condvne.data.results import Reweighting, Scores
from condvne.data.rows import read_rows
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.tables import OutputTable, read_table
from condvne.data.text.lexical import DistinctCounter, text_ngrams
from condvne.data.versions import installed_versions
from condvne.errors import DataError
from condvne.evaluation import (
    Comparison,
    Embedded,
    Embedder,
    Heading,
    Progress,
    evaluate_embedded,
    resolved_device,
    with_kernels,
)
from condvne.evaluation.projecting import Aim, PairFeatures
from condvne.ranks import SINGLE

BEFORE, AFTER = "before", "after"
NOT_EQUAL = (
    "the reference has one output a prompt and the candidates several: entropies grow with the number of outputs, so "
    "that as a target the reference's is somewhat too low"
)
SUM = 1e-6  # that a prior's weights may be off from one


@dataclass(frozen=True)
class _Candidates:
    """All candidates in one row.

    Attributes:
        x: features of the prompts, (N, dx).
        y: of the candidates, (M, dy).
        owners: (M,), each candidate's prompt, ascending.
        prior: (M,), weights before, one in sum for each prompt.
        references: the reference outputs' texts, one a prompt, or None.
        reference: their features, (N, dy).
    """

    x: Tensor
    y: Tensor
    owners: Tensor
    prior: Tensor
    references: list[str] | None
    reference: Tensor | None


def reweight_table(config: ReweightConfig, folder: Path, *, progress: Progress) -> tuple[Reweighting, Scores]:
    """Reweight the candidates of a file; `reweighted.jsonl` in `folder` holds its rows with `weights` beside them.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or the disk is full.
    """
    device = resolved_device(config.device)
    settings, versions = plain_settings(config), installed_versions()
    table = _table(config, [config.outputs])
    notes = list(table.notes)
    content = json.dumps([table.ids, table.conditions, table.groups[config.outputs]])
    inputs: dict[str, str | None] = {config.file: hashlib.sha256(content.encode()).hexdigest()}
    with run_folder(folder, settings, versions, SINGLE, inputs) as run:
        encoder = load_encoder(config.encoder, device)
        embedder = Embedder(encoder, run.path / "embeddings", device, progress, notes)
        candidates = _embedded(config, table, embedder)
        groups = {BEFORE: OutputGroup(candidates.y, candidates.owners, candidates.prior)}
        if candidates.reference is not None:
            owners = torch.arange(len(candidates.x), device=device)
            groups[config.reference or ""] = OutputGroup(candidates.reference, owners)
        embedded = with_kernels(
            candidates.x, groups, config.kernels, config.reference or BEFORE, notes, embedder.warnings
        )
        progress("projecting", 0, 1)
        found, weights = _projected(config, candidates, embedded)
        progress("projecting", 1, 1)
        embedded.groups[AFTER] = OutputGroup(candidates.y, candidates.owners, weights)
        notes.append(_told(found))
        if config.target == "reference":
            notes.append(NOT_EQUAL)
        comparison = _comparison(config, table, candidates, embedded.groups)
        heading = Heading(Path(config.file).name, "reweight", config.seed, settings, versions, [*run.notes, *notes])
        scores = evaluate_embedded(
            comparison, heading, embedded, (encoder, encoder), config.kernels, config.evaluation, progress=progress
        )
        _write_rows(config, table, candidates.owners, weights, run.path)
        write_whole(run.path / "reweighting.json", found.model_dump_json(indent=2) + "\n")
        write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        return found, scores


def _table(config: ReweightConfig, outputs: Sequence[str]) -> OutputTable:
    empty = config.evaluation.empty_texts
    return read_table(config.file, condition=config.condition, outputs=outputs, empty=empty)


def _embedded(config: ReweightConfig, table: OutputTable, embedder: Embedder) -> _Candidates:
    lists = table.groups[config.outputs]
    owners = [i for i, texts in enumerate(lists) for _ in texts]
    references = None if config.reference is None else _references(config, table, config.reference)
    flat = [text for texts in lists for text in texts]
    return _Candidates(
        x=embedder.vectors("conditions", table.conditions, table.ids),
        y=embedder.vectors("candidates", flat, [table.ids[i] for i in owners]),
        owners=torch.tensor(owners, device=embedder.device),
        prior=_prior(config, table).to(embedder.device),
        references=references,
        reference=None if references is None else embedder.vectors("reference", references, table.ids),
    )


def _references(config: ReweightConfig, table: OutputTable, field: str) -> list[str]:
    """One reference output a prompt. Raises DataError naming the row that has none, or several."""
    other = _table(config, [field])
    lists = dict(zip(other.ids, other.groups[field], strict=True))
    odd = [name for name in table.ids if len(lists.get(name, ())) != 1]
    if odd:
        raise DataError(f"{config.file}: {odd[0]} has {len(lists.get(odd[0], ()))} outputs in {field!r}; give it one.")
    return [lists[name][0] for name in table.ids]


def _prior(config: ReweightConfig, table: OutputTable) -> Tensor:
    """Weights before, (M,) float64. Raises DataError naming the row whose weights do not fit its candidates."""
    lists = table.groups[config.outputs]
    if config.prior is None:
        return torch.cat([torch.full((len(texts),), 1 / len(texts), dtype=torch.float64) for texts in lists])
    rows = _rows_of(config, table)
    found = []
    for texts, (where, fields) in zip(lists, rows, strict=True):
        given = fields.get(config.prior)
        numbers = isinstance(given, list) and all(isinstance(w, int | float) and w >= 0 for w in given)
        if not isinstance(given, list) or not numbers or len(given) != len(texts):
            raise DataError(
                f"{where}: field {config.prior!r} must hold {len(texts)} weights, none negative, one a candidate."
            )
        if abs(sum(given) - 1) > SUM:
            raise DataError(f"{where}: the weights in {config.prior!r} sum to {sum(given):.6g} instead of 1.")
        found.append(torch.tensor(given, dtype=torch.float64))
    return torch.cat(found)


def _rows_of(config: ReweightConfig, table: OutputTable) -> list[tuple[str, dict[str, Any]]]:
    """The file's rows that the table kept, in its order: "file:line" and fields."""
    by_id = {}
    for row in read_rows(config.file):
        name = str(row.fields["id"]) if "id" in row.fields and config.condition != "id" else row.place
        by_id[name] = (row.where, row.fields)
    return [by_id[name] for name in table.ids]


def _projected(config: ReweightConfig, candidates: _Candidates, embedded: Embedded) -> tuple[Reweighting, Tensor]:
    prior = candidates.prior
    features = PairFeatures(
        candidates.x,
        candidates.y,
        candidates.owners,
        (embedded.kernel_x, embedded.kernel_y),
        num_features=config.num_features,
        seed=config.seed,
    )
    target = config.target
    if target == "reference":
        assert candidates.reference is not None  # the configuration asks for the field
        target = features.conditional_entropy(candidates.reference)
    found = features.projected(prior, Aim(config.lam, target, config.tolerance, config.max_iterations))
    weights = found.weights.double()
    unbounded = math.isinf(found.lam)
    scale = math.log(len(weights)) * (1.0 if unbounded else found.lam)
    summary = Reweighting(
        lam=None if unbounded else found.lam,
        target=target,
        reached=found.reached,
        largest=None if found.largest_entropy is None else found.largest_entropy - features.of_conditions,
        before=found.entropy_before - features.of_conditions,
        after=found.entropy - features.of_conditions,
        certificate=found.certificate,
        relative_certificate=found.certificate / scale if scale > 0 else 0.0,
        iterations=found.iterations,
        converged=found.converged,
        distance=found.distance,
        divergence=float(torch.special.xlogy(weights, weights / prior).nan_to_num(0.0).sum()) / len(candidates.x),
        candidates_before=features.effective_candidates(prior),
        candidates_after=features.effective_candidates(weights),
        num_features=config.num_features,
    )
    return summary, weights


def _told(found: Reweighting) -> str:
    """How the search ended, in one sentence."""
    if found.target is None:
        end = "converged" if found.converged else "stopped before the certificate was as small as asked"
        return f"projection at λ = {found.lam or 0:g} {end} after {found.iterations} iterations"
    if found.target <= found.before:
        return f"the target of {found.target:.4g} nats is not above the {found.before:.4g} there are: weights unchanged"
    if not found.reached:
        largest = found.after if found.largest is None else found.largest
        return f"the target of {found.target:.4g} nats is out of reach: the largest is {largest:.4g}"
    return f"the target of {found.target:.4g} nats was reached at λ = {found.lam or 0:.4g}"


def _comparison(
    config: ReweightConfig, table: OutputTable, candidates: _Candidates, groups: dict[str, OutputGroup]
) -> Comparison:
    """Candidates under both weights. Beside a reference of one output a prompt, one candidate a prompt is drawn from
    each, which replaces `groups`, since scores grow with the number of outputs; Distinct-n is always of these draws."""
    lists = table.groups[config.outputs]
    flat = [text for texts in lists for text in texts]
    outputs: dict[str, list[list[str]]] = dict.fromkeys((BEFORE, AFTER), lists)
    drawn: dict[str, list[list[str]]] = {}
    for name in (BEFORE, AFTER):
        weights = groups[name].weights
        assert weights is not None  # both groups were made with weights
        places = _drawn(lists, weights, config.seed)
        drawn[name] = [[flat[k]] for k in places.tolist()]
        if candidates.references is not None:
            owners = torch.arange(len(lists), device=candidates.y.device)
            groups[name] = OutputGroup(candidates.y[places.to(candidates.y.device)], owners)
            outputs[name] = drawn[name]
    if candidates.references is not None:
        outputs[config.reference or ""] = drawn[config.reference or ""] = [[text] for text in candidates.references]
    unit = config.evaluation.distinct.unit
    assert unit != "tokens"  # the configuration refuses it
    return Comparison(
        ids=table.ids,
        conditions=table.conditions,
        outputs=outputs,
        distinct={
            n: {name: DistinctCounter(text_ngrams(texts, n, unit)) for name, texts in drawn.items()}
            for n in config.evaluation.distinct.orders
        },
        distinct_unit=unit,
        reference=config.reference or BEFORE,
    )


def _drawn(lists: Sequence[Sequence[str]], weights: Tensor, seed: int) -> Tensor:
    """The place of one candidate a prompt among all, (N,), drawn by the weights; the same uniform numbers for any."""
    uniforms = torch.rand(len(lists), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    parts = weights.cpu().split([len(texts) for texts in lists])  # type: ignore[no-untyped-call]
    chosen, start = [], 0
    for part, u in zip(parts, uniforms, strict=True):
        place = int(torch.searchsorted(part.cumsum(0), u * part.sum(), right=True))
        chosen.append(start + min(place, len(part) - 1))
        start += len(part)
    return torch.tensor(chosen)


def _write_rows(config: ReweightConfig, table: OutputTable, owners: Tensor, weights: Tensor, folder: Path) -> None:
    counts = torch.bincount(owners, minlength=len(table.ids)).tolist()
    parts = weights.cpu().split(counts)  # type: ignore[no-untyped-call]
    rows = _rows_of(config, table)
    lines = [dump(fields | {"weights": part.tolist()}) for (_, fields), part in zip(rows, parts, strict=True)]
    write_whole(folder / "reweighted.jsonl", "".join(line + "\n" for line in lines))
