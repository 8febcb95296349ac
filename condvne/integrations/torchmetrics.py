"""Diversity scores as `torchmetrics.Metric`: accumulated over batches and processes, computed once.

Two modes. By default the features themselves are kept and gathered, and the score is exact. With `num_features=r` only
the r × r covariances of a sketch are kept, in float64, and summed over processes: memory no longer grows with the
number of samples, kernels need a fixed bandwidth, and the score has the error of the sketch (`last_estimate`).

Either way the samples of all processes are scored together: the average of scores of parts means nothing. Features are
detached; for a loss use the functions of `condvne`. Exact mode keeps features in the metric's dtype (float32;
`set_dtype(torch.float64)` keeps double); `.half()` and `.double()` do nothing, as in every torchmetrics metric.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat
from typing_extensions import Unpack

from condvne.core.checks import checked_features
from condvne.core.covariance import sum_device
from condvne.core.entropy import conditional_vendi, vendi
from condvne.core.featuremaps import SketchMethod, make_plan
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.sketched import CONDITIONAL, MARGINAL, SketchEstimate, estimate, sketched_covariances
from condvne.core.sketches import JointSketch, kernel_settings
from condvne.core.spectral import checked_order
from condvne.errors import InputError

NAMES = ("x", "y")


class MetricOptions(TypedDict, total=False):
    """Options of every torchmetrics metric, see `torchmetrics.Metric`."""

    compute_on_cpu: bool
    dist_sync_on_step: bool
    process_group: Any
    dist_sync_fn: Callable[..., Any] | None
    distributed_available_fn: Callable[[], bool] | None
    sync_on_compute: bool
    compute_with_cache: bool


class _DiversityMetric(Metric):
    """States and their bookkeeping: flat features of each side, or sums of covariances and a count."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 1.0

    x: list[Tensor] | Tensor
    y: list[Tensor] | Tensor
    joint: Tensor
    marginal: Tensor
    count: Tensor
    signature: Tensor

    def __init__(
        self,
        kernels: Sequence[Kernel | str],
        order: float,
        num_features: int | None,
        method: SketchMethod,
        seed: int,
        persistent: bool,
        options: MetricOptions,
    ) -> None:
        super().__init__(**options)
        self.kernels = tuple(as_kernel(kernel) for kernel in kernels)
        self.order = checked_order(order)
        self.num_features = num_features
        self.method = method
        self.seed = seed
        self.last_estimate: SketchEstimate | None = None
        self._sketch: JointSketch | None = None
        self._fingerprint = _fingerprint(type(self).__name__, self.kernels, self.order, num_features, method, seed)
        # First, so that processes of different settings are refused before their sums are added.
        start = torch.tensor([self._fingerprint] + [0] * len(self.kernels))
        self.add_state("signature", start, _agreed, persistent)
        if num_features is None:
            for name in NAMES[: len(self.kernels)]:
                self.add_state(name, [], "cat", persistent)
            return
        make_plan(self.kernels, [1] * len(self.kernels), num_features, method)  # refuses what cannot be sketched
        for name in ("joint", "marginal")[: len(self.kernels)]:
            self.add_state(name, torch.zeros(num_features, num_features, dtype=torch.float64), "sum", persistent)
        self.add_state("count", torch.zeros((), dtype=torch.int64), "sum", persistent)

    def _accumulate(self, *sides: Tensor) -> None:
        sides = self._checked(*sides)
        # States are replaced, never changed in place: those made in inference mode could not be changed outside it.
        widths = torch.tensor([x.shape[1] for x in sides], device=self.signature.device)
        self.signature = torch.cat([self.signature[:1], widths])
        if self.num_features is None:
            for name, x in zip(NAMES, sides, strict=False):
                # Flat, because a process without samples takes part in the gathering with an empty vector.
                getattr(self, name).append(x.detach().to(self.dtype).flatten())
            return
        sketch = self._drawn(sides[0].device)
        whole = tuple(range(len(sides)))
        with torch.no_grad():
            means = sketched_covariances(sketch, (whole, (0,)), sides)
        n = len(sides[0])
        self.joint = self.joint + n * means[whole].to(self.joint.device)
        if len(sides) > 1:
            self.marginal = self.marginal + n * means[(0,)].to(self.marginal.device)
        self.count = self.count + n

    def _sketched(self) -> Tensor:
        n = int(self.count)
        self._refuse_empty(n)
        sketch = self._drawn(self.joint.device)
        sums: dict[tuple[int, ...], Tensor] = {tuple(range(len(self.kernels))): self.joint}
        if len(self.kernels) > 1:
            sums[(0,)] = self.marginal
        terms = MARGINAL if len(self.kernels) == 1 else CONDITIONAL
        self.last_estimate = estimate(sketch, terms, sums, self.order, n)
        return self.last_estimate.value.exp().to(torch.get_default_dtype())

    def _gathered(self) -> list[Tensor]:
        dims = self.signature[1:].tolist()
        self._refuse_empty(max(dims))
        flat = [dim_zero_cat(getattr(self, name)) for name in NAMES[: len(self.kernels)]]
        return [values.reshape(-1, d) for values, d in zip(flat, dims, strict=True)]

    def _refuse_empty(self, n: int) -> None:
        if int(self.signature[0]) != self._fingerprint:
            raise InputError(f"{type(self).__name__}: the loaded state belongs to a metric of other settings.")
        if n == 0:
            raise InputError(f"{type(self).__name__}: no samples yet; call update before compute.")

    def _checked(self, *sides: Tensor) -> tuple[Tensor, ...]:
        checked = tuple(checked_features(x, name) for x, name in zip(sides, NAMES, strict=False))
        for x, name, d in zip(checked, NAMES, self.signature[1:].tolist(), strict=False):
            if x.ndim != 2 or d not in (0, x.shape[1]):
                wanted = d or "d"
                raise InputError(f"{name} must have shape (n, {wanted}), but has shape {tuple(x.shape)}.")
        if len({len(x) for x in checked}) > 1:
            raise InputError(f"x has {len(checked[0])} rows and y has {len(checked[1])}: pass one output a condition.")
        return checked

    def _drawn(self, device: torch.device) -> JointSketch:
        if self._sketch is None:
            assert self.num_features is not None  # asked for in sketch mode only
            dims = self.signature[1:].tolist()
            self._sketch = JointSketch.draw(self.kernels, dims, self.num_features, self.seed, method=self.method)
        self._sketch = self._sketch.to(device)
        return self._sketch

    def reset(self) -> None:
        """Forget all samples; the sketch stays."""
        super().reset()
        self.last_estimate = None

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = ()) -> _DiversityMetric:
        exact = [name for name in ("signature", "joint", "marginal", "count") if name in self._defaults]
        super()._apply(fn, (*exclude_state, *exact))
        for name in exact:  # moved like the others, but never to another precision
            device = sum_device(self.device)
            setattr(self, name, getattr(self, name).to(device))
            self._defaults[name] = torch.as_tensor(self._defaults[name], device=device)
        return self

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> Any:
        """Plot one value, or several as a curve over steps; `compute()` by default. Returns figure and axes."""
        return self._plot(val, ax)


class VendiScore(_DiversityMetric):
    """exp H_α(X), the effective number of different samples, in [1, n].

    `update(x)` takes features x: (n, d). `compute()` returns a scalar.

    Args:
        kernel: a kernel or its name. An open bandwidth is the median heuristic on all samples; sketches need it fixed.
        order: α in [0, ∞].
        num_features: r of the sketch, a positive multiple of 4; None keeps the features and is exact.
        method, seed: of the sketch, see `condvne.core.sketches.JointSketch.draw`.
        persistent: whether `state_dict()` holds the samples or sums so far.
        options: of every torchmetrics metric.

    Raises:
        InputError: settings out of range; an open bandwidth in sketch mode; features that are not finite, or of another
            width than before; `compute` without samples; processes or states of different settings.

    >>> metric = VendiScore(kernel="cosine")
    >>> for batch in torch.eye(6).split(2):
    ...     metric.update(batch)
    >>> round(metric.compute().item(), 4)
    6.0
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        order: float = 1.0,
        num_features: int | None = None,
        *,
        method: SketchMethod = "auto",
        seed: int = 0,
        persistent: bool = False,
        **options: Unpack[MetricOptions],
    ) -> None:
        super().__init__((kernel,), order, num_features, method, seed, persistent, options)

    def forward(self, x: Tensor) -> Tensor:
        """Add a batch and return the score of that batch alone."""
        self._checked(x)  # before torchmetrics puts the state aside
        score: Tensor = super().forward(x)
        return score

    def update(self, x: Tensor) -> None:
        """Add samples x: (n, d)."""
        self._accumulate(x)

    def compute(self) -> Tensor:
        """The score of all samples of all processes."""
        if self.num_features is not None:
            return self._sketched()
        (x,) = self._gathered()
        return vendi(x, kernel=self.kernels[0], order=self.order)


class ConditionalVendiScore(_DiversityMetric):
    """exp H_α(Y|X) = exp [H_α(K_X ∘ K_Y) - H_α(K_X)], the effective number of outputs for a condition, at least 1.

    `update(x, y)` takes features of conditions x: (n, dx) and of outputs y: (n, dy). `compute()` returns a scalar.

    Args:
        kernel_x, kernel_y: as `kernel` of `VendiScore`.
        order, num_features, method, seed, persistent, options: as in `VendiScore`.

    Raises:
        InputError: as `VendiScore`; x and y of different numbers of rows.

    >>> metric = ConditionalVendiScore(kernel_x="cosine", kernel_y="cosine")
    >>> metric.update(torch.eye(2).repeat_interleave(3, 0), torch.eye(6))
    >>> round(metric.compute().item(), 4)
    3.0
    """

    def __init__(
        self,
        kernel_x: Kernel | str = "gaussian",
        kernel_y: Kernel | str = "gaussian",
        order: float = 1.0,
        num_features: int | None = None,
        *,
        method: SketchMethod = "auto",
        seed: int = 0,
        persistent: bool = False,
        **options: Unpack[MetricOptions],
    ) -> None:
        super().__init__((kernel_x, kernel_y), order, num_features, method, seed, persistent, options)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Add a batch and return the score of that batch alone."""
        self._checked(x, y)  # before torchmetrics puts the state aside
        score: Tensor = super().forward(x, y)
        return score

    def update(self, x: Tensor, y: Tensor) -> None:
        """Add pairs x: (n, dx), y: (n, dy)."""
        self._accumulate(x, y)

    def compute(self) -> Tensor:
        """The score of all pairs of all processes."""
        if self.num_features is not None:
            return self._sketched()
        x, y = self._gathered()
        return conditional_vendi(x, y, kernel_x=self.kernels[0], kernel_y=self.kernels[1], order=self.order)


class ConditionalRKE(ConditionalVendiScore):
    """exp H_2(Y|X) = ‖K_X‖² / ‖K_X ∘ K_Y‖²: `ConditionalVendiScore` of order 2, in closed form.

    >>> metric = ConditionalRKE(kernel_x="cosine", kernel_y="cosine")
    >>> metric.update(torch.eye(2).repeat_interleave(3, 0), torch.eye(6))
    >>> round(metric.compute().item(), 4)
    3.0
    """

    def __init__(
        self,
        kernel_x: Kernel | str = "gaussian",
        kernel_y: Kernel | str = "gaussian",
        num_features: int | None = None,
        *,
        method: SketchMethod = "auto",
        seed: int = 0,
        persistent: bool = False,
        **options: Unpack[MetricOptions],
    ) -> None:
        super().__init__(
            kernel_x, kernel_y, 2.0, num_features, method=method, seed=seed, persistent=persistent, **options
        )


def _fingerprint(*settings: object) -> int:
    described = [[kernel_settings(kernel) for kernel in part] if isinstance(part, tuple) else part for part in settings]
    return int.from_bytes(hashlib.sha256(json.dumps(described, sort_keys=True).encode()).digest()[:6], "big")


def _agreed(signatures: Tensor) -> Tensor:
    """The common signature of states that are added up: rows of a fingerprint and widths, 0 where none are known."""
    widest = signatures.amax(0)
    if bool(((signatures != widest) & ((signatures != 0) | (torch.arange(len(widest)) == 0).to(widest.device))).any()):
        raise InputError(
            "metrics of different settings cannot be added up: give every process the same class, kernels, bandwidths, "
            "order, num_features, method and seed, and features of the same width."
        )
    return widest
