"""From the distance between two density matrices to the distance between their entropies.

Ĉ is known, and ‖Ĉ - C‖ ≤ ε in Hilbert-Schmidt norm, C being n × n of unit trace. Then H_α(C) lies in a range:

    α ≥ 2   Schatten norms differ by ε at most, ‖·‖_α ≤ ‖·‖_2, and H_α = α/(1-α) log ‖C‖_α
    α < 2   from below by H_α ≥ H_2; at α = 1 also by continuity
    α = 1   |H(Ĉ) - H(C)| ≤ T log(n-1) + h(T), where T is half the distance Σ |λ̂_i - λ_i| of the sorted spectra
            (Fannes 1973, Audenaert 2007, for commuting states). With Σ (λ̂_i - λ_i)² ≤ ε² (Hoffman and Wielandt 1953)
            T ≤ √k ε + Σ_{i>k} λ̂_i for every k; the best k is taken. This also bounds 1 < α < 2 from above
    α < 1   log n from above

Rigorous and wide: at order 1 it says more than [0, log n] only where 1/ε² is hundreds of times exp H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entropy_range(eigenvalues: Tensor, order: float, n: int, deviation: float) -> tuple[Tensor, Tensor]:
    """Least and largest H_α of the exact density matrix.

    Args:
        eigenvalues: (..., r) of the sketched one, ascending, non-negative, summing to one.
        order: α in [0, ∞].
        n: number of points.
        deviation: ε, with ‖Ĉ - C‖ ≤ ε in Hilbert-Schmidt norm; may be infinite.

    Returns:
        Two (...) tensors in [0, log n].
    """
    least, most = (
        eigenvalues.new_zeros(eigenvalues.shape[:-1]),
        eigenvalues.new_full(eigenvalues.shape[:-1], math.log(n)),
    )
    if math.isinf(deviation):
        return least, most
    alpha = max(order, 2.0)
    norm = torch.linalg.vector_norm(eigenvalues, ord=alpha, dim=-1)
    scale = -1.0 if math.isinf(alpha) else alpha / (1 - alpha)
    lower = (scale * torch.log(norm + deviation)).clamp(min=0.0)
    if order >= 2:
        upper = torch.where(norm > deviation, scale * torch.log((norm - deviation).clamp(min=1 / n)), most)
        return lower, torch.minimum(upper, most)
    if order < 1:
        return lower, most
    distance = _distance_of_spectra(eigenvalues, deviation, n)
    change = distance * math.log(max(n - 1, 1)) + torch.special.entr(distance) + torch.special.entr(1 - distance)
    H = torch.special.entr(eigenvalues).sum(-1)
    if order == 1:
        lower = torch.maximum(lower, H - change)
    return lower, torch.minimum(H + change, most)  # H_α ≤ H_1 between the orders 1 and 2


def _distance_of_spectra(eigenvalues: Tensor, deviation: float, n: int) -> Tensor:
    """A bound on T = Σ |λ̂_i - λ_i| / 2, at most √k ε + Σ_{i>k} λ̂_i for every k; T log(n-1) + h(T) grows to 1 - 1/n."""
    descending = eigenvalues.flip(-1)
    tail = 1 - descending.cumsum(-1)
    counts = torch.arange(1, descending.shape[-1] + 1, device=descending.device)
    return (counts.sqrt() * deviation + tail).amin(-1).clamp(0.0, 1 - 1 / n)
