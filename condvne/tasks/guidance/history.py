"""The images made so far, one entry each with its caption: kept as rows, or as one sum of a sketch that never grows.

The sketch route needs a bandwidth before it can begin, and finished images to take it from. The first images are kept
as rows and guided by the exact kernels, with a bandwidth for each step; once `fit_after` of them are there, bandwidths
are fixed, the sketch is drawn, and the rows become a sum S = Σ z zᵀ, (r, r). From then on memory and time a step do
not depend on the number of images. The exact route keeps the last `capacity` rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from condvne.core.featuremaps import checked_num_features
from condvne.core.kernels import Gaussian, Kernel
from condvne.core.sketches import JointSketch, kernel_from_settings, kernel_settings
from condvne.core.spectral import spectrum_entropy
from condvne.core.tensorfiles import read_tensors, write_tensors
from condvne.errors import DataError, InputError
from condvne.tasks.guidance.objectives import (
    ExactObjective,
    Objective,
    SketchObjective,
    marginal_entropy,
)
from condvne.tasks.guidance.resolvents import spectrum_of_sum

FILE_KIND = "condvne guidance history"
EQUAL_CAPTIONS = 0.25  # bandwidth between unit vectors where the first captions are all the same and give none

Route = Literal["sketch", "exact"]


@dataclass(frozen=True)
class HistorySettings:
    """What a history is made of; histories of different settings are not mixed.

    Attributes:
        route: "sketch", or "exact" for small histories.
        kernel_x, kernel_y: of captions and latent features; None is a Gaussian one with the median of the first
            captions' distances, and with half the median of the first images' distances.
        num_features: r of the sketch, a multiple of four.
        fit_after: images from which bandwidths are taken (sketch).
        capacity: images that count. Rows beyond it are forgotten, oldest first; a sketch fades, S ← S · capacity / h.
            None: 1,000 rows, and a sketch that forgets nothing.
        seed: of the sketch.
        features: names of caption and latent features.
    """

    route: Route = "sketch"
    kernel_x: Kernel | None = None
    kernel_y: Kernel | None = None
    num_features: int = 1024
    fit_after: int = 16
    capacity: int | None = None
    seed: int = 0
    features: tuple[str, str] = ("pooled", "flattened")

    def __post_init__(self) -> None:
        if self.route not in ("sketch", "exact"):
            raise InputError(f"route must be 'sketch' or 'exact', but is {self.route!r}.")
        checked_num_features(self.num_features)
        for name, least in (("fit_after", 2), ("capacity", 1)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise InputError(f"{name} must be an integer of at least {least}, but is {value!r}.")

    @property
    def row_capacity(self) -> int:
        return self.capacity or 1000

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        kernels = {n: k if k is None else kernel_settings(k) for n, k in self._kernels().items()}
        values = {f.name: getattr(self, f.name) for f in fields(self)} | kernels
        return values | {"features": list(self.features)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> HistorySettings:
        """The settings of `plain`. Raises KeyError, TypeError or InputError where they are none."""
        kernels = {n: None if stored[n] is None else kernel_from_settings(stored[n]) for n in ("kernel_x", "kernel_y")}
        return cls(**{**stored, **kernels, "features": tuple(stored["features"])})

    def difference(self, other: HistorySettings) -> str | None:
        """The first setting that differs, in words; None where none does."""
        mine, theirs = self.plain(), other.plain()
        for name, value in mine.items():
            if value != theirs[name]:
                return f"{name} is {theirs[name]} there and {value} here"
        return None

    def _kernels(self) -> dict[str, Kernel | None]:
        return {"kernel_x": self.kernel_x, "kernel_y": self.kernel_y}


@dataclass
class History:
    """Finished images; `add` more, and ask for the `objective` of the next ones.

    >>> history = History(HistorySettings(route="exact"))
    >>> history.add(torch.eye(3), torch.eye(3))
    >>> history.images, len(history)
    (3, 3)
    """

    settings: HistorySettings = field(default_factory=HistorySettings)
    images: int = 0  # ever added
    shape: tuple[int, ...] | None = None  # of one latent, where known
    sketch: JointSketch | None = None
    _x: Tensor | None = None  # rows of captions (h, dx), while they are kept
    _y: Tensor | None = None  # rows of latent features (h, dy)
    _total: Tensor | None = None  # S, (r, r)
    _total_x: Tensor | None = None  # the same of the captions alone
    _count: float = 0.0  # images in S
    _spectrum: tuple[Tensor, Tensor] | None = None  # of S, made when first asked for
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __len__(self) -> int:
        """Images that count now."""
        return round(self._count) if self.sketch else 0 if self._y is None else self._y.shape[0]

    @property
    def bytes(self) -> int:
        """Memory of what is kept of the images: O(r²) once sketched."""
        kept = [
            t
            for t in (
                self._x,
                self._y,
                self._total,
                self._total_x,
                *(self._spectrum or ()),
            )
            if t is not None
        ]
        return sum(t.numel() * t.element_size() for t in kept)

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor) -> None:
        """Enter finished images: captions x (b, dx), latent features y (b, dy).

        Raises InputError where widths differ from those of the history, or b exceeds its capacity.
        """
        self.check(x, y)
        with self._lock, torch.inference_mode(False):
            x, y = (
                x.detach().clone().to(torch.float32),
                y.detach().clone().to(torch.float32),
            )
            self.images += x.shape[0]
            if self.sketch is not None:
                self._accumulate(x, y)
                return
            limit = self.settings.row_capacity
            joined_x = x if self._x is None else torch.cat([self._x.to(x.device), x])
            joined_y = y if self._y is None else torch.cat([self._y.to(y.device), y])
            self._x, self._y = joined_x[-limit:], joined_y[-limit:]
            if self.settings.route == "sketch" and joined_x.shape[0] >= self.settings.fit_after:
                self._begin_sketch(joined_x, joined_y)

    def check(self, x: Tensor, y: Tensor) -> None:
        """Raises InputError where such images cannot be entered."""
        capacity = self.settings.capacity if self.settings.route == "sketch" else self.settings.row_capacity
        if capacity is not None and x.shape[0] > capacity:
            raise InputError(
                f"{x.shape[0]} images in one call are more than the history's capacity of {capacity}; "
                "raise capacity, or split the prompts over several calls."
            )
        if x.shape[0] != y.shape[0]:
            raise InputError(f"{x.shape[0]} captions came with {y.shape[0]} images; give one caption an image.")
        known = self.sketch.dims if self.sketch else None if self._x is None or self._y is None else self._widths()
        for name, width, have in zip(("captions", "latents"), (x.shape[1], y.shape[1]), known or (), strict=False):
            if width != have:
                raise InputError(
                    f"the history's {name} have {have} numbers and these have {width}; "
                    "use one history for each model and latent shape."
                )

    def objective(self, x: Tensor, order: float) -> Objective:
        """The conditional entropy with current images of captions x (b, dx) joined to the history."""
        with torch.inference_mode(False):
            x = x.clone()
            if self.sketch is None:
                empty = x[:0]
                rows_x = empty if self._x is None else self._x.to(x.device)
                rows_y = x.new_zeros(0, 0) if self._y is None else self._y.to(x.device)
                return ExactObjective(rows_x, rows_y, x, *self._open_kernels(), order)
            values, basis = self.spectrum()
            sketch, total_x = self.sketch, cast(Tensor, self._total_x)
            marginal = marginal_entropy(total_x, sketch.marginal(x), self._count, order)
            return SketchObjective(sketch, values, basis, self._count, x, marginal, order)

    def entropy(self, order: float = 1.0) -> float:
        """H_α(Y|X) of the finished images alone, nats; 0 where there are fewer than two."""
        if len(self) < 2:
            return 0.0
        with torch.inference_mode(False), torch.no_grad():
            if self.sketch is None:
                x, y = cast(Tensor, self._x), cast(Tensor, self._y)
                return ExactObjective(x[:0], y[:0], x, *self._open_kernels(), order).entropy(y)
            joint = float(spectrum_entropy(self.spectrum()[0] / self._count, order))
            total_x = cast(Tensor, self._total_x)
            return joint - marginal_entropy(total_x, total_x.new_zeros(0, total_x.shape[0]), self._count, order)

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenbasis of S, decomposed once for each update, not for each step."""
        if self._spectrum is None:
            self._spectrum = spectrum_of_sum(cast(Tensor, self._total))
        return self._spectrum

    def blank(self) -> History:
        """An empty history with the same sketch and bandwidths: to be filled by another process, then merged."""
        empty = History(self.settings, shape=self.shape, sketch=self.sketch)
        if self._total is not None and self._total_x is not None:
            empty._total, empty._total_x = (
                torch.zeros_like(self._total),
                torch.zeros_like(self._total_x),
            )
        return empty

    def merge(self, other: History) -> None:
        """Add the images of another history of the same sketch (see `blank`), or of the same settings (exact).

        Raises InputError where settings or sketch differ.
        """
        differing = self.settings.difference(other.settings)
        if differing:
            raise InputError(f"histories of different settings cannot be merged: {differing}.")
        if (self.sketch and self.sketch.digest) != (other.sketch and other.sketch.digest):
            raise InputError(
                "histories of different sketches or bandwidths cannot be merged; start the others from history.blank()."
            )
        if other.sketch is None:
            if other._x is not None and other._y is not None:
                self.add(other._x, other._y)
            return
        device = cast(Tensor, self._total).device
        with self._lock:
            self._sum(
                cast(Tensor, other._total).to(device),
                cast(Tensor, other._total_x).to(device),
                other._count,
            )
            self.images += other.images

    def save(self, path: str | Path) -> None:
        """Write as safetensors, whole or not at all. Raises RunError when the file cannot be written."""
        with self._lock:
            kept = {
                "x": self._x,
                "y": self._y,
                "total": self._total,
                "total_x": self._total_x,
            }
            tensors = {name: t for name, t in kept.items() if t is not None}
            state: dict[str, Any] = {
                "settings": self.settings.plain(),
                "images": self.images,
                "count": self._count,
                "shape": None if self.shape is None else list(self.shape),
                "sketch": None,
            }
            if self.sketch is not None:
                state["sketch"] = {
                    **self.sketch.settings(),
                    "digest": self.sketch.digest,
                }
                tensors |= {f"sketch.{name}": t for name, t in self.sketch.tensors.items()}
            write_tensors(path, FILE_KIND, tensors, state)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> History:
        """A saved history. Raises DataError when the file is none, or was changed."""
        tensors, state = read_tensors(path, FILE_KIND)
        try:
            settings = HistorySettings.from_plain(state["settings"])
            history = cls(
                settings,
                int(state["images"]),
                None if state["shape"] is None else tuple(state["shape"]),
            )
            history._count = float(state["count"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: the settings of the history cannot be read ({error}); save it again.") from error
        if state["sketch"] is not None:
            drawn = {n.removeprefix("sketch."): t for n, t in tensors.items() if n.startswith("sketch.")}
            history.sketch = JointSketch.restored(drawn, state["sketch"], where=str(path)).to(device)
        on = {name: t.to(device) for name, t in tensors.items()}
        history._x, history._y = on.get("x"), on.get("y")
        history._total, history._total_x = on.get("total"), on.get("total_x")
        return history

    def _widths(self) -> tuple[int, int]:
        return cast(Tensor, self._x).shape[1], cast(Tensor, self._y).shape[1]

    def _open_kernels(self) -> tuple[Kernel, Kernel]:
        return (
            self.settings.kernel_x or _CaptionGaussian(),
            self.settings.kernel_y or Gaussian(None, 0.5),
        )

    def _begin_sketch(self, x: Tensor, y: Tensor) -> None:
        kernel_x, kernel_y = self._open_kernels()
        kernels = (kernel_x.fit_each(x), kernel_y.fit_each(y))
        origins = (x.mean(0), y.mean(0))
        drawn = JointSketch.draw(
            kernels,
            (x.shape[1], y.shape[1]),
            self.settings.num_features,
            self.settings.seed,
            origins=origins,
        )
        self.sketch = drawn.to(x.device)
        r = self.settings.num_features
        self._total, self._total_x = (torch.zeros(r, r, dtype=torch.float64, device=x.device) for _ in range(2))
        self._accumulate(x, y)
        self._x = self._y = None

    def _accumulate(self, x: Tensor, y: Tensor) -> None:
        sketch = cast(JointSketch, self.sketch)
        z, z_x = (
            sketch.features(x, y).to(torch.float64),
            sketch.marginal(x).to(torch.float64),
        )
        self._sum(z.mT @ z, z_x.mT @ z_x, float(x.shape[0]))

    def _sum(self, joint: Tensor, marginal: Tensor, count: float) -> None:
        self._total, self._total_x = (
            cast(Tensor, self._total) + joint,
            cast(Tensor, self._total_x) + marginal,
        )
        self._count += count
        self._spectrum = None
        capacity = self.settings.capacity
        if capacity is not None and self._count > capacity:
            self._total, self._total_x = (t * (capacity / self._count) for t in (self._total, self._total_x))
            self._count = float(capacity)


@dataclass(frozen=True)
class _CaptionGaussian(Gaussian):
    """A Gaussian kernel between unit vectors whose median bandwidth is fixed where all captions are the same."""

    def fit_each(self, x: Tensor, *, generator: torch.Generator | None = None) -> Gaussian:  # type: ignore[override]
        return Gaussian(self._fitted(x, generator, when_equal=EQUAL_CAPTIONS).bandwidth)
