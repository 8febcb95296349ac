"""Whether the ranking of the groups survives other orders and bandwidths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from condvne.core.groups import conditional_entropies
from condvne.core.inference import subsample
from condvne.core.kernels import Gaussian, Kernel, Laplacian
from condvne.data.config import Evaluation
from condvne.data.results import Direction, RobustnessMap
from condvne.evaluation.comparison import Comparison, Progress
from condvne.evaluation.features import Embedded

SIGN_TOLERANCE = 1e-9  # nats; smaller differences are rounding, not a direction


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
            [column[group][i].value - column[reference][i].value for column in columns]
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
    tried = "order and bandwidth" if len(multipliers) > 1 else "order"  # a kernel may have no bandwidth
    signs = {math.copysign(1, g) for row in gaps for g in row if abs(g) > SIGN_TOLERANCE}
    verdict: Direction = "undecided" if len(signs) != 1 else "below" if signs == {-1.0} else "above"
    if len(signs) == 2:
        below = sum(g < -SIGN_TOLERANCE for row in gaps for g in row)
        total = sum(len(row) for row in gaps)
        combined = "combinations of order and bandwidth" if len(multipliers) > 1 else "orders"
        sentence = (
            f"{group} is below {reference} at {below} of {total} {combined} and above it "
            f"elsewhere (n = {n}): the ranking depends on the resolution, so no single number decides it."
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
        gaps=gaps,
        verdict=verdict,
        sentence=sentence,
    )


def _scaled(kernel: Kernel, multiplier: float) -> Kernel:
    if isinstance(kernel, (Gaussian, Laplacian)) and isinstance(kernel.bandwidth, float):
        return replace(kernel, bandwidth=kernel.bandwidth * multiplier)
    return kernel
