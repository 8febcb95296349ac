"""From the gradient with respect to density matrices to features and weights, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.operators import KernelOperators
from condvne.core.tiles import rounded
from condvne.errors import InputError


@dataclass(frozen=True)
class MatrixGradient:
    """G = multiple · A + identity · I + L Rᵀ + R Lᵀ, which is never formed.

    Attributes:
        left, right: L and R, (n, r).
        multiple: of A itself.
        identity: of the identity.
    """

    left: Tensor
    right: Tensor
    multiple: float = 0.0
    identity: float = 0.0

    def scaled(self, by: float) -> MatrixGradient:
        return MatrixGradient(self.left * by, self.right, self.multiple * by, self.identity * by)


def pull_back(
    operators: KernelOperators, gradients: Sequence[MatrixGradient]
) -> tuple[tuple[Tensor | None, ...], Tensor | None]:
    """Σ_t ⟨G_t, dA_t⟩ as gradients of the features (n, d) of each side and of the weights (n,).

    The tiles are evaluated again with derivatives: one pass, memory O(n (d + r)). None for what needs no gradient.

    Raises:
        InputError: a weight of zero needs a gradient, which would be of infinite variance.
    """
    state = operators.state
    assert state is not None  # gradients are attached only where there are features
    weights_need = state.weights is not None and state.weights.requires_grad
    if weights_need and bool((operators.weights == 0).any()):
        raise InputError("weights of zero have no gradient by random probes; drop their points, or use method='exact'.")
    return _Pull(operators, state, gradients).run()


class _Pull:
    def __init__(self, operators: KernelOperators, state: DensityState, gradients: Sequence[MatrixGradient]) -> None:
        self.operators, self.state, self.gradients = operators, state, gradients
        self.root = operators.weights.detach().sqrt()
        self.coordinates: list[Tensor] = []
        self.kernels: list[Kernel] = []
        self.origins: list[tuple[Tensor, Tensor] | None] = []
        for kernel, x in zip(state.kernels, state.features, strict=True):
            with torch.enable_grad():
                leaf = x.detach().requires_grad_(x.requires_grad)
                prepared = kernel.prepare(leaf)[0]
            self.origins.append((leaf, prepared) if prepared.requires_grad else None)
            self.kernels.append(kernel.settled(prepared))
            self.coordinates.append(rounded(kernel, prepared.detach(), operators.dtype))
        self.sums = [None if o is None else torch.zeros_like(o[1]) for o in self.origins]
        self.root_sum = torch.zeros_like(self.root)

    def run(self) -> tuple[tuple[Tensor | None, ...], Tensor | None]:
        with self.operators.arithmetic():
            for rows, columns in self.operators.pairs():
                self._add_tile(rows, columns)
        for total in (*self.sums, self.root_sum):
            if total is not None:
                self.operators.ranks.sum(total)
        features: list[Tensor | None] = []
        for origin, total in zip(self.origins, self.sums, strict=True):
            pulled = None
            if origin is not None:
                leaf, prepared = origin
                (pulled,) = torch.autograd.grad(prepared, leaf, total)
            features.append(pulled)
        if self.state.weights is None or not self.state.weights.requires_grad:
            return tuple(features), None
        return tuple(features), self.root_sum / (2 * self.root) + sum(G.identity for G in self.gradients)

    def _add_tile(self, rows: slice, columns: slice) -> None:
        diagonal = rows == columns
        sides: list[tuple[Tensor, ...]] = []
        for u, total in zip(self.coordinates, self.sums, strict=True):
            parts = (u[rows],) if diagonal else (u[rows], u[columns])
            sides.append(tuple(part.detach().requires_grad_(total is not None) for part in parts))
        with torch.enable_grad():
            blocks = [
                kernel.evaluate(*parts).to(self.operators.dtype)
                for kernel, parts in zip(self.kernels, sides, strict=True)
            ]
            loss = torch.zeros((), dtype=self.operators.dtype, device=self.operators.device)
            for term, G in zip(self.operators.terms, self.gradients, strict=True):
                tile = blocks[term[0]]
                for side in term[1:]:
                    tile = tile * blocks[side]
                loss = loss + (tile * self._tile_gradient(G, tile.detach(), rows, columns)).sum()
        if loss.requires_grad:
            self._collect(loss, sides, rows, columns)

    def _tile_gradient(self, G: MatrixGradient, tile: Tensor, rows: slice, columns: slice) -> Tensor:
        """The gradient with respect to a tile of K and its mirror; that of √w is added up on the way."""
        across = torch.outer(self.root[rows], self.root[columns]).to(tile)
        left = torch.cat([G.left[rows], G.right[rows]], dim=1).to(tile)
        right = torch.cat([G.right[columns], G.left[columns]], dim=1).to(tile)
        gradient = torch.addmm(G.multiple * across * tile, left, right.mT)
        if self.state.weights is not None and self.state.weights.requires_grad:
            pulled = (gradient * tile).to(torch.float64)
            self.root_sum[rows] += 2 * (pulled @ self.root[columns])
            if rows != columns:
                self.root_sum[columns] += 2 * (pulled.mT @ self.root[rows])
        return gradient * across * (1 if rows == columns else 2)

    def _collect(self, loss: Tensor, sides: list[tuple[Tensor, ...]], rows: slice, columns: slice) -> None:
        leaves = [part for parts, total in zip(sides, self.sums, strict=True) if total is not None for part in parts]
        pulled = iter(torch.autograd.grad(loss, leaves, allow_unused=True))
        for parts, total in zip(sides, self.sums, strict=True):
            if total is None:
                continue
            for _, place in zip(parts, (rows, columns), strict=False):
                gradient = next(pulled)
                if gradient is not None:
                    total[place] += gradient
