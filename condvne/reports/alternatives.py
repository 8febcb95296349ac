"""What each figure shows, in words and key numbers, for those who cannot see it."""

from __future__ import annotations

from condvne.data.results import Metric, RobustnessMap, Scores
from condvne.reports.findings import compared, largest
from condvne.reports.formatting import clean, count, difference, number, signed, spread


def describe_curves(scores: Scores, metric: Metric) -> str:
    """Where each group's curve begins and ends."""
    parts = []
    for group in scores.groups:
        last = largest(scores, group, metric.key)
        if last is None:
            parts.append(f"{clean(group)} undefined")
            continue
        first = next(c for n in scores.sizes if (c := scores.cell(group, metric.key, n)))
        start = f"{number(first.mean)} at n = {count(first.n)}, " if first is not last else ""
        parts.append(f"{clean(group)} {start}{spread(last.mean, last.std)} at n = {count(last.n)}")
    return f"{clean(metric.label)}: {'; '.join(parts)}."


def describe_differences(scores: Scores, metric: Metric) -> str:
    """Δ of each group at its largest n."""
    parts = []
    for group in compared(scores):
        cell = largest(scores, group, metric.key)
        if cell is None or cell.gap is None:
            parts.append(f"{clean(group)} undefined")
            continue
        delta, ends = difference(cell.gap)
        interval = f" ({ends[0]} to {ends[1]})" if ends else ""
        parts.append(f"{clean(group)} {delta}{interval}, {cell.gap.direction}, at n = {count(cell.n)}")
    return f"{clean(metric.label)}, difference from {clean(scores.reference or '')}: {'; '.join(parts)}."


def describe_map(robustness: RobustnessMap) -> str:
    """The range of the differences, and their verdict."""
    gaps = robustness.differences()
    ends = f"{signed(min(gaps))} to {signed(max(gaps))}" if gaps else "none"
    bandwidths = f"{len(robustness.multipliers)} bandwidths" + (" of either side" if robustness.separate else "")
    grid = f"{len(robustness.orders)} orders and {bandwidths}"
    verdict = "not all of one sign" if robustness.verdict == "undecided" else f"all {robustness.verdict}"
    return f"{clean(robustness.group)}, differences over {grid}: {ends} nats, {verdict}."
