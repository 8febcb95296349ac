"""What guidance costs: precision and recall against real images, and whether images still show their caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.manifold import support
from condvne.core.spectral import in_double
from condvne.errors import InputError

ROWS = 1024  # distances in flight: ROWS × n


@dataclass(frozen=True)
class Quality:
    """Of one group against real images, shares in [0, 1]; None where it was not asked for.

    Attributes:
        images: how many.
        precision: share of images inside a k-nearest-neighbour ball of the real ones (Kynkäänniemi et al. 2019).
        recall: share of real images inside such a ball of the group.
        agreement: share of images most of whose k nearest real ones carry their caption.
    """

    images: int
    precision: float
    recall: float
    agreement: float | None


def qualities(
    real: Tensor,
    real_captions: Sequence[str],
    groups: Mapping[str, tuple[Tensor, Sequence[str]]],
    neighbours: int,
    *,
    agreement: bool,
) -> dict[str, Quality]:
    """Quality of each group: features (m, d) with their captions, against real ones (n, d).

    Raises InputError where a set has no more images than neighbours.
    """
    found = {}
    for name, (features, captions) in groups.items():
        covered = support(real, features, neighbours)
        share = neighbour_agreement(real, real_captions, features, captions, neighbours) if agreement else None
        found[name] = Quality(len(features), covered.precision, covered.recall, share)
    return found


@torch.no_grad()
def neighbour_agreement(
    real: Tensor, real_captions: Sequence[str], features: Tensor, captions: Sequence[str], neighbours: int
) -> float:
    """Share of features (m, d) for which their caption is the commonest among the nearest real ones (n, d).

    Raises InputError where a caption has no real image.

    >>> real = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> neighbour_agreement(real, ["a", "a", "b", "b"], torch.tensor([[0.2], [4.0]]), ["a", "a"], 2)
    0.5
    """
    names = {caption: i for i, caption in enumerate(dict.fromkeys(real_captions))}
    absent = next((caption for caption in captions if caption not in names), None)
    if absent is not None:
        raise InputError(f"caption {absent!r} has no real image to agree with; set agreement: false.")
    labels = torch.tensor([names[c] for c in real_captions], device=real.device)
    wanted = torch.tensor([names[c] for c in captions], device=real.device)
    centres, rows, hits = in_double(real), in_double(features), 0
    for part, own in zip(torch.split(rows, ROWS), torch.split(wanted, ROWS), strict=True):
        nearest = torch.cdist(part, centres).topk(neighbours, largest=False).indices
        votes = torch.zeros(len(part), len(names), device=real.device)
        votes.scatter_add_(1, labels[nearest], torch.ones_like(nearest, dtype=votes.dtype))
        hits += int((votes.argmax(1) == own).sum())
    return hits / len(rows)
