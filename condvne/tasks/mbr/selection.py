"""Minimum Bayes risk: the candidate of the highest expected utility under a method's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TIE = 1e-12  # expected utilities this close are equal but for rounding


@dataclass(frozen=True)
class Selection:
    """What one method chose with one utility.

    Attributes:
        chosen: for each input the place of its output among the distinct candidates.
        expected: its expected utility.
        ties: inputs in which another candidate had the same one; the candidate that was drawn first is taken.
    """

    chosen: list[int]
    expected: list[float]
    ties: int


def select(utilities: Sequence[Tensor], weights: Sequence[Tensor]) -> Selection:
    """argmax_h Σ_y w(y) u(h, y) of every input, the candidate itself among the y.

    Args:
        utilities: a matrix u(h, y) for each input, (k, k).
        weights: for each input (k,).

    >>> u = torch.tensor([[1.0, 0.2, 0.1], [0.2, 1.0, 0.9], [0.1, 0.9, 1.0]], dtype=torch.float64)
    >>> select([u], [torch.ones(3, dtype=torch.float64) / 3]).chosen
    [1]
    """
    chosen, expected, ties = [], [], 0
    for u, w in zip(utilities, weights, strict=True):
        values = u @ w.to(u)
        best = torch.nonzero(values >= values.max() - TIE).flatten()
        ties += len(best) > 1
        chosen.append(int(best[0]))
        expected.append(float(values[best[0]]))
    return Selection(chosen, expected, ties)
