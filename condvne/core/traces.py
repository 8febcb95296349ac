"""From Krylov spaces to an entropy of order α: bounds, control variates, standard error and gradient.

tr f(A) = tr Uᵀ f(A) U + E zᵀ P f(A) P z, z Rademacher and P = I - UUᵀ, whatever the quality of the leading
vectors U. The quadratic p is fitted to f on the spectrum that the probes see, and its part of the trace replaced by
the exact one: tr P = n - k, tr PAP = 1 - Σθ, tr (PAP)² = ‖A‖² - 2‖AU‖² + Σθ².
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.krylov import Leading, ProbeRecurrence
from condvne.core.pullback import MatrixGradient
from condvne.core.spectral import FLOOR

# Where between the upper bound (0) and the lower (1) the truth lies. Measured on Gaussian kernels of text embeddings,
# n = 2,000 and 4,000, k = 64 to 250, 4 to 14 steps: 0.6 to 0.7 for the deflated block; for the probes 0.75 to 1 times
# the ratio at which the upper bound and the bracket shrink from two steps before, and 0.1 to 0.3 on its own.
DEFLATED_SHARE = 0.67
PROBED_SHARE = 0.2
SHRINKING = 0.85
LARGEST_SHARE = 0.35


@dataclass(frozen=True)
class Reading:
    """An entropy as known so far, nats.

    Attributes:
        value: the estimate.
        lower, upper: bounds of the estimate's quadrature; the probes' noise comes on top.
        contributions: (m,), one independent estimate a probe; their mean is the value.
    """

    value: float
    lower: float
    upper: float
    contributions: Tensor

    @property
    def standard_error(self) -> float:
        return standard_error(self.contributions)


class SpectralTrace(ABC):
    """f with H = entropy(tr f(A)); `quotient` is f(x)/x."""

    order: float

    @abstractmethod
    def quotient(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def entropy(self, trace: Tensor) -> Tensor: ...

    @abstractmethod
    def slope(self, trace: Tensor) -> Tensor:
        """dH/d(trace)."""

    def values(self, x: Tensor) -> Tensor:
        positive = x > 0
        safe = torch.where(positive, x, 1.0)
        return torch.where(positive, safe * self.quotient(safe), 0.0)


class ConcaveTrace(SpectralTrace):
    """f = (x^α - x)/(1 - α) for 0 < α < 2, -x log x at α = 1: operator concave, and f(x)/x operator convex."""

    def __init__(self, order: float) -> None:
        self.order = order

    def quotient(self, x: Tensor) -> Tensor:
        logarithm = torch.log(x)
        if self.order == 1.0:
            return -logarithm
        return torch.expm1((self.order - 1) * logarithm) / (1 - self.order)

    def derivative(self, x: Tensor) -> Tensor:
        return self.order * self.quotient(x.clamp(min=FLOOR)) - 1

    def entropy(self, trace: Tensor) -> Tensor:
        if self.order == 1.0:
            return trace
        return torch.log1p((1 - self.order) * trace) / (1 - self.order)

    def slope(self, trace: Tensor) -> Tensor:
        return 1 / (1 + (1 - self.order) * trace)


class PowerTrace(SpectralTrace):
    """f = (x/θ₁)^α for α > 2."""

    def __init__(self, order: float, largest: float) -> None:
        self.order, self.largest = order, largest

    def quotient(self, x: Tensor) -> Tensor:
        return (x / self.largest).pow(self.order - 1) / self.largest

    def derivative(self, x: Tensor) -> Tensor:
        return self.order * self.quotient(x.clamp(min=0))

    def entropy(self, trace: Tensor) -> Tensor:
        return (self.order * math.log(self.largest) + torch.log(trace)) / (1 - self.order)

    def slope(self, trace: Tensor) -> Tensor:
        return 1 / ((1 - self.order) * trace)


def spectral_trace(order: float, leading: Leading) -> SpectralTrace:
    """The function whose trace gives H_α, α in (0, ∞) without 2."""
    return ConcaveTrace(order) if order < 2 else PowerTrace(order, float(leading.values[0]))


class TraceEstimator:
    """One density matrix's entropy from its deflation and its probes.

    Args:
        order: in (0, ∞) without 2.
        purity: tr A².
        recurrence: the probes, which may take steps and be joined by others between readings.
        noise: eigenvalues below it are rounding.
    """

    def __init__(self, order: float, purity: float, recurrence: ProbeRecurrence, noise: float) -> None:
        self.recurrence, self.noise = recurrence, noise
        self.leading = recurrence.leading
        self.function = spectral_trace(order, self.leading)
        n, k = recurrence.deflation.vectors.shape
        rest = 1 - float(self.leading.values.sum())
        self.exact = torch.tensor([n - k, rest, self.leading.rest_square(purity)], dtype=torch.float64)

    def deflated(self) -> tuple[float, float, float]:
        """Estimate, lower and upper bound of tr Uᵀ f(A) U."""
        if isinstance(self.function, PowerTrace):
            return self._deflated_powers()
        lower, upper = (float(b) for b in self.leading.bounds(self.function.values, self.function.quotient, self.noise))
        return upper - DEFLATED_SHARE * (upper - lower), lower, upper

    def _deflated_powers(self) -> tuple[float, float, float]:
        theta = self.leading.values
        nystrom = self.leading.nystrom_values()
        lower = float(self.function.values(theta).sum())
        return max(lower, float(self.function.values(nystrom.clamp(min=0)).sum())), lower, lower

    def reading(self) -> Reading:
        """The entropy as the probes stand."""
        f = self.function
        if isinstance(f, PowerTrace):
            ends = self.recurrence.compressed_bounds(f.values, f.quotient, self.noise)
            lower, upper = torch.minimum(*ends), torch.maximum(*ends)
            estimates = (lower + upper) / 2
        else:
            lower, upper = self.recurrence.bounds(f.values, f.quotient, self.noise)
            estimates = upper - self._share(lower, upper) * (upper - lower)
        corrections = (self.recurrence.moments() - self.exact) @ self.controls()
        head, head_lower, head_upper = self.deflated()
        traces = head + estimates - corrections
        total = traces.mean()
        entropy = f.entropy(total)
        contributions = entropy + f.slope(total) * (traces - total)
        bounds = (
            head_lower + float((lower - corrections).mean()),
            head_upper + float((upper - corrections).mean()),
        )
        return Reading(float(entropy), *self._entropy_bounds(*bounds), contributions)

    def _entropy_bounds(self, lower: float, upper: float) -> tuple[float, float]:
        f = self.function
        if isinstance(f, PowerTrace):
            # The off-diagonal part E has each singular value of the residual AU - Uθ twice.
            off = float((2 * (self.leading.residual_sizes() / f.largest).pow(f.order).sum()).pow(1 / f.order))
            upper = (upper ** (1 / f.order) + off) ** f.order
        ends = [float(f.entropy(torch.tensor(trace, dtype=torch.float64))) for trace in (lower, upper)]
        return min(ends), max(ends)

    def _share(self, lower: Tensor, upper: Tensor) -> float:
        """Where the truth lies between the bounds of the probes, judged by how the bounds moved in the last steps."""
        before = self.recurrence.steps - 2
        if before < 2:
            return PROBED_SHARE
        past = self.recurrence.bounds(self.function.values, self.function.quotient, self.noise, before)
        fallen, narrowed = float((past[1] - upper).sum()), float((past[1] - past[0] - upper + lower).sum())
        if narrowed <= 0:
            return PROBED_SHARE
        return min(max(SHRINKING * fallen / narrowed, 0.0), LARGEST_SHARE)

    def controls(self) -> Tensor:
        """Coefficients (3,) of the quadratic nearest to f on the spectrum of PAP as the probes see it."""
        nodes, weights = self.recurrence.rule()
        x, w = nodes.clamp(min=0).flatten(), weights.flatten().sqrt()
        scale = max(float(x.max()), FLOOR)
        design = torch.stack([torch.ones_like(x), x / scale, (x / scale).square()], dim=1)
        solution: Tensor = torch.linalg.lstsq(
            design * w[:, None], (self.function.values(x) * w)[:, None], driver="gelsd"
        )[0]
        return solution.squeeze(-1) / torch.tensor([1.0, scale, scale**2], dtype=torch.float64)

    def gradient(self) -> MatrixGradient:
        """dH/dA by the same vectors: exact on the deflated block and for the quadratic, by probes for the rest."""
        f, deflation, theta = self.function, self.recurrence.deflation, self.leading.values
        U = deflation.vectors
        device, m = U.device, self.recurrence.count
        _, first, second = (float(c) for c in self.controls())
        head = (f.derivative(theta.clamp(min=self.noise)) - first + 2 * second * theta).to(device)
        left_U = U * (head / 2) - 2 * second * deflation.images
        z = self.recurrence.probes
        along_U, along_Q = self.recurrence.applied(lambda x: f.derivative(x.clamp(min=self.noise)))
        rest = along_Q - first * z - 2 * second * self.recurrence.images()
        left_z = (rest / 2 + U @ along_U) / m
        trace = torch.tensor(self._trace(), dtype=torch.float64)
        G = MatrixGradient(torch.cat([left_U, left_z], 1), torch.cat([U, z], 1), 2 * second, first)
        return G.scaled(float(f.slope(trace)))

    def _trace(self) -> float:
        f, value = self.function, self.reading().value
        if isinstance(f, PowerTrace):
            return math.exp((1 - f.order) * value - f.order * math.log(f.largest))
        return value if f.order == 1.0 else math.expm1((1 - f.order) * value) / (1 - f.order)


def standard_error(contributions: Tensor) -> float:
    """Of the mean of independent contributions, (m,); infinite for fewer than two."""
    m = contributions.shape[0]
    return float(contributions.std()) / math.sqrt(m) if m > 1 else math.inf
