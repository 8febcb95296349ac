"""Entropies of kernel density matrices from products with vectors alone, with bounds and a standard error.

For n where eigenvalues are slow or the Gram matrix does not fit. Leading eigenvectors come from a block Krylov
space, the rest of the trace from Rademacher probes and Lanczos recurrences (`krylov`), most of the probes' noise is
removed by control variates (`traces`), and products are computed tile by tile (`operators`). Order 2 is a closed
form, order ∞ the largest Ritz value; orders above 2 are determined by the leading eigenvalues.

Matrices of one `KernelOperators` (marginal and joints, several groups) share passes and probes, so that their
differences have standard errors of their own; so do separate calls with equally seeded generators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from condvne.core.adaptive import Course, Plan
from condvne.core.krylov import Deflation
from condvne.core.operators import KernelOperator, KernelOperators
from condvne.core.pullback import MatrixGradient, pull_back
from condvne.core.spectral import checked_order, matrix_entropy
from condvne.core.traces import Reading, standard_error
from condvne.errors import InputError

DEFLATION = 64
PROBES = 24
STEPS = 8
SMALL = 4  # up to this multiple of deflation + probes points, a dense decomposition is no dearer
TIE = 1e-7  # relative: leading eigenvalues closer than this share the gradient at order ∞


@dataclass(frozen=True)
class LanczosEstimate:
    """An entropy in nats.

    Attributes:
        value: (), float64, differentiable with respect to features and weights.
        standard_error: of the probes.
        lower, upper: bounds of the quadrature; the exact value lies between lower - 3 standard_error and
            upper + 3 standard_error in at least 99 of 100 draws.
        contributions: (m,), the estimate by each probe; their mean is the value. Of equal seeds and n they are
            paired, see `difference`.
        products: columns multiplied by the matrix.
        deflation, probes, steps: sizes at the end; zero where the value is exact.
        reached: whether the tolerance was met (True where none was asked for).
    """

    value: Tensor
    standard_error: float
    lower: float
    upper: float
    contributions: Tensor
    products: int
    deflation: int
    probes: int
    steps: int
    reached: bool


def lanczos_entropy(
    operator: KernelOperator | KernelOperators,
    order: float = 1.0,
    *,
    tolerance: float | None = None,
    deflation: int = DEFLATION,
    probes: int = PROBES,
    steps: int = STEPS,
    generator: torch.Generator | None = None,
) -> LanczosEstimate:
    """H_α of the one matrix of `operator`; arguments and errors as for `lanczos_entropies`."""
    operators = operator.operators if isinstance(operator, KernelOperator) else operator
    if len(operators.terms) != 1:
        raise InputError(
            f"lanczos_entropy takes one matrix, but there are {len(operators.terms)}; use lanczos_entropies."
        )
    options = (tolerance, deflation, probes, steps, generator)
    return _entropies(operators, _plan(order, *options[:4]), generator)[0]


def lanczos_entropies(
    operators: KernelOperators,
    order: float = 1.0,
    *,
    tolerance: float | None = None,
    deflation: int = DEFLATION,
    probes: int = PROBES,
    steps: int = STEPS,
    generator: torch.Generator | None = None,
) -> list[LanczosEstimate]:
    """H_α of every matrix, sharing tiles, passes and probes.

    Args:
        operators: matrices of the same n points.
        order: α in (0, ∞].
        tolerance: nats; half the bracket plus two standard errors of each value are brought below it by more
            leading vectors, steps and probes, starting from the three numbers below and up to eight times them.
        deflation: leading eigenvectors.
        probes: random vectors.
        steps: of each recurrence.
        generator: draws start vectors and probes; a fixed seed by default.

    Returns:
        One estimate a matrix. For few points they are exact, from the eigenvalues.

    Raises:
        InputError: the order is 0 (a rank cannot be estimated from products), or not a number in (0, ∞]; a size
            is not positive; a matrix is not positive semidefinite.
    """
    return _entropies(operators, _plan(order, tolerance, deflation, probes, steps), generator)


@dataclass(frozen=True)
class LanczosDifference:
    """The difference of two entropies in nats, as `LanczosEstimate`; its standard error is that of paired probes."""

    value: Tensor
    standard_error: float
    lower: float
    upper: float
    contributions: Tensor


def difference(a: LanczosEstimate | LanczosDifference, b: LanczosEstimate | LanczosDifference) -> LanczosDifference:
    """a - b, for estimates that share their probes: of one call, or of calls with equally seeded generators.

    Where one has more probes than the other, the pairs that both have give the standard error.
    """
    shared = min(a.contributions.shape[0], b.contributions.shape[0])
    contributions = a.contributions[:shared] - b.contributions[:shared]
    return LanczosDifference(
        value=a.value - b.value,
        standard_error=standard_error(contributions),
        lower=a.lower - b.upper,
        upper=a.upper - b.lower,
        contributions=contributions,
    )


def _plan(order: float, tolerance: float | None, deflation: int, probes: int, steps: int) -> Plan:
    order = checked_order(order)
    if order == 0.0:
        raise InputError("order 0 is the rank, which matrix products do not determine; use method='exact'.")
    for name, value, least in (("deflation", deflation, 1), ("probes", probes, 2), ("steps", steps, 1)):
        if isinstance(value, bool) or int(value) != value or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError(f"tolerance must be positive (nats), but is {tolerance!r}.")
    return Plan(order, tolerance, int(deflation), int(probes), int(steps))


def _entropies(operators: KernelOperators, plan: Plan, generator: torch.Generator | None) -> list[LanczosEstimate]:
    if plan.order == 2.0:
        return _attached(operators, [_purity(operators, t, plan) for t in range(len(operators.terms))])
    if operators.n <= SMALL * (plan.deflation + plan.probes):
        epsilon = torch.finfo(operators.dtype if operators.state is None else torch.float64).eps
        return [_exact(A, plan, epsilon) for A in operators.dense()]
    return _attached(operators, _estimated(operators, plan, generator))


@dataclass(frozen=True)
class _Outcome:
    """A reading and how it came about; the gradient is made only where something needs it."""

    reading: Reading
    gradient: Callable[[], MatrixGradient]
    deflation: int = 0
    probes: int = 0
    steps: int = 0
    reached: bool = True


def _estimated(operators: KernelOperators, plan: Plan, generator: torch.Generator | None) -> list[_Outcome]:
    course = Course(operators, plan, generator or torch.Generator().manual_seed(0))
    deflations = course.deflations()
    if math.isinf(plan.order):
        return [_largest(d, plan) for d in deflations]
    outcomes = []
    for estimator in course.estimators(deflations):
        reading, recurrence = estimator.reading(), estimator.recurrence
        sizes = (len(estimator.leading.values), recurrence.count, recurrence.steps)
        outcomes.append(_Outcome(reading, estimator.gradient, *sizes, course.reached(reading)))
    return outcomes


def _largest(deflation: Deflation, plan: Plan) -> _Outcome:
    """Order ∞: the Nyström value is below λ₁ and not below θ₁; some eigenvalue lies within the residual of θ₁."""
    U, leading = deflation.vectors, deflation.leading
    theta = leading.values
    largest = float(leading.nystrom_values()[-1])
    residual = math.sqrt(max(float(leading.second[0, 0] - theta[0].square()), 0.0))
    bounds = (-math.log(max(largest, float(theta[0]) + residual)), -math.log(largest))
    tied = (theta >= theta[0] * (1 - TIE)).to(torch.float64)
    head = U * (-tied / tied.sum() / (2 * theta[0])).to(U.device)
    reading = Reading(bounds[1], *bounds, _repeated(bounds[1], plan))
    reached = plan.tolerance is None or bounds[1] - bounds[0] <= plan.tolerance
    return _Outcome(reading, lambda: MatrixGradient(head, U), len(theta), reached=reached)


def _purity(operators: KernelOperators, t: int, plan: Plan) -> _Outcome:
    """Order 2 in closed form, with gradient -2A / tr A²."""
    purity = float(operators.purities()[t])
    value = -math.log(purity)
    empty = torch.zeros(operators.n, 0, dtype=torch.float64, device=operators.device)
    return _Outcome(
        Reading(value, value, value, _repeated(value, plan)),
        lambda: MatrixGradient(empty, empty, multiple=-2 / purity),
    )


def _exact(A: Tensor, plan: Plan, epsilon: float) -> LanczosEstimate:
    value = matrix_entropy(A, plan.order, epsilon=epsilon)
    number = float(value.detach())
    return LanczosEstimate(value, 0.0, number, number, _repeated(number, plan), 0, 0, 0, 0, True)


def _repeated(value: float, plan: Plan) -> Tensor:
    return torch.full((plan.probes,), value, dtype=torch.float64)


def _attached(operators: KernelOperators, outcomes: Sequence[_Outcome]) -> list[LanczosEstimate]:
    """The estimates, their values connected to the features and weights that need gradients."""
    values = torch.tensor([o.reading.value for o in outcomes], dtype=torch.float64, device=operators.device)
    state = operators.state
    inputs: tuple[Tensor, ...] = ()
    if state is not None:
        inputs = state.features if state.weights is None else (*state.features, state.weights)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        values = _Values.apply(values, operators, [o.gradient() for o in outcomes], *inputs)
    return [
        LanczosEstimate(
            value=value,
            standard_error=outcome.reading.standard_error,
            lower=outcome.reading.lower,
            upper=outcome.reading.upper,
            contributions=outcome.reading.contributions,
            products=products,
            deflation=outcome.deflation,
            probes=outcome.probes,
            steps=outcome.steps,
            reached=outcome.reached,
        )
        for value, outcome, products in zip(values.unbind(), outcomes, operators.products, strict=True)
    ]


class _Values(torch.autograd.Function):
    """Values (T,) whose gradients with respect to A_t are given; one pass over the tiles serves all of them."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, operators: KernelOperators, gradients: list[MatrixGradient], *inputs: Tensor
    ) -> Tensor:
        ctx.operators, ctx.gradients, ctx.count = operators, gradients, len(inputs)
        return values.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [G.scaled(float(g)) for G, g in zip(ctx.gradients, grads[0], strict=True)]
        features, weights = pull_back(ctx.operators, scaled)
        pulled = features if ctx.count == len(features) else (*features, weights)
        return (None, None, None, *pulled)
