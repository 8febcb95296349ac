"""Entropies and scores of features: the one door to the engine.

All functions take features `x: (..., n, dx)` and, where conditional, `y: (..., n, dy)`; leading dimensions are
independent problems and broadcast. They return a tensor of the leading shape, differentiable with respect to
features and weights: entropies in nats, scores as effective numbers. Whatever the input's precision, everything
is computed in float64, and returned in the input's own precision (float32 for half types).

Common arguments:
    kernel, kernel_x, kernel_y: a kernel object or its lower-case name. `bandwidth=None` is the median heuristic
        on the data given (each batch element its own), every point counting once, whatever the weights. It is a
        constant for gradients: they are those of the entropy at the bandwidth used, not of the heuristic. To compare
        groups, fit once and pass the fitted kernel.
    order: α in [0, ∞], `math.inf` included.
    weights: (n,) or (..., n), non-negative, summing to one; 1/n each by default.
    method: "exact" (eigenvalues, or closed form at order 2), "lanczos" (products with the exact kernel's matrix: an
        estimate with a bracket and a standard error), "sketch" (random features: an estimate with the sketch's own
        error), or "auto": exact where the device affords it, else lanczos. Gradients of the two estimates are
        stochastic: in trials off by 3 to 10 % (lanczos) and 20 to 35 % (sketch) of their norm. Ask for "exact" where a
        gradient must be closer than that.
    generator: draws the subsample of rows for the median bandwidth above 2,000 rows, probes and sketches.
    details: return an `EntropyResult` instead of its value.

Raises InputError (all functions): features not finite (rows named), empty, of different row counts, or without a
row dimension; weights negative, not finite or not summing to one; an order out of range; an unknown kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypedDict, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from condvne.core.checks import checked_gram, checked_points, checked_weights
from condvne.core.density import DensityState, weighted_gram
from condvne.core.kernels import MEDIAN_ROWS, MEDIAN_SEED, Kernel, as_kernel
from condvne.core.routes import Method, answer
from condvne.core.sketched import CONDITIONAL, MARGINAL, Terms
from condvne.core.spectral import checked_order, matrix_entropy

MUTUAL: Terms = ((1, (0,)), (1, (1,)), (-1, (0, 1)))  # H(X) + H(Y) - H(XY)


@dataclass(frozen=True)
class EntropyResult:
    """A value with what is known about it.

    Attributes:
        value: (...), nats or effective number, differentiable.
        standard_error: (...), of the probes or the sketch; zero where the route is exact.
        lower, upper: (...), equal to the value where the route is exact. Lanczos: bounds of the quadrature, on top
            of which comes the standard error. Sketch: bounds on the exact value with probability 95 %.
        method: the route taken.
        n: number of points.
        bandwidths: one for each side; None where its kernel has none, a (...) tensor for batched features.
        cost: floating-point operations, estimated.
        seed: of the random numbers drawn; None where none were.
    """

    value: Tensor
    standard_error: Tensor
    lower: Tensor
    upper: Tensor
    method: str
    n: int
    bandwidths: tuple[float | Tensor | None, ...]
    cost: float
    seed: int | None


class _Common(TypedDict, total=False):
    weights: Tensor | None
    method: Method
    generator: torch.Generator | None


class _OneSide(_Common, total=False):
    kernel: Kernel | str


class _TwoSides(_Common, total=False):
    kernel_x: Kernel | str
    kernel_y: Kernel | str


class _OneSideOfOrder(_OneSide, total=False):
    order: float


class _TwoSidesOfOrder(_TwoSides, total=False):
    order: float


@overload
def entropy(x: Tensor, *, details: Literal[False] = ..., **options: Unpack[_OneSideOfOrder]) -> Tensor: ...
@overload
def entropy(x: Tensor, *, details: Literal[True], **options: Unpack[_OneSideOfOrder]) -> EntropyResult: ...
def entropy(
    x: Tensor,
    *,
    kernel: Kernel | str = "gaussian",
    order: float = 1.0,
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """H_α of the weighted kernel density matrix diag(√w) K diag(√w); in [0, log n].

    >>> float(entropy(torch.eye(4), kernel="cosine").exp())
    4.0
    """
    result = _evaluate(MARGINAL, (x,), (kernel,), order, weights, method, generator)
    return result if details else result.value


@overload
def conditional_entropy(
    x: Tensor, y: Tensor, *, details: Literal[False] = ..., **options: Unpack[_TwoSidesOfOrder]
) -> Tensor: ...
@overload
def conditional_entropy(
    x: Tensor, y: Tensor, *, details: Literal[True], **options: Unpack[_TwoSidesOfOrder]
) -> EntropyResult: ...
def conditional_entropy(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 1.0,
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """H_α(Y|X) = H_α(K_X ∘ K_Y) - H_α(K_X), non-negative at every order (paper A, section 4)."""
    result = _evaluate(CONDITIONAL, (x, y), (kernel_x, kernel_y), order, weights, method, generator)
    return result if details else result.value


@overload
def mutual_information(
    x: Tensor, y: Tensor, *, details: Literal[False] = ..., **options: Unpack[_TwoSidesOfOrder]
) -> Tensor: ...
@overload
def mutual_information(
    x: Tensor, y: Tensor, *, details: Literal[True], **options: Unpack[_TwoSidesOfOrder]
) -> EntropyResult: ...
def mutual_information(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 1.0,
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """I_α(X; Y) = H_α(X) + H_α(Y) - H_α(XY); non-negative at order 1, of either sign at others (never clamped)."""
    result = _evaluate(MUTUAL, (x, y), (kernel_x, kernel_y), order, weights, method, generator)
    return result if details else result.value


@overload
def vendi(x: Tensor, *, details: Literal[False] = ..., **options: Unpack[_OneSideOfOrder]) -> Tensor: ...
@overload
def vendi(x: Tensor, *, details: Literal[True], **options: Unpack[_OneSideOfOrder]) -> EntropyResult: ...
def vendi(
    x: Tensor,
    *,
    kernel: Kernel | str = "gaussian",
    order: float = 1.0,
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """Vendi score exp H_α(X), an effective number of points in [1, n]."""
    result = _exponential(_evaluate(MARGINAL, (x,), (kernel,), order, weights, method, generator))
    return result if details else result.value


@overload
def rke(x: Tensor, *, details: Literal[False] = ..., **options: Unpack[_OneSide]) -> Tensor: ...
@overload
def rke(x: Tensor, *, details: Literal[True], **options: Unpack[_OneSide]) -> EntropyResult: ...
def rke(
    x: Tensor,
    *,
    kernel: Kernel | str = "gaussian",
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """Rényi kernel entropy score exp H_2(X) = 1 / tr A², in closed form."""
    result = _exponential(_evaluate(MARGINAL, (x,), (kernel,), 2.0, weights, method, generator))
    return result if details else result.value


@overload
def conditional_vendi(
    x: Tensor, y: Tensor, *, details: Literal[False] = ..., **options: Unpack[_TwoSidesOfOrder]
) -> Tensor: ...
@overload
def conditional_vendi(
    x: Tensor, y: Tensor, *, details: Literal[True], **options: Unpack[_TwoSidesOfOrder]
) -> EntropyResult: ...
def conditional_vendi(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 1.0,
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """exp H_α(Y|X): the effective number of outputs for a condition, at least 1."""
    parts = _evaluate(CONDITIONAL, (x, y), (kernel_x, kernel_y), order, weights, method, generator)
    result = _exponential(parts)
    return result if details else result.value


@overload
def conditional_rke(x: Tensor, y: Tensor, *, details: Literal[False] = ..., **options: Unpack[_TwoSides]) -> Tensor: ...
@overload
def conditional_rke(x: Tensor, y: Tensor, *, details: Literal[True], **options: Unpack[_TwoSides]) -> EntropyResult: ...
def conditional_rke(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    weights: Tensor | None = None,
    method: Method = "auto",
    generator: torch.Generator | None = None,
    details: bool = False,
) -> Tensor | EntropyResult:
    """exp H_2(Y|X) = ‖K_X‖² / ‖K_X ∘ K_Y‖² (weighted form likewise), in closed form and tile by tile."""
    result = _exponential(_evaluate(CONDITIONAL, (x, y), (kernel_x, kernel_y), 2.0, weights, method, generator))
    return result if details else result.value


def entropy_from_gram(K: Tensor, *, order: float = 1.0, weights: Tensor | None = None) -> Tensor:
    """H_α of diag(√w) K diag(√w) for a kernel of the user's own.

    Args:
        K: (..., n, n), symmetric, positive semidefinite, unit diagonal. For a conditional entropy subtract
            `entropy_from_gram(K_X)` from `entropy_from_gram(K_X * K_Y)`.
        order: α in [0, ∞].
        weights: (n,) or (..., n), non-negative, summing to one; 1/n each by default.

    Returns:
        (...), nats, in [0, log n].

    Raises:
        InputError: K is not square, finite, symmetric, of unit diagonal with no larger entry, or positive
            semidefinite (order 2 computes no eigenvalues, so that there definiteness is not checked).

    >>> float(entropy_from_gram(torch.ones(3, 3)).exp())
    1.0
    """
    order = checked_order(order)
    gram = checked_gram(K)
    with torch.autocast(gram.values.device.type, enabled=False):
        w = checked_weights(weights, (gram.values,))
        A = weighted_gram(gram.values, w)
        return matrix_entropy(A, order, epsilon=gram.epsilon).to(gram.dtype)


def _evaluate(
    terms: Terms,
    features: tuple[Tensor, ...],
    kernels: tuple[Kernel | str, ...],
    order: float,
    weights: Tensor | None,
    method: Method,
    generator: torch.Generator | None,
) -> EntropyResult:
    order = checked_order(order)
    points = checked_points(features, ("x", "y"))
    n = points.features[0].shape[-2]
    with torch.autocast(points.features[0].device.type, enabled=False):
        w = checked_weights(weights, points.features)
        fitted = tuple(
            as_kernel(kernel).fit_each(x, generator=generator)
            for kernel, x in zip(kernels, points.features, strict=True)
        )
        found = answer(DensityState(fitted, points.features, w), terms, order, method, generator)
    drew = n > MEDIAN_ROWS and any(
        kernel.fixed_bandwidth is not None and as_kernel(given).fixed_bandwidth is None
        for given, kernel in zip(kernels, fitted, strict=True)
    )
    return EntropyResult(
        value=found.value.to(points.dtype),
        standard_error=found.standard_error.to(points.dtype),
        lower=found.lower.to(points.dtype),
        upper=found.upper.to(points.dtype),
        method=found.method,
        n=n,
        bandwidths=tuple(kernel.fixed_bandwidth for kernel in fitted),
        cost=found.cost,
        seed=found.seed if not drew else MEDIAN_SEED if generator is None else generator.initial_seed(),
    )


def _exponential(result: EntropyResult) -> EntropyResult:
    value = result.value.exp()
    return replace(
        result,
        value=value,
        standard_error=result.standard_error * value.detach(),
        lower=result.lower.exp(),
        upper=result.upper.exp(),
    )
