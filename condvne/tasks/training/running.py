"""The entropy of a batch together with those before it, from the covariances of a sketch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from condvne.core.covariance import refuse_other_norms
from condvne.core.featuremaps import SketchMethod
from condvne.core.kernels import Kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import EPSILON
from condvne.tasks.training.exact import quick_entropy

Sides = tuple[int, ...]


class RunningSketch:
    """Covariances of a sketch: the present batch with its gradient, past ones fading and without.

    C = (γ S_past + S_batch) / (γ n_past + n_batch). Only the share n_batch / (γ n_past + n_batch) of it carries a
    gradient, which is multiplied by the inverse of that share: the batch stands for all rows, and the strength of the
    loss does not depend on the length of the memory.

    Args:
        sketch: drawn with bandwidths fixed.
        decay: γ in [0, 1): the factor by which all past batches fade at each new one.
    """

    def __init__(self, sketch: JointSketch, decay: float) -> None:
        self.sketch = sketch
        self.decay = decay
        self.past: dict[Sides, Tensor] = {}
        self.rows = 0.0

    @classmethod
    def fitted(
        cls,
        kernels: Sequence[Kernel],
        features: Sequence[Tensor],
        num_features: int,
        method: SketchMethod,
        seed: int,
        decay: float,
    ) -> RunningSketch:
        """A sketch around the mean of some features, in their precision."""
        dims = [x.shape[-1] for x in features]
        origins = [x.detach().mean(0) for x in features]
        dtype, device = features[0].dtype, features[0].device
        sketch = JointSketch.draw(
            kernels, dims, num_features, seed, method=method, origins=origins, dtype=dtype, device=device
        )
        return cls(sketch, decay)

    def sums(self, features: Sequence[Tensor], weights: Tensor | None) -> dict[Sides, Tensor]:
        """Σ w_i ψ_i ψ_iᵀ, (r, r), of the joint features and, with two sides, of those of X; zero without rows."""
        sets = {tuple(range(len(features))): self.sketch.features(*features)}
        if len(features) > 1:
            sets[(0,)] = self.sketch.marginal(features[0])
        found = {}
        for sides, psi in sets.items():
            refuse_other_norms(psi.detach())
            found[sides] = (psi if weights is None else psi * weights[:, None].to(psi.dtype)).mT @ psi
        return found

    def entropy(self, sums: Mapping[Sides, Tensor], rows: float, order: float) -> Tensor:
        """H_α of the batch's sums (whose trace is `rows`) together with the past; (), nats, float64."""
        past = self.decay * self.rows
        total = None
        for sides, batch in sums.items():
            S = batch
            if past:
                S = _with_gradient_scaled(batch, (past + rows) / rows) + self.decay * self.past[sides].to(batch)
            H = quick_entropy(S / (past + rows), order, self.epsilon)
            total = H if total is None else total - H
        assert total is not None  # a sketch has a side
        return total

    def remember(self, sums: Mapping[Sides, Tensor], rows: float) -> None:
        """Let the past fade and add a batch to it, without its graph."""
        for sides, batch in sums.items():
            still = batch.detach().to(torch.float64)
            self.past[sides] = (
                still + self.decay * self.past[sides].to(still.device) if sides in self.past else still.clone()
            )
        self.rows = self.decay * self.rows + rows

    @property
    def epsilon(self) -> float:
        """Relative rounding of the sums."""
        return EPSILON if self.sketch.dtype == torch.float64 else 2 * torch.finfo(torch.float32).eps

    def state(self) -> dict[str, Any]:
        """Tensors, numbers and strings from which `restored` makes the same running sketch."""
        settings = json.dumps({**self.sketch.settings(), "digest": self.sketch.digest})
        tensors = {name: tensor.cpu() for name, tensor in self.sketch.tensors.items()}
        past = {",".join(map(str, sides)): total.cpu() for sides, total in self.past.items()}
        return {"settings": settings, "tensors": tensors, "past": past, "rows": self.rows}

    @classmethod
    def restored(cls, state: Mapping[str, Any], decay: float) -> RunningSketch:
        """Raises DataError where the state does not match its checksum."""
        sketch = JointSketch.restored(state["tensors"], json.loads(state["settings"]), where="the state of the loss")
        running = cls(sketch, decay)
        running.past = {tuple(map(int, sides.split(","))): total for sides, total in state["past"].items()}
        running.rows = float(state["rows"])
        return running


def _with_gradient_scaled(tensor: Tensor, factor: float) -> Tensor:
    still = tensor.detach()
    return still + factor * (tensor - still)
