"""Exact entropies of a batch at the cost of one decomposition, forward and backward together.

What differs from `condvne.conditional_entropy`: features are multiplied in their own precision (float32 at least), the
gradient with respect to the matrix is made in forward, with the eigenvectors at hand, and the caller has checked the
input. Eigenvalues are in float64 all the same. Derivatives of the gradient come from `condvne.core.spectral`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.spectral import EPSILON, entropy_and_gradient, matrix_entropy, purity_entropy


def batch_entropy(
    kernels: Sequence[Kernel], features: Sequence[Tensor], weights: Tensor | None, order: float
) -> Tensor:
    """H_α(X) of one side, H_α(Y|X) = H_α(XY) - H_α(X) of two.

    Args:
        kernels: one a side, bandwidth fixed.
        features: one a side, (..., n, d), finite, float32 or float64; leading shapes broadcast.
        weights: (..., n), non-negative, of sum one; 1/n each by default.
        order: α in [0, ∞].

    Returns:
        (...), nats, float64, twice differentiable.
    """
    state = DensityState(tuple(kernels), tuple(features), weights)
    H = _state_entropy(state, order)
    return H if len(kernels) == 1 else H - _state_entropy(state.marginal((0,)), order)


def quick_entropy(A: Tensor, order: float, epsilon: float) -> Tensor:
    """`matrix_entropy` with the gradient made in forward: for a matrix whose backward is sure to come."""
    if not (A.requires_grad and torch.is_grad_enabled()):
        return matrix_entropy(A, order, epsilon=epsilon)
    H: Tensor = _QuickEntropy.apply(A, order, epsilon)
    return H


def _state_entropy(state: DensityState, order: float) -> Tensor:
    single = all(x.dtype == torch.float32 for x in state.features)
    epsilon = state.epsilon * (torch.finfo(torch.float32).eps / EPSILON if single else 1.0)
    if order == 2.0:
        return purity_entropy(state.purity().to(torch.float64), epsilon=epsilon)
    return quick_entropy(state.matrix(), order, epsilon)


class _QuickEntropy(torch.autograd.Function):
    """H of density matrices; the gradient is kept from forward, its own derivative is made when asked for."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, order: float, epsilon: float) -> Tensor:
        H, gradient = entropy_and_gradient(A, order, epsilon=epsilon)
        ctx.save_for_backward(A, gradient)
        ctx.order, ctx.epsilon = order, epsilon
        return H

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        A, gradient = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return grads[0][..., None, None].to(gradient) * gradient, None, None
        H = matrix_entropy(A, ctx.order, epsilon=ctx.epsilon)
        (again,) = torch.autograd.grad(H, A, grads[0], create_graph=True)
        return again, None, None
