"""Precision and recall of support: which points of one set lie within the k-nearest-neighbour balls of another.

The union of balls around the points of a set, each reaching to its k-th nearest neighbour within the set, estimates the
set's support (Kynkäänniemi et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.checks import checked_features
from condvne.core.spectral import in_double
from condvne.errors import InputError

ROWS = 1024  # distances in flight: ROWS × n
NEIGHBOURS = 5


@dataclass(frozen=True)
class Support:
    """Precision and recall of samples against a reference, in [0, 1], with binomial standard errors."""

    precision: float
    recall: float
    precision_error: float
    recall_error: float


@torch.no_grad()
def support(reference: Tensor, samples: Tensor, neighbours: int = NEIGHBOURS) -> Support:
    """How much of the samples lies on the reference's support, and how much of the reference on the samples'.

    Args:
        reference: (n, d).
        samples: (m, d).
        neighbours: k, between 1 and one less than the size of either set; copies of a point are neighbours of it.

    Returns:
        precision, the share of samples within a reference point's ball, and recall, with the sets' parts exchanged.

    Raises:
        InputError: features not finite, of different width, or no more rows than neighbours.

    >>> x = torch.arange(20.0)[:, None]
    >>> support(x, x[:10] + 0.1, neighbours=2).precision
    1.0
    """
    x, y = (in_double(checked_features(f, name)) for f, name in ((reference, "reference"), (samples, "samples")))
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise InputError(f"reference and samples must be (n, d) and (m, d) of one width, but have shapes {shapes}.")
    if not 1 <= neighbours < min(len(x), len(y)):
        raise InputError(
            f"neighbours must be between 1 and {min(len(x), len(y)) - 1}, one less than the smaller set, but is "
            f"{neighbours}."
        )
    precision, recall = _covered(x, y, neighbours), _covered(y, x, neighbours)
    return Support(precision, recall, _error(precision, len(y)), _error(recall, len(x)))


def _covered(centres: Tensor, points: Tensor, k: int) -> float:
    """Share of the points within any centre's ball."""
    reach = torch.cat([_distances(rows, centres).kthvalue(k + 1, dim=1).values for rows in torch.split(centres, ROWS)])
    inside = [int((_distances(rows, centres) <= reach).any(1).sum()) for rows in torch.split(points, ROWS)]
    return sum(inside) / len(points)


def _distances(rows: Tensor, columns: Tensor) -> Tensor:
    # By differences: a point's distance to itself, and to its copies, is then exactly zero.
    return torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")


def _error(share: float, n: int) -> float:
    return float((share * (1 - share) / n) ** 0.5)
