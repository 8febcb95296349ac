"""Theorem 1 of paper A where a reference is known: what projecting moves, it comes nearer to the reference.

The joint distributions of (condition, output) are compared in the exact product kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from condvne.core.discrepancy import squared_norms
from condvne.core.groups import Engine, OutputGroup, conditional_entropies
from condvne.core.kernels import Kernel
from condvne.data.reweighting import Inequality

ROUNDING = 1e-9  # of squared discrepancies, which are at most 4


def theorem_one(
    x: Tensor,
    kernels: tuple[Kernel, Kernel],
    candidates: OutputGroup,
    after: Tensor,
    reference: OutputGroup,
    among: int,
    engine: Engine | None = None,
) -> Inequality:
    """The three terms of MMD²(p, q) + MMD²(q, q⁰) ≤ MMD²(p, q⁰), and whether its conditions are met.

    p is the reference, q⁰ the candidates under their weights, q under the projected ones. The set {H ≥ ρ} is convex and
    q the point of it nearest to q⁰, hence the angle at q is obtuse for every p in the set that is a reweighting of the
    candidates. Weights projected at a price λ are those of ρ = H(q).

    Args:
        x: features of the conditions, (N, dx).
        kernels: of conditions and outputs, bandwidths fixed.
        candidates: with the weights before (equal by default).
        after: weights after, (M,), one in sum for each condition.
        reference: outputs of the same conditions, equal weights by default.
        among: conditions whose reference outputs are all among their candidates.
        engine: of the entropies; exact up to a size measured on the device by default.
    """
    n, m = len(x), len(candidates.owners)
    owners = torch.cat([candidates.owners, reference.owners])
    features = (x[owners], torch.cat([candidates.features, reference.features]))
    p, q, q0 = torch.zeros(3, len(owners), dtype=torch.float64, device=x.device)
    p[m:], q[:m], q0[:m] = _shares(reference, n), after.double() / n, _shares(candidates, n)
    terms = squared_norms(kernels, features, torch.stack([p - q, q - q0, p - q0])).tolist()
    entropies = conditional_entropies(
        x,
        {"reference": reference, "after": OutputGroup(candidates.features, candidates.owners, after)},
        torch.arange(n, device=x.device),
        kernel_x=kernels[0],
        kernel_y=kernels[1],
        orders=(1.0,),
        engine=engine or Engine(),
    )
    return Inequality(
        to_after=terms[0],
        moved=terms[1],
        to_before=terms[2],
        holds=terms[0] + terms[1] <= terms[2] + ROUNDING,
        entropy=entropies["reference"][0].value,
        entropy_after=entropies["after"][0].value,
        among_candidates=among,
        conditions=n,
    )


def _shares(group: OutputGroup, n: int) -> Tensor:
    """Weights (outputs,) of a group in the joint distribution, every condition 1/n."""
    if group.weights is not None:
        return group.weights.double() / n
    counts = torch.bincount(group.owners, minlength=n)
    return 1.0 / (n * counts[group.owners].double())
