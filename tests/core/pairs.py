"""Correlated Gaussian pairs whose conditional entropy is known."""

from __future__ import annotations

import torch
from torch import Tensor

from condvne.core.groups import OutputGroup


def gaussian_groups(n: int, seed: int) -> tuple[Tensor, dict[str, OutputGroup]]:
    """Two groups of outputs correlated 0.6 and 0.8 with the same conditions: the first is more diverse."""
    generator = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    other = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    owners = torch.arange(n)
    loose, tight = 0.6 * x + 0.8 * noise, 0.8 * x + 0.6 * other
    return x, {"loose": OutputGroup(loose, owners), "tight": OutputGroup(tight, owners)}
