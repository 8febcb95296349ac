"""Entropies of a stream of points or pairs, in one pass and bounded memory, with the error of the sketch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from condvne.core.covariance import SketchedCovariance
from condvne.core.sketched import CONDITIONAL, MARGINAL, SketchEstimate, Terms, estimate
from condvne.core.sketches import JointSketch
from condvne.core.spectral import checked_order
from condvne.core.tensorfiles import read_tensors, write_tensors
from condvne.errors import DataError, InputError

FILE_KIND = "condvne stream"
Sides = tuple[int, ...]


class SketchedStream:
    """The covariances of a sketch over a stream: of its joint features, and with two sides of those of X.

    Args:
        sketch: drawn with bandwidths fixed on a reference, and its mean as origin where data are far from zero.

    >>> import torch
    >>> stream = SketchedStream(JointSketch.draw(("cosine", "cosine"), (4, 5), 256))
    >>> for _ in range(10):
    ...     stream.update(torch.eye(4).repeat(5, 1), torch.eye(5).repeat(4, 1))
    >>> stream.count, round(float(stream.estimate().value.exp()))
    (200, 5)
    """

    def __init__(self, sketch: JointSketch) -> None:
        if not isinstance(sketch, JointSketch):
            raise InputError(f"sketch must be a JointSketch, from JointSketch.draw(...), not {type(sketch).__name__}.")
        self.sketch = sketch
        whole: Sides = tuple(range(len(sketch.kernels)))
        self._covariances = {sides: SketchedCovariance.of(sketch, sides) for sides in dict.fromkeys((whole, (0,)))}

    @property
    def count(self) -> int:
        """Number of samples in the stream."""
        return next(iter(self._covariances.values())).count

    def update(self, *sides: Tensor, weights: Tensor | None = None) -> None:
        """Add points: one (n, d) tensor a side, and (n,) non-negative weights of any sum.

        Raises InputError as `JointSketch.features` and `SketchedCovariance.update`; nothing is added then.
        """
        for covariance, features in self._features(sides):
            covariance.update(features, weights)

    def downdate(self, *sides: Tensor, weights: Tensor | None = None) -> None:
        """Take points out that were added before. Raises InputError as `SketchedCovariance.downdate`."""
        for covariance, features in self._features(sides):
            covariance.downdate(features, weights)

    def merge(self, other: SketchedStream) -> None:
        """Add another stream of the same sketch. Raises InputError where the sketches differ."""
        for covariance, theirs in zip(self._covariances.values(), other._covariances.values(), strict=False):
            covariance.merge(theirs)

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> SketchedStream:
        """The streams of all ranks together, see `SketchedCovariance.all_reduce`."""
        return self._with(lambda covariance: covariance.all_reduce(group))

    def scaled(self, factor: float) -> SketchedStream:
        """A copy with all weights multiplied by a positive factor (to let old samples fade)."""
        return self._with(lambda covariance: covariance.scaled(factor))

    def estimate(self, order: float = 1.0) -> SketchEstimate:
        """H_α(Y|X), or H_α(X) for a sketch of one side. Raises InputError where no sample has come."""
        terms: Terms = MARGINAL if len(self.sketch.kernels) == 1 else CONDITIONAL
        matrices = {sides: covariance.matrix() for sides, covariance in self._covariances.items()}
        return estimate(self.sketch, terms, matrices, checked_order(order), self.count)

    def save(self, path: str | Path) -> None:
        """Write sketch and sums as one safetensors file, whole or not at all. Raises RunError when refused."""
        tensors = {f"sketch.{name}": tensor for name, tensor in self.sketch.tensors.items()}
        tensors |= {f"sum.{i}": covariance.sum() for i, covariance in enumerate(self._covariances.values())}
        counts = next(iter(self._covariances.values()))
        settings: dict[str, Any] = {"sketch": {**self.sketch.settings(), "digest": self.sketch.digest}}
        write_tensors(path, FILE_KIND, tensors, settings | {"count": counts.count, "weight": counts.weight})

    @classmethod
    def load(cls, path: str | Path) -> SketchedStream:
        """A saved stream, on the CPU, to be gone on with. Raises DataError when the file is none or was changed."""
        tensors, settings = read_tensors(path, FILE_KIND)
        drawn = {k.removeprefix("sketch."): t for k, t in tensors.items() if k.startswith("sketch.")}
        stream = cls(JointSketch.restored(drawn, _mapping(settings.get("sketch")), where=str(path)))
        try:
            for i, covariance in enumerate(stream._covariances.values()):
                covariance.restore(tensors[f"sum.{i}"], settings["count"], settings["weight"])
        except (KeyError, InputError) as error:
            raise DataError(f"{path}: the sums of the stream cannot be read ({error}); save it again.") from error
        return stream

    def _features(self, sides: tuple[Tensor, ...]) -> list[tuple[SketchedCovariance, Tensor]]:
        whole = self.sketch.features(*sides)
        features = [whole, self.sketch.marginal(sides[0])] if len(sides) > 1 else [whole]
        return list(zip(self._covariances.values(), features, strict=True))

    def _with(self, change: Callable[[SketchedCovariance], SketchedCovariance]) -> SketchedStream:
        changed = SketchedStream(self.sketch)
        changed._covariances = {sides: change(covariance) for sides, covariance in self._covariances.items()}
        return changed


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
