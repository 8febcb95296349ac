"""Magnitude of a set of items: the sum of the entries of the inverse of Z = exp(-t D) (Leinster 2013).

With E = 1 - Z, computed by expm1, one item 0 singled out, c_i = E_0i and the Gram matrix G_ij = c_i + c_j - E_ij of the
others, Z is positive definite exactly where G is and cᵀG⁻¹c < 1, and then

    |A| = 1 / (1 - cᵀ G⁻¹ c)

which keeps its digits as t falls, where Z itself becomes a matrix of ones.

Over many scales of a large set one factorisation serves several: conjugate gradients at scale t are preconditioned by
the Cholesky factor of a scale nearby, and start from the best combination of the last solutions. cᵀG⁻¹c is a maximum
over u of 2 cᵀu - uᵀGu, so its error is of second order in that of u. This route needs Z positive definite at every
scale, which one factorisation proves: D of negative type (Schoenberg 1938), as Euclidean, cosine and Tanimoto
distances are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.distances import Distances, checked_distances, distinct_items
from condvne.core.spectral import EPSILON, as_number
from condvne.errors import InputError

DENSE_UP_TO = 400  # items; below, a factorisation for each scale is as fast
ONE_THREAD_UP_TO = 4096  # items; beyond, an operation is long enough to be shared even on a busy machine
BATCH_ENTRIES = 2**22  # of matrices factorised together
TOLERANCE = 1e-9  # relative, of the iterative route
SOLUTIONS = 6  # of earlier scales that a start is combined from
SMALL = 1e-3  # 1 - similarity below which Z has lost too many of its digits for this route
TILE = 512  # rows; 2 MB in float64
STEPS = 5  # of conjugate gradients, beyond which a new factorisation is cheaper


def magnitude(D: Tensor, scale: float) -> Tensor:
    """Σ_ij (Z⁻¹)_ij with Z = exp(-scale · D), in [1, n] for distances of negative type.

    Args:
        D: distances (n, n), n >= 2. Items at distance zero are merged first: they count once.
        scale: t, positive and finite, one over a distance.

    Returns:
        a number, in the precision of `D`, twice differentiable (with respect to the first of merged items).

    Raises:
        InputError: the distances are not finite, negative, asymmetric, non-zero on the diagonal, or of fewer than two
            items; a scale out of range; Z is not positive definite; a gradient where Z is numerically singular.

    >>> round(float(magnitude(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double(), 2.0)), 6)  # 2 / (1 + exp(-2))
    1.761594
    """
    found = checked_distances(D)
    return magnitudes(found, (scale,))[0].to(found.dtype)


def magnitude_curve(D: Tensor, scales: Sequence[float]) -> Tensor:
    """Magnitudes (scales,) at several scales; arguments and errors as for `magnitude`."""
    found = checked_distances(D)
    return magnitudes(found, scales).to(found.dtype)


def magnitudes(found: Distances, scales: Sequence[float]) -> Tensor:
    """Magnitudes (scales,) of checked distances, float64; one factorisation for each where a gradient is asked for."""
    for scale in scales:
        number = as_number(scale)
        if number is None or not 0 < number < math.inf:
            raise InputError(f"the scale of a magnitude must be positive and finite, but is {scale!r}.")
    rows = distinct_items(found)
    D = found.values[rows][:, rows]
    if len(rows) == 1:
        return torch.ones(len(scales), dtype=torch.float64, device=D.device)
    if len(rows) > DENSE_UP_TO and len(scales) > 2 and not D.requires_grad and _negative_type(D):
        with _one_thread(D):
            return _iterative(D, scales)
    t = torch.tensor(scales, dtype=torch.float64, device=D.device)
    batch = max(1, BATCH_ENTRIES // D.numel())
    parts = [t[start : start + batch] for start in range(0, len(t), batch)]
    return torch.cat([_dense(D, part) for part in parts])


def _dense(D: Tensor, scales: Tensor) -> Tensor:
    """One factorisation for each of the scales (k,), in one batch."""
    E = -torch.expm1(-scales[:, None, None] * D)
    c = E[:, 0, 1:]
    G = _gram_of_differences(E)
    factor, failed = torch.linalg.cholesky_ex(G)
    if not bool(failed.any()):
        u = torch.cholesky_solve(c[..., None], factor).squeeze(-1)
        return _checked_total((c * u).sum(-1), scales)
    return torch.stack([_singular(G[k], c[k], scales[k : k + 1]) for k in range(len(scales))])


def _gram_of_differences(E: Tensor) -> Tensor:
    """c_i + c_j - E_ij of all items but the first: Gram matrix of the differences from it, if E = 1 - ⟨·,·⟩."""
    c = E[..., 0, 1:]
    return c[..., :, None] + c[..., None, :] - E[..., 1:, 1:]


def _checked_total(q: Tensor, scales: Tensor) -> Tensor:
    wrong = ~(q.detach() < 1)
    if bool(wrong.any()):
        raise _indefinite(float(scales[wrong][0]))
    return 1 / (1 - q)


def _singular(G: Tensor, c: Tensor, scale: Tensor) -> Tensor:
    """A scale at which rounding hides the smallest eigenvalues, or some are negative: null directions are left out."""
    factor, failed = torch.linalg.cholesky_ex(G)
    if not bool(failed):
        return _checked_total((c @ torch.cholesky_solve(c[:, None], factor)), scale)[0]
    eigenvalues, vectors = torch.linalg.eigh(G.detach())
    noise = 8 * len(c) * EPSILON * float(eigenvalues[-1])
    if float(eigenvalues[0]) < -noise:
        raise _indefinite(float(scale))
    if G.requires_grad:
        raise InputError(
            f"the similarities at scale {float(scale):.4g} are singular to within rounding and have no gradient of the "
            "magnitude; use a larger scale, or drop items that are nearly equal."
        )
    kept = eigenvalues > noise
    parts = (vectors[:, kept].mT @ c) / eigenvalues[kept].sqrt()
    return _checked_total(parts.square().sum()[None], scale)[0]


def _indefinite(scale: float) -> InputError:
    return InputError(
        f"the similarities exp(-t D) are not positive definite at the scale t = {scale:.4g}, so the set has no "
        "magnitude there; use a larger scale, or distances of negative type such as Euclidean, cosine or Tanimoto."
    )


def _negative_type(D: Tensor) -> bool:
    """Whether exp(-t D) is positive semidefinite at every t, to within rounding."""
    G = _gram_of_differences(D / D.max())
    G.diagonal().add_(64 * len(G) * EPSILON)
    return not bool(torch.linalg.cholesky_ex(G)[1])


@dataclass(frozen=True)
class _Tiles:
    """The upper half of a symmetric (m, m) matrix in contiguous tiles: half the work, and each fits the cache."""

    spans: tuple[tuple[slice, slice], ...]
    values: tuple[Tensor, ...]

    @classmethod
    def of(cls, A: Tensor) -> _Tiles:
        cuts = [slice(start, min(start + TILE, len(A))) for start in range(0, len(A), TILE)]
        spans = tuple((rows, columns) for i, rows in enumerate(cuts) for columns in cuts[i:])
        return cls(spans, tuple(A[rows, columns].contiguous() for rows, columns in spans))

    def exponential(self, scale: float, out: _Tiles) -> _Tiles:
        """exp(-scale · A), written over `out`."""
        for value, target in zip(self.values, out.values, strict=True):
            torch.mul(value, -scale, out=target).exp_()
        return out

    def product(self, u: Tensor) -> Tensor:
        """A u for (m, k)."""
        total = torch.zeros_like(u)
        for (rows, columns), value in zip(self.spans, self.values, strict=True):
            total[rows].addmm_(value, u[columns])
            if rows != columns:
                total[columns].addmm_(value.mT, u[rows])
        return total

    def whole(self) -> Tensor:
        m = self.spans[-1][0].stop
        A = self.values[0].new_empty(m, m)
        for (rows, columns), value in zip(self.spans, self.values, strict=True):
            A[rows, columns], A[columns, rows] = value, value.mT
        return A


@dataclass(frozen=True)
class _System:
    """G u = c at one scale, from the similarities Z of all items but the first and c = 1 - Z_0, (n - 1, 1)."""

    Z: _Tiles
    c: Tensor

    def product(self, u: Tensor) -> Tensor:
        """G u for (n - 1, k), without forming G."""
        total = u.sum(0, keepdim=True)
        return self.Z.product(u).addmm_(self.c, total).add_(self.c.mT @ u - total)

    def gram(self) -> Tensor:
        return self.Z.whole().add_(self.c).add_(self.c.mT - 1)


class _Anchor:
    """The factorised system of one scale: solves it, and preconditions those nearby."""

    def __init__(self, system: _System) -> None:
        self.factor, failed = torch.linalg.cholesky_ex(system.gram())
        self.singular = bool(failed)
        self.trace = float(system.c.sum())  # half of that of G

    def solve(self, r: Tensor, system: _System) -> Tensor:
        """G⁻¹ r for the system of the anchor; for another, that of its G shrunk to the same trace."""
        half = torch.linalg.solve_triangular(self.factor, r, upper=False)  # faster than cholesky_solve
        solved: Tensor = torch.linalg.solve_triangular(self.factor.mT, half, upper=True)
        return solved * (self.trace / float(system.c.sum()))


@contextmanager
def _one_thread(D: Tensor) -> Iterator[None]:
    """One thread of torch for small sets on a CPU: thousands of short operations that threads would only wait for."""
    threads = torch.get_num_threads()
    alone = D.device.type == "cpu" and len(D) <= ONE_THREAD_UP_TO and threads > 1
    if alone:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if alone:
            torch.set_num_threads(threads)


def _iterative(D: Tensor, scales: Sequence[float]) -> Tensor:
    """Magnitudes of a set of negative type, each from the factor and the solutions of scales before it."""
    anchor: _Anchor | None = None
    solutions: list[Tensor] = []
    farthest = float(D.max())
    among = _Tiles.of(D[1:, 1:])
    buffer = _Tiles(among.spans, tuple(torch.empty_like(value) for value in among.values))
    found = torch.empty(len(scales), dtype=torch.float64, device=D.device)
    # Downwards: factors stay close for longer where similarities are small.
    for k in sorted(range(len(scales)), key=lambda k: -scales[k]):
        t, scale = float(scales[k]), torch.tensor([scales[k]], dtype=D.dtype, device=D.device)
        if t * farthest < SMALL:
            found[k] = _dense(D, scale)[0]
            continue
        system = _System(among.exponential(t, buffer), -torch.expm1(-t * D[1:, :1]))
        solved = None if anchor is None else _conjugate_gradients(system, anchor, solutions)
        if solved is None:
            anchor = _Anchor(system)
            if anchor.singular:
                found[k], anchor = _dense(D, scale)[0], None
                continue
            u = anchor.solve(system.c, system)
            solved = u, (system.c * u).sum()
        solutions = [*solutions[1 - SOLUTIONS :], solved[0]]
        found[k] = _checked_total(solved[1][None], scale)
    return found


def _conjugate_gradients(system: _System, anchor: _Anchor, solutions: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """u with G u = c, and cᵀu, to where the magnitude no longer changes; None where the anchor is too far for that."""
    basis = torch.linalg.qr(torch.cat(solutions, dim=1)).Q
    products = system.product(basis)
    y = torch.linalg.lstsq(basis.mT @ products, basis.mT @ system.c).solution
    u, r = basis @ y, system.c - products @ y
    z = anchor.solve(r, system)
    p, rho = z, float((r * z).sum())
    for _ in range(STEPS):
        q = ((system.c + r) * u).sum()  # 2 cᵀu - uᵀGu, of which the solution's is larger by rᵀG⁻¹r
        if rho <= TOLERANCE * (1 - float(q)):
            return u, q
        Gp = system.product(p)
        step = rho / float((p * Gp).sum())
        u, r = u + step * p, r - step * Gp
        z = anchor.solve(r, system)
        rho, before = float((r * z).sum()), rho
        p = z + (rho / before) * p
    return None
