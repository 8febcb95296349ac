"""Reweighting of candidates towards higher entropy: CEP-BEG with a certificate, and the exact kernel form.

For every prompt there are several candidates. Their weights are moved as little as needed (in the mean of their
features) and as far as worth it (in entropy), while every prompt keeps its share: arXiv 2609.02275, section 5,
eq. 1 with a kernel, eq. 2 with features. With joint features z of (prompt, candidate), H(C) - H(X) is the
conditional entropy, and H(X) does not depend on the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from condvne.core.checks import checked_features, checked_gram
from condvne.core.mirror import (
    BLOCK_ENTRIES,
    Candidates,
    Descent,
    FeatureCandidates,
    KernelCandidates,
    Objective,
    Prompts,
    Step,
    descend,
)
from condvne.errors import InputError

UNIT = 1e-3  # features may be float32 or of a sketch that renormalises in half precision
SUM = 1e-6
REFRESH = 0.01  # share of the prior in a warm start, so that no weight stays at zero
WIDEST = 12.0  # |log λ| beyond which a target is not searched
GROWTH = math.log(8)  # of λ, until the target lies between two
NEAR = 1e-4  # relative width in λ at which a search for a target ends


@dataclass(frozen=True)
class Projection:
    """Weights of the candidates, and how far they are from the best.

    Attributes:
        weights: (N, m) or (M,), as the candidates came; each prompt sums to 1.
        objective: F = ‖Σ (q - q⁰) z‖² - λ H, at these weights.
        entropy: H₁ of Σ q z zᵀ in nats.
        distance: ‖Σ (q - q⁰) z‖, the maximum mean discrepancy from the weights before.
        certificate: F is at most this much above its minimum (of the last λ, where a target is met at no price).
        iterations: of the descent (of the last one, where a target was searched).
        converged: whether the certificate is within the tolerance, λ log M times what was asked.
        lam: λ; 0 where the weights stay as they are.
        reached: whether the target was reached (True where none was asked for).
        entropy_before: H₁ under the prior.
        largest_entropy: the largest H₁ that any weights reach, to within `converged`; None where it was not needed.
        values, certificates: of every iteration, the start first.
    """

    weights: Tensor
    objective: float
    entropy: float
    distance: float
    certificate: float
    iterations: int
    converged: bool
    lam: float
    reached: bool
    entropy_before: float
    largest_entropy: float | None
    values: tuple[float, ...] = field(repr=False)
    certificates: tuple[float, ...] = field(repr=False)


def project(
    features: Tensor,
    *,
    lam: float | None = None,
    target: float | None = None,
    groups: Tensor | None = None,
    prior: Tensor | None = None,
    prompt_weights: Tensor | None = None,
    step: Step = "adaptive",
    tolerance: float = 1e-5,
    max_iterations: int = 200,
) -> Projection:
    """Weights that minimise ‖Σ (q - q⁰) z‖² - λ H₁(Σ q z zᵀ), or reach a target entropy with the least λ (eq. 2).

    Args:
        features: (N, m, r) with m candidates a prompt, or (M, r) with `groups`; unit rows, e.g. of `JointSketch`. They
            are read in blocks, and may be a tensor mapped from a file (float32 or float64): then they need no memory.
            Features on the CPU beside a prior on a GPU are sent there block by block.
        lam: λ ≥ 0, the price of a nat; 0 leaves the weights as they are.
        target: nats, in place of `lam`: the entropy H₁ to be reached.
        groups: (M,), integers that name the prompt of each candidate, in any order; prompts may differ in number.
        prior: weights before, (N, m) or (M,), non-negative, one in sum for each prompt; equal by default. A candidate
            of weight 0 keeps it.
        prompt_weights: (N,), non-negative, one in sum; 1/N each by default. With `groups`, in the order of the
            prompts' sorted numbers.
        step: "adaptive", or "theorem" for theorem 2's fixed step and mean iterate, which need far more iterations.
        tolerance: of the certificate, relative to λ log M.
        max_iterations: of a descent.

    Raises:
        InputError: both or neither of `lam` and `target`; values out of range; features that are not finite or not of
            unit length (rows named); groups, prior or weights that do not fit.
    """
    flat, shape = _unit_rows(features)
    elsewhere = isinstance(prior, Tensor) and flat.device.type == "cpu"
    device = prior.device if elsewhere and prior is not None else flat.device
    prompts = _prompts(shape, groups, prior, prompt_weights, device)
    return _projected(FeatureCandidates(flat, prompts), shape, lam, target, step, tolerance, max_iterations)


def project_kernel(
    gram: Tensor,
    groups: Tensor,
    *,
    lam: float | None = None,
    target: float | None = None,
    prior: Tensor | None = None,
    prompt_weights: Tensor | None = None,
    step: Step = "adaptive",
    tolerance: float = 1e-5,
    max_iterations: int = 200,
) -> Projection:
    """The same with the exact kernel (eq. 1): K_q = diag(√q) K diag(√q), and the squared MMD (q - q⁰)ᵀ K (q - q⁰).

    Args:
        gram: (M, M), of the product kernel of prompts and candidates, unit diagonal.
        groups: (M,), as for `project`, which explains the other arguments.

    Raises:
        InputError: as `project`, or the matrix is not square, finite, symmetric and of unit diagonal.
    """
    checked = checked_gram(gram)
    if checked.values.ndim != 2:
        raise InputError(f"gram must be one matrix (M, M), but has shape {tuple(gram.shape)}.")
    values = checked.values.detach()
    prompts = _prompts(values.shape[:1], groups, prior, prompt_weights, values.device)
    candidates = KernelCandidates(values, prompts)
    return _projected(candidates, values.shape[:1], lam, target, step, tolerance, max_iterations)


def _unit_rows(features: Tensor) -> tuple[Tensor, torch.Size]:
    """Features as rows, (M, r), and the shape of what is weighted; checked in blocks, so that a file stays a file."""
    plain = isinstance(features, Tensor) and features.is_floating_point() and features.numel() > 0
    features = (features if plain and features.ndim > 1 else checked_features(features, "features")).detach()
    if features.ndim not in (2, 3):
        raise InputError(f"features must be (N, m, r), or (M, r) with groups, but have shape {tuple(features.shape)}.")
    flat = features.flatten(0, -2)
    lengths = torch.empty(len(flat), dtype=torch.float64, device=flat.device)
    step = max(1, BLOCK_ENTRIES // flat.shape[1])
    for rows in (slice(start, start + step) for start in range(0, len(flat), step)):
        lengths[rows] = torch.linalg.vector_norm(flat[rows], dim=-1, dtype=torch.float64)
    if not bool(torch.isfinite(lengths).all()):
        checked_features(features, "features")
    if bool(((lengths - 1).abs() > UNIT).any()):
        row = int((lengths - 1).abs().argmax())
        raise InputError(
            f"features must be of unit length, but row {row} has length {float(lengths[row]):.4g}; divide them by it."
        )
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float(), features.shape[:-1]


def _projected(
    candidates: Candidates,
    shape: torch.Size,
    lam: float | None,
    target: float | None,
    step: Step,
    tolerance: float,
    max_iterations: int,
) -> Projection:
    if (lam is None) == (target is None):
        raise InputError("give either lam or target: the price of a nat, or the entropy to be reached.")
    for name, value in (("lam", lam), ("target", target)):
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name} must be a non-negative number, but is {value!r}.")
    if step not in ("adaptive", "theorem"):
        raise InputError(f"step must be 'adaptive' or 'theorem', but is {step!r}.")
    if not tolerance > 0 or max_iterations < 1:
        raise InputError(
            f"tolerance and max_iterations must be positive, but are {tolerance!r} and {max_iterations!r}."
        )
    search = _Search(candidates, shape, step, tolerance, max_iterations)
    return (
        search.unchanged() if lam == 0 else search.at(lam) if lam is not None else search.reaching(float(target or 0))
    )


class _Search:
    """Descents on the same candidates, each from where the last one ended."""

    def __init__(
        self, candidates: Candidates, shape: torch.Size, step: Step, tolerance: float, max_iterations: int
    ) -> None:
        self.candidates, self.shape, self.step = candidates, shape, step
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.prior = candidates.prompts.prior
        self.before = candidates.at(self.prior, Objective(1.0, 0.0))
        self._last = self.prior

    def unchanged(self) -> Projection:
        """The weights as they are: λ = 0, or a target that they reach already."""
        start = Descent(self.before, 0.0, True, (0.0,), (0.0,))
        return self._result(start, Objective(1.0, 0.0), reached=True, largest=None)

    def at(self, lam: float) -> Projection:
        objective = Objective(1.0, lam)
        return self._result(self._descent(objective, self.prior), objective, reached=True, largest=None)

    def reaching(self, target: float) -> Projection:
        """H₁ grows with λ; the search is over log λ, after the largest H₁ is known."""
        from scipy.optimize import brentq  # slow to import

        if self.before.entropy >= target:
            return self.unchanged()
        alone = Objective(0.0, 1.0)
        top = self._descent(alone, self.prior)
        largest = top.point.entropy
        if largest <= target:
            return self._result(top, alone, reached=largest == target, largest=largest)
        found: dict[float, Descent] = {}

        def excess(log_lam: float) -> float:
            if log_lam not in found:
                found[log_lam] = self._descent(Objective(1.0, math.exp(log_lam)), self._last)
                self._last = (1 - REFRESH) * found[log_lam].point.weights + REFRESH * self.prior
            return found[log_lam].point.entropy - target

        low = high = 0.0
        while excess(high) < 0:
            if high > WIDEST:  # only the entropy alone comes so near to the largest
                return self._result(top, alone, reached=True, largest=largest)
            low, high = high, high + GROWTH
        while excess(low) >= 0 and low > -WIDEST:
            low, high = low - GROWTH, low
        if excess(low) >= 0:
            return self._mixed(target, Objective(1.0, math.exp(low)), found[low], largest)
        brentq(excess, low, high, xtol=NEAR, maxiter=60, disp=False)
        best = min(log_lam for log_lam, descent in found.items() if descent.point.entropy >= target)
        return self._result(found[best], Objective(1.0, math.exp(best)), reached=True, largest=largest)

    def _mixed(self, target: float, objective: Objective, descent: Descent, largest: float) -> Projection:
        """Between the prior and weights of more entropy than asked for that cost next to nothing.

        Where candidates outnumber dimensions, some weights keep the mean and have more entropy: H₁ then jumps at λ = 0.
        """
        from scipy.optimize import brentq

        def blended(share: float) -> Tensor:
            return self.prior + share * (descent.point.weights - self.prior)

        def excess(share: float) -> float:
            return self.candidates.at(blended(share), objective).entropy - target

        share = brentq(excess, 0.0, 1.0, xtol=1e-6, maxiter=60)
        point = self.candidates.at(blended(min(1.0, share + 1e-6)), objective)
        return self._result(replace(descent, point=point), objective, reached=True, largest=largest)

    def _descent(self, objective: Objective, start: Tensor) -> Descent:
        scale = objective.entropy * max(math.log(len(self.prior)), math.log(2))
        return descend(
            self.candidates,
            objective,
            start,
            step=self.step,
            tolerance=self.tolerance * scale,
            max_iterations=self.max_iterations,
        )

    def _result(self, descent: Descent, objective: Objective, *, reached: bool, largest: float | None) -> Projection:
        point = descent.point
        return Projection(
            weights=point.weights.reshape(self.shape),
            objective=objective.penalty * point.distance - objective.entropy * point.entropy,
            entropy=point.entropy,
            distance=math.sqrt(max(point.distance, 0.0)),
            certificate=descent.certificate,
            iterations=len(descent.values) - 1,
            converged=descent.converged,
            lam=math.inf if objective.penalty == 0 else objective.entropy,
            reached=reached,
            entropy_before=self.before.entropy,
            largest_entropy=largest,
            values=descent.values,
            certificates=descent.certificates,
        )


def _prompts(
    shape: torch.Size, groups: Tensor | None, prior: Tensor | None, weights: Tensor | None, device: torch.device
) -> Prompts:
    if groups is None:
        if len(shape) != 2:
            raise InputError("features (M, r) need groups (M,), the prompt of each candidate.")
        owners = torch.arange(shape[0], device=device).repeat_interleave(shape[1])
    else:
        owners = _owners(groups, shape, device)
    n, count = int(owners.max()) + 1, len(owners)
    sizes = torch.bincount(owners, minlength=n).double()
    before = 1 / sizes[owners] if prior is None else _distribution(prior, "prior", count, device)
    sums = torch.zeros(n, dtype=torch.float64, device=device).index_add(0, owners, before)
    if bool(((sums - 1).abs() > SUM).any()):
        worst = int((sums - 1).abs().argmax())
        raise InputError(
            f"prior must sum to 1 for each prompt, but sums to {float(sums[worst]):.6g} for prompt {worst}."
        )
    shares = torch.full((n,), 1 / n, dtype=torch.float64, device=device)
    if weights is not None:
        shares = _distribution(weights, "prompt_weights", n, device)
        if abs(float(shares.sum()) - 1) > SUM:
            raise InputError(f"prompt_weights must sum to 1, but sum to {float(shares.sum()):.6g}.")
    return Prompts(owners, before / sums[owners], shares / shares.sum())


def _owners(groups: Tensor, shape: torch.Size, device: torch.device) -> Tensor:
    groups = torch.as_tensor(groups, device=device)
    if len(shape) != 1:
        raise InputError("groups go with features (M, r); features (N, m, r) have their prompts already.")
    if groups.shape != shape:
        raise InputError(
            f"groups must name the prompt of each of {shape[0]} candidates, not shape {tuple(groups.shape)}."
        )
    if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
        raise InputError(f"groups must be integers, but are {groups.dtype}.")
    owners: Tensor = torch.unique(groups, return_inverse=True)[1]
    return owners


def _distribution(values: Tensor, name: str, count: int, device: torch.device) -> Tensor:
    flat = torch.as_tensor(values).detach().to(device, torch.float64).flatten()
    if len(flat) != count:
        raise InputError(f"{name} must have {count} entries, but has {len(flat)}.")
    if not bool(torch.isfinite(flat).all()) or bool((flat < 0).any()):
        bad = int(torch.nonzero(~(torch.isfinite(flat) & (flat >= 0)))[0])
        raise InputError(f"{name} must be finite and non-negative, but entry {bad} is {float(flat[bad]):.4g}.")
    return flat
