"""Texts of several groups under the same conditions, to scores with intervals.

What the tasks that measure have in common: embed both sides, fix one bandwidth a side on the reference group,
score every group on the same subsamples, and ask whether the ranking survives other orders and bandwidths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from condvne.core.inference import (
    CurvePoint,
    OutputGroup,
    Statistic,
    Statistics,
    conditional_entropies,
    curves,
    subsample,
)
from condvne.core.kernels import Cosine, Gaussian, Kernel, Laplacian, Polynomial
from condvne.data.config import Evaluation, KernelChoice, Kernels
from condvne.data.embeddings import TextEncoder, embed
from condvne.data.results import Cell, Direction, Gap, Metric, RobustnessMap, Scores, Side
from condvne.data.text.lexical import DistinctCounter
from condvne.errors import ConfigError, InputError

Progress = Callable[[str, int, int], None]  # stage, done, total

VENDI, RKE = "conditional_vendi", "conditional_rke"
SIGN_TOLERANCE = 1e-9  # nats; smaller differences are rounding, not a direction


@dataclass(frozen=True)
class Comparison:
    """Outputs of several groups under the same conditions.

    Attributes:
        ids: one for each condition, named in errors.
        conditions: the conditions' texts.
        outputs: for each group and condition the outputs' texts, at least one each.
        distinct: for each n of Distinct-n and each group, its counter over the same conditions.
        distinct_unit: what the n-grams are made of.
        reference: the group that the others are compared with; None for no comparison.
    """

    ids: Sequence[str]
    conditions: Sequence[str]
    outputs: Mapping[str, Sequence[Sequence[str]]]
    distinct: Mapping[int, Mapping[str, DistinctCounter]]
    distinct_unit: str
    reference: str | None

    @property
    def groups(self) -> list[str]:
        """Display order: the reference first, then as given."""
        first = [self.reference] if self.reference is not None else []
        return first + [g for g in self.outputs if g != self.reference]


@dataclass(frozen=True)
class Heading:
    """What the result says of its run beside the scores; `notes` tell what was skipped before this."""

    title: str
    task: Literal["gap", "score"]
    seed: int
    settings: dict[str, object]
    versions: dict[str, str]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class _Embedded:
    x: Tensor
    groups: dict[str, OutputGroup]
    kernel_x: Kernel
    kernel_y: Kernel


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
) -> Scores:
    """Embed, score and judge a comparison.

    Raises:
        InputError: a requested size exceeds the conditions, or the reference gives no bandwidth.
        DataError: a text is empty or its embedding is not finite (ids named).
    """
    available = len(comparison.conditions)
    sizes = sorted(set(settings.sizes)) or default_sizes(available)
    too_large = [n for n in sizes if n > available]
    if too_large:
        raise InputError(f"size {too_large[0]} exceeds the {available} conditions there are; choose smaller sizes.")
    notes: list[str] = []
    embedded = _embed(comparison, encoder, kernels, cache, device, progress, notes)
    points = curves(
        _statistics(comparison, embedded),
        available=available,
        sizes=sizes,
        repeats=settings.repeats,
        seed=heading.seed,
        reference=comparison.reference,
        confidence=settings.confidence,
        progress=lambda done, total: progress("scoring", done, total),
    )
    fitted_on = comparison.reference or "all groups"
    return Scores(
        title=heading.title,
        task=heading.task,
        reference=comparison.reference,
        groups=comparison.groups,
        metrics=_metrics(comparison),
        sizes=sizes,
        repeats=settings.repeats,
        available=available,
        outputs_per_condition=max(len(texts) for texts in next(iter(comparison.outputs.values()))),
        cells=[_cell(point, settings.confidence) for point in points],
        robustness=_robustness(comparison, embedded, settings, heading.seed, progress),
        condition=_side(embedded.kernel_x, kernels.condition, "all conditions", encoder),
        output=_side(embedded.kernel_y, kernels.output, fitted_on, encoder),
        notes=[*heading.notes, *notes, *_size_notes(sizes, available, settings.repeats)],
        seed=heading.seed,
        settings=heading.settings,
        versions=heading.versions,
    )


def resolved_device(device: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU. Raises ConfigError for a device that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"device: {device!r} cannot be used here ({reason}); use auto or cpu.") from error
    return chosen


def default_sizes(available: int) -> list[int]:
    """A quarter, a half and all of the conditions; fewer where they would be tiny."""
    return sorted({n for n in (available // 4, available // 2, available) if n >= min(50, available)})


def kernel_of(choice: KernelChoice) -> Kernel:
    """The kernel that a configuration names. Raises InputError for parameters that do not go together."""
    if choice.name == "gaussian":
        return Gaussian(choice.bandwidth, choice.multiplier)
    if choice.name == "laplacian":
        return Laplacian(choice.bandwidth, choice.multiplier)
    if choice.name == "polynomial":
        return Polynomial(choice.degree, choice.gamma, choice.coef0)
    return Cosine()


def _embed(
    comparison: Comparison,
    encoder: TextEncoder,
    kernels: Kernels,
    cache: Path,
    device: torch.device,
    progress: Progress,
    notes: list[str],
) -> _Embedded:
    def embedded(name: str, texts: Sequence[str], ids: Sequence[str]) -> Tensor:
        result = embed(
            texts,
            encoder,
            cache,
            ids,
            progress=lambda done, total: progress(f"embedding {name}", done, total),
            note=notes.append,
        )
        notes.append(f"embeddings of {name}: {result.distinct} distinct texts of {len(texts)}")
        return result.tensor.to(device)

    x = embedded("conditions", comparison.conditions, comparison.ids)
    groups = {}
    for name in comparison.groups:
        lists = comparison.outputs[name]
        owners = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([len(texts) for texts in lists]))
        texts = [text for row in lists for text in row]
        ids = [comparison.ids[i] for i in owners.tolist()]
        groups[name] = OutputGroup(embedded(f"group {name}", texts, ids), owners.to(device))
    kernel_x = kernel_of(kernels.condition).fit_each(x)
    kernel_y = _output_kernel(kernel_of(kernels.output), comparison.reference, groups, notes)
    return _Embedded(x, groups, kernel_x, kernel_y)


def _output_kernel(
    kernel: Kernel, reference: str | None, groups: Mapping[str, OutputGroup], notes: list[str]
) -> Kernel:
    pooled = torch.cat([group.features for group in groups.values()])
    if reference is None:
        return kernel.fit_each(pooled)
    try:
        return kernel.fit(groups[reference].features)
    except InputError:
        notes.append(f"all outputs of {reference} are equal: the output bandwidth was fixed on all groups instead")
        return kernel.fit_each(pooled)


def _statistics(comparison: Comparison, embedded: _Embedded) -> Statistics:
    def score(rows: Tensor) -> dict[Statistic, float]:
        entropies = conditional_entropies(
            embedded.x,
            embedded.groups,
            rows.to(embedded.x.device),
            kernel_x=embedded.kernel_x,
            kernel_y=embedded.kernel_y,
            orders=(1.0, 2.0),
        )
        scores: dict[Statistic, float] = {}
        for group, (order_one, order_two) in entropies.items():
            scores[group, VENDI] = math.exp(order_one)
            scores[group, RKE] = math.exp(order_two)
            for n, counters in comparison.distinct.items():
                value = counters[group].score(rows.tolist())
                if value is not None:
                    scores[group, f"distinct_{n}"] = value
        return scores

    return score


def _robustness(
    comparison: Comparison, embedded: _Embedded, settings: Evaluation, seed: int, progress: Progress
) -> list[RobustnessMap]:
    reference, available = comparison.reference, len(comparison.conditions)
    others = [g for g in comparison.groups if g != reference]
    if reference is None or not others or available < 2:
        return []
    n = min(settings.robustness_size, available)
    rows = subsample(available, n, 0, seed).to(embedded.x.device)
    scalable = any(k.fixed_bandwidth is not None for k in (embedded.kernel_x, embedded.kernel_y))
    multipliers = settings.robustness_multipliers if scalable else [1.0]
    columns = []
    for done, multiplier in enumerate(multipliers, start=1):
        columns.append(
            conditional_entropies(
                embedded.x,
                embedded.groups,
                rows,
                kernel_x=_scaled(embedded.kernel_x, multiplier),
                kernel_y=_scaled(embedded.kernel_y, multiplier),
                orders=settings.robustness_orders,
            )
        )
        progress("orders and bandwidths", done, len(multipliers))
    maps = []
    for group in others:
        gaps = [
            [column[group][i] - column[reference][i] for column in columns]
            for i in range(len(settings.robustness_orders))
        ]
        maps.append(_map(group, reference, n, settings.robustness_orders, multipliers, gaps))
    return maps


def _map(
    group: str,
    reference: str,
    n: int,
    orders: Sequence[float],
    multipliers: Sequence[float],
    gaps: list[list[float]],
) -> RobustnessMap:
    signs = {math.copysign(1, g) for row in gaps for g in row if abs(g) > SIGN_TOLERANCE}
    verdict: Direction = "undecided" if len(signs) != 1 else "below" if signs == {-1.0} else "above"
    if len(signs) == 2:
        below = sum(g < -SIGN_TOLERANCE for row in gaps for g in row)
        total = sum(len(row) for row in gaps)
        sentence = (
            f"{group} is below {reference} at {below} of {total} combinations of order and bandwidth and above it "
            f"elsewhere (n = {n}): the ranking depends on the resolution, so no single number decides it."
        )
    elif not signs:
        sentence = f"{group} equals {reference} for every order and bandwidth tried (n = {n})."
    else:
        sentence = f"{group} is {verdict} {reference} for every order and bandwidth tried (n = {n})."
    return RobustnessMap(
        group=group,
        n=n,
        orders=["inf" if math.isinf(order) else order for order in orders],
        multipliers=list(multipliers),
        gaps=gaps,
        verdict=verdict,
        sentence=sentence,
    )


def _scaled(kernel: Kernel, multiplier: float) -> Kernel:
    if isinstance(kernel, (Gaussian, Laplacian)) and isinstance(kernel.bandwidth, float):
        return replace(kernel, bandwidth=kernel.bandwidth * multiplier)
    return kernel


def _cell(point: CurvePoint, confidence: float) -> Cell:
    gap = None
    if point.gap is not None:
        low, high = point.gap.low, point.gap.high
        direction: Direction = "undecided"
        if low is not None and high is not None:
            direction = "below" if high < 0 else "above" if low > 0 else "undecided"
        gap = Gap(estimate=point.gap.estimate, low=low, high=high, confidence=confidence, direction=direction)
    return Cell(
        group=point.group,
        metric=point.metric,
        n=point.n,
        values=list(point.values),
        mean=point.mean,
        std=point.std,
        gap=gap,
    )


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


def _side(kernel: Kernel, choice: KernelChoice, fitted_on: str, encoder: TextEncoder) -> Side:
    bandwidth = kernel.fixed_bandwidth
    return Side(
        kernel=type(kernel).__name__,
        bandwidth=None if bandwidth is None else float(bandwidth),
        fitted_on="given" if choice.bandwidth is not None else fitted_on,
        encoder=encoder.name,
        dimension=encoder.dimension,
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
