"""Distances between items: from features, or the caller's own matrix, checked once and brought to float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.checks import NAMED_ROWS, answer_dtype, checked_features
from condvne.core.kernels import Cosine
from condvne.core.spectral import in_double
from condvne.errors import InputError

Metric = Literal["euclidean", "cosine", "tanimoto"]
METRICS: tuple[Metric, ...] = ("euclidean", "cosine", "tanimoto")
COSINE_NOISE = 1e-14  # cosine distances below this are those of one direction at two lengths, rounded


@dataclass(frozen=True)
class Distances:
    """A checked matrix of distances.

    Attributes:
        values: (n, n), float64, symmetric, zero on the diagonal; carries the gradient of what was given.
        dtype: precision of the answer.
    """

    values: Tensor
    dtype: torch.dtype

    @property
    def n(self) -> int:
        return self.values.shape[0]

    @property
    def pairs(self) -> Tensor:
        """(n (n - 1) / 2,), every pair of items once."""
        above = torch.triu_indices(self.n, self.n, offset=1, device=self.values.device)
        return self.values[above[0], above[1]]


def distances(x: Tensor, metric: Metric = "euclidean") -> Tensor:
    """Distances between the rows of features.

    Args:
        x: (n, d); zeros and ones (fingerprints) for "tanimoto".
        metric: "euclidean" |z - z'|; "cosine" 1 - cos(z, z'), in [0, 2]; "tanimoto" 1 - |z ∧ z'| / |z ∨ z'|, in [0, 1]
            and zero between two rows without a bit.

    Returns:
        (n, n) in the precision of `x`, exactly zero between equal rows (and, for "cosine", rows of one direction);
        differentiable for "euclidean" and "cosine", with a zero gradient between equal rows.

    Raises:
        InputError: features are not (n, d) or not finite; a row has no direction (cosine); a value is neither zero
            nor one (tanimoto); an unknown metric.

    >>> distances(torch.tensor([[1, 1, 0], [0, 1, 1]]), "tanimoto")[0, 1].item()
    0.6666666666666666
    """
    if metric not in METRICS:
        raise InputError(f"no metric {metric!r}: give one of {', '.join(METRICS)}.")
    checked = checked_features(x, "x")
    if checked.ndim != 2:
        raise InputError(f"x must have shape (n, d), but has shape {tuple(checked.shape)}.")
    with torch.autocast(checked.device.type, enabled=False):
        rows = in_double(checked)
        if metric == "tanimoto":
            return _tanimoto(rows).to(answer_dtype(checked.dtype))
        if metric == "cosine":
            # |u - v|² / 2 rather than 1 - ⟨u, v⟩: small distances keep their digits.
            half = _euclidean(Cosine().feature_map(rows)).square() / 2
            return half.masked_fill(half.detach() < COSINE_NOISE, 0.0).to(answer_dtype(checked.dtype))
        return _euclidean(rows).to(answer_dtype(checked.dtype))


def _euclidean(rows: Tensor) -> Tensor:
    # Differences, not inner products: only so do equal rows have a distance of exactly zero.
    found: Tensor = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return found


def _tanimoto(rows: Tensor) -> Tensor:
    stray = ((rows != 0) & (rows != 1)).any(-1)
    if bool(stray.any()):
        raise InputError(
            f"Tanimoto distances are of fingerprints, but x holds other values than 0 and 1 in rows "
            f"{named_places(stray)}; use 'cosine', or binarise the features."
        )
    both = rows @ rows.mT
    bits = torch.diagonal(both)
    either = bits[:, None] + bits[None, :] - both
    return torch.where(either > 0, (either - both) / either.clamp(min=1), 0.0)


def checked_distances(D: Tensor, *, name: str = "D") -> Distances:
    """Distances (n, n) of at least two items.

    Raises InputError where they are not square, not finite, negative, asymmetric or non-zero on the diagonal, naming
    the rows.
    """
    if getattr(D, "ndim", 2) != 2:
        raise InputError(f"{name} must be square, (n, n), but has shape {tuple(D.shape)}.")
    D = checked_features(D, name)  # finite, rows named
    if D.shape[0] != D.shape[1]:
        raise InputError(f"{name} must be square, (n, n), but has shape {tuple(D.shape)}; features go to distances().")
    if D.shape[0] < 2:
        raise InputError(f"{name} holds {D.shape[0]} items: diversity is of at least two; pass more.")
    values = in_double(D)
    seen = values.detach()
    if bool((seen < 0).any()):
        raise InputError(f"{name} holds negative distances at {named_places(seen < 0)}; distances are at least zero.")
    epsilon = torch.finfo(D.dtype if D.is_floating_point() else torch.float64).eps
    tolerance = max(1e-5, epsilon**0.5) * float(seen.max())
    off = torch.diagonal(seen) > tolerance
    if bool(off.any()):
        raise InputError(
            f"the diagonal of {name} is not zero in rows {named_places(off)}: an item is at distance zero from itself "
            "(are these similarities?)."
        )
    uneven = (seen - seen.mT).abs() > tolerance
    if bool(uneven.any()):
        raise InputError(f"{name} is not symmetric at {named_places(uneven)}; use (D + D.T) / 2, or check the metric.")
    if bool((seen != seen.mT).any()) or bool((torch.diagonal(seen) != 0).any()):
        eye = torch.eye(len(seen), dtype=torch.bool, device=seen.device)
        values = ((values + values.mT) / 2).masked_fill(eye, 0.0)
    return Distances(values, answer_dtype(D.dtype))


@torch.no_grad()
def distinct_items(found: Distances) -> Tensor:
    """The first row (m,) of each set of items at distance zero from each other.

    Raises InputError where items at distance zero are at different distances from a third: they cannot be merged.
    """
    D = found.values
    if not bool((found.pairs == 0).any()):
        return torch.arange(found.n, device=D.device)
    first = (D == 0).to(torch.uint8).argmax(-1)  # D_ii = 0, so every row has one
    off = (D - D[first]).abs().amax(-1)
    worst = int(off.argmax())
    if float(off[worst]) > 1e-6 * float(D.max()):
        raise InputError(
            f"items {int(first[worst])} and {worst} are at distance 0, but not equally far from the others; "
            "they cannot be merged: check the metric."
        )
    rows: Tensor = torch.unique(first[first])  # through rounding, a twin's first twin may have an earlier one
    return rows


def duplicates_named(found: Distances) -> str | None:
    """The first few pairs of rows at distance zero, and how many there are; None where items are distinct."""
    zero = torch.nonzero(torch.triu(found.values.detach() == 0, diagonal=1)).tolist()
    if not zero:
        return None
    named = ", ".join(f"{i} and {j}" for i, j in zero[:NAMED_ROWS])
    return named if len(zero) <= NAMED_ROWS else f"{named}, … ({len(zero)} pairs in all)"


def named_places(at: Tensor) -> str:
    """The first few places where a mask is true, and how many there are."""
    places = torch.nonzero(at).tolist()
    named = ", ".join(str(p[0] if len(p) == 1 else tuple(p)) for p in places[:NAMED_ROWS])
    return named if len(places) <= NAMED_ROWS else f"{named}, … ({len(places)} in all)"
