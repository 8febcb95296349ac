"""Scores of every group on given rows, by the route that their number asks for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from condvne.core.groups import Engine, conditional_entropies
from condvne.core.inference import Statistic
from condvne.data.seeding import seeded_key
from condvne.evaluation.comparison import RKE, VENDI, Comparison
from condvne.evaluation.features import Embedded


class Scorer:
    """Conditional VNE, conditional RKE and Distinct-n of every group on rows of the pool.

    Every subsample has probes of its own, shared by its groups: the noise of matrix-free estimates is then part of
    the spread over subsamples, and hence of every interval.

    Attributes:
        errors: for each group, metric and n the largest numerical error of a score so far; absent where all are exact.
    """

    def __init__(self, comparison: Comparison, embedded: Embedded, engine: Engine, seed: int) -> None:
        self.comparison, self.embedded, self.engine, self.seed = comparison, embedded, engine, seed
        self.errors: dict[tuple[str, str, int], float] = {}

    def __call__(self, rows: Tensor) -> dict[Statistic, float]:
        """Scores on these rows, (n,), ascending; what is undefined there is left out."""
        embedded, chosen = self.embedded, rows.tolist()
        key = seeded_key(self.seed, "probes", *chosen) % 2**63
        entropies = conditional_entropies(
            embedded.x,
            embedded.groups,
            rows.to(embedded.x.device),
            kernel_x=embedded.kernel_x,
            kernel_y=embedded.kernel_y,
            orders=(1.0, 2.0),
            engine=self.engine,
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
