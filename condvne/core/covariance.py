"""Covariances of sketched features over a stream: one pass, r × r memory, whatever the number of samples.

C = Σ w_i ψ_i ψ_iᵀ / Σ w_i has the spectrum of the density matrix whose kernel is ⟨ψ_i, ψ_j⟩. Sums over parts of a
stream, in one process or in many, add up to the sum over the whole.

A block of rows is one matrix product in the precision of the features (float32 by default), over the panels on and
above the diagonal only. Products are summed in that precision over at most max(1,024, 2r) rows, and then in float64.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from condvne.core.sketches import JointSketch
from condvne.core.spectral import EPSILON, matrix_entropy
from condvne.core.tensorfiles import read_tensors, write_tensors
from condvne.errors import DataError, InputError

FLUSH_ROWS = 1024
NORM_TOLERANCE = 0.02  # unit rows rounded to bfloat16 are well within it
NAMED_ROWS = 5
FILE_KIND = "condvne covariance"


class SketchedCovariance:
    """A running Σ w_i ψ_i ψ_iᵀ of unit-norm features.

    Args:
        num_features: r.
        dtype: of the matrix products, float32 or float64; sums are kept in float64.
        device: where products and sums are made.
        source: identifies the features; sums of different sources are not merged. `SketchedCovariance.of(sketch)`
            fills it in.

    >>> covariance = SketchedCovariance(4)
    >>> covariance.update(torch.eye(4))
    >>> covariance.count, round(float(covariance.entropy().exp()), 6)
    (4, 4.0)
    """

    def __init__(
        self,
        num_features: int,
        dtype: torch.dtype = torch.float32,
        *,
        device: torch.device | str = "cpu",
        source: str = "",
    ) -> None:
        if isinstance(num_features, bool) or int(num_features) != num_features or num_features < 1:
            raise InputError(f"num_features of a covariance must be a positive integer, but is {num_features}.")
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype of a covariance must be float32 or float64, but is {dtype}.")
        self.num_features = int(num_features)
        self.dtype = dtype
        self.source = source
        self.count = 0
        self.weight = 0.0
        shape = (self.num_features, self.num_features)
        with torch.inference_mode(False):  # changed in place, in and out of inference mode
            self._pending = torch.zeros(shape, dtype=dtype, device=device)
        self._pending_rows = 0
        self._sum = torch.zeros(shape, dtype=torch.float64, device=sum_device(device))

    @classmethod
    def of(cls, sketch: JointSketch, sides: Sequence[int] | None = None) -> SketchedCovariance:
        """An empty covariance for a sketch's features, or for the marginal of one side."""
        device = next(iter(sketch.tensors.values())).device
        named = range(len(sketch.kernels)) if sides is None else sides
        source = f"{sketch.digest}/{','.join(str(side) for side in named)}"
        return cls(sketch.num_features, sketch.dtype, device=device, source=source)

    def update(self, features: Tensor, weights: Tensor | None = None) -> None:
        """Add rows.

        Args:
            features: (n, r), rows of norm one; detached, and computed in the covariance's dtype.
            weights: (n,), finite and non-negative; they need not sum to one. 1 each by default.

        Raises:
            InputError: another shape; a row that is not finite or not of norm one; weights that are no weights.
        """
        rows, w = self._checked(features, weights)
        if self._pending_rows + len(rows) > max(FLUSH_ROWS, 2 * self.num_features):
            self._flush()
        add_outer_products(self._pending, rows, w)
        self._pending_rows += len(rows)
        self.count += len(rows)
        self.weight += len(rows) if w is None else float(w.sum(dtype=torch.float64))

    def downdate(self, features: Tensor, weights: Tensor | None = None) -> None:
        """Take rows out that were added before, with the weights they were added with.

        Raises:
            InputError: as `update`; more rows than were added; a sum that would not be a covariance any more.
        """
        rows, w = self._checked(features, weights)
        if len(rows) > self.count:
            raise InputError(f"{len(rows)} rows cannot be taken out of a covariance of {self.count}.")
        self._flush()
        removed = torch.zeros_like(self._pending)
        add_outer_products(removed, rows, w)
        left = self._sum - removed.to(self._sum)
        weight = self.weight - (len(rows) if w is None else float(w.sum(dtype=torch.float64)))
        if float(left.diagonal().amin()) < -self.epsilon * max(self.weight, 1.0):
            raise InputError("rows that were never added cannot be taken out: the covariance would turn negative.")
        self.count -= len(rows)
        self._sum, self.weight = (left, weight) if self.count else (torch.zeros_like(left), 0.0)

    def merge(self, other: SketchedCovariance) -> None:
        """Add another stream's sums. Raises InputError where its features are not the same."""
        for name in ("num_features", "source"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InputError(
                    f"covariances of different features cannot be merged: {name} {mine!r} and {theirs!r}; "
                    "draw both sketches with the same kernels, bandwidths, origins, num_features and seed."
                )
        self._sum = self.sum() + other.sum().to(self._sum.device)
        self.count += other.count
        self.weight += other.weight

    def scaled(self, factor: float) -> SketchedCovariance:
        """A copy with all weights multiplied by a positive factor (to let old samples fade)."""
        if not 0 < factor < float("inf"):
            raise InputError(f"factor must be positive and finite, but is {factor}.")
        copy = SketchedCovariance(self.num_features, self.dtype, device=self._pending.device, source=self.source)
        copy._sum = self.sum() * factor
        copy.count, copy.weight = self.count, self.weight * factor
        return copy

    def sum(self) -> Tensor:
        """Σ w_i ψ_i ψ_iᵀ, (r, r), float64, symmetric; a copy."""
        self._flush()
        return self._sum.triu() + self._sum.triu(1).mT

    def matrix(self) -> Tensor:
        """The density matrix C, (r, r), float64, unit trace. Raises InputError where no sample has come."""
        total = self.sum()
        if self.count == 0 or self.weight <= 0:
            raise InputError(
                "the stream held no samples of positive weight: update the covariance before asking for its entropy."
            )
        return total / total.trace()

    @property
    def epsilon(self) -> float:
        """Relative rounding of the sums."""
        return EPSILON if self.dtype == torch.float64 else torch.finfo(torch.float32).eps

    def entropy(self, order: float = 1.0) -> Tensor:
        """H_α of the sketch as it is, (), float64, nats, in [0, log r]. Raises InputError for an empty stream."""
        return matrix_entropy(self.matrix(), order, epsilon=self.epsilon)

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> SketchedCovariance:
        """The covariance of all ranks' streams together; this one stays as it is.

        Ranks may have seen different numbers of samples, or none. Without an initialised process group: a copy.

        Raises:
            InputError: on every rank, where ranks have different features.
        """
        whole = self.scaled(1.0)
        if not (dist.is_available() and dist.is_initialized()):
            return whole
        refuse_different_settings({"num_features": self.num_features, "source": self.source}, self._sum.device, group)
        counts = torch.tensor([self.count, self.weight], dtype=torch.float64, device=self._sum.device)
        dist.all_reduce(whole._sum, group=group)
        dist.all_reduce(counts, group=group)
        whole.count, whole.weight = int(counts[0]), float(counts[1])
        return whole

    def save(self, path: str | Path) -> None:
        """Write sums and settings as safetensors, whole or not at all. Raises RunError when refused."""
        write_tensors(path, FILE_KIND, {"sum": self.sum()}, self._settings())

    @classmethod
    def load(cls, path: str | Path) -> SketchedCovariance:
        """A saved covariance, on the CPU. Raises DataError when the file is none."""
        tensors, settings = read_tensors(path, FILE_KIND)
        try:
            dtype = {"float32": torch.float32, "float64": torch.float64}[settings["dtype"]]
            loaded = cls(settings["num_features"], dtype, source=settings["source"])
            loaded.restore(tensors["sum"], settings["count"], settings["weight"])
        except (KeyError, TypeError, InputError) as error:
            raise DataError(
                f"{path}: the settings of the covariance cannot be read ({error}); save it again."
            ) from error
        return loaded

    def restore(self, total: Tensor, count: int, weight: float) -> None:
        """Begin again from a saved sum. Raises InputError where it is of another size or precision."""
        if total.shape != self._sum.shape or total.dtype != torch.float64:
            raise InputError(f"the sum must be float64 of shape {tuple(self._sum.shape)}, not {tuple(total.shape)}")
        self._sum = total.clone().to(self._sum.device)
        self.count, self.weight = int(count), float(weight)
        self._pending.zero_()
        self._pending_rows = 0

    def _settings(self) -> dict[str, Any]:
        dtype = str(self.dtype).removeprefix("torch.")
        return {
            "num_features": self.num_features,
            "dtype": dtype,
            "source": self.source,
            "count": self.count,
            "weight": self.weight,
        }

    def _flush(self) -> None:
        if self._pending_rows:
            self._sum = self._sum + self._pending.to(self._sum.device)
            self._pending.zero_()
            self._pending_rows = 0

    def _checked(self, features: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if features.ndim != 2 or features.shape[1] != self.num_features:
            raise InputError(f"features must have shape (n, {self.num_features}), but have {tuple(features.shape)}.")
        rows = features.detach().to(device=self._pending.device, dtype=self.dtype)
        refuse_other_norms(rows)
        if weights is None:
            return rows, None
        w = torch.as_tensor(weights).detach().to(device=rows.device, dtype=self.dtype)
        if w.shape != (len(rows),) or not bool((torch.isfinite(w) & (w >= 0)).all()):
            raise InputError(f"weights must be {len(rows)} finite non-negative numbers, one a row.")
        return rows, w


def add_outer_products(total: Tensor, rows: Tensor, weights: Tensor | None) -> None:
    """Add Σ w_i ψ_i ψ_iᵀ of (n, r) rows to `total` (r, r), in place and above the diagonal only."""
    half = rows.shape[1] // 2
    left = rows if weights is None else rows * weights[:, None]
    with torch.autocast(rows.device.type, enabled=False):
        total[:half].addmm_(left[:, :half].mT, rows)
        total[half:, half:].addmm_(left[:, half:].mT, rows[:, half:])


def refuse_other_norms(rows: Tensor) -> None:
    """Raise InputError naming the rows that are not finite or not of norm one."""
    norms = torch.linalg.vector_norm(rows, dim=-1)
    off = ~((norms - 1).abs() <= NORM_TOLERANCE)  # NaN included
    if bool(off.any()):
        places = torch.nonzero(off)[:, 0].tolist()
        named = ", ".join(str(place) for place in places[:NAMED_ROWS])
        more = f", … ({len(places)} in all)" if len(places) > NAMED_ROWS else ""
        raise InputError(
            f"features must be finite and of norm one, but row {places[0]} has norm {float(norms[places[0]]):.4g} "
            f"(rows {named}{more}); use a sketch's features, and drop or repair rows that are not finite."
        )


def refuse_different_settings(settings: dict[str, Any], device: torch.device, group: dist.ProcessGroup | None) -> None:
    """Raise InputError on every rank where the ranks of a process group do not have the same settings."""
    content = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()
    mine = torch.tensor(list(content), dtype=torch.uint8, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine, group=group)
    others = [rank for rank, theirs in enumerate(everyone) if not torch.equal(theirs, everyone[0])]
    if others:
        raise InputError(
            f"ranks {others} have other settings than rank 0, so their sums cannot be added: give every rank the same "
            "kernels, bandwidths, num_features, method and seed."
        )


def sum_device(device: torch.device | str) -> torch.device:
    """Where float64 sums of products on `device` are kept: there, or on the CPU where it has no float64."""
    chosen = torch.device(device)
    return torch.device("cpu") if chosen.type == "mps" else chosen
