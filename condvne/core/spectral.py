"""Entropies of a density matrix's spectrum, with derivatives that survive ties and zeros.

For a PSD matrix A of unit trace (nats):

    H_1(A) = -Σ λ log λ        H_α(A) = log(Σ λ^α) / (1 - α)        H_2(A) = -log tr A²
    H_0(A) = log rank A        H_∞(A) = -log λ_max

Each is g(tr f(A)). The gradient of tr f(A) is V f'(Λ) Vᵀ, which has no division by eigenvalue gaps, so tied
eigenvalues are harmless (differentiating through `eigh` gives NaN there). The derivative of V f'(Λ) Vᵀ is
V (Γ ∘ VᵀdAV) Vᵀ with the divided differences Γ_ij = (f'(λ_i) - f'(λ_j)) / (λ_i - λ_j), and f''(λ_i) where
they meet (Daleckii and Krein).

Conventions. Everything is computed in float64. Eigenvalues below rounding (n ε λ_max) are zeros; inside
logarithms and negative powers zeros are floored at 1e-12, which fixes the gradient on null directions.
Eigenvalues that are negative beyond rounding are an error: the kernel is not positive semidefinite.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from condvne.errors import InputError

FLOOR = 1e-12
TIE = 1e-5  # relative gap below which f'' at the midpoint is more accurate than the divided difference
EPSILON = torch.finfo(torch.float64).eps
SINGLE_NOISE = 1e-6  # eigenvalues nearer to zero than this may come from entries rounded in float32
LARGEST_WITH_VECTORS = 32_766  # LAPACK's 32-bit workspace holds no more eigenvectors
LARGEST_WITHOUT_VECTORS = 50_000


def matrix_entropy(A: Tensor, order: float = 1.0, *, epsilon: float = EPSILON) -> Tensor:
    """Entropy of order `order` of density matrices, twice differentiable in their entries.

    Args:
        A: (..., n, n), symmetric positive semidefinite with unit trace.
        order: α in [0, ∞]; `math.inf` included. At order 0, and at tied largest eigenvalues for order ∞,
            the entropy is not differentiable: the gradient is zero, or the mean over the tied directions.
        epsilon: relative rounding of the entries of `A`, which decides how negative an eigenvalue may be.

    Returns:
        (...), float64, nats, in [0, log n].

    Raises:
        InputError: the order is out of range; an eigenvalue is materially negative; the matrix is too large.
    """
    order = checked_order(order)
    A = in_double(A)
    if order == 2.0:
        return purity_entropy(A.square().sum((-2, -1)), epsilon=epsilon)
    eigenvalues, vectors = _decomposed(A.detach(), epsilon, with_vectors=A.requires_grad)
    function = _function_of_order(order, eigenvalues)
    if vectors is None:
        return function.entropy(function.values(eigenvalues).sum(-1))
    trace: Tensor = _SpectralTrace.apply((A + A.mT) / 2, eigenvalues, vectors, function)
    return function.entropy(trace)


def entropy_and_gradient(A: Tensor, order: float = 1.0, *, epsilon: float = EPSILON) -> tuple[Tensor, Tensor]:
    """`matrix_entropy` and its gradient in one decomposition: (...) float64 and (..., n, n) in the precision of `A`.

    Neither is differentiable. The decomposition is in float64, only V f'(Λ) Vᵀ is multiplied out in the precision of
    `A`: an error of its rounding, at half the time in float32. Raises InputError as `matrix_entropy`.
    """
    order = checked_order(order)
    A = A.detach()
    if order == 2.0:
        wide = in_double(A)
        purity = wide.square().sum((-2, -1))
        return purity_entropy(purity, epsilon=epsilon), (-2 * wide / purity[..., None, None]).to(A)
    eigenvalues, vectors = _decomposed(in_double(A), epsilon, with_vectors=True)
    assert vectors is not None  # asked for
    function = _function_of_order(order, eigenvalues)
    with torch.inference_mode(False), torch.enable_grad():
        trace = function.values(eigenvalues).sum(-1).clone().requires_grad_()
        H = function.entropy(trace)
        (outer,) = torch.autograd.grad(H.sum(), trace)
    slopes = (outer[..., None] * function.derivative(eigenvalues)).to(A)
    basis = vectors.to(A)
    return H.detach(), (basis * slopes[..., None, :]) @ basis.mT


def purity_entropy(purity: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """H_2 = -log tr A², given the traces (...). Raises InputError where they exceed one, the square of tr A."""
    largest = float(purity.detach().amax())
    if not largest <= 1 + 1e-4 + 4 * math.sqrt(epsilon):
        raise InputError(
            f"the kernel matrix is not positive semidefinite, or overflows: tr A² is {largest:.3g}, above 1; "
            "use a positive-definite kernel, or rescale the features."
        )
    return -torch.log(purity)


def spectrum(A: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Eigenvalues (..., n) of density matrices (..., n, n), ascending, rounding removed; not differentiable."""
    return _decomposed(in_double(A.detach()), epsilon, with_vectors=False)[0]


def spectrum_entropy(eigenvalues: Tensor, order: float = 1.0) -> Tensor:
    """Entropy (...) in nats of spectra (..., n) that sum to one: one decomposition serves every order."""
    order = checked_order(order)
    if order == 2.0:
        return -torch.log(eigenvalues.square().sum(-1))
    function = _function_of_order(order, eigenvalues)
    return function.entropy(function.values(eigenvalues).sum(-1))


def checked_order(order: float) -> float:
    """The order as a float in [0, ∞]. Raises InputError otherwise."""
    number = as_number(order)
    if number is None or not number >= 0:  # NaN included
        raise InputError(f"order must be a number in [0, inf], but is {order!r}.")
    return number


def as_number(value: object) -> float | None:
    """A real number of Python or NumPy as a float; None for anything else, booleans included."""
    return float(value) if not isinstance(value, bool) and isinstance(value, Real) else None


def in_double(A: Tensor) -> Tensor:
    """The tensor in float64; moved to the CPU, with one warning, from a device that has no float64."""
    if A.device.type == "mps":
        warnings.warn("this device has no float64: entropies are computed on the CPU.", stacklevel=3)
        A = A.cpu()
    return A.to(torch.float64)


class _SpectralFunction(ABC):
    """f with H = entropy(Σ f(λ)); derivatives are asked for at eigenvalues floored where they would diverge."""

    tie = TIE

    @abstractmethod
    def values(self, eigenvalues: Tensor) -> Tensor: ...

    @abstractmethod
    def derivative(self, eigenvalues: Tensor) -> Tensor: ...

    @abstractmethod
    def second_derivative(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def entropy(self, trace: Tensor) -> Tensor: ...

    def divided_differences(self, eigenvalues: Tensor) -> Tensor:
        """Γ (..., n, n); below the floor f' is constant by convention, so Γ is zero there."""
        a, b = eigenvalues[..., :, None], eigenvalues[..., None, :]
        larger, gap, middle = torch.maximum(a, b), a - b, (a + b) / 2
        slope = self.derivative(eigenvalues)
        tied = gap.abs() <= self.tie * larger.clamp(min=FLOOR)
        quotient = (slope[..., :, None] - slope[..., None, :]) / torch.where(tied, torch.ones_like(gap), gap)
        differences = torch.where(tied, self.second_derivative(middle.clamp(min=FLOOR)), quotient)
        return torch.where(larger > FLOOR, differences, torch.zeros_like(differences))


class _VonNeumann(_SpectralFunction):
    """f(λ) = -λ log λ."""

    def values(self, eigenvalues: Tensor) -> Tensor:
        values: Tensor = torch.special.entr(eigenvalues)
        return values

    def derivative(self, eigenvalues: Tensor) -> Tensor:
        return -torch.log(eigenvalues.clamp(min=FLOOR)) - 1

    def second_derivative(self, x: Tensor) -> Tensor:
        return -1 / x

    def entropy(self, trace: Tensor) -> Tensor:
        return trace


class _Tsallis(_SpectralFunction):
    """f(λ) = (λ^α - λ) / (1 - α) and H = log(1 + (1 - α) Σf) / (1 - α): accurate on both sides of α = 1."""

    def __init__(self, order: float) -> None:
        self.order = order

    def _deformed_log(self, x: Tensor) -> Tensor:
        return torch.expm1((self.order - 1) * torch.log(x)) / (1 - self.order)  # (x^(α-1) - 1) / (1 - α)

    def values(self, eigenvalues: Tensor) -> Tensor:
        positive = eigenvalues > 0
        safe = torch.where(positive, eigenvalues, torch.ones_like(eigenvalues))
        return torch.where(positive, safe * self._deformed_log(safe), torch.zeros_like(safe))

    def derivative(self, eigenvalues: Tensor) -> Tensor:
        return self.order * self._deformed_log(eigenvalues.clamp(min=FLOOR)) - 1

    def second_derivative(self, x: Tensor) -> Tensor:
        return -self.order * x.pow(self.order - 2)

    def entropy(self, trace: Tensor) -> Tensor:
        return torch.log1p((1 - self.order) * trace) / (1 - self.order)


class _Power(_SpectralFunction):
    """f(λ) = (λ/λ_max)^α for larger orders, where subtracting λ would cancel and λ^α underflow."""

    def __init__(self, order: float, largest: Tensor) -> None:
        self.order = order
        self.largest = largest  # (...); H does not depend on it, so it is constant in every derivative

    def values(self, eigenvalues: Tensor) -> Tensor:
        return (eigenvalues / self.largest[..., None]).pow(self.order)

    def derivative(self, eigenvalues: Tensor) -> Tensor:
        scale = self.largest[..., None]
        return self.order / scale * (eigenvalues / scale).pow(self.order - 1)

    def second_derivative(self, x: Tensor) -> Tensor:
        scale = self.largest[..., None, None]
        return self.order * (self.order - 1) / scale.square() * (x / scale).pow(self.order - 2)

    def entropy(self, trace: Tensor) -> Tensor:
        return self.order / (1 - self.order) * torch.log(self.largest) + torch.log(trace) / (1 - self.order)


class _Largest(_SpectralFunction):
    """Σf = λ_max; at a tie every direction of the tied space has an equal share (one subgradient)."""

    tie = 1e-10

    def __init__(self, largest: Tensor) -> None:
        self.largest = largest

    def _share(self, eigenvalues: Tensor) -> Tensor:
        leading = (eigenvalues >= self.largest[..., None] * (1 - self.tie)).to(eigenvalues.dtype)
        return leading / leading.sum(-1, keepdim=True)

    def values(self, eigenvalues: Tensor) -> Tensor:
        return self._share(eigenvalues) * eigenvalues

    def derivative(self, eigenvalues: Tensor) -> Tensor:
        return self._share(eigenvalues)

    def second_derivative(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def entropy(self, trace: Tensor) -> Tensor:
        return -torch.log(trace)


class _Rank(_SpectralFunction):
    """Σf = rank, locally constant."""

    def values(self, eigenvalues: Tensor) -> Tensor:
        return (eigenvalues > 0).to(eigenvalues.dtype)

    def derivative(self, eigenvalues: Tensor) -> Tensor:
        return torch.zeros_like(eigenvalues)

    def second_derivative(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def entropy(self, trace: Tensor) -> Tensor:
        return torch.log(trace)


def _function_of_order(order: float, eigenvalues: Tensor) -> _SpectralFunction:
    if order == 0.0:
        return _Rank()
    if order == 1.0:
        return _VonNeumann()
    if order < 1.5:
        return _Tsallis(order)
    largest = eigenvalues.detach().amax(-1)
    return _Largest(largest) if math.isinf(order) else _Power(order, largest)


class _SpectralTrace(torch.autograd.Function):
    """tr f(A), given the eigenpairs of A; the gradient f'(A) is itself differentiable."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, eigenvalues: Tensor, vectors: Tensor, f: _SpectralFunction) -> Tensor:
        ctx.save_for_backward(A, eigenvalues, vectors)
        ctx.f = f
        return f.values(eigenvalues).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        A, eigenvalues, vectors = ctx.saved_tensors
        gradient: Tensor = _MatrixDerivative.apply(A, eigenvalues, vectors, ctx.f)
        return grads[0][..., None, None] * gradient, None, None, None


class _MatrixDerivative(torch.autograd.Function):
    """f'(A) = V f'(Λ) Vᵀ, with the derivative of Daleckii and Krein."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, eigenvalues: Tensor, vectors: Tensor, f: _SpectralFunction) -> Tensor:
        ctx.save_for_backward(eigenvalues, vectors)
        ctx.f = f
        return (vectors * f.derivative(eigenvalues)[..., None, :]) @ vectors.mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        eigenvalues, vectors = ctx.saved_tensors
        inner = ctx.f.divided_differences(eigenvalues) * (vectors.mT @ grads[0] @ vectors)
        return vectors @ inner @ vectors.mT, None, None, None


def _decomposed(A: Tensor, epsilon: float, *, with_vectors: bool) -> tuple[Tensor, Tensor | None]:
    """Eigenvalues of A in float64, rounding removed, and eigenvectors where asked for."""
    n = A.shape[-1]
    refuse_too_large(n, with_vectors=with_vectors)
    vectors: Tensor | None = None
    if with_vectors:
        eigenvalues, vectors = _solve(torch.linalg.eigh, A)
    else:
        eigenvalues = _solve(torch.linalg.eigvalsh, A)
    _refuse_negative(eigenvalues, epsilon)
    # Noise of the decomposition would count as rank, and weigh in at orders below one.
    noise = n * EPSILON * eigenvalues.amax(-1, keepdim=True)
    return torch.where(eigenvalues > noise.clamp(min=_noise(epsilon)), eigenvalues, 0.0), vectors


def refuse_too_large(n: int, *, with_vectors: bool) -> None:
    """Raises InputError where LAPACK has no workspace for an n × n matrix; asked before the matrix is made."""
    limit = LARGEST_WITH_VECTORS if with_vectors else LARGEST_WITHOUT_VECTORS
    if n > limit:
        raise InputError(
            f"{n} points are too many for a dense eigendecomposition (at most {limit}); "
            "use method='lanczos', order=2, a kernel with a short feature map, or a subsample."
        )


def _solve(solver: Callable[[Tensor], Any], A: Tensor) -> Any:
    try:
        return solver(A.clone() if A.is_cuda else A)  # the CUDA solver may overwrite its input when it fails
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        if not A.is_cuda:
            raise InputError(
                "the eigendecomposition did not converge; check the kernel matrix for extreme values."
            ) from None
    result = solver(A.cpu())
    return result.to(A.device) if isinstance(result, Tensor) else tuple(part.to(A.device) for part in result)


def _noise(epsilon: float) -> float:
    return 0.0 if epsilon <= EPSILON else epsilon


def _refuse_negative(eigenvalues: Tensor, epsilon: float) -> None:
    n = eigenvalues.shape[-1]
    tolerance = min(64 * epsilon * max(1.0, math.sqrt(n) / 8), 0.05)
    smallest = float(eigenvalues.amin())
    if not smallest >= -tolerance:  # NaN included
        hint = "; pass a matrix computed in float32 as float32" if smallest > -SINGLE_NOISE else ""
        raise InputError(
            f"the kernel matrix is not positive semidefinite: its density matrix has the eigenvalue {smallest:.3g}; "
            f"use a positive-definite kernel, or repair the matrix before scoring{hint}."
        )
