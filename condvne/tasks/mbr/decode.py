"""The whole of minimum-Bayes-risk decoding: candidates, utilities, weights, choice, metrics.

Each stage leaves its result in the run folder before the next begins: `inputs.jsonl`, `candidates.jsonl` (input by
input), `utilities/` (a matrix an input and measure), `embeddings/`; then `weights.jsonl`, `selections.jsonl` and
`decoding.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from condvne.core.kernels import Kernel
from condvne.data.config import plain_settings
from condvne.data.config.mbr import MbrConfig, MeasureName, MetricName
from condvne.data.decoding import Decoding, DecodingCell, Utility
from condvne.data.embeddings import TextEncoder, load_encoder
from condvne.data.memo import MemoEncoder
from condvne.data.records import dump
from condvne.data.results import Side
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.text.candidates import CandidateSet, candidate_sets, check_logprobs, check_references
from condvne.data.text.quality import LABELS, check_packages
from condvne.data.versions import installed_versions
from condvne.evaluation import Embedder, Progress, kernel_of, resolved_device, side_of
from condvne.ranks import SINGLE
from condvne.tasks.mbr.candidates import candidate_records
from condvne.tasks.mbr.metrics import DESCRIPTIONS, Judge, Judged, Outputs
from condvne.tasks.mbr.selection import Selection, select
from condvne.tasks.mbr.utilities import Measured, measured
from condvne.tasks.mbr.weights import Embedded, Weighting, weightings


def decode(config: MbrConfig, folder: Path, *, progress: Progress) -> Decoding:
    """Run, or go on with, the decoding of a configuration in `folder`.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or disk or memory are full; what is
            finished stays, and the same command goes on from there.
    """
    check_packages({*config.utilities, *config.metrics})
    device = resolved_device(config.device)
    settings, versions = plain_settings(config), installed_versions()
    with run_folder(folder, settings, versions, SINGLE) as run:
        notes = list(run.notes)
        records = candidate_records(config, run.path, device, progress, notes)
        sets = candidate_sets(records, config.empty_candidates, config.few_candidates, notes)
        check_logprobs(sets, config.needs_logprobs, lengths="mbmbr_l" in config.needs_logprobs)
        check_references(sets, config.metrics)
        # Remembered, so that the cosine of candidates need not encode what was embedded for the kernels.
        encoder = cache(lambda: MemoEncoder(load_encoder(config.encoder, device)))
        embedded = _embedded(config, sets, encoder, device, run.path / "embeddings", progress, notes)
        found = measured(config, sets, encoder, device, run.path / "utilities", progress, notes)
        progress("weights", 0, 1)
        weighted = weightings(config, sets, embedded)
        progress("weights", 1, 1)
        chosen = _chosen(config, found, weighted, notes)
        cells = _cells(config, sets, found, weighted, chosen, embedded, progress)
        sides = _sides(config, embedded, encoder)
        result = _result(config, sets, weighted, cells, sides, settings, versions, notes)
        _write_choices(run.path, sets, weighted, chosen)
        write_whole(run.path / "decoding.json", result.model_dump_json(indent=2) + "\n")
        return result


def _result(
    config: MbrConfig,
    sets: Sequence[CandidateSet],
    weighted: Sequence[Weighting],
    cells: list[DecodingCell],
    sides: tuple[Side | None, Side | None],
    settings: dict[str, object],
    versions: dict[str, str],
    notes: list[str],
) -> Decoding:
    return Decoding(
        title=config.name,
        inputs=len(sets),
        candidates=_spread([sum(s.counts) for s in sets]),
        distinct_candidates=_spread([len(s.texts) for s in sets]),
        methods=[w.method for w in weighted],
        utilities=[Utility(key=u, label=LABELS[u]) for u in config.utilities],
        metrics=[DESCRIPTIONS[m] for m in config.metrics],
        reference=config.reference,
        resamples=config.resamples,
        confidence=config.confidence,
        cells=cells,
        projections=[w.facts for w in weighted if w.facts is not None],
        features=config.projection.features,
        condition=sides[0],
        output=sides[1],
        notes=notes,
        seed=config.seed,
        settings=settings,
        versions=versions,
    )


def _embedded(
    config: MbrConfig,
    sets: Sequence[CandidateSet],
    encoder: Callable[[], TextEncoder],
    device: torch.device,
    folder: Path,
    progress: Progress,
    notes: list[str],
) -> Embedded | None:
    """Embeddings of inputs and distinct candidates; None where neither a method nor a metric needs them.

    One bandwidth a side serves the projection, and the metric of every method.
    """
    if "cvs" not in config.methods and "conditional_vendi" not in config.metrics:
        return None

    embedder = Embedder(encoder(), folder, device, progress, notes, warnings=notes)
    x = embedder.vectors("inputs", [s.condition for s in sets], [s.id for s in sets])
    owners = [s.id for s in sets for _ in s.texts]
    y = embedder.vectors("candidates", [text for s in sets for text in s.texts], owners)
    kernels = config.kernels
    return Embedded(x, y, kernel_of(kernels.condition).fit_each(x), kernel_of(kernels.output).fit_each(y))


def _chosen(
    config: MbrConfig, found: Measured, weighted: Sequence[Weighting], notes: list[str]
) -> dict[tuple[MeasureName, str], Selection]:
    chosen = {}
    for utility in config.utilities:
        ties = []
        for w in weighted:
            selection = chosen[utility, w.method.key] = select(found.utilities[utility], w.weights)
            ties += [f"{w.method.label} {selection.ties}"] if selection.ties else []
        if ties:
            notes.append(
                f"{LABELS[utility]}: several candidates shared the highest expected utility, and the one drawn first "
                f"was taken; inputs in which that happened: {', '.join(ties)}"
            )
    return chosen


def _cells(
    config: MbrConfig,
    sets: Sequence[CandidateSet],
    found: Measured,
    weighted: Sequence[Weighting],
    chosen: dict[tuple[MeasureName, str], Selection],
    embedded: Embedded | None,
    progress: Progress,
) -> list[DecodingCell]:
    needs_kernels = "conditional_vendi" in config.metrics and embedded is not None
    judge = Judge(
        config.metrics,
        len(sets),
        config.resamples,
        config.seed,
        found.quality,
        embedded.kernel_x.gram(embedded.x.double()) if embedded is not None and needs_kernels else None,
        lambda y: _kernel_y(embedded).gram(y.double()),
    )
    cells, done = [], 0
    progress("metrics and resamples", 0, len(chosen))
    for utility in config.utilities:
        judged: dict[str, dict[MetricName, Judged]] = {}
        for w in weighted:
            outputs = _outputs(sets, chosen[utility, w.method.key], embedded)
            judged[w.method.key] = {m: judge.judged(m, outputs) for m in config.metrics}
            done += 1
            progress("metrics and resamples", done, len(chosen))
        cells += _cells_of(config, judge, utility, judged)
    return cells


def _kernel_y(embedded: Embedded | None) -> Kernel:
    assert embedded is not None
    return embedded.kernel_y


def _cells_of(
    config: MbrConfig, judge: Judge, utility: MeasureName, judged: dict[str, dict[MetricName, Judged]]
) -> list[DecodingCell]:
    cells = []
    base = judged[config.reference]
    for method, metrics in judged.items():
        for metric, found in metrics.items():
            if found.value is None:
                continue
            low, high = judge.bounds(metric, found, config.confidence)
            gap = None if method == config.reference else judge.gap(metric, found, base[metric], config.confidence)
            cells.append(
                DecodingCell(
                    utility=utility, method=method, metric=metric, value=found.value, low=low, high=high, gap=gap
                )
            )
    return cells


def _outputs(sets: Sequence[CandidateSet], selection: Selection, embedded: Embedded | None) -> Outputs:
    texts = [s.texts[place] for s, place in zip(sets, selection.chosen, strict=True)]
    if embedded is None:
        return Outputs(texts, selection.chosen, None)
    sizes = torch.tensor([len(s.texts) for s in sets])
    rows = sizes.cumsum(0) - sizes + torch.tensor(selection.chosen)
    return Outputs(texts, selection.chosen, embedded.y[rows.to(embedded.y.device)])


def _write_choices(
    folder: Path,
    sets: Sequence[CandidateSet],
    weighted: Sequence[Weighting],
    chosen: dict[tuple[MeasureName, str], Selection],
) -> None:
    """`weights.jsonl`: distinct candidates with every method's weights; `selections.jsonl`: what was chosen."""
    weights, selections = [], []
    for k, s in enumerate(sets):
        of_methods = {w.method.key: w.weights[k].tolist() for w in weighted}
        weights.append({"id": s.id, "outputs": s.texts, "counts": s.counts, "weights": of_methods})
        for (utility, method), selection in chosen.items():
            selections.append(
                {
                    "id": s.id,
                    "utility": utility,
                    "method": method,
                    "output": s.texts[selection.chosen[k]],
                    "expected_utility": selection.expected[k],
                }
            )
    write_whole(folder / "weights.jsonl", "".join(dump(record) + "\n" for record in weights))
    write_whole(folder / "selections.jsonl", "".join(dump(record) + "\n" for record in selections))


def _spread(counts: Sequence[int]) -> tuple[int, float, int]:
    return min(counts), sum(counts) / len(counts), max(counts)


def _sides(
    config: MbrConfig, embedded: Embedded | None, encoder: Callable[[], TextEncoder]
) -> tuple[Side | None, Side | None]:
    if embedded is None:
        return None, None

    kernels = config.kernels
    return (
        side_of(embedded.kernel_x, kernels.condition, "all inputs", encoder(), embedded.x),
        side_of(embedded.kernel_y, kernels.output, "all candidates", encoder(), embedded.y),
    )
