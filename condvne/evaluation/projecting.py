"""Weights of candidates projected onto higher conditional entropy, from embeddings of conditions and candidates."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from condvne.core.kernels import Kernel, row_kronecker
from condvne.core.mirror import BLOCK_ENTRIES
from condvne.core.projection import Projection, project, project_kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy
from condvne.core.tiles import free_memory
from condvne.data.storage import whole_file
from condvne.errors import ConfigError

FeatureKind = Literal["sketch", "covariance", "kernel"]
SCRATCH = "features.bin"
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
        mapped: whether the features lie in a file.
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
        scratch: Path | None = None,
        memory_share: float = 0.25,
    ) -> None:
        """Take candidates up.

        Args:
            x: features of the conditions, (N, dx).
            y: of the candidates, (M, dy).
            kernels: with their bandwidths fixed.
            kind: random features of the joint kernel, its explicit features, or its Gram matrix.
            num_features: of the sketch.
            seed: of the sketch.
            scratch: folder for a file that sketched features lie in, read block by block, where they would take more
                than `memory_share` of the device's free memory; without, they are held whatever they take.

        Raises:
            ConfigError: features that do not go with the kernels, or a matrix too large to decompose many times.
            RunError: the disk is too full for the file.
        """
        self.owners, self.kernels, self.kind = owners, kernels, kind
        self.x = x
        self._features: Tensor | None = None
        self._gram: Tensor | None = None
        self._sketch: JointSketch | None = None
        self.mapped = False
        if kind == "sketch":
            origins = [x.mean(0), y.mean(0)]
            dims = [x.shape[1], y.shape[1]]
            self._sketch = JointSketch.draw(kernels, dims, num_features, seed, origins=origins, device=x.device)
            taken = len(y) * num_features * 4  # bytes
            self.mapped = scratch is not None and taken > memory_share * free_memory(x.device)
            features = _mapped(self._blocks(y), scratch) if self.mapped and scratch else self._held(y)
            if len(features) <= num_features:
                wide = features.double()
                self._gram = wide @ wide.mT
            else:
                self._features = features
            self.of_conditions = _entropy(self._sketch.marginal(x).double())
            return
        pairs = (x[owners], y)
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

    def _blocks(self, y: Tensor) -> Iterator[Tensor]:
        assert self._sketch is not None
        step = max(1, BLOCK_ENTRIES // self._sketch.num_features)
        for start in range(0, len(y), step):
            rows = slice(start, start + step)
            yield self._sketch.features(self.x[self.owners[rows]], y[rows])

    def _held(self, y: Tensor) -> Tensor:
        assert self._sketch is not None
        features = torch.empty(len(y), self._sketch.num_features, dtype=self._sketch.dtype, device=y.device)
        start = 0
        for block in self._blocks(y):
            features[start : start + len(block)] = block
            start += len(block)
        return features

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
            prior=prior if self.mapped else prior.to(held.device),
            tolerance=aim.tolerance,
            max_iterations=aim.max_iterations,
            lam=aim.lam,
            target=None if aim.target is None else aim.target + self.of_conditions,
        )

    def effective_candidates(self, weights: Tensor) -> Tensor:
        """exp of the entropy of each condition's weights, (N,)."""
        terms = torch.special.entr(weights.double().to(self.owners.device))
        return torch.zeros(len(self.x), dtype=terms.dtype, device=terms.device).index_add(0, self.owners, terms).exp()


def _mapped(blocks: Iterator[Tensor], folder: Path) -> Tensor:
    """Rows (M, r) of blocks, float32, in a file that goes when the tensor does. Raises RunError where the disk is full.

    The file is written before it is mapped: a full disk is an error then, not a fault of the memory.
    """
    path, count, width = folder / SCRATCH, 0, 0
    with whole_file(path) as partial, partial.open("wb") as file:
        for block in blocks:
            file.write(block.float().cpu().contiguous().numpy().tobytes())
            count, width = count + len(block), block.shape[1]
    # Shared: pages of a private mapping may count as memory of this process once they are read.
    mapped = torch.from_file(str(path), shared=True, size=count * width, dtype=torch.float32).reshape(count, width)
    with contextlib.suppress(OSError):  # where names of mapped files cannot go, the next run writes over it
        path.unlink()
    return mapped


def _entropy(features: Tensor) -> float:
    """H₁ of rows of weight 1/n each, from the smaller of Gram matrix and covariance."""
    n = len(features)
    smaller = features @ features.mT if n < features.shape[1] else features.mT @ features
    return float(matrix_entropy(smaller / n))
