"""What the scores would be at infinite n, and whether a gap could be chance."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from condvne.core.inference import subsample
from condvne.core.population import PopulationEstimate, population_conditional_entropy, population_gap
from condvne.core.resampling import permutation_test
from condvne.data.config import Evaluation
from condvne.data.results import Direction, Gap, Population, SwapTest
from condvne.errors import InputError
from condvne.evaluation.comparison import RKE, VENDI, Comparison, Progress
from condvne.evaluation.features import Embedded

ORDERS = {VENDI: 1.0, RKE: 2.0}
LEAST = 8  # conditions; fewer say nothing of a population


def interval(estimate: float, low: float | None, high: float | None, confidence: float) -> Gap:
    """A gap, with the direction in which its interval excludes zero."""
    direction: Direction = "undecided"
    if low is not None and high is not None:
        direction = "below" if high < 0 else "above" if low > 0 else "undecided"
    return Gap(estimate=estimate, low=low, high=high, confidence=confidence, direction=direction)


def population_scores(
    comparison: Comparison,
    embedded: Embedded,
    settings: Evaluation,
    seed: int,
    progress: Progress,
    notes: list[str],
) -> list[Population]:
    """Scores at infinite n of every group, from one subsample, with gaps paired over its conditions.

    Groups with several outputs a condition have none; a score without a finite estimate is left out with a note.
    """
    rows = _rows(comparison, settings, seed)
    if rows is None:
        return []
    found: list[Population] = []
    total, done = len(ORDERS) * len(comparison.groups), 0
    for metric, order in ORDERS.items():
        estimates: dict[str, PopulationEstimate] = {}
        for group in comparison.groups:
            x, y = _features(embedded, group, rows)
            try:
                estimates[group] = population_conditional_entropy(
                    x,
                    y,
                    kernel_x=embedded.kernel_x,
                    kernel_y=embedded.kernel_y,
                    order=order,
                    confidence=settings.confidence,
                    seed=seed,
                )
            except InputError as error:
                notes.append(f"{group} has no population value of order {order:g}: {error}")
            done += 1
            progress("population values", done, total)
        found += [_population(group, metric, estimates, comparison.reference, settings) for group in estimates]
    return found


def swap_tests(
    comparison: Comparison, embedded: Embedded, settings: Evaluation, seed: int, progress: Progress
) -> list[SwapTest]:
    """For every group the permutation test of its gap from the reference, by order 2 in closed form."""
    reference, rows = comparison.reference, _rows(comparison, settings, seed)
    others = [group for group in comparison.groups if group != reference]
    if reference is None or rows is None or settings.permutations == 0:
        return []
    tests = []
    _, base = _features(embedded, reference, rows)
    for done, group in enumerate(others, start=1):
        x, y = _features(embedded, group, rows)
        test = permutation_test(
            x,
            y,
            base,
            kernel_x=embedded.kernel_x,
            kernel_y=embedded.kernel_y,
            order=2.0,
            permutations=settings.permutations,
            seed=seed,
        )
        tests.append(
            SwapTest(group=group, metric=RKE, n=len(rows), p_value=test.p_value, permutations=settings.permutations)
        )
        progress("swap tests", done, len(others))
    return tests


def _rows(comparison: Comparison, settings: Evaluation, seed: int) -> Tensor | None:
    """The subsample, or None where pairs of one output each are not to be had."""
    single = all(len(texts) == 1 for lists in comparison.outputs.values() for texts in lists)
    n = min(settings.population_size, len(comparison.conditions))
    return subsample(len(comparison.conditions), n, 0, seed) if single and n >= LEAST else None


def _features(embedded: Embedded, group: str, rows: Tensor) -> tuple[Tensor, Tensor]:
    # One output a condition: outputs stand in the order of their conditions.
    rows = rows.to(embedded.x.device)
    return embedded.x[rows], embedded.groups[group].features[rows]


def _population(
    group: str,
    metric: str,
    estimates: Mapping[str, PopulationEstimate],
    reference: str | None,
    settings: Evaluation,
) -> Population:
    estimate, gap = estimates[group], None
    if reference is not None and group != reference and reference in estimates:
        paired = population_gap(estimate, estimates[reference], confidence=settings.confidence)
        gap = interval(paired.value, paired.lower, paired.upper, settings.confidence)
    return Population(
        group=group,
        metric=metric,
        n=estimate.n,
        plug_in=math.exp(estimate.plug_in),
        estimate=math.exp(estimate.value),
        low=math.exp(estimate.lower),
        high=math.exp(estimate.upper),
        confidence=settings.confidence,
        gap=gap,
    )
