"""Normalised positive-definite kernels, k(z, z) = 1, and the median bandwidth.

A kernel evaluates in two moves. `prepare` carries features to coordinates in which the kernel has no
parameters left (centred and divided by the bandwidth, or scaled to unit norm); `evaluate` turns two
prepared sets into a block of the Gram matrix. Tiles, whole Gram matrices and sketches share both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from condvne.core.checks import answer_dtype, check_leading_shapes, checked_features
from condvne.core.manhattan import ManhattanDistance
from condvne.core.products import inner_products
from condvne.core.spectral import as_number, in_double
from condvne.errors import InputError

MEDIAN_ROWS = 2000  # rows beyond this are subsampled for the median: its sampling error is then about 0.1 %
MEDIAN_SEED = 0
FAR = 1e4  # squared norm, in bandwidths, above which |u|² + |v|² - 2⟨u, v⟩ has lost more than 1e-11 of a distance

KernelName = Literal["gaussian", "laplacian", "cosine", "polynomial", "delta"]
BandwidthKernelT = TypeVar("BandwidthKernelT", bound="_BandwidthKernel")


class Kernel(ABC):
    """A normalised kernel on rows of feature tensors of shape (..., n, d)."""

    @abstractmethod
    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Parameter-free coordinates of each set of rows; sets prepared together can be evaluated together."""

    @abstractmethod
    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        """Block of kernel values (..., n, m) of prepared rows; without `v`, u against itself, diagonal exactly 1."""

    def settled(self, prepared: Tensor) -> Kernel:
        """The same kernel for blocks of these prepared rows: what each block would ask of the device is asked once."""
        return self

    def gram(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Gram matrix.

        Args:
            x: features, (..., n, d).
            z: second set, (..., m, d); default `x` itself, with a diagonal of exactly 1.

        Returns:
            (..., n, m), values at most 1; computed in float64, in the precision of `x` (float32 for half types).

        Raises:
            InputError: features are not finite or of unlike width; a bandwidth is needed and neither given nor
                defined by `x`; a row has no direction.
        """
        sets = [checked_features(x, "x")] + ([] if z is None else [checked_features(z, "z")])
        if len({s.shape[-1] for s in sets}) > 1:
            raise InputError(f"x has {sets[0].shape[-1]} columns and z has {sets[1].shape[-1]}.")
        kernel = self.fit(sets[0])
        with torch.autocast(sets[0].device.type, enabled=False):
            values = kernel.evaluate(*kernel.prepare(*(in_double(s) for s in sets)))
        return values.to(answer_dtype(sets[0].dtype))

    def fit(self, reference: Tensor, *, generator: torch.Generator | None = None) -> Kernel:
        """The same kernel with its bandwidth fixed by the median heuristic on `reference` (no-op without bandwidth)."""
        return self

    def fit_each(self, x: Tensor, *, generator: torch.Generator | None = None) -> Kernel:
        """Like `fit`, but rows that are all equal get bandwidth 1: every bandwidth gives them the same Gram matrix."""
        return self

    @property
    def fixed_bandwidth(self) -> float | Tensor | None:
        """The bandwidth once fixed; None for kernels without one."""
        return None

    def rounding(self, x: Tensor) -> float:
        """How far values on `x` may be off, in units of the float64 epsilon: copies of a row are alike to within it."""
        return 1.0

    def feature_dimension(self, x: Tensor) -> int | None:
        """Dimension of the explicit feature map on `x`; None where the map is infinite."""
        return None

    def feature_map(self, x: Tensor) -> Tensor:
        """Explicit unit-norm features φ(x), (..., n, D), with k(x, z) = ⟨φ(x), φ(z)⟩."""
        raise InputError(f"{self} has no finite feature map; use its Gram matrix.")


@dataclass(frozen=True)
class _BandwidthKernel(Kernel):
    """A kernel of scaled differences.

    Args:
        bandwidth: σ, a positive finite float, or one of shape (...) for batched features;
            None for the median heuristic on the data given.
        multiplier: of the median distance; only where `bandwidth` is None.
    """

    bandwidth: float | Tensor | None = None
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        for argument, value in (("bandwidth", self.bandwidth), ("multiplier", self.multiplier)):
            if value is None:
                continue
            number = value if isinstance(value, Tensor) else as_number(value)
            values = torch.as_tensor(math.nan if number is None else number, dtype=torch.float64)
            if not bool((torch.isfinite(values) & (values > 0)).all()):
                raise InputError(f"{name}: {argument} must be positive and finite, but is {value}.")
        if self.bandwidth is not None and self.multiplier != 1.0:
            raise InputError(
                f"{name}: multiplier scales the median bandwidth; with bandwidth={self.bandwidth} leave it out."
            )

    @property
    def fixed_bandwidth(self) -> float | Tensor | None:
        return self.bandwidth

    def fit(self: BandwidthKernelT, reference: Tensor, *, generator: torch.Generator | None = None) -> BandwidthKernelT:
        return self._fitted(reference, generator, when_equal=None)

    def fit_each(self: BandwidthKernelT, x: Tensor, *, generator: torch.Generator | None = None) -> BandwidthKernelT:
        return self._fitted(x, generator, when_equal=1.0)

    def _fitted(
        self: BandwidthKernelT, x: Tensor, generator: torch.Generator | None, when_equal: float | None
    ) -> BandwidthKernelT:
        if self.bandwidth is not None:
            return self
        median = median_distance(checked_features(x, "the reference"), norm=self._norm, generator=generator)
        undefined = median == 0
        if bool(undefined.any()):
            if when_equal is None:
                raise InputError(
                    f"{type(self).__name__}: all rows are equal, so the median distance gives no bandwidth; "
                    "give bandwidth=..., or fit on data that differ."
                )
            median = torch.where(undefined, when_equal / self.multiplier, median)
        bandwidth = self.multiplier * median
        return replace(self, bandwidth=bandwidth if bandwidth.ndim else float(bandwidth), multiplier=1.0)

    @property
    @abstractmethod
    def _norm(self) -> float: ...

    def _scaled(self, x: Tensor) -> Tensor:
        if self.bandwidth is None:
            raise InputError(f"{type(self).__name__}: fix the bandwidth first, with kernel.fit(reference).")
        if isinstance(self.bandwidth, Tensor):
            bandwidth = self.bandwidth.to(x)[..., None, None]
            check_leading_shapes({"the features": x, "the bandwidth": bandwidth})
            return x / bandwidth
        return x / self.bandwidth


@dataclass(frozen=True)
class Gaussian(_BandwidthKernel):
    """k(z, z') = exp(-|z - z'|² / (2σ²)).

    >>> k = Gaussian(bandwidth=2.0).gram(torch.tensor([[0.0], [2.0]]))
    >>> round(float(k[0, 1]), 4)
    0.6065
    """

    @property
    def _norm(self) -> float:
        return 2.0

    _far: bool | None = field(default=None, kw_only=True, repr=False, compare=False)  # None: looked up in every block

    def settled(self, prepared: Tensor) -> Gaussian:
        return replace(self, _far=self._any_far(prepared.detach().square().sum(-1)))

    @staticmethod
    def _any_far(*square_norms: Tensor) -> bool:
        return any(float(s.detach().amax()) > FAR for s in square_norms)

    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        # Distances ignore a common shift, rounding does not: data far from the origin would lose their spread.
        origin = x.detach().mean(dim=-2, keepdim=True)
        if isinstance(self.bandwidth, float | int):  # in place: half the memory that is walked through
            return tuple((rows - origin).div_(self.bandwidth) for rows in (x, *others))
        return tuple(self._scaled(rows - origin) for rows in (x, *others))

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        w = u if v is None else v
        products = inner_products(u, v)
        if v is None:
            of_u = of_w = products.diagonal(dim1=-2, dim2=-1).clone()
        else:
            of_u, of_w = u.square().sum(-1), w.square().sum(-1)
        distances = products.mul_(-2).add_(of_u[..., :, None]).add_(of_w[..., None, :])
        if self._any_far(of_u, of_w) if self._far is None else self._far:
            exact = torch.cdist(u.detach(), w.detach(), compute_mode="donot_use_mm_for_euclid_dist").square_()
            distances = _with_value(distances, exact)
        if v is None:
            distances = _without_diagonal(distances)
        return _clamped_from_below(distances).mul_(-0.5).exp_()

    def rounding(self, x: Tensor) -> float:
        rows = x.detach()
        radii = torch.cdist(rows, rows.mean(-2, keepdim=True), compute_mode="donot_use_mm_for_euclid_dist")
        farthest = float(self._scaled(radii).amax()) ** 2
        return 4.0 * (1.0 + farthest) if farthest <= FAR else 4.0


@dataclass(frozen=True)
class Laplacian(_BandwidthKernel):
    """k(z, z') = exp(-|z - z'|₁ / σ)."""

    @property
    def _norm(self) -> float:
        return 1.0

    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._scaled(rows) for rows in (x, *others))

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        distances: Tensor = ManhattanDistance.apply(u, u if v is None else v)
        return torch.exp(-distances)


@dataclass(frozen=True)
class Cosine(Kernel):
    """k(z, z') = ⟨z, z'⟩ / (|z| |z'|). Rows of zeros have no direction and are refused."""

    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return tuple(_unit_rows(rows, "Cosine") for rows in (x, *others))

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        return _unit_products(u, v)

    def rounding(self, x: Tensor) -> float:
        return 4.0

    def feature_dimension(self, x: Tensor) -> int | None:
        return x.shape[-1]

    def feature_map(self, x: Tensor) -> Tensor:
        return self.prepare(x)[0]


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(z, z') = (γ⟨z, z'⟩ + c)^p, normalised: the cosine of [√γ z, √c], to the power p (paper A: p = 3, γ = 1)."""

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or int(self.degree) != self.degree or self.degree < 1:
            raise InputError(f"Polynomial: degree must be a positive integer, but is {self.degree}.")
        if not 0 < self.gamma < math.inf:
            raise InputError(f"Polynomial: gamma must be positive and finite, but is {self.gamma}.")
        if not 0 <= self.coef0 < math.inf:
            raise InputError(f"Polynomial: coef0 must be non-negative and finite, but is {self.coef0}.")

    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return tuple(_unit_rows(self._augmented(rows), "Polynomial") for rows in (x, *others))

    def _augmented(self, x: Tensor) -> Tensor:
        constant = x.new_full((*x.shape[:-1], 1), math.sqrt(self.coef0))
        return torch.cat([math.sqrt(self.gamma) * x, constant], dim=-1)

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        return _unit_products(u, v) ** int(self.degree)

    def rounding(self, x: Tensor) -> float:
        return 4.0 * self.degree

    def feature_dimension(self, x: Tensor) -> int | None:
        return int((x.shape[-1] + 1) ** self.degree)

    def feature_map(self, x: Tensor) -> Tensor:
        (u,) = self.prepare(x)
        features = u
        for _ in range(int(self.degree) - 1):
            features = row_kronecker(features, u)
        return features


@dataclass(frozen=True)
class Delta(Kernel):
    """k(z, z') = 1 where the rows are equal, else 0. Features may be integers; no gradient flows to them."""

    def prepare(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        sets = (x, *others)
        # Adding zero makes -0.0 and 0.0 the same row.
        flat = torch.cat([(s.detach() + 0).reshape(-1, s.shape[-1]) for s in sets])
        labels = torch.unique(flat, dim=0, return_inverse=True)[1].to(torch.float64)
        parts = labels.split([s.shape[:-1].numel() for s in sets])
        return tuple(part.reshape(*s.shape[:-1], 1) for part, s in zip(parts, sets, strict=True))

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        return (u == (u if v is None else v).mT).to(torch.float64)

    def feature_dimension(self, x: Tensor) -> int | None:
        return int(self.prepare(x)[0].max()) + 1

    def feature_map(self, x: Tensor) -> Tensor:
        labels = self.prepare(x)[0].squeeze(-1).long()
        return torch.nn.functional.one_hot(labels).to(torch.float64)


KERNELS: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "cosine": Cosine,
    "polynomial": Polynomial,
    "delta": Delta,
}


def as_kernel(kernel: Kernel | str) -> Kernel:
    """A kernel object from itself or its lower-case name. Raises InputError for an unknown name."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise InputError(f"no kernel {kernel!r}: give one of {', '.join(KERNELS)}, or a kernel object.")


def row_kronecker(a: Tensor, b: Tensor) -> Tensor:
    """Row-wise tensor product a_i ⊗ b_i: (..., n, p) and (..., n, q) to (..., n, p·q)."""
    return (a[..., :, None] * b[..., None, :]).flatten(-2)


@torch.no_grad()
def median_distance(x: Tensor, *, norm: float = 2.0, generator: torch.Generator | None = None) -> Tensor:
    """Median of the positive pairwise distances, in float64; 0 where no two rows differ.

    Every row counts once, whatever its weight; copies of a row have no positive distance from each other, but each has
    its own from the others.

    Args:
        x: (..., n, d); above 2,000 rows a seeded subsample of rows is used.
        norm: 2 for Euclidean, 1 for Manhattan distances.
        generator: draws the subsample; a fixed seed by default.

    Returns:
        (...), one median for each batch element, constant with respect to `x` (no gradient).
    """
    n = x.shape[-2]
    rows = x.detach().to(torch.float64)
    if n > MEDIAN_ROWS:
        generator = generator or torch.Generator().manual_seed(MEDIAN_SEED)
        chosen = torch.randperm(n, generator=generator, device=generator.device)[:MEDIAN_ROWS].to(x.device)
        rows = rows[..., chosen, :]
    m = rows.shape[-2]
    if m < 2:
        return rows.new_zeros(rows.shape[:-2])
    # Brought near one: squares of very small and very large entries leave the range of floats.
    largest = (rows - rows.mean(-2, keepdim=True)).abs().amax((-2, -1), keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    rows = rows / scale
    # Differences, not inner products: only so do equal rows have a distance of exactly zero.
    square = torch.cdist(rows, rows, p=norm, compute_mode="donot_use_mm_for_euclid_dist")
    above = torch.triu_indices(m, m, offset=1, device=x.device)
    distances = square[..., above[0], above[1]]
    count = (distances > 0).sum(-1)
    ranked = torch.where(distances > 0, distances, math.inf).sort(dim=-1).values
    last = (count - 1).clamp(min=0)
    middle = torch.stack([last // 2, (count // 2).clamp(max=ranked.shape[-1] - 1)], dim=-1)
    median = ranked.gather(-1, middle).mean(-1) * scale[..., 0, 0]
    return torch.where(count > 0, median, torch.zeros_like(median))


def _without_diagonal(square: Tensor) -> Tensor:
    """Zero on the diagonal, where a distance is zero by definition and has no derivative."""
    eye = torch.eye(square.shape[-1], dtype=torch.bool, device=square.device)
    return square.masked_fill(eye, 0.0)


def _clamped_from_below(distances: Tensor) -> Tensor:
    # Rounding can make the distance of equal rows negative. Only the value is clamped: the derivatives
    # of |z - z'|² at equal rows are right as they are, and a clamped gradient would lose the second one.
    if torch.is_grad_enabled() and distances.requires_grad:
        return _with_value(distances, distances.detach().clamp(min=0))
    return distances.clamp_(min=0)


def _with_value(carrier: Tensor, value: Tensor) -> Tensor:
    """The better value of a quantity, with the derivatives of its first form."""
    if torch.is_grad_enabled() and carrier.requires_grad:
        return carrier + (value - carrier.detach())
    return value


def _unit_rows(x: Tensor, kernel: str) -> Tensor:
    # Scaled by the largest entry first, or squares of very large and very small rows leave the range of floats.
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if bool((norms == 0).any()):
        rows = torch.nonzero(norms.detach().squeeze(-1) == 0)[:5].tolist()
        named = ", ".join(str(r[0] if len(r) == 1 else tuple(r)) for r in rows)
        raise InputError(
            f"{kernel} kernel: rows {named} are zero and have no direction; drop them or use another kernel."
        )
    return x / norms


def _unit_products(u: Tensor, v: Tensor | None) -> Tensor:
    products = inner_products(u, v)
    values = _with_value(products, products.detach().clamp(-1.0, 1.0))
    if v is None:
        eye = torch.eye(values.shape[-1], dtype=torch.bool, device=values.device)
        values = values.masked_fill(eye, 1.0)
    return values
