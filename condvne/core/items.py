"""Sets of items as their profiles see them: distances, and the similarities that Vendi takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

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
        if self.similarities is not None and checked_gram(self.similarities).values.shape != (n, n):
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
        x = in_double(checked_features(x, name))
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
    """One set a name, comparable: the bandwidth of "euclidean" similarities is that of the first, the reference."""
    if not features:
        raise InputError("there are no sets of items; pass at least one.")
    bandwidth = None
    if metric == "euclidean":
        name, reference = next(iter(features.items()))
        bandwidth = float(Gaussian().fit(checked_features(reference, name)).fixed_bandwidth or 0)
    return {name: ItemSet.from_features(x, metric, bandwidth=bandwidth, name=name) for name, x in features.items()}
