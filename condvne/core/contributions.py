"""Which points an entropy comes from: leading eigenvectors, and every point's share of the von Neumann entropy.

For a density matrix A = Σ λ_k v_k v_kᵀ the entropy H₁ = -tr A log A is a sum over the diagonal of -A log A, so

    h_i = Σ_k v_ik² η(λ_k),   η(λ) = -λ log λ,   Σ_i h_i = H₁.

Two groups of outputs under the same conditions share their marginal, whose terms cancel in the gap of H₁(Y|X): summed
over the points of one condition, the difference of their h_i is what that condition contributes to the gap, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.spectral import refuse_too_large
from condvne.errors import InputError


@dataclass(frozen=True)
class JointSpectrum:
    """The decomposition of a joint density matrix.

    Attributes:
        eigenvalues: (n,), descending, rounding below zero removed.
        weights: (n, n), v_ik²: the share of point i in mode k; columns sum to 1.
    """

    eigenvalues: Tensor
    weights: Tensor

    @property
    def contributions(self) -> Tensor:
        """h_i of every point, (n,), in nats; their sum is the joint entropy of order 1."""
        total: Tensor = self.weights @ torch.special.entr(self.eigenvalues)
        return total

    def leading(self, modes: int, points: int) -> list[tuple[float, Tensor]]:
        """For the first modes: their eigenvalue, the share of all weight, and the points with most weight on them."""
        chosen = range(min(modes, len(self.eigenvalues)))
        order = self.weights[:, : len(chosen)].argsort(dim=0, descending=True, stable=True)
        return [(float(self.eigenvalues[k]), order[:points, k]) for k in chosen]


def joint_spectrum(x: Tensor, y: Tensor, *, kernel_x: Kernel, kernel_y: Kernel) -> JointSpectrum:
    """The spectrum of K_X ∘ K_Y / n.

    Args:
        x, y: features, (n, dx) and (n, dy).
        kernel_x, kernel_y: kernels with fixed bandwidth.

    Raises:
        InputError: rows differ in number, or n is beyond an eigendecomposition.

    >>> from condvne.core.kernels import Cosine
    >>> x = torch.eye(3, dtype=torch.float64)
    >>> found = joint_spectrum(x, x, kernel_x=Cosine(), kernel_y=Cosine())
    >>> [round(h, 4) for h in found.contributions.tolist()]  # log 3 / 3 each
    [0.3662, 0.3662, 0.3662]
    """
    if x.shape[0] != y.shape[0]:
        raise InputError(f"x and y need as many rows as each other, but have {x.shape[0]} and {y.shape[0]}.")
    refuse_too_large(x.shape[0], with_vectors=True)
    state = DensityState((kernel_x, kernel_y), (x.double(), y.double()))
    values, vectors = torch.linalg.eigh(state.density_matrix())
    return JointSpectrum(values.flip(0).clamp(min=0.0), vectors.flip(1).square())


def block_contributions(x: Tensor, y: Tensor, conditions: Tensor, *, kernel_x: Kernel, kernel_y: Kernel) -> Tensor:
    """`contributions` of all points where K_X is zero between conditions: one small decomposition for each condition.

    Args:
        x, y: features, (n, dx) and (n, dy).
        conditions: for each point the number of its condition, (n,), from 0.

    Returns:
        h_i, (n,), as of the whole n × n matrix, which is never made.
    """
    n = x.shape[0]
    found = x.new_zeros(n, dtype=torch.float64)
    for condition in range(int(conditions.max()) + 1):
        rows = torch.nonzero(conditions == condition).squeeze(-1)
        if len(rows) == 0:
            continue
        block = joint_spectrum(x[rows], y[rows], kernel_x=kernel_x, kernel_y=kernel_y)
        # The block's matrix has trace 1 by itself and len(rows) / n within the whole.
        share = len(rows) / n
        found[rows] = block.weights @ torch.special.entr(share * block.eigenvalues)
    return found


def condition_gaps(group: Tensor, reference: Tensor, conditions: Tensor) -> Tensor:
    """What each condition contributes to H₁(Y|X) of a group minus the reference's: (conditions,), in nats.

    Args:
        group, reference: contributions of the points, (n,), of two groups under the same conditions.
        conditions: for each point the number of its condition, (n,), from 0.
    """
    if not group.shape == reference.shape == conditions.shape:
        raise InputError(
            "contributions and conditions must have one shape, but have "
            f"{tuple(group.shape)}, {tuple(reference.shape)} and {tuple(conditions.shape)}."
        )
    gaps = group.new_zeros(int(conditions.max()) + 1)
    return gaps.index_add_(0, conditions, group - reference)
