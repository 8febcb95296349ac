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

from condvne.core.krylov import Leading, ProbeRecurrence, SpectralMap
from condvne.core.pullback import MatrixGradient
from condvne.core.spectral import FLOOR

# Where between the upper bound (0) and the lower (1) the truth lies. Measured on Gaussian kernels of text embeddings
# (n = 2,000 and 4,000) and of points in six dimensions, k = 16 to 250, 4 to 20 steps: 0.6 to 0.7 for the deflated
# block; for the probes 0.2 and 0.65 on the two, and mostly 0.75 to 1.1 times the ratio at which the upper bound and
# the bracket shrink from two steps before.
DEFLATED_SHARE = 0.67
PROBED_SHARE = 0.25
SHRINKING = 0.9
LARGEST_SHARE = 0.75
HOMOGENEOUS = 1.5  # from here on H of a matrix without unit trace is log tr A^α / (1 - α), as by the exact route
PURITY_ROUNDING = 8.0  # of the rest's tr (PAP)², in units of the tiles' precision times tr A²


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
        derivative = self.order * self.quotient(x.clamp(min=FLOOR)) - 1
        return derivative if self.order < HOMOGENEOUS else derivative + 1 / (1 - self.order)

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

    def coupling(self, leading: Leading) -> float:
        """Schatten norm, over λ₁, of what couples U to the rest: each singular value of the residual AU - Uθ twice."""
        powers = (leading.residual_sizes() / self.largest).pow(self.order)
        return float((2 * powers.sum()).pow(1 / self.order))

    def entropy(self, trace: Tensor) -> Tensor:
        return (self.order * math.log(self.largest) + torch.log(trace)) / (1 - self.order)

    def slope(self, trace: Tensor) -> Tensor:
        return 1 / ((1 - self.order) * trace)


def spectral_trace(order: float, leading: Leading) -> SpectralTrace:
    """The function whose trace gives H_α, α in (0, ∞) without 2."""
    return ConcaveTrace(order) if order < 2 else PowerTrace(order, float(leading.values[0]))


def leading_bracket(order: float, leading: Leading, purity: float, noise: float) -> float:
    """Half the width of the bounds of H_α that an imperfect leading space causes, α in (0, ∞] without 2."""
    theta = leading.values
    if math.isinf(order):
        return float(leading.residual_sizes()[-1] / theta[0]) / 2
    trace = spectral_trace(order, leading)
    if isinstance(trace, PowerTrace):
        norm = float(trace.values(theta).sum()) ** (1 / order)
        return order / (order - 1) * math.log1p(trace.coupling(leading) / norm) / 2
    lower, upper = leading.bounds(trace.values, trace.quotient, noise)
    powers = float(theta.clamp(min=0).pow(order).sum())  # at most Σ λ^α; Hölder's inequality adds to it below order 1
    if order < 1:
        rest = max(1 - float(theta.sum()), 0.0)
        powers += rest ** (2 - order) / max(leading.rest_square(purity), FLOOR**2) ** (1 - order)
    return float(upper - lower) / 2 / (1.0 if order == 1.0 else powers)


class TraceEstimator:
    """One density matrix's entropy from its deflation and its probes.

    Args:
        order: in (0, ∞) without 2.
        purity: tr A².
        recurrence: the probes, which may take steps and be joined by others between readings.
        noise: eigenvalues below it are rounding.
        epsilon: precision of the tiles.
    """

    def __init__(self, order: float, purity: float, recurrence: ProbeRecurrence, noise: float, epsilon: float) -> None:
        self.recurrence, self.noise = recurrence, noise
        self.leading = recurrence.leading
        self.function = spectral_trace(order, self.leading)
        n, k = recurrence.deflation.vectors.shape
        rest = 1 - float(self.leading.values.sum())
        self.exact = torch.tensor([n - k, rest, self.leading.rest_square(purity)], dtype=torch.float64)
        self.exhausted = rest <= noise * math.sqrt(n)  # A is of low rank, and what the probes see is rounding
        self.degree = 2 if float(self.exact[2]) > PURITY_ROUNDING * epsilon * purity else 1

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
            estimates = lower if self.exhausted else upper - self._share(lower, upper) * (upper - lower)
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
            upper = (upper ** (1 / f.order) + f.coupling(self.leading)) ** f.order
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
        """Coefficients (3,) of the polynomial nearest to f on the spectrum of PAP as the probes see it.

        Quadratic, but linear where tr (PAP)² is within the rounding of tr A².
        """
        fitted = self._fitted(self.function.values, self.degree, power=0)
        return torch.nn.functional.pad(fitted, (0, 2 - self.degree))

    def _fitted(self, function: SpectralMap, degree: int, power: int) -> Tensor:
        """Least squares over the eigenvalues, each counted with its `power`."""
        nodes, weights = self.recurrence.rule()
        x = torch.where(nodes > self.noise, nodes, 0.0).flatten()
        if not bool((x > 0).any()):
            return torch.zeros(degree + 1, dtype=torch.float64)
        w = (weights.flatten() * x**power).sqrt()
        scale = float(x.max())
        exponents = torch.arange(degree + 1, dtype=torch.float64)
        design, target = (x[:, None] / scale).pow(exponents) * w[:, None], function(x) * w
        solution: Tensor = torch.linalg.lstsq(design, target[:, None], driver="gelsd")[0]
        return solution.squeeze(-1) / scale**exponents

    def gradient(self) -> MatrixGradient:
        """dH/dA by the same vectors: exact on the deflated block and for the quadratic, by probes for the rest."""
        f, deflation, theta = self.function, self.recurrence.deflation, self.leading.values
        U = deflation.vectors
        device, m = U.device, self.recurrence.count
        # Noise reaches features through A r and through r, r what the fit leaves of f': counting eigenvalues by their
        # size serves both, and halves the variance of counting them equally (text embeddings, n = 2,000).
        first, second = (float(c) for c in self._fitted(f.derivative, 1, power=1))
        head = (f.derivative(theta.clamp(min=self.noise)) - first + second * theta).to(device)
        left_U = U * (head / 2) - second * deflation.images
        z = self.recurrence.probes
        # What f' is on a null space makes no difference in the mean: there it is what leaves the probes no noise.
        along_U, along_Q = self.recurrence.applied(
            lambda x: torch.where(x > self.noise, f.derivative(x.clamp(min=self.noise)), first)
        )
        rest = along_Q - first * z - second * self.recurrence.images()
        left_z = (rest / 2 + U @ along_U) / m
        trace = torch.tensor(self._trace(), dtype=torch.float64)
        G = MatrixGradient(torch.cat([left_U, left_z], 1), torch.cat([U, z], 1), second, first)
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
