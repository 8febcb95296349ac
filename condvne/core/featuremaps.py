"""What a sketch draws, and how the drawn tensors turn coordinates into features: pure functions, one set a method.

A `Plan` says how much of what to draw. `draw` makes the tensors in float64 on the CPU, so that a seed means the same
features on every device and in every precision; `project` maps coordinates of some of the sides to (..., n, r), up to
the norm of each half of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from condvne.core.kernels import Cosine, Delta, Gaussian, Kernel, Laplacian, Polynomial, row_kronecker
from condvne.errors import InputError

ResolvedMethod = Literal["fourier", "orthogonal", "kronecker", "tensor", "dense", "mixed"]
SketchMethod = Literal["auto", "fourier", "orthogonal", "kronecker", "tensor", "dense", "mixed"]
METHODS: tuple[str, ...] = get_args(SketchMethod)
LARGEST_DENSE = 4096  # columns of the dense projection: at r = 2,000 its matrix fills 33 MB in float32


@dataclass(frozen=True)
class Plan:
    """Shape of a sketch.

    Attributes:
        method: how features are made.
        num_features: r, a multiple of four.
        widths: number of coordinates on each side.
        degrees: of the tensor power on each side; 0 where the kernel depends on differences alone.
        heavy: per side, whether frequencies are Cauchy (Laplacian kernel) rather than normal (Gaussian).
    """

    method: ResolvedMethod
    num_features: int
    widths: tuple[int, ...]
    degrees: tuple[int, ...]
    heavy: tuple[bool, ...]

    @property
    def shift_sides(self) -> tuple[int, ...]:
        return tuple(side for side, degree in enumerate(self.degrees) if degree == 0)

    @property
    def factors(self) -> tuple[tuple[int, int], ...]:
        """(side, number) of each factor of the Kronecker feature."""
        return tuple((side, k) for side, degree in enumerate(self.degrees) for k in range(degree))

    @property
    def dense_dimension(self) -> int:
        return math.prod(width**degree for width, degree in zip(self.widths, self.degrees, strict=True))


def draw(plan: Plan, generator: torch.Generator) -> dict[str, Tensor]:
    """The random tensors of a sketch, float64 on the CPU, by name."""
    if plan.method == "dense":
        shape = [w**p for w, p in zip(plan.widths, plan.degrees, strict=True)]
        return {"dense": _normal((plan.num_features, *shape), generator)}
    if plan.method == "tensor":
        return _draw_hashes(plan, generator)
    tensors: dict[str, Tensor] = {}
    if plan.shift_sides:
        tensors |= _draw_frequencies(plan, generator)
    for side, k in plan.factors:
        tensors[f"projection.{side}.{k}"] = _normal((plan.num_features, plan.widths[side]), generator)
    return tensors


def project(plan: Plan, tensors: Mapping[str, Tensor], coordinates: Mapping[int, Tensor]) -> Tensor:
    """Features (..., n, r) of the product kernel of the sides given; columns of each half still to be normalised."""
    if plan.method == "dense":
        return _dense(plan, tensors["dense"], coordinates)
    if plan.method == "tensor":
        return _tensor_sketch(plan, tensors, coordinates)
    if plan.method == "mixed":
        return _mixed(plan, tensors, coordinates)
    if plan.method == "kronecker":
        return _kronecker(plan, tensors, coordinates)
    phase = _phase(plan, tensors, coordinates)
    return torch.stack([phase.cos(), phase.sin()], dim=-1).flatten(-2)


def make_plan(kernels: Sequence[Kernel], dims: Sequence[int], num_features: int, method: str = "auto") -> Plan:
    """The shape of a sketch of these kernels. Raises InputError where there is none."""
    dims = _checked_dims(kernels, dims)
    if method not in METHODS:
        raise InputError(f"method of a sketch must be one of {', '.join(METHODS)}, but is {method!r}.")
    degrees = tuple(_degree(kernel) for kernel in kernels)
    widths = tuple(d + isinstance(k, Polynomial) for k, d in zip(kernels, dims, strict=True))
    heavy = tuple(isinstance(kernel, Laplacian) for kernel in kernels)
    plan = Plan("fourier", checked_num_features(num_features), widths, degrees, heavy)
    allowed: tuple[ResolvedMethod, ...]
    if not any(degrees):
        allowed = ("fourier",) if any(heavy) else ("fourier", "orthogonal")
    elif all(degrees):
        small = plan.dense_dimension <= LARGEST_DENSE
        allowed = ("dense", "tensor", "kronecker") if small else ("tensor", "kronecker")
    else:
        allowed = ("mixed",)
    chosen = allowed[0] if method == "auto" else next((m for m in allowed if m == method), None)
    if chosen is None:
        names = " × ".join(type(kernel).__name__ for kernel in kernels)
        raise InputError(f"{names} of dimensions {dims} cannot be sketched by {method!r}: use {' or '.join(allowed)}.")
    return replace(plan, method=chosen)


def _degree(kernel: Kernel) -> int:
    if isinstance(kernel, Cosine):
        return 1
    if isinstance(kernel, Polynomial):
        return int(kernel.degree)
    if isinstance(kernel, Gaussian | Laplacian):
        if kernel.bandwidth is None:
            raise InputError(
                f"{type(kernel).__name__}: a sketch needs a fixed bandwidth; fix it with kernel.fit(reference)."
            )
        return 0
    hint = "; one-hot rows under the cosine kernel are the same" if isinstance(kernel, Delta) else ""
    raise InputError(f"{type(kernel).__name__} kernel has no random features: use method='exact'{hint}.")


def _checked_dims(kernels: Sequence[Kernel], dims: Sequence[int]) -> tuple[int, ...]:
    if len(kernels) not in (1, 2) or len(dims) != len(kernels):
        raise InputError(f"a sketch takes one or two kernels and as many dims, but got {len(kernels)} and {len(dims)}.")
    if any(int(d) != d or d < 1 for d in dims):
        raise InputError(f"dims of a sketch must be positive integers, but are {tuple(dims)}.")
    return tuple(int(d) for d in dims)


def checked_num_features(num_features: int) -> int:
    """The number of features of a sketch as an integer. Raises InputError where no sketch has it."""
    if isinstance(num_features, bool) or int(num_features) != num_features or num_features < 1 or num_features % 4:
        near = max(4, 4 * round(int(num_features) / 4))
        raise InputError(
            "num_features must be a positive multiple of 4 (two halves of cosine and sine pairs), "
            f"but is {num_features}; use {near}."
        )
    return int(num_features)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _draw_frequencies(plan: Plan, generator: torch.Generator) -> dict[str, Tensor]:
    count = plan.num_features // 2
    widths = [plan.widths[side] for side in plan.shift_sides]
    if plan.method == "orthogonal":
        # Blocks are not shared between the halves, which have to stay independent.
        halves = [_orthogonal_rows(count // 2, sum(widths), generator) for _ in range(2)]
        split = torch.split(torch.cat(halves), widths, dim=1)
        return {f"frequencies.{side}": part for side, part in zip(plan.shift_sides, split, strict=True)}
    tensors = {}
    for side, width in zip(plan.shift_sides, widths, strict=True):
        if plan.heavy[side]:
            drawn = torch.empty((count, width), dtype=torch.float64).cauchy_(generator=generator)
        else:
            drawn = _normal((count, width), generator)
        tensors[f"frequencies.{side}"] = drawn
    return tensors


def _orthogonal_rows(count: int, width: int, generator: torch.Generator) -> Tensor:
    """Rows with the law of N(0, I), orthogonal within blocks of `width` (Yu et al. 2016)."""
    blocks = []
    for _ in range(math.ceil(count / width)):
        q, r = torch.linalg.qr(_normal((width, width), generator))
        lengths = torch.linalg.vector_norm(_normal((width, width), generator), dim=1, keepdim=True)
        blocks.append(q * r.diagonal().sign() * lengths)  # with the signs, q is uniform over rotations
    return torch.cat(blocks)[:count]


def _draw_hashes(plan: Plan, generator: torch.Generator) -> dict[str, Tensor]:
    half = plan.num_features // 2
    tensors = {}
    for side, k in plan.factors:
        shape = (2, plan.widths[side])
        buckets = torch.randint(half, shape, generator=generator)
        signs = torch.randint(2, shape, generator=generator)
        # The second half's buckets lie behind those of the first.
        tensors[f"bucket.{side}.{k}"] = buckets + half * torch.arange(2)[:, None]
        tensors[f"sign.{side}.{k}"] = (2 * signs - 1).to(torch.float64)
    return tensors


def _phase(plan: Plan, tensors: Mapping[str, Tensor], coordinates: Mapping[int, Tensor]) -> Tensor:
    """ωᵀz over the shift-invariant sides that are given, (..., n, r/2)."""
    phases = [coordinates[s] @ tensors[f"frequencies.{s}"].mT for s in plan.shift_sides if s in coordinates]
    return phases[0] if len(phases) == 1 else phases[0] + phases[1]


def _kronecker(plan: Plan, tensors: Mapping[str, Tensor], coordinates: Mapping[int, Tensor]) -> Tensor:
    features: Tensor | None = None
    for side, k in plan.factors:
        if side in coordinates:
            values = coordinates[side] @ tensors[f"projection.{side}.{k}"].mT
            features = values if features is None else features * values
    assert features is not None  # a sketch is asked for at least one side
    return features


def _mixed(plan: Plan, tensors: Mapping[str, Tensor], coordinates: Mapping[int, Tensor]) -> Tensor:
    """Pairs (Re, Im) of exp(iωᵀz) Π_k (g_k + i g'_k)ᵀu; a shift of z turns the pairs and changes no inner product."""
    features: Tensor | None = None
    if any(side in coordinates for side in plan.shift_sides):
        phase = _phase(plan, tensors, coordinates)
        features = torch.complex(phase.cos(), phase.sin())
    for side, k in plan.factors:
        if side in coordinates:
            values = coordinates[side] @ tensors[f"projection.{side}.{k}"].mT
            pairs = torch.view_as_complex(values.reshape(*values.shape[:-1], -1, 2))
            features = pairs if features is None else features * pairs
    assert features is not None  # a sketch is asked for at least one side
    return torch.view_as_real(features).flatten(-2)


def _tensor_sketch(plan: Plan, tensors: Mapping[str, Tensor], coordinates: Mapping[int, Tensor]) -> Tensor:
    """Count sketches of the factors, convolved by FFT (Pham and Pagh 2013)."""
    half = plan.num_features // 2
    spectrum: Tensor | None = None
    for side, k in plan.factors:
        if side not in coordinates:
            continue
        u = coordinates[side]
        signed = (u[..., None, :] * tensors[f"sign.{side}.{k}"]).flatten(-2)
        empty = u.new_zeros((*u.shape[:-1], plan.num_features))
        counts = empty.index_add(-1, tensors[f"bucket.{side}.{k}"].flatten(), signed)
        transformed = torch.fft.rfft(counts.reshape(*u.shape[:-1], 2, half), dim=-1)
        spectrum = transformed if spectrum is None else spectrum * transformed
    assert spectrum is not None  # a sketch is asked for at least one side
    features: Tensor = torch.fft.irfft(spectrum, n=half, dim=-1)
    return features.flatten(-2)


def _dense(plan: Plan, matrix: Tensor, coordinates: Mapping[int, Tensor]) -> Tensor:
    """G (u_x^{⊗p} ⊗ u_y^{⊗q}); a side left out counts as its first basis vector, which leaves a Gaussian matrix."""
    parts = []
    for side, degree in enumerate(plan.degrees):
        if side not in coordinates:
            matrix = matrix.narrow(1 + side, 0, 1)
            continue
        power = coordinates[side]
        for _ in range(degree - 1):
            power = row_kronecker(power, coordinates[side])
        parts.append(power)
    features = parts[0] if len(parts) == 1 else row_kronecker(parts[0], parts[1])
    return features @ matrix.flatten(1).mT
