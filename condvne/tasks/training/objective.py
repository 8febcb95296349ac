"""From an entropy to a loss: maximise it, or bring it within a margin of a target."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from condvne.core.spectral import as_number
from condvne.errors import InputError


@dataclass(frozen=True)
class Objective:
    """-H without a target; with one, max(0, |H - target| - margin): zero within the margin, of unit slope outside.

    The slope has the same size in both cases, so that a weight found for one serves the other.

    Args:
        target: nats, non-negative; measure it with the loss's own `entropy(...)` on data, batches of the same size.
        margin: nats, non-negative; only with a target.
    """

    target: float | None = None
    margin: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("target", self.target), ("margin", self.margin)):
            if value is None:
                continue
            number = as_number(value)
            if number is None or not 0 <= number < math.inf:
                raise InputError(f"{name} of an entropy loss must be finite and non-negative, but is {value!r}.")
        if self.target is None and self.margin:
            raise InputError(f"margin={self.margin} has no meaning without a target: give target=..., or leave it out.")

    def __call__(self, entropy: Tensor) -> Tensor:
        """The loss of each entropy (...), nats."""
        if self.target is None:
            return -entropy
        return ((entropy - self.target).abs() - self.margin).clamp(min=0.0)
