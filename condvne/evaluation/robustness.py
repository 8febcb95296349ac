"""Conditional profiles: whether the ranking of the groups survives other orders and bandwidths of either kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from condvne.core.groups import conditional_entropies
from condvne.core.inference import subsample
from condvne.core.kernels import Gaussian, Kernel, Laplacian
from condvne.data.config import Evaluation
from condvne.data.results import ROUNDING, Direction, RobustnessMap
from condvne.evaluation.comparison import Comparison, Progress
from condvne.evaluation.features import Embedded

Pair = tuple[float, float]  # multipliers of the condition's and of the output's bandwidth


def robustness_maps(
    comparison: Comparison, embedded: Embedded, settings: Evaluation, seed: int, progress: Progress
) -> list[RobustnessMap]:
    """For each group the map of gaps over orders and bandwidths, on one subsample; none without a reference."""
    reference, available = comparison.reference, len(comparison.conditions)
    others = [g for g in comparison.groups if g != reference]
    if reference is None or not others or available < 2:
        return []
    # Every cell of the map costs eigenvalues of all outputs: with several a condition, fewer conditions are used.
    outputs = max(len(group.owners) for group in embedded.groups.values()) / available
    n = min(max(2, int(settings.robustness_size / max(outputs, 1.0))), available)
    rows = subsample(available, n, 0, seed).to(embedded.x.device)
    sides = [k.fixed_bandwidth is not None for k in (embedded.kernel_x, embedded.kernel_y)]
    multipliers = settings.robustness_multipliers if any(sides) else [1.0]
    alike: list[Pair] = [(m, m) for m in multipliers]
    pairs = list(itertools.product(multipliers, multipliers)) if all(sides) else alike
    columns = {}
    for done, pair in enumerate(pairs, start=1):
        columns[pair] = conditional_entropies(  # one spectrum for all orders
            embedded.x,
            embedded.groups,
            rows,
            kernel_x=_scaled(embedded.kernel_x, pair[0]),
            kernel_y=_scaled(embedded.kernel_y, pair[1]),
            orders=settings.robustness_orders,
        )
        progress("orders and bandwidths", done, len(pairs))
    maps = []
    for group in others:
        gaps = [
            {pair: column[group][i].value - column[reference][i].value for pair, column in columns.items()}
            for i in range(len(settings.robustness_orders))
        ]
        maps.append(map_of(group, reference, n, settings.robustness_orders, multipliers, gaps))
    return maps


def map_of(
    group: str,
    reference: str,
    n: int,
    orders: Sequence[float],
    multipliers: Sequence[float],
    gaps: Sequence[Mapping[Pair, float]],
) -> RobustnessMap:
    """The map of one group from its differences by order and pair of multipliers."""
    tried = "order and bandwidth" if len(multipliers) > 1 else "order"  # a kernel may have no bandwidth
    every = [g for row in gaps for g in row.values()]
    signs = {math.copysign(1, g) for g in every if abs(g) > ROUNDING}
    verdict: Direction = "undecided" if len(signs) != 1 else "below" if signs == {-1.0} else "above"
    separate = len(multipliers) > 1 and len(gaps[0]) > len(multipliers)
    if len(signs) == 2:
        below, above = sum(g < -ROUNDING for g in every), sum(g > ROUNDING for g in every)
        combined = "combinations of order and bandwidths" if len(multipliers) > 1 else "orders"
        sentence = (
            f"{group} is below {reference} at {below} and above it at {above} of {len(every)} {combined} (n = {n}): "
            "the ranking depends on the resolution, so no single number decides it."
        )
    elif not signs:
        sentence = f"{group} equals {reference} for every {tried} tried (n = {n})."
    else:
        sentence = f"{group} is {verdict} {reference} for every {tried} tried (n = {n})."
    return RobustnessMap(
        group=group,
        n=n,
        orders=["inf" if math.isinf(order) else order for order in orders],
        multipliers=list(multipliers),
        gaps=[[row[m, m] for m in multipliers] for row in gaps],
        separate=[[[row[x, y] for y in multipliers] for x in multipliers] for row in gaps] if separate else [],
        verdict=verdict,
        sentence=sentence,
    )


def _scaled(kernel: Kernel, multiplier: float) -> Kernel:
    if isinstance(kernel, (Gaussian, Laplacian)) and isinstance(kernel.bandwidth, float):
        return replace(kernel, bandwidth=kernel.bandwidth * multiplier)
    return kernel
