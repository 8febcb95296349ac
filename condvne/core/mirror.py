"""Block mirror descent on products of simplices: one distribution over the candidates of every prompt.

The objective F and its gradient w_i G_ij are those of `condvne.core.candidates`. A step multiplies p_ij by
exp(-η G_ij) and normalises every prompt. Relative to Σ w_i KL(p_i ‖ p'_i), F is smooth with the constant 2c + λ: the
quadratic by Pinsker's inequality, the entropy since quantum relative entropy shrinks under mixing. That constant is
loose, so steps follow the curvature met on the way. F is convex, hence for every p

    F(p) - min F  ≤  Σ_i w_i (⟨G_i, p_i⟩ - min_j G_ij)                                       (the certificate)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.candidates import Candidates, Objective, Point, Prompts

Step = Literal["adaptive", "theorem"]

GROWTH = 2.0  # of the step from one iteration to the next, at most
SAFETY = 0.7  # of the step that the curvature met allows; beyond about 1 momentum overshoots
SHORTEST = 1e-12  # of a step, relative to the theorem's: then rounding alone stands in the way


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

    "adaptive": Nesterov's momentum in log p, started anew where it leads uphill; an iteration is one evaluation of C
    and one of G. Steps follow the curvature between the last two points, and without momentum halve until
    F(q) ≤ F(p) + ⟨g, q - p⟩ + KL/η holds, as it does for η = 1 / (2c + λ). "theorem": the fixed step of theorem 2,
    1 / (2c + λ) relative to the unweighted sum of divergences, and the mean of all iterates as the result.
    """
    if step == "theorem":
        return _fixed_steps(candidates, objective, start, tolerance, max_iterations)
    prompts = candidates.prompts
    point = candidates.at(start, objective)
    slope = candidates.gradient(point, objective)
    best, lowest = point, _certificate(prompts, point, slope)
    values, certificates = [point.value], [lowest]
    last, eta, momentum = point.weights, 1 / objective.smoothness, 1.0
    while certificates[-1] > tolerance and len(values) <= max_iterations:
        ahead = _moved(prompts, point.weights, eta * slope)
        if float((prompts.mass * slope * (ahead - last)).sum()) > 0:
            momentum = 1.0
        grown = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        trial = _with_momentum(candidates, objective, point, ahead, last, (momentum - 1) / grown)
        if trial is None:
            found = _safe_step(candidates, objective, point, slope, eta)
            if found is None:
                break
            (trial, eta), grown = found, _GOLDEN
            ahead = trial.weights
        slope_there = candidates.gradient(trial, objective)
        eta = _next_step(prompts, eta, trial.weights, point.weights, slope_there - slope)
        point, slope, last, momentum = trial, slope_there, ahead, grown
        values.append(point.value)
        certificates.append(_certificate(prompts, point, slope))
        if certificates[-1] < lowest:
            best, lowest = point, certificates[-1]
    return Descent(best, lowest, lowest <= tolerance, tuple(values), tuple(certificates))


_GOLDEN = (1 + math.sqrt(5)) / 2  # momentum after its first step


def _with_momentum(
    candidates: Candidates, objective: Objective, point: Point, ahead: Tensor, last: Tensor, share: float
) -> Point | None:
    """Beyond `ahead`, by a share of the way in log p from `last`; None without a share, and where F has risen."""
    if share <= 0:
        return None
    alive = (ahead > 0) & (last > 0)
    way = torch.where(alive, torch.log(torch.where(alive, ahead / last, 1.0)), 0.0)
    trial = candidates.at(_moved(candidates.prompts, ahead, -share * way), objective)
    return trial if trial.value <= point.value + candidates.slack * abs(point.value) else None


def _safe_step(
    candidates: Candidates, objective: Objective, point: Point, slope: Tensor, eta: float
) -> tuple[Point, float] | None:
    """The first of η, η/2, … that keeps relative smoothness; None where rounding lets none."""
    prompts = candidates.prompts
    while eta > SHORTEST / objective.smoothness:
        weights = _moved(prompts, point.weights, eta * slope)
        trial = candidates.at(weights, objective)
        linear = float((prompts.mass * slope * (weights - point.weights)).sum())
        divergence = float((prompts.mass * _divergence(weights, point.weights)).sum())
        if trial.value <= point.value + linear + divergence / eta + candidates.slack * abs(point.value):
            return trial, eta
        eta /= 2
    return None


def _next_step(prompts: Prompts, eta: float, there: Tensor, here: Tensor, change: Tensor) -> float:
    """SAFETY over the relative curvature between two points: both Bregman divergences of F over both of Σ w KL."""
    alive = (there > 0) & (here > 0)
    way = torch.where(alive, torch.log(torch.where(alive, there / here, 1.0)), 0.0)
    weighted = prompts.mass * (there - here)
    curvature, divergence = float((weighted * change).sum()), float((weighted * way).sum())
    if not (curvature > 0 and divergence > 0):  # rounding, or as flat as can be measured
        return GROWTH * eta
    return min(GROWTH * eta, SAFETY * divergence / curvature)


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


def _moved(prompts: Prompts, weights: Tensor, change: Tensor) -> Tensor:
    return prompts.normalised(torch.log(weights) - change)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """p log (p / q), zero where p is."""
    divergence: Tensor = torch.special.xlogy(p, p / torch.where(q > 0, q, 1.0))
    return divergence


def _certificate(prompts: Prompts, point: Point, slope: Tensor) -> float:
    gaps = prompts.sums(slope * point.weights) - prompts.smallest(slope)
    return max(float((prompts.weights * gaps).sum()), 0.0)
