"""Scores of every group on given rows, by the route that their number asks for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from condvne.core.groups import Engine, conditional_entropies
from condvne.core.inference import Statistic
from condvne.core.routes import exact_limit
from condvne.data.config import Evaluation
from condvne.data.seeding import seeded_key
from condvne.evaluation.comparison import RKE, VENDI, Comparison
from condvne.evaluation.features import Embedded
from condvne.ranks import SINGLE, Ranks


class Scorer:
    """Conditional VNE, conditional RKE and Distinct-n of every group on rows of the pool.

    Every subsample has probes of its own, shared by its groups: the noise of matrix-free estimates is then part of
    the spread over subsamples, and hence of every interval.

    Attributes:
        errors: for each group, metric and n the largest numerical error of a score so far; absent where all are exact.
    """

    def __init__(
        self, comparison: Comparison, embedded: Embedded, settings: Evaluation, seed: int, ranks: Ranks = SINGLE
    ) -> None:
        self.comparison, self.embedded, self.seed = comparison, embedded, seed
        self.method, self.tolerance, self.ranks = settings.method, settings.tolerance, ranks
        # Measured on the device, and the same for all ranks.
        self.limit: int = ranks.broadcast(exact_limit(embedded.x.device)) if self.method == "auto" else 0
        self.errors: dict[tuple[str, str, int], float] = {}

    def together(self, n: int) -> bool:
        """Whether scores at n are matrix-free: then all ranks work on each subsample and share its tiles."""
        if self.method != "auto":
            return self.method == "lanczos"
        embedded = self.embedded
        outputs = max(len(group.owners) for group in embedded.groups.values()) / len(embedded.x)
        features = [embedded.x, *(group.features for group in embedded.groups.values())]
        kernels = [embedded.kernel_x, *[embedded.kernel_y] * len(embedded.groups)]
        dimensions = [kernel.feature_dimension(x) for kernel, x in zip(kernels, features, strict=True)]
        explicit = [d for d in dimensions if d is not None]
        size = math.ceil(n * outputs)
        if len(explicit) == len(dimensions):  # the covariance of explicit features may be the smaller matrix
            size = min(size, explicit[0] * max(explicit[1:]))
        return size > self.limit

    def __call__(self, rows: Tensor) -> dict[Statistic, float]:
        """Scores on these rows, (n,), ascending; what is undefined there is left out."""
        embedded, chosen = self.embedded, rows.tolist()
        engine = Engine("lanczos" if self.together(len(chosen)) else "exact", self.tolerance, self.ranks)
        key = seeded_key(self.seed, "probes", *chosen) % 2**63
        entropies = conditional_entropies(
            embedded.x,
            embedded.groups,
            rows.to(embedded.x.device),
            kernel_x=embedded.kernel_x,
            kernel_y=embedded.kernel_y,
            orders=(1.0, 2.0),
            engine=engine,
            generator=torch.Generator().manual_seed(key),
        )
        scores: dict[Statistic, float] = {}
        for group, values in entropies.items():
            for metric, entropy in zip((VENDI, RKE), values, strict=True):
                scores[group, metric] = math.exp(entropy.value)
                if entropy.method == "lanczos":
                    error = math.exp(entropy.value) * math.expm1(entropy.error)
                    place = (group, metric, len(chosen))
                    self.errors[place] = max(self.errors.get(place, 0.0), error)
            for n, counters in self.comparison.distinct.items():
                value = counters[group].score(chosen)
                if value is not None:
                    scores[group, f"distinct_{n}"] = value
        return scores
