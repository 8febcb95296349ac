"""Outputs drawn by their weights, the same for a condition whatever the others are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from condvne.data.text.generation import uniforms

DRAW = "resample"  # names the uniform numbers of a condition


def drawn(weights: Tensor, owners: Tensor, ids: Sequence[str], number: int, seed: int) -> Tensor:
    """Places (N, number) of candidates drawn by their weights, with replacement.

    The seed and a condition's id give its uniform numbers, so that weights before and after are drawn by the same
    ones, and more draws begin with fewer.

    Args:
        weights: (M,), non-negative, of positive sum for each condition.
        owners: (M,), the condition of each candidate, ascending from 0 to N - 1.
        ids: (N,), of the conditions.
    """
    counts = torch.bincount(owners.cpu(), minlength=len(ids)).tolist()
    flat = weights.double().cpu().numpy()
    places, start = np.empty((len(ids), number), dtype=np.int64), 0
    for row, (name, count) in enumerate(zip(ids, counts, strict=True)):
        part = flat[start : start + count]
        sums = part.cumsum()
        found = np.searchsorted(sums, uniforms(seed, DRAW, name, number) * sums[-1], side="right")
        places[row] = start + found.clip(max=int(np.flatnonzero(part)[-1]))  # rounding must not reach one of weight 0
        start += count
    return torch.from_numpy(places)
