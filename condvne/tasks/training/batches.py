"""The entropy of batches as they come: checked, exchanged between processes, measured by one ruler."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from condvne.core.checks import NAMED_ROWS, answer_dtype, check_leading_shapes, checked_features
from condvne.core.collectives import NAMES, Rows, agreed_rows, in_company
from condvne.core.featuremaps import SketchMethod, checked_num_features
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.sketches import kernel_from_settings, kernel_settings
from condvne.core.spectral import as_number, checked_order
from condvne.errors import InputError
from condvne.tasks.training.exact import batch_entropy
from condvne.tasks.training.objective import Objective
from condvne.tasks.training.running import RunningSketch

COLLAPSED = 1e-5  # nats, below which equal rows are looked for
SINGLE = (
    "a batch of one row has entropy 0 and no gradient; enlarge it, gather over processes, or remember past batches "
    "with num_features and decay."
)
COLLAPSE = (
    "all rows of a batch are equal: its entropy is 0 and its gradient too, so this loss cannot move them apart; check "
    "the model, or add noise."
)


COLLAPSE_OF_SKETCH = (
    "all rows of a batch are equal: what the sketch gives as entropy and gradient is its own noise; check the model, "
    "or add noise."
)


class BatchOptions(TypedDict, total=False):
    """Options of `BatchEntropy` that every loss takes."""

    order: float
    num_features: int | None
    decay: float
    method: SketchMethod
    seed: int
    gather: bool
    group: dist.ProcessGroup | None


class BatchEntropy:
    """H_α(X), or H_α(Y|X), of batch after batch.

    Args:
        kernels: one for X, or one for X and one for Y. An open bandwidth is the median of the first batch whose rows
            differ, and then kept: one ruler for the whole training.
        order: α in [0, ∞].
        num_features: r of a sketch; None for the exact kernel.
        decay: γ in [0, 1), the factor by which past batches fade at each new one; needs a sketch. The memory is about
            1 / (1 - γ) batches long.
        method, seed: of the sketch, see `condvne.core.sketches.JointSketch.draw`.
        gather: whether the batches of all processes of `torch.distributed` are one batch. Every process must then call.
        group: those processes; all by default.

    Raises InputError where one of them is out of range.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel | str],
        order: float = 1.0,
        num_features: int | None = None,
        decay: float = 0.0,
        method: SketchMethod = "auto",
        seed: int = 0,
        gather: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.kernels = tuple(as_kernel(kernel) for kernel in kernels)
        self.order = checked_order(order)
        self.num_features = None if num_features is None else checked_num_features(num_features)
        fade = as_number(decay)
        if fade is None or not 0 <= fade < 1:
            raise InputError(f"decay must be in [0, 1), but is {decay!r}.")
        if fade and num_features is None:
            raise InputError("decay needs a sketch, whose covariances remember past batches: give num_features, too.")
        if method not in get_args(SketchMethod):
            raise InputError(f"method must be one of {', '.join(get_args(SketchMethod))}, but is {method!r}.")
        if method != "auto" and num_features is None:
            raise InputError(f"method {method!r} is of a sketch: give num_features, too, or leave method out.")
        self.decay, self.method, self.seed = fade, method, seed
        self.gather, self.group = gather, group
        self.running: RunningSketch | None = None
        self._warned = False

    def entropies(
        self, sides: Sequence[Tensor], weights: Tensor | None = None, *, remember: bool = False
    ) -> tuple[Tensor, Rows | None]:
        """Entropies (...) of the batch, or of each of its groups, in nats; and how it lies over the processes.

        Args:
            sides: features (n, d), or (..., n, d) for independent groups, which no sketch takes.
            weights: (..., n), non-negative; divided by their sum.
            remember: whether the batch joins the memory.

        Raises:
            InputError: see `condvne.tasks.training.conditional_entropy_loss`.
        """
        with torch.autocast(sides[0].device.type, enabled=False):
            features, w, rows = self._exchangeable(sides, weights)
            dtype = answer_dtype(features[0].dtype)
            if features[0].ndim > 2 or features[-1].ndim > 2:
                H = self._exact(features, _distribution(w))
            elif self.num_features is None:
                if rows:
                    features, w = _gathered(rows, features, w)
                H = self._exact(features, _distribution(w))
            else:
                H = self._sketched(features, w, rows, remember)
            return H.to(dtype), rows

    def loss(
        self, objective: Objective, sides: Sequence[Tensor], weights: Tensor | None = None, *, remember: bool = False
    ) -> Tensor:
        """The objective of the batch, or its mean over the groups of all processes; ()."""
        H, rows = self.entropies(sides, weights, remember=remember)
        losses = objective(H)
        if losses.ndim == 0 or rows is None:
            return losses.mean()
        parts = [losses.sum().reshape(1, 1), losses.new_full((1, 1), losses.numel())]
        total, count = rows.sum(parts, (any(rows.wanted), False))
        return (total / count).squeeze()

    def state(self) -> dict[str, Any]:
        """What has been learnt of the data: bandwidths, sketch, memory; tensors, numbers and strings."""
        kernels = json.dumps([kernel_settings(kernel) for kernel in self.kernels])
        return {"kernels": kernels, "running": None if self.running is None else self.running.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state()`. Raises InputError where it belongs to other kernels or another number of features."""
        kernels = tuple(kernel_from_settings(settings) for settings in json.loads(state["kernels"]))
        running = None if state["running"] is None else RunningSketch.restored(state["running"], self.decay)
        kinds = [type(kernel) for kernel in kernels] == [type(kernel) for kernel in self.kernels]
        if not kinds or (running is not None and running.sketch.num_features != self.num_features):
            raise InputError("the state belongs to a loss of other kernels or num_features; make the loss as it was.")
        self.kernels, self.running = kernels, running

    def _exact(self, features: Sequence[Tensor], weights: Tensor | None) -> Tensor:
        H = batch_entropy(self._fitted(features), features, weights, self.order)
        if not self._warned and float(H.detach().amin()) < COLLAPSED:
            if features[0].shape[-2] == 1:
                self._warn(SINGLE)
            elif _collapsed(features[-1].detach()):
                self._warn(COLLAPSE)
        return H

    def _sketched(
        self, features: Sequence[Tensor], weights: Tensor | None, rows: Rows | None, remember: bool
    ) -> Tensor:
        if self.running is None:
            still = [x.detach() for x in features]
            self.running = self._drawn(rows.gather(still, graph=False) if rows else still)
        running = self.running
        running.sketch = running.sketch.to(features[0].device)
        sums = running.sums(features, weights)
        count = len(features[0])
        total = features[0].new_tensor(float(count)) if weights is None else weights.sum()
        if rows:
            of_weights = weights is not None and rows.wanted[-1]
            of_marginal = (rows.wanted[0] or of_weights,) if len(features) > 1 else ()
            wanted = (any(rows.wanted), *of_marginal, of_weights)
            *summed, total = rows.sum([*sums.values(), total.reshape(1, 1)], wanted)
            sums = dict(zip(sums, summed, strict=True))
            count = rows.total
        if weights is not None:
            _refuse_no_weight(total)
            sums = {sides: S * (count / total.squeeze()) for sides, S in sums.items()}
        H = running.entropy(sums, count, self.order)
        if not running.past and not self._warned:
            if count == 1:
                self._warn(SINGLE)
            # Random features leave an entropy and a gradient of their own where rows are equal: noise, no direction.
            elif len(features[-1]) == count and _collapsed(features[-1].detach()):
                self._warn(COLLAPSE_OF_SKETCH)
        if remember and self.decay and torch.is_grad_enabled():
            running.remember(sums, count)
        return H

    def _drawn(self, features: Sequence[Tensor]) -> RunningSketch:
        assert self.num_features is not None  # asked for in sketch mode only
        self.kernels = tuple(kernel.fit(x) for kernel, x in zip(self.kernels, features, strict=True))
        return RunningSketch.fitted(self.kernels, features, self.num_features, self.method, self.seed, self.decay)

    def _fitted(self, features: Sequence[Tensor]) -> list[Kernel]:
        kept, used = [], []
        for kernel, x in zip(self.kernels, features, strict=True):
            flat = x.detach().reshape(-1, x.shape[-1])
            fitted = kernel.fit_each(flat)
            used.append(fitted)
            # Rows that are all equal define no bandwidth: every one gives the same matrix, and the next batch decides.
            kept.append(kernel if fitted is not kernel and bool((flat == flat[:1]).all()) else fitted)
        self.kernels = tuple(kept)
        return used

    def _exchangeable(
        self, sides: Sequence[Tensor], weights: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None, Rows | None]:
        """Checked features and weights, and where there are other processes, what they have."""
        company = self.gather and in_company(self.group)
        fault, features, w = None, list(sides), weights
        try:
            features, w = _checked(sides, weights, empty=company and self._flat(sides))
            if not self._flat(sides) and self.num_features is not None:
                raise InputError(
                    f"a sketch takes one batch (n, d), not groups {tuple(sides[-1].shape)}; leave num_features out."
                )
        except InputError as error:
            if not company:
                raise
            fault = str(error)
        if not company:
            return features, w, None
        parts = [*features, *([] if w is None else [w[..., None]])]
        flat = parts if fault else [part.reshape(-1, part.shape[-1]) for part in parts]
        if not fault and not self._flat(sides):
            flat = flat[:1] + [part[:1].expand(len(flat[0]), -1) for part in flat[1:]]  # of groups only widths matter
        rows = agreed_rows(flat, fault, self._fingerprint([x.ndim for x in sides]), self.group)
        if rows.total == 0:
            raise InputError("no process has a row; give at least one of them a batch.")
        return features, w, rows

    @staticmethod
    def _flat(sides: Sequence[Tensor]) -> bool:
        return all(x.ndim == 2 for x in sides)

    def _fingerprint(self, dimensions: Sequence[int]) -> int:
        rows = 0.0 if self.running is None else self.running.rows
        kernels = [kernel_settings(kernel) for kernel in self.kernels]
        settings = [kernels, self.order, self.num_features, self.decay, self.method, self.seed, rows, *dimensions]
        return int.from_bytes(hashlib.sha256(json.dumps(settings).encode()).digest()[:6], "big")

    def _warn(self, what: str) -> None:
        self._warned = True
        warnings.warn(what, stacklevel=2)


def _collapsed(rows: Tensor) -> bool:
    """Whether all rows of the batch (n, d), or of one of its groups, are equal."""
    return bool((rows == rows[..., :1, :]).flatten(-2).all(-1).any())


def _checked(sides: Sequence[Tensor], weights: Tensor | None, *, empty: bool) -> tuple[list[Tensor], Tensor | None]:
    """Finite features in one precision, float32 at least, and weights in it; `empty` allows sides without rows."""
    checked = []
    names = NAMES if len(sides) > 1 else ("the batch",)
    for x, name in zip(sides, names, strict=False):
        none = empty and isinstance(x, Tensor) and x.ndim == 2 and x.shape[0] == 0 < x.shape[1]
        x = x if none or _plainly_finite(x) else checked_features(x, name)
        checked.append(x if x.is_floating_point() else x.to(torch.float64))
    if len({x.shape[-2] for x in checked}) > 1:
        counts = f"x has {checked[0].shape[-2]} rows and y has {checked[1].shape[-2]}"
        raise InputError(f"{counts}: pass one output for each condition, in order.")
    check_leading_shapes(dict(zip(NAMES, checked, strict=False)))
    dtype = torch.float32
    for x in checked:
        dtype = torch.promote_types(dtype, x.dtype)
    features = [x.to(dtype) for x in checked]
    if weights is None:
        return features, None
    n = features[0].shape[-2]
    w = torch.as_tensor(weights, device=features[0].device).to(dtype)
    if w.ndim < 1 or w.shape[-1] != n:
        raise InputError(f"weights must have {n} entries in the last dimension, one a row; shape {tuple(w.shape)}.")
    if max(x.ndim for x in features) == 2 and w.ndim > 1:
        raise InputError(f"weights of one batch must have shape ({n},), but have {tuple(w.shape)}.")
    check_leading_shapes({"weights": w[..., None]} | dict(zip(NAMES, features, strict=False)))
    wrong = ~(torch.isfinite(w.detach()) & (w.detach() >= 0))
    if bool(wrong.any()):
        places = ", ".join(str(p[0] if len(p) == 1 else tuple(p)) for p in wrong.nonzero()[:NAMED_ROWS].tolist())
        raise InputError(f"weights must be finite and non-negative, but are not at {places}.")
    return features, w


def _plainly_finite(x: Tensor) -> bool:
    """Whether nothing need be looked at more closely: one pass where naming rows takes three."""
    floats = isinstance(x, Tensor) and x.is_floating_point() and x.layout is torch.strided
    return floats and x.ndim >= 2 and 0 not in x.shape and bool(torch.isfinite(x.detach().sum()))


def _distribution(weights: Tensor | None) -> Tensor | None:
    if weights is None:
        return None
    total = weights.sum(-1, keepdim=True)
    _refuse_no_weight(total)
    return weights / total


def _refuse_no_weight(total: Tensor) -> None:
    if bool((total.detach() <= 0).any()):
        raise InputError("the weights of a batch, or of one of its groups, are all zero: leave it out.")


def _gathered(rows: Rows, features: Sequence[Tensor], weights: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
    parts = rows.gather([*features, *([] if weights is None else [weights[:, None]])])
    return parts[: len(features)], None if weights is None else parts[-1][:, 0]
