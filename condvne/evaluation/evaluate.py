"""From a comparison to its scores: the order in which things are done, and the result that reports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.inference import CurvePoint, PairedGap, curves
from condvne.core.kernels import Kernel
from condvne.data.config import Evaluation, KernelChoice, Kernels
from condvne.data.embeddings import TextEncoder
from condvne.data.results import Cell, Gap, Metric, Scores, Side
from condvne.errors import ConfigError, InputError
from condvne.evaluation.comparison import RKE, VENDI, Comparison, Heading, Progress
from condvne.evaluation.features import Embedded, embedded_comparison
from condvne.evaluation.robustness import robustness_maps
from condvne.evaluation.scoring import Scorer
from condvne.evaluation.significance import interval, population_scores, swap_tests
from condvne.ranks import SINGLE, Ranks


def evaluate(
    comparison: Comparison,
    heading: Heading,
    *,
    encoder: TextEncoder,
    kernels: Kernels,
    settings: Evaluation,
    cache: Path,
    device: torch.device,
    progress: Progress,
    ranks: Ranks = SINGLE,
) -> Scores:
    """Embed the texts of both sides, score and judge; several ranks share the embedding and the subsamples.

    Raises:
        InputError: a requested size exceeds the conditions, or the reference gives no bandwidth.
        DataError: a text is empty or its embedding is not finite (ids named).
    """
    checked_sizes(settings, len(comparison.conditions))
    notes: list[str] = []
    embedded = embedded_comparison(comparison, encoder, kernels, cache, device, progress, notes, ranks)
    heading = replace(heading, notes=[*heading.notes, *notes])
    encoders = (encoder, encoder)
    return evaluate_embedded(comparison, heading, embedded, encoders, kernels, settings, progress=progress, ranks=ranks)


def evaluate_embedded(
    comparison: Comparison,
    heading: Heading,
    embedded: Embedded,
    encoders: tuple[TextEncoder, TextEncoder],
    kernels: Kernels,
    settings: Evaluation,
    *,
    progress: Progress,
    ranks: Ranks = SINGLE,
) -> Scores:
    """Score and judge a comparison whose features are there, whatever its outputs are.

    Args:
        encoders: what gave the features of conditions and outputs, named in the result.

    Raises InputError when a requested size exceeds the conditions.
    """
    available = len(comparison.conditions)
    sizes = checked_sizes(settings, available)
    notes: list[str] = []
    cells = scored_cells(comparison, embedded, settings, heading.seed, progress=progress, ranks=ranks)
    if not ranks.main:  # what is left is done by rank 0
        return Scores.model_validate_json(ranks.broadcast())
    outputs = next(iter(embedded.groups.values())).features
    scores = Scores(
        title=heading.title,
        task=heading.task,
        reference=comparison.reference,
        groups=comparison.groups,
        metrics=_metrics(comparison),
        sizes=sizes,
        repeats=settings.repeats,
        available=available,
        outputs_per_condition=max(len(texts) for texts in next(iter(comparison.outputs.values()))),
        cells=cells,
        populations=population_scores(comparison, embedded, settings, heading.seed, progress, notes),
        swap_tests=swap_tests(comparison, embedded, settings, heading.seed, progress),
        robustness=robustness_maps(comparison, embedded, settings, heading.seed, progress),
        condition=side_of(embedded.kernel_x, kernels.condition, "all conditions", encoders[0], embedded.x),
        output=side_of(embedded.kernel_y, kernels.output, embedded.output_fitted_on, encoders[1], outputs),
        warnings=embedded.warnings,
        notes=[*heading.notes, *notes, *_size_notes(sizes, available, settings.repeats), *_rank_notes(ranks)],
        seed=heading.seed,
        settings=heading.settings,
        versions=heading.versions,
    )
    ranks.broadcast(scores.model_dump_json())
    return scores


def scored_cells(
    comparison: Comparison,
    embedded: Embedded,
    settings: Evaluation,
    seed: int,
    *,
    progress: Progress,
    stage: str = "scoring",
    ranks: Ranks = SINGLE,
) -> list[Cell]:
    """The scores of every group at every size, with paired intervals; `stage` is what `progress` calls the work.

    Raises InputError when a requested size exceeds the conditions.
    """
    available = len(comparison.conditions)
    scorer = Scorer(comparison, embedded, settings, seed, ranks)
    points = curves(
        scorer,
        available=available,
        sizes=checked_sizes(settings, available),
        repeats=settings.repeats,
        seed=seed,
        reference=comparison.reference,
        confidence=settings.confidence,
        progress=lambda done, total: progress(stage, done, total),
        ranks=ranks,
        together=scorer.together,
    )
    return [_cell(point, settings.confidence, scorer.errors) for point in points]


def checked_sizes(settings: Evaluation, available: int) -> list[int]:
    """Sample sizes, ascending; by default a few fractions of what is there. Raises InputError for a larger one."""
    sizes = sorted(set(settings.sizes)) or default_sizes(available)
    too_large = [n for n in sizes if n > available]
    if too_large:
        raise InputError(f"size {too_large[0]} exceeds the {available} conditions there are; choose smaller sizes.")
    return sizes


def resolved_device(device: str, local: int = 0) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU; without an index, the `local`-th process has its own GPU.

    Raises ConfigError for a device that is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", local % torch.cuda.device_count())
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0].partition(". ")[0].rstrip(".")
        reason = "torch knows no such device" if first.startswith(("Expected one of", "Invalid device")) else first
        raise ConfigError(f"device: {device!r} cannot be used here ({reason}); use auto, cpu or cuda.") from error
    return chosen


def default_sizes(available: int) -> list[int]:
    """A quarter, a half and all of the conditions; fewer where they would be tiny."""
    return sorted({n for n in (available // 4, available // 2, available) if n >= min(50, available)})


def _cell(point: CurvePoint, confidence: float, errors: Mapping[tuple[str, str, int], float]) -> Cell:
    return Cell(
        group=point.group,
        metric=point.metric,
        n=point.n,
        values=list(point.values),
        mean=point.mean,
        std=point.std,
        gap=None if point.gap is None else _gap(point.gap, confidence),
        numerical_error=errors.get((point.group, point.metric, point.n), 0.0),
    )


def _gap(gap: PairedGap, confidence: float) -> Gap:
    return interval(gap.estimate, gap.low, gap.high, confidence)


def _metrics(comparison: Comparison) -> list[Metric]:
    metrics = [
        Metric(
            key=VENDI,
            label="Cond. VNE",
            description="exp H₁(Y|X), the conditional Vendi score: the effective number of distinct outputs for a "
            "condition, at least 1; more is more diverse.",
        ),
        Metric(
            key=RKE,
            label="Cond. RKE",
            description="exp H₂(Y|X), its order-2 form, which weighs frequent outputs more; an effective number, "
            "at least 1; more is more diverse.",
        ),
    ]
    unit = {
        "tokens": "token n-grams over prefix and continuation that end inside the continuation",
        "words": "n-grams of the output's words",
        "characters": "n-grams of the output's characters",
    }[comparison.distinct_unit]
    for n in comparison.distinct:
        description = f"Share of distinct {n}-grams among all {n}-grams of a group, between 0 and 1 ({unit})."
        metrics.append(Metric(key=f"distinct_{n}", label=f"Distinct-{n}", description=description))
    return metrics


def side_of(kernel: Kernel, choice: KernelChoice, fitted_on: str, encoder: TextEncoder, features: Tensor) -> Side:
    """One side as the result keeps it: the kernel with its bandwidth, whose data gave that, and the encoder."""
    bandwidth = kernel.fixed_bandwidth
    return Side(
        kernel=type(kernel).__name__,
        bandwidth=None if bandwidth is None else float(bandwidth),
        fitted_on="none" if bandwidth is None else "given" if choice.bandwidth is not None else fitted_on,
        encoder=encoder.name,
        dimension=features.shape[1],
    )


def _size_notes(sizes: Sequence[int], available: int, repeats: int) -> list[str]:
    if repeats == 1:
        return ["one subsample a size: neither ± nor intervals can be given; ask for more repeats"]
    if any(2 * n > available for n in sizes):
        return [
            f"sizes above {available // 2} use more than half of the {available} conditions: there ± and intervals "
            "come from subsamples of half the conditions"
        ]
    return []


def _rank_notes(ranks: Ranks) -> list[str]:
    return [f"{ranks.size} processes shared the work"] if ranks.size > 1 else []
