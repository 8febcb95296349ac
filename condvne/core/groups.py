"""Conditional entropies of several groups of outputs under the same conditions, exact or matrix-free.

What a comparison shares is computed once: the marginal of the conditions serves every group, and matrix-free, the
tiles of K_X, the passes and the probes do too, so that a difference of two groups is more precise than either value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.lanczos import difference, lanczos_entropies
from condvne.core.operators import KernelOperators
from condvne.core.routes import too_dear
from condvne.core.spectral import spectrum, spectrum_entropy
from condvne.errors import InputError
from condvne.ranks import SINGLE, Ranks

GroupMethod = Literal["auto", "exact", "lanczos"]
TOLERANCE = 4e-3  # nats: well below what another sample of the same size changes


@dataclass(frozen=True)
class OutputGroup:
    """Outputs of one group under shared conditions.

    Attributes:
        features: (outputs, d).
        owners: (outputs,), the row of the condition each output belongs to, ascending.
        weights: (outputs,), non-negative, one in sum for each condition; equal by default.
    """

    features: Tensor
    owners: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True)
class Engine:
    """How entropies of groups are computed.

    Attributes:
        method: "exact"; "lanczos"; "auto", exact up to a size measured on the device.
        tolerance: nats, of each matrix-free entropy: half its bracket plus two standard errors.
        ranks: processes that share the tiles of matrix-free entropies; all must make the same calls.
    """

    method: GroupMethod = "auto"
    tolerance: float = TOLERANCE
    ranks: Ranks = SINGLE


@dataclass(frozen=True)
class GroupEntropy:
    """H_α(Y|X) of one group in nats.

    Attributes:
        value: the entropy, or its estimate.
        error: the exact value lies within this of it: half the bracket and two standard errors; 0 where exact.
        method: "exact" or "lanczos".
    """

    value: float
    error: float = 0.0
    method: Literal["exact", "lanczos"] = "exact"


EXACT = Engine("exact")


def conditional_entropies(
    x: Tensor,
    groups: Mapping[str, OutputGroup],
    rows: Tensor,
    *,
    kernel_x: Kernel,
    kernel_y: Kernel,
    orders: Sequence[float],
    engine: Engine = EXACT,
    generator: torch.Generator | None = None,
) -> dict[str, list[GroupEntropy]]:
    """H_α(Y|X) of every group on the same conditions.

    Args:
        x: features of the conditions, (N, dx).
        groups: outputs of each group; every condition weighs the same, shared among its outputs by their weights.
        rows: conditions to use, (n,), ascending.
        kernel_x, kernel_y: kernels with fixed bandwidth.
        orders: α in [0, ∞]; exact, one decomposition serves all of them.
        engine: how. Order 0 is always exact: products do not determine a rank.
        generator: draws the probes of matrix-free estimates; a fixed seed by default.

    Returns:
        for each group the entropies, one an order.

    Raises:
        InputError: a matrix is not positive semidefinite, or too large for the exact method.
    """
    conditions = x[rows].double()
    layouts = {name: _layout(group, rows) for name, group in groups.items()}
    states = {name: _state(conditions, layouts[name], group, kernel_x, kernel_y) for name, group in groups.items()}
    free = [a for a in orders if a != 0.0 and _matrix_free(engine, states.values(), a)]
    result: dict[str, list[GroupEntropy]] = {name: [] for name in groups}
    found: dict[float, dict[str, GroupEntropy]] = {}
    if free:
        found |= _matrix_free_entropies(states, layouts, free, engine, generator)
    rest = [a for a in orders if a not in found]
    if rest:
        found |= _exact_entropies(states, DensityState((kernel_x,), (conditions,)), rest)
    for name in groups:
        result[name] = [found[a][name] for a in orders]
    return result


@dataclass(frozen=True)
class _Layout:
    """Which outputs are used, the condition each belongs to, and their weights (None where all are equal)."""

    kept: Tensor
    position: Tensor
    weights: Tensor | None

    def same_as(self, other: _Layout) -> bool:
        if self.weights is None or other.weights is None:
            return self.weights is other.weights and torch.equal(self.position, other.position)
        return torch.equal(self.position, other.position) and torch.equal(self.weights, other.weights)


def _layout(group: OutputGroup, rows: Tensor) -> _Layout:
    position = torch.searchsorted(rows, group.owners).clamp(max=len(rows) - 1)
    kept = torch.nonzero(rows[position] == group.owners).squeeze(-1)
    position = position[kept]
    counts = torch.bincount(position, minlength=len(rows))
    if bool((counts == 0).any()):
        without = int(rows[int(torch.nonzero(counts == 0)[0])])
        raise InputError(f"condition {without} has no output in one of the groups; give every group one or more.")
    if group.weights is not None:
        return _Layout(kept, position, group.weights[kept].double() / len(rows))
    equal = bool((counts == 1).all())
    return _Layout(kept, position, None if equal else 1.0 / (len(rows) * counts[position].double()))


def _state(conditions: Tensor, layout: _Layout, group: OutputGroup, kernel_x: Kernel, kernel_y: Kernel) -> DensityState:
    features = (conditions[layout.position], group.features[layout.kept].double())
    return DensityState((kernel_x, kernel_y), features, layout.weights)


def _matrix_free(engine: Engine, states: Iterable[DensityState], order: float) -> bool:
    if engine.method == "auto":
        return any(too_dear(state, order) for state in states)
    return engine.method == "lanczos"


def _exact_entropies(
    states: Mapping[str, DensityState], conditions: DensityState, orders: Sequence[float]
) -> dict[float, dict[str, GroupEntropy]]:
    # Repeated conditions of several outputs merge into one point each, so the marginal needs no repetition.
    marginal = _spectrum_of(conditions)
    found: dict[float, dict[str, GroupEntropy]] = {a: {} for a in orders}
    for name, state in states.items():
        joint = _spectrum_of(state)
        for a in orders:
            found[a][name] = GroupEntropy(float(spectrum_entropy(joint, a) - spectrum_entropy(marginal, a)))
    return found


def _matrix_free_entropies(
    states: Mapping[str, DensityState],
    layouts: Mapping[str, _Layout],
    orders: Sequence[float],
    engine: Engine,
    generator: torch.Generator | None,
) -> dict[float, dict[str, GroupEntropy]]:
    seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator))
    found: dict[float, dict[str, GroupEntropy]] = {a: {} for a in orders}
    for names in _alike(layouts):
        first = states[names[0]]
        joint = DensityState(
            (first.kernels[0], *(states[name].kernels[1] for name in names)),
            (first.features[0], *(states[name].features[1] for name in names)),
            first.weights,
        )
        terms = ((0,), *((0, i) for i in range(1, len(names) + 1)))
        operators = KernelOperators.from_state(joint, terms, ranks=engine.ranks)
        for a in orders:
            probes = torch.Generator().manual_seed(seed)
            marginal, *joints = lanczos_entropies(operators, a, tolerance=engine.tolerance, generator=probes)
            for name, estimate in zip(names, joints, strict=True):
                gap = difference(estimate, marginal)
                value = float(gap.value)
                error = max(gap.upper - value, value - gap.lower, 0.0) + 2 * gap.standard_error
                found[a][name] = GroupEntropy(value, error, "lanczos")
    return found


def _alike(layouts: Mapping[str, _Layout]) -> list[list[str]]:
    """Names of groups whose outputs belong to the same conditions in the same order: they share points and weights."""
    classes: list[list[str]] = []
    for name, layout in layouts.items():
        for members in classes:
            if layout.same_as(layouts[members[0]]):
                members.append(name)
                break
        else:
            classes.append([name])
    return classes


def _spectrum_of(state: DensityState) -> Tensor:
    return spectrum(state.matrix(), epsilon=state.epsilon)
