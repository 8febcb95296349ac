"""Random features whose inner products approximate a kernel, or the product of two.

A sketch sends a point to r numbers ψ, |ψ| = 1, with E⟨ψ_i, ψ_j⟩ ≈ Π_s k_s(i, j) over its sides s. What it draws
depends on the kernels:

    Gaussian, Laplacian   "fourier": frequencies ω on the joint [x/σ_x, y/σ_y], normal or (Laplacian) Cauchy in each
                          coordinate, pairs cos ωᵀz, sin ωᵀz: norm one exactly. "orthogonal": Gaussian only
    cosine, polynomial    a projection of u_x^{⊗p} ⊗ u_y^{⊗q}, u of unit norm. "kronecker": structured,
                          (G_x u_x) ⊙ (G_y u_y); "tensor": TensorSketch, by FFT; "dense": a full Gaussian matrix
    one of each           "mixed": exp(iωᵀx) of one side times complex projections of the other

Projections are renormalised row by row. The marginal of a side comes from the same draw and has the same r: a
sketched joint entropy minus an exact marginal would keep the whole bias of the sketch.

Every sketch is two independent sketches of half the size side by side, in columns [:r/2] and [r/2:], each divided by
√2. One covariance then holds one estimate of size r and two of size r/2, which tell how far off it is.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from condvne.core.featuremaps import Plan, ResolvedMethod, SketchMethod, draw, make_plan, project
from condvne.core.kernels import KERNELS, Kernel, as_kernel
from condvne.core.tensorfiles import read_tensors, write_tensors
from condvne.errors import DataError, InputError

FILE_KIND = "condvne sketch"


@dataclass(frozen=True, eq=False)
class JointSketch:
    """A drawn sketch; make one with `JointSketch.draw`.

    Attributes:
        kernels: one for each side, bandwidth fixed.
        dims: number of features of each side.
        seed: of the draw; the same settings and seed give the same features.
        plan: the method and the sizes of what was drawn.
        tensors: what was drawn, by name, and `origin.<side>` where given.
        digest: identifies settings and draw; equal digests mean equal features.

    >>> from condvne import Gaussian
    >>> sketch = JointSketch.draw(("cosine", Gaussian(1.0)), (3, 2), 64, seed=7)
    >>> sketch.features(torch.eye(3), torch.ones(3, 2)).shape
    torch.Size([3, 64])
    """

    kernels: tuple[Kernel, ...]
    dims: tuple[int, ...]
    seed: int
    plan: Plan
    dtype: torch.dtype
    tensors: Mapping[str, Tensor]
    digest: str

    @classmethod
    def draw(
        cls,
        kernels: Sequence[Kernel | str],
        dims: Sequence[int],
        num_features: int,
        seed: int = 0,
        *,
        method: SketchMethod = "auto",
        origins: Sequence[Tensor | None] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> JointSketch:
        """Draw a sketch of one kernel, or of the product of two.

        Args:
            kernels: one or two; Gaussian and Laplacian ones with their bandwidth fixed (`kernel.fit(reference)`).
            dims: number of features of each side.
            num_features: r, a positive multiple of 4 (two halves of cosine and sine pairs).
            seed: of the draw.
            method: see the module; "auto" is "fourier", "mixed", or "dense" where the Kronecker feature has at most
                4,096 columns, else "tensor".
            origins: (d,) a side, subtracted before Fourier features are made. It leaves the kernel as it is and keeps
                float32 phases exact for data far from zero: give the mean of the reference there.
            dtype: of the features, float32 or float64.
            device: where features are made.

        Raises:
            InputError: a number of features, dimension or dtype out of range; a kernel without random features
                (delta), or with its bandwidth open; a method that does not go with the kernels.
        """
        fixed = tuple(as_kernel(kernel) for kernel in kernels)
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype of a sketch must be float32 or float64, but is {dtype}.")
        plan = make_plan(fixed, dims, num_features, method)
        with torch.inference_mode(False):  # a sketch drawn in inference mode serves gradients later
            drawn = draw(plan, torch.Generator().manual_seed(seed))
            tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in drawn.items()}
            for side, origin in zip(range(len(fixed)), origins or (), strict=False):
                if origin is not None and plan.degrees[side] == 0:
                    # In double: it is subtracted in the precision of the data.
                    tensors[f"origin.{side}"] = _checked_origin(origin, dims[side], side)
            sketch = cls(fixed, tuple(dims), seed, plan, dtype, tensors, "")
            return replace(sketch, digest=_digest(sketch.settings(), tensors)).to(device)

    @property
    def num_features(self) -> int:
        return self.plan.num_features

    @property
    def method(self) -> ResolvedMethod:
        return self.plan.method

    def features(self, *sides: Tensor) -> Tensor:
        """Features of the whole product kernel.

        Args:
            sides: one (..., n, d) tensor for each side; leading shapes broadcast, half precision is promoted.

        Returns:
            (..., n, r), unit rows, in `dtype`, differentiable in every side.

        Raises:
            InputError: a wrong number of sides, rows or columns; a row of zeros under a cosine kernel.
        """
        if len(sides) != len(self.kernels):
            raise InputError(f"the sketch has {len(self.kernels)} sides, but {len(sides)} tensors came.")
        rows = [x.shape[-2] for x in sides if x.ndim > 1]
        if len(set(rows)) > 1:
            raise InputError(f"x has {rows[0]} rows and y has {rows[1]}: pass one output for each condition, in order.")
        return self._mapped(dict(enumerate(sides)))

    def marginal(self, x: Tensor, side: int = 0) -> Tensor:
        """Features (..., n, r) of one side's kernel, from the same draw. Raises as `features`."""
        return self._mapped({side: x})

    def deviation(self, failure: float = 0.05) -> float:
        """ε with P(‖Ĉ - C‖ > ε) ≤ failure in Hilbert-Schmidt norm, for density matrices Ĉ sketched and C exact.

        Fourier features: Ĉ is a mean of m = r/2 independent states, so E‖Ĉ - C‖ ≤ 1/√m, and replacing one moves it by
        √2/m at most: ε = (1 + √log(1/failure)) / √m (bounded differences, McDiarmid 1989). Projections are not
        bounded: Chebyshev with the variance v/r of one inner product, v = 3^p - 1 for Gaussian projections of p
        factors (2 if dense, 2·2^p if mixed), 3^p + 2 for tensor sketches (Avron et al. 2014); renormalising the
        halves costs a factor (1 + √2). Orthogonal draws depend on each other and get no bound: ∞.
        """
        r, factors = self.num_features, len(self.plan.factors)
        if self.method == "orthogonal":
            return math.inf
        if self.method == "fourier":
            return (1 + math.sqrt(math.log(1 / failure))) / math.sqrt(r / 2)
        moment = {
            "dense": 2.0,
            "kronecker": 3.0**factors - 1,
            "tensor": 3.0**factors + 2,
            "mixed": 2 * 2.0**factors,
        }
        return (1 + math.sqrt(2)) * math.sqrt(moment[self.method] / (r / 2) / failure)

    def to(self, device: torch.device | str) -> JointSketch:
        """The same sketch on another device."""
        return replace(self, tensors={name: t.to(device) for name, t in self.tensors.items()})

    def settings(self) -> dict[str, Any]:
        """What defines the draw, as JSON has it; origins are kept with the tensors."""
        return {
            "kernels": [kernel_settings(kernel) for kernel in self.kernels],
            "dims": list(self.dims),
            "num_features": self.num_features,
            "seed": self.seed,
            "method": self.method,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def save(self, path: str | Path) -> None:
        """Write the draw and its settings as safetensors, whole or not at all. Raises RunError when refused."""
        write_tensors(path, FILE_KIND, self.tensors, {**self.settings(), "digest": self.digest})

    @classmethod
    def load(cls, path: str | Path) -> JointSketch:
        """A saved sketch, on the CPU. Raises DataError when the file is no sketch or was changed."""
        return cls.restored(*read_tensors(path, FILE_KIND), where=str(path))

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], stored: Mapping[str, Any], *, where: str) -> JointSketch:
        """The sketch of `tensors` and `settings()` with their digest. Raises DataError naming `where` they are from."""
        try:
            kernels = tuple(kernel_from_settings(kernel) for kernel in stored["kernels"])
            dims, dtype = tuple(stored["dims"]), getattr(torch, stored["dtype"])
            plan = make_plan(kernels, dims, stored["num_features"], stored["method"])
            sketch = cls(kernels, dims, stored["seed"], plan, dtype, tensors, stored["digest"])
        except (KeyError, TypeError, AttributeError, InputError) as error:
            raise DataError(f"{where}: the settings of the sketch cannot be read ({error}); save it again.") from error
        if sketch.digest != _digest(sketch.settings(), tensors):
            raise DataError(f"{where}: the sketch does not match its checksum; save it again.")
        return sketch

    def _mapped(self, sides: Mapping[int, Tensor]) -> Tensor:
        device = next(iter(sides.values())).device
        with torch.autocast(device.type, enabled=False):
            coordinates = {side: self._coordinates(side, x) for side, x in sides.items()}
            if len({u.ndim for u in coordinates.values()}) > 1 and self.method == "dense":
                shape = torch.broadcast_shapes(*(u.shape[:-1] for u in coordinates.values()))  # type: ignore[no-untyped-call]
                coordinates = {side: u.expand(*shape, u.shape[-1]) for side, u in coordinates.items()}
            features = project(self.plan, self.tensors, coordinates)
            if self.method in ("fourier", "orthogonal"):
                return features / math.sqrt(self.num_features / 2)
            return _unit_halves(features, self.num_features)

    def _coordinates(self, side: int, x: Tensor) -> Tensor:
        if side not in range(len(self.kernels)):
            raise InputError(f"the sketch has {len(self.kernels)} sides, so there is no side {side}.")
        if x.ndim < 2 or x.shape[-1] != self.dims[side]:
            raise InputError(
                f"side {side} of the sketch takes (..., n, {self.dims[side]}) features, but got shape {tuple(x.shape)}."
            )
        kernel = self.kernels[side]
        wide = x.to(torch.promote_types(x.dtype, self.dtype))
        if self.plan.degrees[side]:
            return kernel.prepare(wide)[0].to(self.dtype)
        if f"origin.{side}" in self.tensors:
            wide = wide - self.tensors[f"origin.{side}"].to(wide.dtype)
        bandwidth = torch.as_tensor(kernel.fixed_bandwidth).to(wide)
        return (wide / bandwidth[..., None, None]).to(self.dtype)


def kernel_settings(kernel: Kernel) -> dict[str, Any]:
    """A kernel's name and parameters, as JSON has them."""
    settings: dict[str, Any] = {"name": type(kernel).__name__.lower()}
    names: list[str] = [field.name for field in fields(kernel)] if is_dataclass(kernel) else []
    values = {name: getattr(kernel, name) for name in names}
    return settings | {name: v.tolist() if isinstance(v, Tensor) else v for name, v in values.items()}


def kernel_from_settings(settings: Mapping[str, Any]) -> Kernel:
    """The kernel of `kernel_settings`. Raises KeyError, TypeError or InputError where they define none."""
    values = dict(settings)
    kernel = KERNELS[values.pop("name")]
    return kernel(**{k: torch.tensor(v, dtype=torch.float64) if isinstance(v, list) else v for k, v in values.items()})


def _checked_origin(origin: Tensor, dim: int, side: int) -> Tensor:
    origin = torch.as_tensor(origin).detach().cpu().to(torch.float64)
    if origin.shape != (dim,) or not bool(torch.isfinite(origin).all()):
        raise InputError(
            f"the origin of side {side} must be {dim} finite numbers, but has shape {tuple(origin.shape)}."
        )
    return origin


def _unit_halves(features: Tensor, num_features: int) -> Tensor:
    halves = features.reshape(*features.shape[:-1], 2, num_features // 2)
    norms: Tensor = torch.linalg.vector_norm(halves, dim=-1, keepdim=True)
    if bool((norms == 0).any()):
        row = torch.nonzero(norms.detach()[..., 0].amin(-1) == 0)[0].tolist()
        raise InputError(f"row {row[-1]} vanishes in a sketch of {num_features} features; use more, or another seed.")
    unit: Tensor = halves / (math.sqrt(2) * norms)
    return unit.flatten(-2)


def _digest(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name in sorted(tensors):
        content.update(name.encode())
        content.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()
