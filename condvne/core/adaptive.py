"""The course of a matrix-free estimate: leading space, probes and steps, until a tolerance is met.

All matrices of one `KernelOperators` move in lockstep, so that a pass over the tiles serves each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.krylov import BlockKrylov, Deflation, Leading, ProbeRecurrence
from condvne.core.operators import KernelOperators
from condvne.core.traces import Reading, TraceEstimator, leading_bracket
from condvne.errors import InputError

GROWTH = 8  # a tolerance raises deflation, probes and steps up to this multiple of where they start
STORED_DEPTH, TILED_DEPTH = 8, 4  # blocks of the leading space: thin ones where a pass is cheap
NOISE = 2.0  # rounding of an eigenvalue, in units of the tiles' precision times the largest eigenvalue
LEFT_BY_CONTROLS = 0.13  # root mean square of f - p over that of the eigenvalues, beyond the deflated ones
STALLED = 0.9  # steps that leave more of the bracket than this are not worth taking
PROBE_ROUNDING = 8


@dataclass(frozen=True)
class Plan:
    """What was asked for: order α in (0, ∞] without 2, tolerance in nats or None, and the sizes to start from."""

    order: float
    tolerance: float | None
    deflation: int
    probes: int
    steps: int


class Course:
    """The estimators of all matrices, as far as the plan demands.

    Args:
        operators: matrices of the same points.
        plan: what is asked for.
        generator: draws one seed; start vectors and probes have a stream each, so that probes are the same
            whatever the leading space took.
    """

    def __init__(self, operators: KernelOperators, plan: Plan, generator: torch.Generator) -> None:
        self.operators, self.plan = operators, plan
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        self._starts = torch.Generator().manual_seed(seed)
        self._draws = torch.Generator().manual_seed(seed + 1)

    def deflations(self) -> list[Deflation]:
        """Leading Ritz pairs of every matrix."""
        plan, n = self.plan, self.operators.n
        depth = STORED_DEPTH if all(self.operators.cheap) else TILED_DEPTH
        width = math.ceil(plan.deflation / 4) if depth == STORED_DEPTH else plan.deflation
        start = torch.randn(n, width, dtype=torch.float64, generator=self._starts).to(self.operators.device)
        spaces = [BlockKrylov(start) for _ in self.operators.terms]
        found: list[Deflation | None] = [None] * len(spaces)
        while any(d is None for d in found):
            blocks = [space.block if d is None else None for space, d in zip(spaces, found, strict=True)]
            for space, image in zip(spaces, self.operators.multiply(blocks), strict=True):
                if image is not None:
                    space.absorb(image)
            purities = self.operators.purities()
            for t, space in enumerate(spaces):
                if found[t] is None and (space.block is None or space.depth >= depth):
                    leading = self._sufficient(space, float(purities[t]), depth)
                    found[t] = None if leading is None else space.deflation(leading)
        return [d for d in found if d is not None]

    def estimators(self, deflations: Sequence[Deflation]) -> list[TraceEstimator]:
        """Estimators with the probes and steps that the plan demands."""
        steps = self.plan.steps if self.plan.tolerance is None else max(2, self.plan.steps // 2)
        probes = self._probes(self.plan.probes)
        recurrences = [ProbeRecurrence(d, probes, self.operators.dtype) for d in deflations]
        self._advance(recurrences, [steps] * len(recurrences))
        epsilon = torch.finfo(self.operators.dtype).eps
        estimators = [
            TraceEstimator(self.plan.order, float(purity), recurrence, self.noise(recurrence.leading), epsilon)
            for purity, recurrence in zip(self.operators.purities(), recurrences, strict=True)
        ]
        for estimator in estimators:
            self._refuse_negative(estimator)
        if self.plan.tolerance is not None:
            self._improve(estimators)
        return estimators

    def reached(self, reading: Reading) -> bool:
        """Whether half the bracket and two standard errors are within the tolerance."""
        error = (reading.upper - reading.lower) / 2 + 2 * reading.standard_error
        return self.plan.tolerance is None or error <= self.plan.tolerance

    def noise(self, leading: Leading) -> float:
        """Size of eigenvalues that are rounding: of the arithmetic, and of random errors in the tiles."""
        largest = float(leading.values[0])
        in_single = NOISE * torch.finfo(self.operators.dtype).eps * largest
        in_double = self.operators.n * torch.finfo(torch.float64).eps * largest  # as in the exact route
        rounding = self.operators.rounding
        if rounding is None:
            return max(in_single, in_double)
        random = 2 * rounding.root_mean_square * math.sqrt(float(self.operators.weights.detach().max()))
        return max(in_single, in_double, random)

    def _sufficient(self, space: BlockKrylov, purity: float, depth: int) -> Leading | None:
        """The leading pairs to be deflated, or None where another block is worth its products."""
        plan, count = self.plan, self.plan.deflation
        noise = self.noise(space.leading(1))
        leading = space.leading(count, noise)
        if plan.tolerance is None or space.block is None or space.depth >= GROWTH * depth:
            return leading
        probes = self._predicted_probes(leading, purity)
        while 4 * count <= space.dimension and probes > plan.probes:
            count *= 2
            leading = space.leading(count, noise)
            probes = self._predicted_probes(leading, purity)
        rest, before = leading.rest_square(purity), space.leading(max(count // 2, 1)).rest_square(purity)
        shrinks = rest / before if before > 0 else 1.0  # zero where the leading pairs are all there is
        saved = (probes - max(probes * shrinks, plan.probes)) * plan.steps
        wide = leading_bracket(plan.order, leading, purity, noise) > plan.tolerance / 4
        return None if wide or (plan.order < 2 and saved > 2 * count) else leading

    def _predicted_probes(self, leading: Leading, purity: float) -> float:
        assert self.plan.tolerance is not None
        variance = 2 * LEFT_BY_CONTROLS**2 * leading.rest_square(purity)
        return max(self.plan.probes, variance / (self.plan.tolerance / 4) ** 2)

    def _improve(self, estimators: list[TraceEstimator]) -> None:
        assert self.plan.tolerance is not None
        tolerance, halves = self.plan.tolerance, [math.inf] * len(estimators)
        while True:
            readings = [estimator.reading() for estimator in estimators]
            if all(self.reached(reading) for reading in readings):
                return
            steps = [estimator.recurrence.steps for estimator in estimators]
            before, halves = halves, [(reading.upper - reading.lower) / 2 for reading in readings]
            for t, half in enumerate(halves):
                if tolerance / 2 < half < STALLED * before[t] and steps[t] < GROWTH * self.plan.steps:
                    steps[t] += 2
            if steps != [estimator.recurrence.steps for estimator in estimators]:
                self._advance([estimator.recurrence for estimator in estimators], steps)
            elif not self._added_probes(estimators, readings, tolerance):
                return
            else:
                halves = [math.inf] * len(estimators)

    def _added_probes(self, estimators: list[TraceEstimator], readings: list[Reading], tolerance: float) -> bool:
        """More probes for all matrices, as the noisiest needs; False where they are as many as they may be."""
        have = estimators[0].recurrence.count
        excess = max(
            2 * reading.standard_error / max(tolerance / 2, tolerance - (reading.upper - reading.lower) / 2)
            for reading in readings
        )
        wanted = min(math.ceil(have * excess**2 / PROBE_ROUNDING) * PROBE_ROUNDING, GROWTH * self.plan.probes, 4 * have)
        if wanted <= have:
            return False
        fresh = self._probes(wanted - have)
        dtype = self.operators.dtype
        added = [ProbeRecurrence(estimator.recurrence.deflation, fresh, dtype) for estimator in estimators]
        self._advance(added, [estimator.recurrence.steps for estimator in estimators])
        for estimator, recurrence in zip(estimators, added, strict=True):
            estimator.recurrence = estimator.recurrence.joined(recurrence)
        return True

    def _advance(self, recurrences: Sequence[ProbeRecurrence], steps: Sequence[int]) -> None:
        while any(r.steps < s for r, s in zip(recurrences, steps, strict=True)):
            vectors = [r.vectors if r.steps < s else None for r, s in zip(recurrences, steps, strict=True)]
            for recurrence, images in zip(recurrences, self.operators.multiply(vectors), strict=True):
                if images is not None:
                    recurrence.absorb(images)

    def _probes(self, count: int) -> Tensor:
        # One after the other, so that the first few are the same however many are drawn.
        signs = [torch.randint(2, (self.operators.n,), generator=self._draws) for _ in range(count)]
        return (2.0 * torch.stack(signs, dim=1).to(torch.float64) - 1.0).to(self.operators.device)

    def _refuse_negative(self, estimator: TraceEstimator) -> None:
        n, epsilon = self.operators.n, torch.finfo(self.operators.dtype).eps
        tolerance = max(64 * epsilon * max(1.0, math.sqrt(n) / 8), 8 * estimator.noise)
        smallest = float(estimator.recurrence.rule()[0].amin())
        if smallest < -tolerance:
            raise InputError(
                f"the kernel matrix is not positive semidefinite: its density matrix has an eigenvalue of at most "
                f"{smallest:.3g}; use a positive-definite kernel, or repair the matrix before scoring."
            )
