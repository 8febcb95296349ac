"""Functions of D + ZZᵀ for a diagonal D and few columns Z, without an eigendecomposition.

A history's covariance is diagonal in its own eigenbasis, and the current images add a few columns to it. For a shift t
the resolvent is then known in closed form (Woodbury): with R = (D + t)⁻¹ and S = (I + ZᵀRZ)⁻¹,

    (A + t)⁻¹ Z = R Z S                tr (A + t)⁻¹ - tr R = -tr S ZᵀR²Z

A function f is replaced by p(x) + Σ_k w_k t_k / (x + t_k): fixed poles -t_k, spaced evenly in log t, a polynomial p of
degree 2, and weights by least squares on [0, 1]. f(A) Z then lies in the rational Krylov space of Z with these poles,
at a cost of O(K r b²) for r rows, b columns and K poles: nothing here grows with the number of images in the history.

A polynomial Krylov space (Lanczos) of 20 to 50 steps leaves errors of 1e-2 to 2e-3 in log(A) Z where the history has
about as many images as the sketch has features, since the small eigenvalues are then many; these poles leave 1e-5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.spectral import FLOOR, checked_order
from condvne.errors import InputError

POLES = 48  # one for each 0.29 decades: errors of log below 2e-6
LEAST, LARGEST = -13.0, 1.0  # log10 of the poles
LARGEST_ORDER = 4.0  # higher powers are polynomials that so many poles fit to less than six digits


@dataclass(frozen=True)
class PartialFractions:
    """w_0 + w_1 x + w_2 x² + Σ_k w_{3+k} t_k / (x + t_k).

    Attributes:
        poles: t, (K,), positive.
        weights: w, (K + 3,).
    """

    poles: Tensor
    weights: Tensor

    @classmethod
    def fitted(cls, f: Callable[[Tensor], Tensor]) -> PartialFractions:
        """Weights by least squares on zero and 2,000 points of [1e-12, 1], evenly spaced in the logarithm.

        Errors count relative to max(1, |f|): a function that grows without bound towards zero keeps its digits at one.
        """
        poles = torch.logspace(LEAST, LARGEST, POLES, dtype=torch.float64)
        grid = torch.cat([torch.zeros(1), torch.logspace(-12, 0, 2000)]).to(torch.float64)
        powers = [torch.ones_like(grid), grid, grid.square()]
        design = torch.cat([torch.stack(powers, 1), poles / (grid[:, None] + poles)], dim=1)
        values = f(grid)
        size = values.abs().clamp(min=1.0)
        solved = torch.linalg.lstsq(
            design / size[:, None], (values / size)[:, None], rcond=1e-14, driver="gelsd"
        ).solution
        return cls(poles, solved.squeeze(1))

    def to(self, device: torch.device) -> PartialFractions:
        """The same function, its numbers on another device."""
        return PartialFractions(self.poles.to(device), self.weights.to(device))

    def __call__(self, x: Tensor) -> Tensor:
        """Values at x (...), for comparison with f."""
        fractions = (self.weights[3:] * self.poles / (x[..., None] + self.poles)).sum(-1)
        return self.weights[0] + self.weights[1] * x + self.weights[2] * x.square() + fractions


@functools.lru_cache(maxsize=16)
def fractions_of(order: float) -> tuple[PartialFractions, PartialFractions]:
    """f and f' of the entropy's trace: -x log x and -log x - 1 at order 1, else x^α and α x^(α-1).

    Raises InputError for orders at which the entropy has no gradient (0), or that need other routes (beyond 4).
    """
    order = checked_order(order)
    if not 0 < order <= LARGEST_ORDER:
        hint = "it has no gradient" if order == 0 else "use route='exact'"
        raise InputError(f"order {order:g} cannot be guided by a sketch: {hint}; orders up to {LARGEST_ORDER:g} can.")
    with torch.inference_mode(False):
        if order == 1.0:
            return (
                PartialFractions.fitted(torch.special.entr),
                PartialFractions.fitted(lambda x: -torch.log(x.clamp(min=FLOOR)) - 1),
            )
        return (
            PartialFractions.fitted(lambda x: x**order),
            PartialFractions.fitted(lambda x: order * x.clamp(min=FLOOR) ** (order - 1)),
        )


@dataclass(frozen=True)
class UpdatedSpectrum:
    """H_α(A) and its gradient for A = D + ZZᵀ of unit trace.

    Attributes:
        diagonal: of D, (r,), non-negative, float64.
        columns: Z, (r, b), float64.
        order: α.
    """

    diagonal: Tensor
    columns: Tensor
    order: float

    def entropy_and_gradient(self) -> tuple[Tensor, Tensor]:
        """H_α(A) in nats, a scalar, and its gradient with respect to Z, (r, b)."""
        if self.order == 2.0:
            return self._closed_form()
        Z = self.columns
        scale = self.diagonal.amax() + torch.linalg.matrix_norm(Z.mT @ Z, ord=2)  # no eigenvalue exceeds it
        d, Z = self.diagonal / scale, Z / scale.sqrt()
        f, derivative = (fractions.to(d.device) for fractions in fractions_of(self.order))
        solved = _Resolvents(d, Z, f.poles)
        values = torch.special.entr(d) if self.order == 1.0 else d**self.order
        trace = values.sum() + solved.trace_change(f.weights)
        slope = solved.applied(derivative.weights)
        if self.order == 1.0:
            mass = d.sum() + Z.square().sum()
            entropy = scale * (trace - torch.log(scale) * mass)
            return entropy, 2 * scale.sqrt() * (slope - torch.log(scale) * Z)
        entropy = (self.order * torch.log(scale) + torch.log(trace)) / (1 - self.order)
        return entropy, 2 / ((1 - self.order) * trace * scale.sqrt()) * slope

    def _closed_form(self) -> tuple[Tensor, Tensor]:
        d, Z = self.diagonal, self.columns
        inner = Z.mT @ Z
        purity = d.square().sum() + 2 * (d[:, None] * Z.square()).sum() + inner.square().sum()
        return -torch.log(purity), -4 / purity * (d[:, None] * Z + Z @ inner)


class _Resolvents:
    """RZ (K, r, b) and S (K, b, b) for all poles at once."""

    def __init__(self, diagonal: Tensor, columns: Tensor, poles: Tensor) -> None:
        self.diagonal, self.columns, self.poles = diagonal, columns, poles
        self.shifted = columns / (diagonal + poles[:, None])[..., None]
        eye = torch.eye(columns.shape[1], dtype=columns.dtype, device=columns.device)
        self.small = torch.linalg.inv(eye + columns.mT @ self.shifted)
        self.inner = columns.mT @ columns

    def trace_change(self, weights: Tensor) -> Tensor:
        """tr f(A) - tr f(D)."""
        d, Z = self.diagonal, self.columns
        poles = -((self.shifted.mT @ self.shifted) * self.small).sum((-2, -1))
        square = 2 * (d[:, None] * Z.square()).sum() + self.inner.square().sum()
        total: Tensor = weights[1] * Z.square().sum() + weights[2] * square + (weights[3:] * self.poles * poles).sum()
        return total

    def applied(self, weights: Tensor) -> Tensor:
        """f(A) Z, (r, b)."""
        Z = self.columns
        image = self._product(Z)
        polynomial = weights[0] * Z + weights[1] * image + weights[2] * self._product(image)
        scaled = self.small * (weights[3:] * self.poles)[:, None, None]
        fractions: Tensor = torch.einsum("krb,kbc->rc", self.shifted, scaled)
        return polynomial + fractions

    def _product(self, columns: Tensor) -> Tensor:
        return self.diagonal[:, None] * columns + self.columns @ (self.columns.mT @ columns)


def spectrum_of_sum(total: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), rounding below zero removed, and eigenvectors (r, r) of a sum of outer products, float64."""
    values, vectors = torch.linalg.eigh(total)
    noise = total.shape[0] * torch.finfo(torch.float64).eps * values[-1].clamp(min=0)
    return torch.where(values > noise, values, 0.0), vectors
