"""Scores of a set of items from the distances between them: what does not need a solver.

Circles and magnitude have modules of their own; Vendi of any order is `entropy_from_gram` of a similarity matrix.
Larger always means more diverse. All functions take distances D (n, n), n >= 2, and raise InputError where these are
not finite, negative, asymmetric or non-zero on the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from condvne.core.distances import Distances, checked_distances, distinct_items, duplicates_named
from condvne.core.spectral import as_number
from condvne.errors import InputError

LOG_LARGEST = math.log(torch.finfo(torch.float64).max)


def richness(D: Tensor) -> int:
    """The number of distinct items: those at distance zero from each other count once.

    >>> richness(torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    2
    """
    return len(distinct_items(checked_distances(D)))


def average_distance(D: Tensor) -> Tensor:
    """Mean distance of two different items, Σ_{i≠j} d_ij / (n (n - 1)); differentiable.

    >>> round(float(average_distance(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]))), 4)
    1.3333
    """
    found = checked_distances(D)
    return found.pairs.mean().to(found.dtype)


def energy(D: Tensor, exponent: float, *, epsilon: float | None = None) -> Tensor:
    """Riesz energy with the sign of a diversity: -Σ_{i≠j} d_ij^-s / (n (n - 1)).

    Args:
        D: distances (n, n).
        exponent: s, positive and finite.
        epsilon: distances below it count as it, without gradient; None refuses distances of zero.

    Returns:
        a number at most 0, differentiable in `D`.

    Raises:
        InputError: an exponent or epsilon out of range; items at distance zero (named) and no epsilon; a result beyond
            the range of floats.

    >>> float(energy(torch.tensor([[0.0, 0.5], [0.5, 0.0]]), 2.0))
    -4.0
    """
    found = checked_distances(D)
    return energies(found, (exponent,), epsilon=epsilon)[0].to(found.dtype)


def energies(found: Distances, exponents: Sequence[float], *, epsilon: float | None = None) -> Tensor:
    """Energies (exponents,) of checked distances, float64."""
    for s in exponents:
        number = as_number(s)
        if number is None or not 0 < number < math.inf:
            raise InputError(f"the exponent of an energy must be positive and finite, but is {s!r}.")
    logs = torch.log(_apart(found, epsilon))
    largest = -float(logs.detach().min()) * max(exponents)
    if largest > LOG_LARGEST:
        nearest = math.exp(float(logs.detach().min()))
        raise InputError(
            f"the energy of exponent {max(exponents):g} overflows: the nearest items are {nearest:.3g} apart; "
            "use a smaller exponent, other units, or epsilon."
        )
    return torch.stack([-torch.exp(-float(s) * logs).mean() for s in exponents])


def _apart(found: Distances, epsilon: float | None) -> Tensor:
    """Distances of pairs, all positive."""
    if epsilon is not None:
        number = as_number(epsilon)
        if number is None or not 0 < number < math.inf:
            raise InputError(f"epsilon must be positive and finite, but is {epsilon!r}.")
        return found.pairs.clamp(min=number)
    twins = duplicates_named(found)
    if twins is not None:
        raise InputError(
            f"items {twins} are at distance 0, where the energy is infinite; merge the duplicates, or give epsilon, "
            "the least distance that counts."
        )
    return found.pairs
