"""Density matrices of weighted points under one kernel, or under the product of several.

A state has two matrices with the same non-zero spectrum: the n × n density matrix diag(√w) K diag(√w), and,
where the kernels have explicit feature maps φ, the D × D covariance Σ w_i φ_i φ_iᵀ. The smaller one is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from condvne.core.kernels import Kernel, row_kronecker
from condvne.core.spectral import EPSILON, refuse_too_large

TILE_ENTRIES = 2**22  # kernel values in flight at order 2: 32 MB, a few times that with temporaries
LEAST_WEIGHT = 1e-17  # stands in for zero under the square root, whose derivative there is infinite


@dataclass(frozen=True)
class DensityState:
    """Points and weights under the product of one kernel a side.

    Attributes:
        kernels: one for each side, bandwidth fixed.
        features: one for each side, (..., n, d), float64; leading shapes broadcast.
        weights: (..., n), float64, or None for 1/n each.
    """

    kernels: tuple[Kernel, ...]
    features: tuple[Tensor, ...]
    weights: Tensor | None = None

    @property
    def n(self) -> int:
        return self.features[0].shape[-2]

    @property
    def dimension(self) -> int | None:
        """Dimension D of the explicit product feature map; None where there is none."""
        dimensions = [k.feature_dimension(x) for k, x in zip(self.kernels, self.features, strict=True)]
        return None if None in dimensions else math.prod(d for d in dimensions if d is not None)

    @property
    def epsilon(self) -> float:
        """Rounding of the entries of `matrix()`, relative to its trace: eigenvalues below it are zeros."""
        return EPSILON * sum(k.rounding(x) for k, x in zip(self.kernels, self.features, strict=True))

    def marginal(self, sides: tuple[int, ...]) -> DensityState:
        """The state of some of the sides, same weights."""
        return DensityState(tuple(self.kernels[s] for s in sides), tuple(self.features[s] for s in sides), self.weights)

    def cost(self, order: float) -> float:
        """Floating-point operations of the exact route, estimated: products, then 4/3 m³ for eigenvalues."""
        n, d = self.n, sum(x.shape[-1] for x in self.features)
        if self.prefers_covariance:
            size = self.dimension or n
            products = 2.0 * n * size**2
        else:
            size, products = n, 2.0 * n**2 * d
        return products if order == 2.0 else products + 4 / 3 * size**3

    @property
    def prefers_covariance(self) -> bool:
        dimension = self.dimension
        return dimension is not None and dimension < self.n

    def matrix(self) -> Tensor:
        """The smaller of density matrix and covariance: (..., m, m), unit trace.

        Raises InputError, before anything is allocated, where m is beyond an eigendecomposition.
        """
        inputs = self.features if self.weights is None else (*self.features, self.weights)
        differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        size = self.dimension if self.prefers_covariance else None
        refuse_too_large(self.n if size is None else size, with_vectors=differentiable)
        return self.covariance() if self.prefers_covariance else self.density_matrix()

    def density_matrix(self) -> Tensor:
        """diag(√w) K diag(√w), (..., n, n)."""
        gram = self._gram_of(0)
        for side in range(1, len(self.kernels)):
            gram = _product(gram, self._gram_of(side))
        if self.weights is None and not gram.requires_grad:
            return gram.div_(self.n)
        return weighted_gram(gram, self.weights)

    def covariance(self) -> Tensor:
        """Σ w_i φ_i φ_iᵀ as one matrix product, (..., D, D)."""
        features = self.kernels[0].feature_map(self.features[0])
        for kernel, x in zip(self.kernels[1:], self.features[1:], strict=True):
            features = row_kronecker(features, kernel.feature_map(x))
        weighted = features / self.n if self.weights is None else features * self.weights[..., :, None]
        return weighted.mT @ features

    def purity(self) -> Tensor:
        """tr A² = Σ_ij w_i w_j k_ij², (...): no eigenvalues, and never a whole n × n matrix."""
        if self.prefers_covariance:
            return self.covariance().square().sum((-2, -1))
        sides = tuple(k.prepare(x)[0] for k, x in zip(self.kernels, self.features, strict=True))
        weights = self.weights if self.weights is not None else sides[0].new_full((self.n,), 1 / self.n)
        kernels = tuple(k.settled(u) for k, u in zip(self.kernels, sides, strict=True))
        spans = list(self._spans())
        differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in (*sides, weights))
        total: Tensor | None = None
        for i, rows in enumerate(spans):
            for columns in spans[i:]:
                blocks = [u[..., rows, :] for u in sides] + [u[..., columns, :] for u in sides]
                tile = partial(_tile_purity, kernels, rows == columns)
                arguments = (weights[..., rows], weights[..., columns], *blocks)
                part: Tensor
                if differentiable and len(spans) > 1:  # tiles are made again in backward rather than kept
                    part = checkpoint(tile, *arguments, use_reentrant=False, preserve_rng_state=False)
                else:
                    part = tile(*arguments)
                total = part if total is None else total + part
        assert total is not None  # n >= 1 was checked at the door
        return total

    def _gram_of(self, side: int) -> Tensor:
        kernel = self.kernels[side]
        return kernel.evaluate(*kernel.prepare(self.features[side]))

    def _spans(self) -> Iterator[slice]:
        batch = max(math.prod(x.shape[:-2]) for x in self.features)
        rows = max(1, math.isqrt(TILE_ENTRIES // max(1, batch)))
        for start in range(0, self.n, rows):
            yield slice(start, min(start + rows, self.n))


def weighted_gram(K: Tensor, weights: Tensor | None) -> Tensor:
    """diag(√w) K diag(√w), (..., n, n); K / n without weights."""
    if weights is None:
        return K / K.shape[-1]
    root = _root(weights)
    return root[..., :, None] * K * root[..., None, :]


def _tile_purity(
    kernels: tuple[Kernel, ...], diagonal: bool, w_rows: Tensor, w_columns: Tensor, *blocks: Tensor
) -> Tensor:
    half = len(blocks) // 2
    tile: Tensor | None = None
    for kernel, u, v in zip(kernels, blocks[:half], blocks[half:], strict=True):
        values = kernel.evaluate(u) if diagonal else kernel.evaluate(u, v)
        tile = values if tile is None else _product(tile, values)
    assert tile is not None
    total = ((tile.square() @ w_columns[..., None]).squeeze(-1) * w_rows).sum(-1)
    return total if diagonal else 2 * total


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a * b if a.requires_grad or b.requires_grad or a.shape != b.shape else a.mul_(b)


def _root(weights: Tensor) -> Tensor:
    # The value moves by 1e-17 at most, the derivative with respect to the weight stays that of w itself.
    floored = weights + (weights.clamp(min=LEAST_WEIGHT) - weights).detach()
    return floored.sqrt()
