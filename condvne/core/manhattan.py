"""Manhattan distances that may be differentiated twice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ManhattanDistance(torch.autograd.Function):
    """Σ_d |u_id - v_jd| without an n × m × d temporary, twice differentiable (torch.cdist is so only once)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(u, v)
        return torch.cdist(u, v, p=1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        u, v = ctx.saved_tensors
        pulled: tuple[Tensor, Tensor] = _ManhattanPullback.apply(grads[0], u, v)
        return pulled


class _ManhattanPullback(torch.autograd.Function):
    """(G, u, v) to Σ_j G_ij sign(u_i - v_j) and Σ_i G_ij sign(v_j - u_i): linear in G, locally constant in u and v."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(u, v)
        with torch.enable_grad():
            a, b = u.detach().requires_grad_(), v.detach().requires_grad_()
            to_u, to_v = torch.autograd.grad(torch.cdist(a, b, p=1.0), (a, b), grad.contiguous())
        return to_u, to_v

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        u, v = ctx.saved_tensors
        to_u, to_v = grads
        shape = torch.broadcast_shapes(u.shape[:-2], v.shape[:-2])  # type: ignore[no-untyped-call]
        total = u.new_zeros((*shape, u.shape[-2], v.shape[-2]))
        for d in range(u.shape[-1]):
            sign = torch.sign(u[..., :, None, d] - v[..., None, :, d])
            total += sign * (to_u[..., :, None, d] - to_v[..., None, :, d])
        return total, None, None
