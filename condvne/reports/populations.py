"""Scores at infinite n, and how often chance gives such a gap: one line for each metric and group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from condvne.data.listing import counted
from condvne.data.results import Population, Scores
from condvne.reports.formatting import MARKS, bounded, clean, count, difference, listed, number, percent


@dataclass(frozen=True)
class PopulationRow:
    """One metric of one group as text; what is None is not shown."""

    metric: str
    group: str
    plug_in: str  # the score at n
    estimate: str
    interval: str
    direction: str | None = None
    mark: str | None = None
    delta: str | None = None
    delta_interval: str | None = None
    p_value: str | None = None


def population_rows(scores: Scores) -> Iterator[PopulationRow]:
    """Every metric that has population values, every group, in display order."""
    labels = {metric.key: metric.label for metric in scores.metrics}
    for key, label in labels.items():
        found = {p.group: p for p in scores.populations if p.metric == key}
        for group in scores.groups:
            if group in found:
                yield _row(scores, label, found[group])


def _row(scores: Scores, label: str, population: Population) -> PopulationRow:
    estimate, (low, high) = bounded(population.estimate, population.low, population.high)
    row = (label, population.group, number(population.plug_in), estimate, f"[{low}, {high}]")
    if population.gap is None:
        return PopulationRow(*row)
    delta, ends = difference(population.gap)
    tests = [t for t in scores.swap_tests if (t.group, t.metric) == (population.group, population.metric)]
    return PopulationRow(
        *row,
        direction=population.gap.direction,
        mark=MARKS[population.gap.direction],
        delta=delta,
        delta_interval=f"[{ends[0]}, {ends[1]}]" if ends else None,
        p_value=number(tests[0].p_value, 2) if tests else None,
    )


def population_caption(scores: Scores) -> str:
    """What the population table shows, in a few sentences; "" where there is none."""
    if not scores.populations:
        return ""
    sizes = listed([count(n) for n in sorted({p.n for p in scores.populations})])
    text = (
        f"Scores of finite samples tend to lie below the population’s. From n = {sizes} conditions, the score at "
        f"infinite n is estimated with its {percent(scores.populations[0].confidence)} interval: "
        "Cond. RKE nearly without bias, Cond. VNE by extrapolation."
    )
    if any(p.gap for p in scores.populations):
        text += f" Δ is the paired difference from {clean(scores.reference or '')}."
    if scores.swap_tests:
        test = scores.swap_tests[0]
        text += (
            f" p is the share of {counted(test.permutations, 'random exchange')} of outputs between the two groups "
            f"that give a gap of this size or larger (n = {count(test.n)})."
        )
    return text
