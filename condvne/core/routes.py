"""Which way an entropy is computed, and what each way costs and leaves open.

exact    eigenvalues of the smaller of density matrix and covariance; closed form at order 2; n³
lanczos  products with the exact kernel's matrix, tile by tile: an estimate with a bracket and a standard error; n²
sketch   the spectrum of random features: an estimate with the sketch's own error; n

`auto` is exact wherever that is affordable on the device, else lanczos. It never changes the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.lanczos import DEFLATION, PROBES, STEPS, lanczos_entropies
from condvne.core.operators import KernelOperators
from condvne.core.sketched import Terms, estimate, sketched_covariances
from condvne.core.sketches import JointSketch
from condvne.core.spectral import LARGEST_WITH_VECTORS, matrix_entropy, purity_entropy
from condvne.core.traces import standard_error
from condvne.errors import InputError

Method = Literal["auto", "exact", "lanczos", "sketch"]
METHODS: tuple[Method, ...] = ("auto", "exact", "lanczos", "sketch")
NUM_FEATURES = 1024  # of a sketch; fewer where there are fewer points
DEFAULT_SEED = 0


@dataclass(frozen=True)
class Answer:
    """A signed sum of entropies in nats, float64, shaped as the batch; `cost` in floating-point operations."""

    value: Tensor
    standard_error: Tensor
    lower: Tensor
    upper: Tensor
    method: str
    cost: float
    seed: int | None


def answer(
    state: DensityState, terms: Terms, order: float, method: Method, generator: torch.Generator | None
) -> Answer:
    """Σ sign · H_α of the terms' sides of `state`, by the method asked for.

    Raises:
        InputError: an unknown method; a method that cannot give this order or take batched features.
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, but is {method!r}.")
    if method == "sketch" and state.n >= 8:
        return _sketch(state, terms, order, generator)
    if method == "lanczos" or (method == "auto" and too_dear(state, order)):
        return _lanczos(state, terms, order, generator)
    return _exact(state, terms, order)


def state_entropy(state: DensityState, order: float) -> Tensor:
    """H_α of a state, (...), float64, nats; closed form at order 2, eigenvalues of the smaller matrix otherwise."""
    if order == 2.0:
        return purity_entropy(state.purity())
    return matrix_entropy(state.matrix(), order, epsilon=state.epsilon)


def _exact(state: DensityState, terms: Terms, order: float) -> Answer:
    parts = [(sign, state.marginal(sides)) for sign, sides in terms]
    value = _signed([sign for sign, _ in parts], [state_entropy(part, order) for _, part in parts])
    still = value.detach()
    cost = sum(part.cost(order) for _, part in parts)
    return Answer(value, torch.zeros_like(still), still, still, "exact", cost, None)


def _lanczos(state: DensityState, terms: Terms, order: float, generator: torch.Generator | None) -> Answer:
    signs = [sign for sign, _ in terms]
    operators = KernelOperators.from_state(state, tuple(sides for _, sides in terms))
    estimates = lanczos_entropies(operators, order, generator=generator)
    shared = min(e.contributions.shape[0] for e in estimates)
    contributions = sum(sign * e.contributions[:shared] for sign, e in zip(signs, estimates, strict=True))
    value = _signed(signs, [e.value for e in estimates])
    still = value.detach()
    ends = [(e.lower, e.upper) if sign > 0 else (-e.upper, -e.lower) for sign, e in zip(signs, estimates, strict=True)]
    d = sum(x.shape[-1] for x in state.features)
    # Tiles are evaluated on one side of the diagonal, and once where they are stored.
    evaluations = 1 if all(operators.cheap) else operators.passes
    cost = float(state.n**2) * (d * evaluations + 2 * sum(e.products for e in estimates))
    return Answer(
        value=value,
        standard_error=still.new_tensor(standard_error(torch.as_tensor(contributions))),
        lower=still.new_tensor(sum(low for low, _ in ends)),
        upper=still.new_tensor(sum(high for _, high in ends)),
        method="lanczos" if estimates[0].deflation or estimates[0].probes else "exact",
        cost=cost,
        seed=DEFAULT_SEED if generator is None else generator.initial_seed(),
    )


def _sketch(state: DensityState, terms: Terms, order: float, generator: torch.Generator | None) -> Answer:
    seed = DEFAULT_SEED if generator is None else int(torch.randint(2**31, (), generator=generator))
    num_features = min(NUM_FEATURES, state.n - state.n % 4)
    sketch = JointSketch.draw(
        state.kernels,
        [x.shape[-1] for x in state.features],
        num_features,
        seed,
        origins=[x.detach().flatten(0, -2).mean(0) for x in state.features],
        device=state.features[0].device,
    )
    sums = sketched_covariances(sketch, [sides for _, sides in terms], state.features, state.weights)
    result = estimate(sketch, terms, sums, order, state.n)
    cost = len(terms) * (2.0 * state.n * num_features**2 + 4 * num_features**3)
    return Answer(result.value, result.standard_error, result.lower, result.upper, "sketch", cost, seed)


def _signed(signs: Sequence[int], parts: Sequence[Tensor]) -> Tensor:
    total = signs[0] * parts[0]
    for sign, part in zip(signs[1:], parts[1:], strict=True):
        total = total + sign * part
    return total


def too_dear(state: DensityState, order: float) -> bool:
    """Whether `auto` leaves eigenvalues for products: never for batches, nor for orders that products do not give."""
    batched = any(x.ndim > 2 for x in state.features) or (state.weights is not None and state.weights.ndim > 1)
    if batched or order in (0.0, 2.0):  # closed form, or nothing but eigenvalues gives it
        return False
    dimension = state.dimension
    size = state.n if dimension is None else min(state.n, dimension)
    return size > exact_limit(state.features[0].device)


@lru_cache(maxsize=8)
def exact_limit(device: torch.device) -> int:
    """The size up to which `auto` decomposes: where eigenvalues begin to cost more than products, on this device.

    Measured once a process, and rounded to a power of two, so that a busy moment of the machine does not move it.
    """
    n, columns = 1024, DEFLATION + PROBES
    generator = torch.Generator().manual_seed(DEFAULT_SEED)
    points = torch.randn(n, n, generator=generator).to(device)
    A, V = (points @ points.mT / n).double(), points[:, :columns].contiguous()
    decomposition = fastest(lambda: torch.linalg.eigvalsh(A), device) / n**3
    products = fastest(lambda: points @ V, device) / n**2
    passes = 2 * STEPS + 8  # of the leading space and of the probes
    crossing = passes * products / decomposition
    limit = 2048
    while 2 * limit <= min(crossing, LARGEST_WITH_VECTORS):
        limit *= 2
    return limit


def fastest(work: Callable[[], Tensor], device: torch.device) -> float:
    """Seconds of the fastest of three runs: what the device can do, not what its neighbours left of it."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return best
