"""Inner products of rows with themselves, at the cost of one matrix product a direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def inner_products(u: Tensor, v: Tensor | None) -> Tensor:
    """u vᵀ of rows (..., n, d) and (..., m, d), or u uᵀ without `v`; differentiable any number of times."""
    if v is not None:
        return u @ v.mT
    if not (torch.is_grad_enabled() and u.requires_grad):
        return u @ u.mT
    products: Tensor = _SelfProducts.apply(u)
    return products


class _SelfProducts(torch.autograd.Function):
    """u uᵀ, whose gradient (G + Gᵀ) u is one matrix product where autograd would make two."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return u @ u.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        gradient: Tensor = (grads[0] + grads[0].mT) @ u
        return gradient
