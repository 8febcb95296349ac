"""Block mirror descent on products of simplices: one distribution over the candidates of every prompt.

Minimise over p, with q_ij = w_i p_ij and the prior's q⁰_ij = w_i π_ij,

    F(p) = c ‖Σ (q_ij - q⁰_ij) z_ij‖² - λ H₁(C(p)),        C(p) = Σ q_ij z_ij z_ijᵀ

(arXiv 2609.02275, eq. 2, where w_i = 1/N and c = 1). The gradient with respect to p_ij is w_i G_ij with

    G_ij = 2c ⟨Σ (q - q⁰) z, z_ij⟩ + λ z_ijᵀ (log C + I) z_ij

and a step multiplies p_ij by exp(-η G_ij) and normalises every prompt. Relative to Σ w_i KL(p_i ‖ p'_i), F is smooth
with the constant 2c + λ: the quadratic by Pinsker's inequality, the entropy since quantum relative entropy shrinks
under mixing. That constant is loose, so steps grow and are checked. F is convex, hence for every p

    F(p) - min F  ≤  Σ_i w_i (⟨G_i, p_i⟩ - min_j G_ij)                                       (the certificate)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from condvne.core.spectral import FLOOR

Step = Literal["adaptive", "theorem"]

BLOCK_ENTRIES = 2**20  # feature values in flight: larger blocks are no faster
SLACK = 4.0  # relative, in units of the features' precision: differences of F below it are rounding
GROWTH = 1.5  # of the step from one iteration to the next
SHORTEST = 1e-12  # of a step, relative to the theorem's: then rounding alone stands in the way


@dataclass(frozen=True)
class Prompts:
    """Which candidates belong to which prompt, and what they weigh before.

    Attributes:
        groups: (M,), the prompt of each candidate, 0 … N - 1.
        prior: (M,), sums to one within each prompt.
        weights: (N,), sums to one.
    """

    groups: Tensor
    prior: Tensor
    weights: Tensor

    @property
    def mass(self) -> Tensor:
        """w_i of each candidate's prompt, (M,)."""
        return self.weights[self.groups]

    def normalised(self, logits: Tensor) -> Tensor:
        """exp(logits) divided by its sum within each prompt, (M,)."""
        n = self.weights.shape[0]
        highest = logits.new_full((n,), -math.inf).scatter_reduce(0, self.groups, logits, "amax")
        values = torch.exp(logits - highest[self.groups])
        return values / self.sums(values)[self.groups]

    def sums(self, values: Tensor) -> Tensor:
        """Sum of values (M,) within each prompt, (N,)."""
        return values.new_zeros(self.weights.shape[0]).index_add(0, self.groups, values)

    def smallest(self, values: Tensor) -> Tensor:
        """Least of values (M,) within each prompt, (N,)."""
        start = values.new_full((self.weights.shape[0],), math.inf)
        return start.scatter_reduce(0, self.groups, values, "amin")


@dataclass(frozen=True)
class Objective:
    """c and λ; (0, 1) is the entropy alone."""

    penalty: float
    entropy: float

    @property
    def smoothness(self) -> float:
        return 2 * self.penalty + self.entropy


@dataclass(frozen=True)
class Point:
    """Where the descent stands: weights p (M,) and what is known there."""

    weights: Tensor
    value: float
    distance: float  # ‖Σ (q - q⁰) z‖²
    entropy: float
    context: tuple[Tensor, ...]  # what the gradient is made from


class Candidates(ABC):
    """The candidates, as features or as a Gram matrix."""

    def __init__(self, prompts: Prompts, dtype: torch.dtype) -> None:
        self.prompts = prompts
        self.slack = SLACK * torch.finfo(dtype).eps

    @abstractmethod
    def evaluated(self, weights: Tensor, curved: bool) -> tuple[float, float, tuple[Tensor, ...]]:
        """Squared distance to the prior's mean, entropy, and, with `curved`, what the gradient needs."""

    @abstractmethod
    def gradient(self, point: Point, objective: Objective) -> Tensor:
        """G (M,)."""

    def at(self, weights: Tensor, objective: Objective, *, curved: bool = True) -> Point:
        """The point at these weights; without `curved` its value alone, which needs no eigenvectors."""
        distance, entropy, context = self.evaluated(weights, curved)
        value = objective.penalty * distance - objective.entropy * entropy
        return Point(weights, value, distance, entropy, context)


class FeatureCandidates(Candidates):
    """Unit feature vectors z, (M, r), read block by block: they may be mapped from a file, or lie on another device."""

    def __init__(self, features: Tensor, prompts: Prompts) -> None:
        super().__init__(prompts, features.dtype)
        self.features = features
        self.start = self._mean(prompts.mass * prompts.prior)

    def evaluated(self, weights: Tensor, curved: bool) -> tuple[float, float, tuple[Tensor, ...]]:
        q = self.prompts.mass * weights
        r = self.features.shape[1]
        C, mean = q.new_zeros(r, r), q.new_zeros(r)
        for rows, Z in self._blocks():
            weighted = Z * q[rows, None].to(Z)
            C += (weighted.mT @ Z).to(q)
            mean += weighted.sum(0, dtype=q.dtype)
        values, *vectors = _spectrum(C.add_(C.mT.clone()).div_(2), curved)
        shift = mean - self.start
        context = (values, *vectors, shift) if curved else ()
        return float(shift.square().sum()), float(torch.special.entr(values).sum()), context

    def gradient(self, point: Point, objective: Objective) -> Tensor:
        values, vectors, shift = point.context
        log = (vectors * torch.log(values.clamp(min=FLOOR))) @ vectors.mT
        # One result for all blocks: small ones kept between large temporaries would leave holes that memory grows by.
        slope = shift.new_empty(len(self.features))
        for rows, Z in self._blocks():
            curved = (Z @ log.to(Z)).mul_(Z).sum(1, dtype=log.dtype)
            slope[rows] = 2 * objective.penalty * (Z @ shift.to(Z)) + objective.entropy * (curved + 1)
        return slope

    def _mean(self, q: Tensor) -> Tensor:
        total = q.new_zeros(self.features.shape[1])
        for rows, Z in self._blocks():
            total += (Z * q[rows, None].to(Z)).sum(0, dtype=q.dtype)
        return total

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        count, r = self.features.shape
        step = max(1, BLOCK_ENTRIES // r)
        device = self.prompts.weights.device
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            yield rows, self.features[rows].to(device)


class KernelCandidates(Candidates):
    """A Gram matrix K (M, M) of unit diagonal, whose feature space is never entered (eq. 1)."""

    def __init__(self, gram: Tensor, prompts: Prompts) -> None:
        super().__init__(prompts, gram.dtype)
        self.gram = gram
        self.start = prompts.mass * prompts.prior

    def evaluated(self, weights: Tensor, curved: bool) -> tuple[float, float, tuple[Tensor, ...]]:
        q = self.prompts.mass * weights
        root = q.sqrt()
        values, *vectors = _spectrum(root[:, None] * self.gram * root, curved)
        shift = q - self.start
        distance = float((shift @ (self.gram @ shift)).clamp(min=0.0))
        context = (values, *vectors, shift, root) if curved else ()
        return distance, float(torch.special.entr(values).sum()), context

    def gradient(self, point: Point, objective: Objective) -> Tensor:
        values, vectors, shift, root = point.context
        kept = values > FLOOR
        # The eigenvectors of C are Φᵀ diag(√q) v / √λ; what they leave of a candidate lies where log C is floored.
        squares = (self.gram @ (root[:, None] * vectors[:, kept])).square() / values[kept]
        rest = (1 - squares.sum(1)).clamp(min=0.0)
        curved = squares @ torch.log(values[kept]) + rest * math.log(FLOOR)
        return 2 * objective.penalty * (self.gram @ shift) + objective.entropy * (curved + 1)


@dataclass(frozen=True)
class Descent:
    """The end of a descent, and each iteration's value and certificate on the way."""

    point: Point
    certificate: float
    converged: bool
    values: tuple[float, ...]
    certificates: tuple[float, ...]


def descend(
    candidates: Candidates,
    objective: Objective,
    start: Tensor,
    *,
    step: Step,
    tolerance: float,
    max_iterations: int,
) -> Descent:
    """Mirror descent from `start` (M,), until the certificate is at most `tolerance`.

    "adaptive": steps grow, and halve until F(q) ≤ F(p) + ⟨g, q - p⟩ + KL/η holds; each starts from where the last two
    iterates point to in log p (Nesterov), and from the last one where that went uphill. "theorem": the fixed step of
    theorem 2, 1 / (2c + λ) relative to the unweighted sum of divergences, and the mean of all iterates as the result.
    """
    if step == "theorem":
        return _fixed_steps(candidates, objective, start, tolerance, max_iterations)
    prompts = candidates.prompts
    point = candidates.at(start, objective)
    slope = candidates.gradient(point, objective)
    best, lowest = replace(point, context=()), _certificate(prompts, point, slope)
    values, certificates = [point.value], [lowest]
    last, eta, momentum = point.weights, 1 / objective.smoothness, 1.0
    reached = point.value
    for _ in range(max_iterations):
        if certificates[-1] <= tolerance:
            break
        found = _longest_safe_step(candidates, objective, point, slope, eta)
        if found is None:
            break
        ahead, eta = found
        grown = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        share, momentum = ((momentum - 1) / grown, grown) if ahead.value <= reached else (0.0, 1.0)
        reached = ahead.value
        further = _extrapolated(prompts, ahead.weights, last, share) if share > 0 else ahead.weights
        del point  # its eigenvectors go before the next ones come
        point = candidates.at(further, objective)
        last = ahead.weights
        slope = candidates.gradient(point, objective)
        values.append(point.value)
        certificates.append(_certificate(prompts, point, slope))
        if certificates[-1] < lowest:
            best, lowest = replace(point, context=()), certificates[-1]
    return Descent(best, lowest, lowest <= tolerance, tuple(values), tuple(certificates))


def _fixed_steps(
    candidates: Candidates, objective: Objective, start: Tensor, tolerance: float, max_iterations: int
) -> Descent:
    prompts = candidates.prompts
    point = candidates.at(start, objective)
    slope = candidates.gradient(point, objective)
    average = point.weights
    values, certificates = [point.value], [_certificate(prompts, point, slope)]
    for iteration in range(1, max_iterations + 1):
        if certificates[-1] <= tolerance:
            break
        # The mass w_i of a prompt is part of its gradient here.
        change = slope * prompts.mass / objective.smoothness
        point = candidates.at(_moved(prompts, point.weights, change), objective)
        slope = candidates.gradient(point, objective)
        average = average + (point.weights - average) / (iteration + 1)
        values.append(point.value)
        certificates.append(_certificate(prompts, point, slope))
    if len(values) > 1:
        point = candidates.at(average, objective)
        values[-1] = point.value
        certificates[-1] = _certificate(prompts, point, candidates.gradient(point, objective))
    return Descent(point, certificates[-1], certificates[-1] <= tolerance, tuple(values), tuple(certificates))


def _longest_safe_step(
    candidates: Candidates, objective: Objective, point: Point, slope: Tensor, eta: float
) -> tuple[Point, float] | None:
    prompts, eta = candidates.prompts, GROWTH * eta
    shortest = SHORTEST / objective.smoothness
    while eta > shortest:
        weights = _moved(prompts, point.weights, eta * slope)
        trial = candidates.at(weights, objective, curved=False)
        linear = float((prompts.mass * slope * (weights - point.weights)).sum())
        divergence = float((prompts.mass * _divergence(weights, point.weights)).sum())
        if trial.value <= point.value + linear + divergence / eta + candidates.slack * abs(point.value):
            return trial, eta
        eta /= 2
    return None


def _spectrum(matrix: Tensor, vectors: bool) -> tuple[Tensor, ...]:
    """Eigenvalues, none negative, and eigenvectors where they are asked for."""
    if not vectors:
        return (torch.linalg.eigvalsh(matrix).clamp(min=0.0),)
    values, found = torch.linalg.eigh(matrix)
    return values.clamp(min=0.0), found


def _extrapolated(prompts: Prompts, weights: Tensor, last: Tensor, share: float) -> Tensor:
    """Beyond `weights`, by a share of the way in log p from `last`; what has vanished stays so."""
    alive = (weights > 0) & (last > 0)
    way = torch.where(alive, torch.log(torch.where(alive, weights / last, 1.0)), 0.0)
    return _moved(prompts, weights, -share * way)


def _moved(prompts: Prompts, weights: Tensor, change: Tensor) -> Tensor:
    return prompts.normalised(torch.log(weights) - change)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """p log (p / q), zero where p is."""
    divergence: Tensor = torch.special.xlogy(p, p / torch.where(q > 0, q, 1.0))
    return divergence


def _certificate(prompts: Prompts, point: Point, slope: Tensor) -> float:
    # Candidates of weight 0 before keep it: what they could gain is no part of the problem.
    free = torch.where(prompts.prior > 0, slope, math.inf)
    gaps = prompts.sums(slope * point.weights) - prompts.smallest(free)
    return max(float((prompts.weights * gaps).sum()), 0.0)
