"""Weights of candidates projected onto higher conditional entropy, from embeddings of conditions and candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.kernels import Kernel, row_kronecker
from condvne.core.projection import Projection, project, project_kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy
from condvne.errors import ConfigError

FeatureKind = Literal["sketch", "covariance", "kernel"]
LARGEST = 6000  # rows of the matrix that an iteration decomposes, where it is not a sketch's


@dataclass(frozen=True)
class Aim:
    """What weights are to reach, and how closely: λ, or a conditional entropy in nats in its place."""

    lam: float | None
    target: float | None
    tolerance: float
    max_iterations: int


class PairFeatures:
    """Candidates to be projected: features of (condition, candidate), or the kernel of the pairs.

    Features and their Gram matrix have the same optimum, and an iteration decomposes the smaller of the two.

    Attributes:
        owners: (M,), the condition of each candidate, ascending.
        of_conditions: H₁ of the conditions, nats, in the same features; joint entropies minus it are conditional.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        owners: Tensor,
        kernels: tuple[Kernel, Kernel],
        *,
        kind: FeatureKind = "sketch",
        num_features: int = 1024,
        seed: int = 0,
    ) -> None:
        """Take candidates up.

        Args:
            x: features of the conditions, (N, dx).
            y: of the candidates, (M, dy).
            kernels: with their bandwidths fixed.
            kind: random features of the joint kernel, its explicit features, or its Gram matrix.
            num_features: of the sketch.
            seed: of the sketch.

        Raises:
            ConfigError: features that do not go with the kernels, or a matrix too large to decompose many times.
        """
        self.owners, self.kernels, self.kind = owners, kernels, kind
        self.x = x
        self._features: Tensor | None = None
        self._gram: Tensor | None = None
        self._sketch: JointSketch | None = None
        pairs = (x[owners], y)
        if kind == "sketch":
            origins = [x.mean(0), y.mean(0)]
            dims = [x.shape[1], y.shape[1]]
            self._sketch = JointSketch.draw(kernels, dims, num_features, seed, origins=origins, device=x.device)
            features = self._sketch.features(*pairs)
            if len(features) <= features.shape[1]:
                wide = features.double()
                self._gram = wide @ wide.mT
            else:
                self._features = features
            self.of_conditions = _entropy(self._sketch.marginal(x).double())
            return
        columns = len(y) + 1 if kind == "kernel" else self._columns(pairs)
        size = min(columns, len(y))
        if size > LARGEST:
            raise ConfigError(
                f"projection.features: {kind} would decompose matrices of {size} rows, more than {LARGEST}; "
                "take sketch."
            )
        if columns < len(y):
            self._features = row_kronecker(*(k.feature_map(f.double()) for k, f in zip(kernels, pairs, strict=True)))
        else:
            of_conditions, of_candidates = (k.gram(f.double()) for k, f in zip(kernels, pairs, strict=True))
            self._gram = of_conditions * of_candidates
        self.of_conditions = float(matrix_entropy(kernels[0].gram(x.double()) / len(x)))

    def _columns(self, pairs: tuple[Tensor, Tensor]) -> int:
        dimensions = [k.feature_dimension(f) for k, f in zip(self.kernels, pairs, strict=True)]
        if None in dimensions:
            raise ConfigError(
                "projection.features: covariance needs kernels with explicit features; set both kernels to cosine or "
                "polynomial, or take sketch."
            )
        return math.prod(d for d in dimensions if d is not None)

    def conditional_entropy(self, outputs: Tensor) -> float:
        """H₁(Y|X) in nats of one output a condition, (N, dy), by the same sketch, or else exactly."""
        if self._sketch is not None:
            return _entropy(self._sketch.features(self.x, outputs).double()) - self.of_conditions
        joint = self.kernels[0].gram(self.x.double()) * self.kernels[1].gram(outputs.double())
        return float(matrix_entropy(joint / len(outputs))) - self.of_conditions

    def projected(self, prior: Tensor, aim: Aim) -> Projection:
        """The weights for a price, or for a conditional entropy to be reached.

        Args:
            prior: (M,), weights before, one in sum for each condition.

        Raises InputError as `project`.
        """
        held = self._gram if self._gram is not None else self._features
        assert held is not None
        solve = project_kernel if self._gram is not None else project
        return solve(
            held,
            groups=self.owners.to(held.device),
            prior=prior.to(held.device),
            tolerance=aim.tolerance,
            max_iterations=aim.max_iterations,
            lam=aim.lam,
            target=None if aim.target is None else aim.target + self.of_conditions,
        )

    def effective_candidates(self, weights: Tensor) -> Tensor:
        """exp of the entropy of each condition's weights, (N,)."""
        terms = torch.special.entr(weights.double().to(self.owners.device))
        return torch.zeros(len(self.x), dtype=terms.dtype, device=terms.device).index_add(0, self.owners, terms).exp()


def _entropy(features: Tensor) -> float:
    """H₁ of rows of weight 1/n each, from the smaller of Gram matrix and covariance."""
    n = len(features)
    smaller = features @ features.mT if n < features.shape[1] else features.mT @ features
    return float(matrix_entropy(smaller / n))
