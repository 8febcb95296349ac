"""How sure a comparison is: seeded subsamples, curves over n, and paired intervals for gaps.

All groups are scored on the same rows, so that a gap between two of them is a paired difference. Scores grow
with n; groups are only ever compared at equal n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from condvne.errors import InputError
from condvne.ranks import SINGLE, Ranks

LEAST_HALF = 5  # conditions; smaller subsamples, and halves of smaller pools, hardly vary: false certainty
ROUNDING = 1e-12  # of a score; smaller differences between scores are rounding
Statistic = tuple[str, str]  # group and metric
Statistics = Callable[[Tensor], Mapping[Statistic, float]]  # rows to the score of each group and metric


@dataclass(frozen=True)
class PairedGap:
    """A group's mean score minus the reference's, and the ends of its confidence interval (None when R = 1)."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CurvePoint:
    """One group and metric at one n.

    `std` is the standard deviation over subsamples. Above half of the pool, subsamples share most of their rows,
    so there it is that of half-size subsamples, which estimates the standard error of the whole pool's score.
    """

    group: str
    metric: str
    n: int
    values: tuple[float, ...]
    std: float | None
    gap: PairedGap | None

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)


def subsample(available: int, n: int, repeat: int, seed: int) -> Tensor:
    """Rows of the `repeat`-th seeded subsample without replacement, (n,), ascending.

    Subsamples of one repeat are nested: a larger n contains the rows of a smaller one, so curves are smooth.
    """
    if not 1 <= n <= available:
        raise InputError(f"a subsample of {n} cannot be drawn from {available}; choose a size from 1 to {available}.")
    generator = torch.Generator().manual_seed((seed << 20) + repeat)
    return torch.randperm(available, generator=generator)[:n].sort().values


def curves(
    statistics: Statistics,
    *,
    available: int,
    sizes: Sequence[int],
    repeats: int,
    seed: int,
    reference: str | None,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
    ranks: Ranks = SINGLE,
    together: Callable[[int], bool] = lambda n: False,
) -> list[CurvePoint]:
    """Every statistic at every size over R subsamples, and its gap to the reference group on the same rows.

    Several ranks deal the subsamples out among them; those of a size n with `together(n)` every rank is given, for
    statistics whose own work is shared.

    The interval of a gap covers the mean difference at that n over fresh samples, not over this pool only. With
    f = n/N ≤ 1/2 and s² the variance of the R paired differences, its variance is s² (1/R + f/(1-f)): the second
    term is the pool's own sampling error, seen through subsamples without replacement. Above f = 1/2 it is
    s²/R + s²_½, with s²_½ from subsamples of half the pool. Quantiles are Student's with R - 1 degrees of freedom.

    Subsamples of fewer than five conditions give no interval: their scores hardly vary, whatever the population.

    Raises:
        InputError: a size exceeds the pool.
    """
    half = available // 2
    needs_half = repeats > 1 and half >= LEAST_HALF and any(2 * n > available for n in sizes)
    wanted = sorted({*sizes, *([half] if needs_half else [])})
    draws = {n: 1 if n == available else repeats for n in wanted}
    tasks = [(n, repeat) for n in wanted for repeat in range(draws[n])]
    table: dict[int, list[Mapping[Statistic, float]]] = {n: [] for n in wanted}
    results = _dealt(tasks, lambda n, r: statistics(subsample(available, n, r, seed)), ranks, together, progress)
    for (n, _), scores in zip(tasks, results, strict=True):
        table[n].append(scores)
    pool = _Pool(available, half if needs_half else None, repeats, confidence)
    # A statistic may be undefined on some rows (no n-gram at all): its curve then has no point there.
    defined = [key for key in table[wanted[0]][0] if all(key in scores for rows in table.values() for scores in rows)]
    return [_point(statistic, n, table, pool, reference) for n in sorted(set(sizes)) for statistic in defined]


def _dealt(
    tasks: Sequence[tuple[int, int]],
    work: Callable[[int, int], Mapping[Statistic, float]],
    ranks: Ranks,
    together: Callable[[int], bool],
    progress: Callable[[int, int], None] | None,
) -> list[Mapping[Statistic, float]]:
    """The scores of every (n, repeat), in order, on every rank."""
    apart = [i for i, (n, _) in enumerate(tasks) if not together(n)]
    # The largest sizes come last and cost most, so neighbours go to different ranks.
    mine = set(apart[ranks.rank :: ranks.size]) | set(range(len(tasks))).difference(apart)
    found: dict[int, Mapping[Statistic, float]] = {}
    for done, i in enumerate(sorted(mine), start=1):
        found[i] = work(*tasks[i])
        if progress is not None:
            progress(done, len(mine))
    sent = [[i, [[*key, value] for key, value in found[i].items()]] for i in sorted(found)]
    everything = {i: {(group, metric): value for group, metric, value in rows} for i, rows in ranks.gather(sent)}
    return [everything[i] for i in range(len(tasks))]


@dataclass(frozen=True)
class _Pool:
    available: int
    half: int | None
    repeats: int
    confidence: float

    def interval(self, estimate: float, n: int, values: Sequence[float], halves: Sequence[float]) -> PairedGap:
        if self.repeats < 2 or n < LEAST_HALF or (2 * n > self.available and self.half is None):
            return PairedGap(estimate, None, None)
        if 2 * n > self.available:
            variance = _variance(values) / len(values) + _variance(halves)
        else:
            fraction = n / self.available
            variance = _variance(values) * (1 / len(values) + fraction / (1 - fraction))
        quantile = float(stats.t.ppf((1 + self.confidence) / 2, self.repeats - 1))
        margin = quantile * math.sqrt(variance)
        return PairedGap(estimate, estimate - margin, estimate + margin)


def _point(
    statistic: Statistic,
    n: int,
    table: Mapping[int, Sequence[Mapping[Statistic, float]]],
    pool: _Pool,
    reference: str | None,
) -> CurvePoint:
    group, metric = statistic
    values = [row[statistic] for row in table[n]]
    halves = [row[statistic] for row in table[pool.half]] if pool.half is not None else []
    spread = halves if 2 * n > pool.available else values
    std = math.sqrt(_variance(spread)) if len(spread) > 1 else None
    gap = None
    base = (reference or "", metric)
    half_rows = table[pool.half] if pool.half is not None else []
    # The reference's score may be undefined on some rows only: no n-gram among the half, say.
    if group != reference and all(base in row for row in (*table[n], *half_rows)):
        differences = [_difference(row[statistic], row[base]) for row in table[n]]
        half_differences = [_difference(row[statistic], row[base]) for row in half_rows]
        gap = pool.interval(math.fsum(differences) / len(differences), n, differences, half_differences)
    return CurvePoint(group, metric, n, tuple(values), std, gap)


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    deviations = [v - mean for v in values]
    if max(map(abs, deviations)) <= ROUNDING * max(map(abs, values)):
        return 0.0
    return math.fsum(d**2 for d in deviations) / (len(values) - 1)


def _difference(score: float, reference: float) -> float:
    difference = score - reference
    return 0.0 if abs(difference) <= ROUNDING * max(abs(score), abs(reference)) else difference
