"""Exact entropies of a batch at the cost of one decomposition, forward and backward together.

What differs from `condvne.conditional_entropy`: features are multiplied in their own precision (float32 at least), the
gradient with respect to the matrix is made in forward, with the eigenvectors at hand, and the caller has checked the
input. Eigenvalues that carry a gradient are in float64 all the same. Derivatives of the gradient come from
`condvne.core.spectral`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from condvne.core.density import DensityState, weighted_gram
from condvne.core.kernels import Kernel
from condvne.core.spectral import EPSILON, entropy_and_gradient, matrix_entropy, refuse_too_large, spectrum_entropy


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
    marginal = state.marginal((0,))
    if len(kernels) == 1:
        return _entropy(state.matrix(), order, state.epsilon)
    if state.prefers_covariance or marginal.prefers_covariance:
        return _entropy(state.matrix(), order, state.epsilon) - _entropy(marginal.matrix(), order, marginal.epsilon)
    refuse_too_large(state.n, with_vectors=True)
    of_x, of_y = (kernel.evaluate(*kernel.prepare(x)) for kernel, x in zip(kernels, features, strict=True))
    rounding = [EPSILON * kernel.rounding(x) for kernel, x in zip(kernels, features, strict=True)]
    joint = _entropy(weighted_gram(of_x * of_y, weights), order, sum(rounding))
    return joint - _entropy(weighted_gram(of_x, weights), order, rounding[0])


def quick_entropy(A: Tensor, order: float, epsilon: float) -> Tensor:
    """`matrix_entropy` with the gradient made in forward: for a matrix whose backward is sure to come."""
    if not (A.requires_grad and torch.is_grad_enabled()):
        return matrix_entropy(A, order, epsilon=epsilon)
    H: Tensor = _QuickEntropy.apply(A, order, epsilon)
    return H


def _entropy(A: Tensor, order: float, epsilon: float) -> Tensor:
    if A.dtype == torch.float32:
        # Roundings of entries are independent: they move eigenvalues by √n times less than they would together, and
        # eigenvalues below that are noise. (On 512 points in four dimensions the gradient is then right to 1e-5.)
        epsilon *= torch.finfo(A.dtype).eps / EPSILON / A.shape[-1] ** 0.5
        if not (A.requires_grad and torch.is_grad_enabled()) and order != 2.0:
            return _value_alone(A.detach(), order, epsilon)
    return quick_entropy(A, order, epsilon)


def _value_alone(A: Tensor, order: float, epsilon: float) -> Tensor:
    """H without gradient, of entries in float32: eigenvalues in that precision move it by 1e-5 at most."""
    try:
        eigenvalues = torch.linalg.eigvalsh(A.clone() if A.is_cuda else A).to(torch.float64)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return matrix_entropy(A, order, epsilon=epsilon)
    return spectrum_entropy(torch.where(eigenvalues > epsilon, eigenvalues, 0.0), order)


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
