"""Sets of items as their profiles see them: distances, and the similarities that Vendi takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from condvne.core.checks import checked_features, checked_gram
from condvne.core.distances import Distances, Metric, checked_distances, distances
from condvne.core.kernels import Cosine, Gaussian
from condvne.core.spectral import in_double
from condvne.errors import InputError


@dataclass(frozen=True)
class ItemSet:
    """Items with distances and, for Vendi, similarities.

    Attributes:
        distances: (n, n), n >= 2.
        similarities: (n, n), positive semidefinite with unit diagonal; None leaves Vendi out.
        representation: what the distances are of, in words; profiles of unlike representations are not compared.
        name: of the set, in sentences.
    """

    distances: Tensor
    similarities: Tensor | None = None
    representation: str = "distances"
    name: str = "the set"

    def __post_init__(self) -> None:
        n = self.checked.n
        object.__setattr__(self, "distances", torch.as_tensor(self.distances))  # arrays and nested lists, too
        if self.similarities is None:
            return
        object.__setattr__(self, "similarities", torch.as_tensor(self.similarities))
        if checked_gram(self.similarities).values.shape != (n, n):
            shape = tuple(self.similarities.shape)
            raise InputError(
                f"{self.name}: similarities have shape {shape} and distances {(n, n)}; pass both of one set."
            )

    @classmethod
    def from_features(
        cls, x: Tensor, metric: Metric = "cosine", *, bandwidth: float | None = None, name: str = "the set"
    ) -> ItemSet:
        """Distances and similarities of the rows of features (n, d).

        Similarities are 1 - distance for "cosine" and "tanimoto", a Gaussian kernel for "euclidean", whose `bandwidth`
        is the median heuristic on `x` unless given; sets that are compared need one bandwidth (see `item_sets`).
        """
        x = in_double(_matrix(x, name))
        D = distances(x, metric)
        if metric != "euclidean":
            if bandwidth is not None:
                raise InputError(f"{metric} similarities have no bandwidth; leave it out.")
            return cls(D, Cosine().gram(x) if metric == "cosine" else 1 - D, f"{metric} distance", name)
        kernel = Gaussian(bandwidth).fit(x)
        words = f"euclidean distance, Gaussian bandwidth {kernel.fixed_bandwidth:.6g}"
        return cls(D, kernel.gram(x), words, name)

    @cached_property
    def checked(self) -> Distances:
        return checked_distances(self.distances, name=f"the distance matrix of {self.name}")

    @property
    def n(self) -> int:
        return self.checked.n

    def subset(self, rows: Tensor) -> ItemSet:
        """Some of the items, (m,) rows."""
        similarities = None if self.similarities is None else self.similarities[rows][:, rows]
        return ItemSet(self.checked.values[rows][:, rows], similarities, self.representation, self.name)


def item_sets(features: Mapping[str, Tensor], metric: Metric = "cosine") -> dict[str, ItemSet]:
    """One set a name, comparable: the bandwidth of "euclidean" similarities is that of the first, the reference.

    Raises InputError as `ItemSet.from_features`, where there is no set, or widths differ.
    """
    if not features:
        raise InputError("there are no sets of items; pass at least one.")
    widths = {name: _matrix(x, name).shape[1] for name, x in features.items()}
    if len(set(widths.values())) > 1:
        found = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise InputError(f"features (n, d) of all sets must have one width d, but have {found}.")
    bandwidth = None
    if metric == "euclidean":
        name, reference = next(iter(features.items()))
        bandwidth = float(Gaussian().fit(checked_features(reference, name)).fixed_bandwidth or 0)
    return {name: ItemSet.from_features(x, metric, bandwidth=bandwidth, name=name) for name, x in features.items()}


def _matrix(x: Tensor, name: str) -> Tensor:
    x = checked_features(x, name)
    if x.ndim != 2:
        raise InputError(f"{name} must have shape (n, d), but has shape {tuple(x.shape)}.")
    return x
