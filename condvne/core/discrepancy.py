"""Maximum mean discrepancies of weighted points under a product kernel, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from condvne.core.kernels import Kernel
from condvne.core.spectral import in_double

TILE = 1024  # rows of kernel values in flight


@torch.no_grad()
def squared_norms(kernels: Sequence[Kernel], features: Sequence[Tensor], measures: Tensor) -> Tensor:
    """wᵀ K w of signed measures w on shared points, K the product of one kernel a side.

    Of the difference of two distributions this is their squared maximum mean discrepancy.

    Args:
        kernels: one for each side, bandwidth fixed.
        features: one for each side, (n, d).
        measures: (k, n), any signs.

    Returns:
        (k,), float64, at least 0. Memory is that of tiles, whatever n.

    >>> from condvne.core.kernels import Delta
    >>> squared_norms([Delta()], [torch.tensor([[0.0], [1.0]])], torch.tensor([[0.5, -0.5]]))
    tensor([0.5000], dtype=torch.float64)
    """
    prepared = [kernel.prepare(in_double(x))[0] for kernel, x in zip(kernels, features, strict=True)]
    weights = in_double(measures).to(prepared[0].device)
    spans = [slice(start, start + TILE) for start in range(0, weights.shape[1], TILE)]
    total = weights.new_zeros(weights.shape[0])
    for place, rows in enumerate(spans):
        for columns in spans[place:]:
            tile = math.prod((_block(k, u, rows, columns) for k, u in zip(kernels, prepared, strict=True)), start=1.0)
            form = ((weights[:, rows] @ tile) * weights[:, columns]).sum(1)
            total += form if rows == columns else 2 * form
    return total.clamp(min=0.0)


def _block(kernel: Kernel, prepared: Tensor, rows: slice, columns: slice) -> Tensor:
    return kernel.evaluate(prepared[rows]) if rows == columns else kernel.evaluate(prepared[rows], prepared[columns])
