"""Diversity within conditions, between them, and of all outputs together (Jost 2007, for similarities).

With conditions as labels, p_g the weight of condition g and ρ_g the density matrix of its outputs,

    γ = exp H_q(Y)          the Vendi score of all outputs, whose density matrix is Σ p_g ρ_g
    α = exp H_q(Y | X)      the conditional Vendi score with a delta kernel on the conditions
    β = γ / α               the effective number of distinct conditions

At order 1, α is the geometric mean exp Σ p_g H_1(ρ_g), and log β is the mutual information: 1 <= β <= exp H_1(p).
At other orders α^(1-q) = Σ p_g^q tr ρ_g^q / Σ p_g^q; β stays within these bounds for equal weights of the conditions,
and may leave them for unequal ones (it is not clamped).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.entropy import entropy_from_gram
from condvne.errors import InputError


@dataclass(frozen=True)
class Partition:
    """γ of all outputs, α within conditions and β between them: effective numbers, β = γ / α, of order `order`.

    At least one, but for β at other orders than 1 where conditions weigh differently.
    """

    gamma: Tensor
    alpha: Tensor
    beta: Tensor
    order: float
    conditions: int


def partition(
    K: Tensor,
    conditions: Sequence[Hashable] | Tensor,
    *,
    order: float = 1.0,
    weights: Tensor | None = None,
) -> Partition:
    """Partition of the diversity of outputs that belong to conditions.

    Args:
        K: similarities of the outputs, (n, n), positive semidefinite with unit diagonal.
        conditions: of each output, (n,); equal labels are one condition.
        order: q in [0, ∞].
        weights: (n,), non-negative, summing to one; 1/n each by default. A condition weighs what its outputs do.

    Returns:
        scalars, differentiable in `K` and `weights`. β is between 1 and the number of conditions at order 1, and at any
        order where conditions weigh the same; elsewhere it may fall below 1.

    Raises:
        InputError: labels of another number than the rows of K, or that are no labels, such as lists; and as
            `entropy_from_gram`.

    >>> p = partition(torch.eye(4), ["a", "a", "b", "b"])
    >>> float(p.gamma), float(p.alpha), float(p.beta)
    (4.0, 2.0, 2.0)
    """
    joint = entropy_from_gram(K, order=order, weights=weights)  # checks K, order and weights
    labels = conditions.tolist() if isinstance(conditions, Tensor) else list(conditions)
    n = torch.as_tensor(K).shape[-1]
    if torch.as_tensor(K).ndim != 2 or len(labels) != n:
        raise InputError(f"there are {len(labels)} conditions and {n} outputs in K, (n, n): give one label an output.")
    if not all(isinstance(label, Hashable) for label in labels):
        raise InputError("conditions must be labels, such as names or numbers, one an output, not lists or rows.")
    numbers: dict[Hashable, int] = {}
    codes = torch.tensor([numbers.setdefault(label, len(numbers)) for label in labels])
    same = (codes[:, None] == codes).to(torch.as_tensor(K))
    within = entropy_from_gram(K * same, order=order, weights=weights)
    between = entropy_from_gram(same, order=order, weights=weights)
    gamma, alpha = joint.exp(), (within - between).exp()
    return Partition(gamma, alpha, gamma / alpha, float(order), len(numbers))
