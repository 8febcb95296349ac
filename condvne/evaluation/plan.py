"""What a run will do and about what it costs, before it does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from condvne.core.routes import exact_limit, fastest
from condvne.data.config import Evaluation

EIGEN_FLOPS = 4 / 3  # n³ of them for the eigenvalues of a symmetric matrix
PASSES = 60  # walks over the kernel of a matrix-free score, with the deflated space and the probes
COLUMNS = 96  # vectors multiplied at once in a pass
ASSUMED_DIMENSION = 1024  # of embeddings, until the encoder is loaded


@dataclass(frozen=True)
class Rates:
    """Floating-point operations a second of this device, measured."""

    eigenvalues: float
    products: float


@dataclass(frozen=True)
class ScoringCost:
    """Of one sample size: how it is scored, how often, and the time and memory this takes, estimated."""

    n: int
    route: str
    subsamples: int
    seconds: float
    gigabytes: float


def measured_rates(device: torch.device) -> Rates:
    """Rates of a moderate problem on the device; takes about a second."""
    n = 1024
    points = torch.randn(n, n, generator=torch.Generator().manual_seed(0)).to(device)
    A = (points @ points.mT / n).double()
    return Rates(
        EIGEN_FLOPS * n**3 / fastest(lambda: torch.linalg.eigvalsh(A), device),
        2.0 * n**3 / fastest(lambda: points @ points, device),
    )


def scoring_costs(
    evaluation: Evaluation, sizes: Sequence[int], available: int, groups: int, device: torch.device, rates: Rates
) -> list[ScoringCost]:
    """What each sample size costs: one marginal and a joint matrix for every group, in every subsample."""
    limit = exact_limit(device)
    return [_cost(evaluation, n, available, groups, limit, rates) for n in sizes]


def _cost(evaluation: Evaluation, n: int, available: int, groups: int, limit: int, rates: Rates) -> ScoringCost:
    subsamples = 1 if n == available else evaluation.repeats
    exact = evaluation.method == "exact" or (evaluation.method == "auto" and n <= limit)
    matrices = groups + 1
    if exact:
        flops = EIGEN_FLOPS * float(n) ** 3 * matrices
        seconds = flops / rates.eigenvalues + 2.0 * n**2 * ASSUMED_DIMENSION * matrices / rates.products
        return ScoringCost(n, "eigenvalues", subsamples, subsamples * seconds, 3 * 8 * float(n) ** 2 / 1e9)
    pass_flops = float(n) ** 2 * (ASSUMED_DIMENSION * matrices + 2 * COLUMNS * matrices)
    memory = (4.0 * n * ASSUMED_DIMENSION * matrices + 8.0 * n * COLUMNS * 4) / 1e9
    return ScoringCost(n, "matrix-free", subsamples, subsamples * PASSES * pass_flops / rates.products, memory)
