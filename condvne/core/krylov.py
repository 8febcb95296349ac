"""Krylov spaces of a density matrix A: leading eigenpairs, tridiagonal recurrences, and the bounds they give.

Let f be operator concave on [0, 1] with f(0) = 0, and g(x) = f(x)/x operator convex: f = -x log x, and
(x^α - x)/(1 - α) for 0 < α < 2. Let W have orthonormal columns, z lie in their span, M = WᵀAW and S = WᵀA²W. Then

    zᵀ f(A) z  ≤  cᵀ f(M) c,                   c = Wᵀz                         (Jensen's operator inequality)
    zᵀ f(A) z  ≥  cᵀ M^½ g(N) M^½ c,           N = M^-½ S M^-½                 (the same, for g on A^½ W)

The second is f of the Nyström approximation AW M⁻¹ WᵀA. Where W is the Krylov space of z they are the Gauss rule
and the Gauss-Radau rule with the node 0. Here W = [U, Q]: approximate leading eigenvectors U, and the Krylov space
of PAP from z, P = I - UUᵀ. Leading eigenvalues then cost no steps of the recurrence, and the coupling UᵀAQ of an
imperfect U is part of both bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SpectralMap = Callable[[Tensor], Tensor]

NEGLIGIBLE = 1e-13  # relative to the largest eigenvalue: lengths below it are rounding, the space is exhausted


@dataclass(frozen=True)
class Leading:
    """Ritz values θ (k,), descending, and UᵀA²U (k, k), of Ritz vectors U; on the CPU."""

    values: Tensor
    second: Tensor

    def rest_square(self, purity: float) -> float:
        """tr (PAP)² for P = I - UUᵀ, from tr A²."""
        return max(purity - 2 * float(torch.trace(self.second)) + float(self.values.square().sum()), 0.0)

    def nystrom_values(self) -> Tensor:
        """Eigenvalues (k,) of the Nyström approximation AU (UᵀAU)⁻¹ UᵀA ≤ A, ascending; none below its θ."""
        root = self.values.sqrt()
        values: Tensor = torch.linalg.eigvalsh(self.second / root[:, None] / root)
        return values

    def residual_sizes(self) -> Tensor:
        """Singular values (k,) of AU - U diag(θ)."""
        squares: Tensor = torch.linalg.eigvalsh(self.second - torch.diag(self.values.square()))
        return squares.clamp(min=0).sqrt()

    def bounds(self, f: SpectralMap, g: SpectralMap, noise: float) -> tuple[Tensor, Tensor]:
        """Lower and upper bound of tr Uᵀ f(A) U."""
        ends = torch.eye(self.values.shape[0], dtype=torch.float64)
        lower, upper = _bounds(torch.diag(self.values), self.second, ends, f, g, noise)
        return lower.sum(), upper.sum()


@dataclass(frozen=True)
class Deflation:
    """Approximate leading eigenpairs: orthonormal U and AU, (n, k) each, and what they project to."""

    vectors: Tensor
    images: Tensor
    leading: Leading


class BlockKrylov:
    """The block Krylov space of A from a random start, one product a block, and its Rayleigh-Ritz pairs.

    With X all blocks so far and X' one more, A X = X' H: images are not kept, H gives them back.
    """

    def __init__(self, start: Tensor) -> None:
        self._bases = [_orthonormal(start, 0.0)]
        self._columns: list[Tensor] = []  # of H, a block each, on the CPU

    @property
    def block(self) -> Tensor | None:
        """The vectors (n, b) to be multiplied by A next; None once the space is invariant."""
        return None if self.depth == len(self._bases) else self._bases[-1]

    @property
    def depth(self) -> int:
        return len(self._columns)

    @property
    def dimension(self) -> int:
        return sum(column.shape[1] for column in self._columns)

    def absorb(self, image: Tensor) -> None:
        """Take A · block and prepare the next block."""
        fresh, threshold = image, NEGLIGIBLE * float(torch.linalg.matrix_norm(image))
        for _ in range(2):  # short directions lose their orthogonality when they are scaled up
            for basis in self._bases:
                fresh = fresh - basis @ (basis.mT @ fresh)
            fresh, threshold = _orthonormal(fresh, threshold), 0.5
        if fresh.shape[1] > 0:
            self._bases.append(fresh)
        self._columns.append(torch.cat([basis.mT @ image for basis in self._bases]).cpu())

    def leading(self, count: int, floor: float = -math.inf) -> Leading:
        """At most `count` leading Ritz values, those above the floor."""
        return self._rayleigh_ritz(count, floor)[0]

    def deflation(self, leading: Leading) -> Deflation:
        """The Ritz vectors of as many leading values; the blocks are given up, for their memory."""
        _, rotation, images = self._rayleigh_ritz(leading.values.shape[0], -math.inf)
        found = Deflation(self._combined(rotation), self._combined(images), leading)
        self._bases.clear()
        return found

    def _rayleigh_ritz(self, count: int, floor: float) -> tuple[Leading, Tensor, Tensor]:
        """Leading values, and the coordinates of U in X and of AU in X'."""
        size = max(column.shape[0] for column in self._columns)
        H = torch.cat([torch.nn.functional.pad(c, (0, 0, 0, size - c.shape[0])) for c in self._columns], dim=1)
        first = H[: H.shape[1]]
        values, vectors = torch.linalg.eigh((first + first.mT) / 2)
        kept = min(count, int((values > floor).sum()))
        rotation = vectors.flip(1)[:, :kept]
        images = H @ rotation
        return Leading(values.flip(0)[:kept], images.mT @ images), rotation, images

    def _combined(self, coordinates: Tensor) -> Tensor:
        basis = self._bases[0]
        total = basis.new_zeros(basis.shape[0], coordinates.shape[1])
        start = 0
        for basis in self._bases:
            rows = coordinates[start : start + basis.shape[1]]
            if rows.shape[0] > 0:
                total += basis[:, : rows.shape[0]] @ rows.to(basis.device)
            start += basis.shape[1]
        return total


class ProbeRecurrence:
    """Lanczos recurrences of PAP from many vectors at once, independent of each other, fully reorthogonalised.

    Args:
        deflation: U, which defines P = I - UUᵀ.
        probes: (n, m), projected here; the trace of P f(A) P is the mean of z_perpᵀ f(A) z_perp over them.
        dtype: in which the vectors of the recurrences are kept: that of the products is as good as any.
    """

    def __init__(self, deflation: Deflation, probes: Tensor, dtype: torch.dtype = torch.float64) -> None:
        self.deflation, self.dtype = deflation, dtype
        U = deflation.vectors
        z = probes - U @ (U.mT @ probes)
        z = z - U @ (U.mT @ z)
        self.probes = z
        self.lengths = torch.linalg.vector_norm(z, dim=0)  # (m,)
        self._bases = [_divided(z, self.lengths, torch.zeros_like(self.lengths)).to(dtype)]
        self._diagonal: list[Tensor] = []
        self._off_diagonal: list[Tensor] = []
        self._couplings: list[Tensor] = []  # UᵀA q_j, (k, m) each

    @property
    def steps(self) -> int:
        return len(self._diagonal)

    @property
    def count(self) -> int:
        return self.probes.shape[1]

    @property
    def vectors(self) -> Tensor:
        """What is to be multiplied by A next, (n, m), float64."""
        return self._bases[-1].to(torch.float64)

    def absorb(self, images: Tensor) -> None:
        """Take A · vectors: one step of every recurrence."""
        U = self.deflation.vectors
        coupling = U.mT @ images
        rest = images - U @ coupling
        alpha = torch.zeros_like(self.lengths)
        for sweep in range(2):
            for basis in reversed(self._bases):
                overlap = (basis * rest).sum(0)
                rest = rest - basis * overlap
                if sweep == 0 and basis is self._bases[-1]:
                    alpha = overlap
            rest = rest - U @ (U.mT @ rest)
        beta = torch.linalg.vector_norm(rest, dim=0)
        threshold = NEGLIGIBLE * torch.linalg.vector_norm(images, dim=0)
        self._couplings.append(coupling)
        self._diagonal.append(alpha)
        self._off_diagonal.append(torch.where(beta > threshold, beta, 0.0))
        self._bases.append(_divided(rest, beta, threshold).to(self.dtype))

    @property
    def leading(self) -> Leading:
        return self.deflation.leading

    def joined(self, other: ProbeRecurrence) -> ProbeRecurrence:
        """The recurrences of both, which must have taken equally many steps from the same deflation."""
        both = ProbeRecurrence.__new__(ProbeRecurrence)
        both.deflation, both.dtype = self.deflation, self.dtype
        both.probes = torch.cat([self.probes, other.probes], dim=1)
        both.lengths = torch.cat([self.lengths, other.lengths])
        both._bases = [torch.cat(pair, dim=-1) for pair in zip(self._bases, other._bases, strict=True)]
        both._diagonal = [torch.cat(pair) for pair in zip(self._diagonal, other._diagonal, strict=True)]
        both._off_diagonal = [torch.cat(pair) for pair in zip(self._off_diagonal, other._off_diagonal, strict=True)]
        both._couplings = [torch.cat(pair, dim=-1) for pair in zip(self._couplings, other._couplings, strict=True)]
        return both

    def tridiagonal(self) -> Tensor:
        """T, (m, s, s), on the CPU."""
        T: Tensor = self._extended(self.steps)[:, :-1]
        return T

    def moments(self) -> Tensor:
        """zᵀPz, zᵀPAPz and zᵀ(PAP)²z of each probe, (m, 3), on the CPU."""
        square = self.lengths.square()
        first = square * self._diagonal[0]
        second = square * (self._diagonal[0].square() + self._off_diagonal[0].square())
        return torch.stack([square, first, second], dim=1).cpu()

    def bounds(self, f: SpectralMap, g: SpectralMap, noise: float, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """Lower and upper bound of zᵀ P f(A) P z for each probe, (m,), on the CPU, after some of the steps."""
        M, S, V = self._reduced(steps or self.steps)
        return self._bounds_from(M, S, V.shape[-1], f, g, noise)

    def compressed_bounds(self, f: SpectralMap, g: SpectralMap, noise: float) -> tuple[Tensor, Tensor]:
        """Radau and Gauss rule of zᵀ f(PAP) z for each probe, (m,), on the CPU, whatever the function."""
        T = self._extended(self.steps)
        return self._bounds_from(T[:, :-1], T.mT @ T, 0, f, g, noise)

    def _bounds_from(
        self, M: Tensor, S: Tensor, at: int, f: SpectralMap, g: SpectralMap, noise: float
    ) -> tuple[Tensor, Tensor]:
        ends = torch.zeros(*M.shape[:-1], 1, dtype=torch.float64)
        ends[:, at, 0] = self.lengths.cpu()
        lower, upper = _bounds(M, S, ends, f, g, noise)
        return lower.squeeze(-1), upper.squeeze(-1)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Nodes (m, s) and weights (m, s) of the Gauss rule of PAP, on the CPU; weights sum to zᵀPz."""
        nodes, vectors = torch.linalg.eigh(self.tridiagonal())
        weights = vectors[:, 0].square() * self.lengths.cpu()[:, None].square()
        return nodes, weights

    def images(self) -> Tensor:
        """PAP z of each probe, (n, m)."""
        image = self._bases[0] * self._diagonal[0] + self._bases[1] * self._off_diagonal[0]
        scaled: Tensor = image * self.lengths
        return scaled

    def applied(self, h: SpectralMap) -> tuple[Tensor, Tensor]:
        """h(A) z as U a + Q b: its parts a (k, m) and Q b (n, m)."""
        T, C = self._extended(self.steps), self._coupled(self.steps)
        k = C.shape[1]
        M = _symmetric(torch.diag(self.leading.values).expand(C.shape[0], -1, -1), C[..., :-1], T[:, :-1])
        values, vectors = torch.linalg.eigh(M)
        coefficients = (vectors * (h(values) * vectors[:, k])[:, None]).sum(-1) * self.lengths.cpu()[:, None]
        coefficients = coefficients.to(self.lengths.device)
        along = torch.zeros_like(self.probes)
        for j, basis in enumerate(self._bases[:-1]):
            along += basis * coefficients[:, k + j]
        return coefficients[:, :k].mT, along

    def _extended(self, s: int) -> Tensor:
        """T with the row β below it, (m, s + 1, s), on the CPU: A Q = Q' T' + U C with one more vector in Q'."""
        alpha = torch.stack(self._diagonal[:s], dim=1).cpu()
        beta = torch.stack(self._off_diagonal[:s], dim=1).cpu()
        T = torch.zeros(alpha.shape[0], s + 1, s, dtype=torch.float64)
        T[:, range(s), range(s)] = alpha
        T[:, range(1, s + 1), range(s)] = beta
        T[:, range(s - 1), range(1, s)] = beta[:, :-1]
        return T

    def _coupled(self, s: int) -> Tensor:
        """UᵀA Q' (m, k, s + 1), on the CPU."""
        couplings = self._couplings[: s + 1]
        if s == self.steps:  # for the vector not yet multiplied
            couplings = [*couplings, self.deflation.images.mT @ self._bases[-1].to(torch.float64)]
        return torch.stack(couplings, dim=-1).movedim(1, 0).cpu()

    def _reduced(self, s: int) -> tuple[Tensor, Tensor, Tensor]:
        """M, S (m, r + s, r + s) for W = [UV, Q], and V (m, k, r), on the CPU, from what the recurrence knows.

        V spans C and C/θ, the directions to which Q couples: bounds hold for any V, and with these they are within
        a thousandth of their width of those with all of U, at a size that does not grow with k.
        """
        T, C = self._extended(s), self._coupled(s)
        theta, inner = self.leading.values, C[..., :-1]
        V = torch.linalg.qr(torch.cat([inner, inner / theta[:, None]], dim=-1))[0]
        across = theta[:, None] * inner + C @ T
        M = _symmetric(V.mT @ (theta[:, None] * V), V.mT @ inner, T[:, :-1])
        S = _symmetric(V.mT @ self.leading.second @ V, V.mT @ across, T.mT @ T + inner.mT @ inner)
        return M, S, V


def _symmetric(corner: Tensor, across: Tensor, inner: Tensor) -> Tensor:
    return torch.cat([torch.cat([corner, across], dim=-1), torch.cat([across.mT, inner], dim=-1)], dim=-2)


def _bounds(M: Tensor, S: Tensor, ends: Tensor, f: SpectralMap, g: SpectralMap, noise: float) -> tuple[Tensor, Tensor]:
    """Both bounds of zᵀ f(A) z for the columns of `ends` (coordinates of z in W); directions below noise count 0."""
    values, vectors = torch.linalg.eigh(M)
    coordinates = vectors.mT @ ends
    upper = (coordinates.square() * f(values.clamp(min=0))[..., None]).sum(-2)
    kept = values > noise
    root = torch.where(kept, values, 0.0).clamp(min=0).sqrt()
    inverse = torch.where(kept, 1 / torch.where(kept, root, 1.0), 0.0)
    N = inverse[..., :, None] * (vectors.mT @ S @ vectors) * inverse[..., None, :]
    nodes, turned = torch.linalg.eigh((N + N.mT) / 2)
    weights = (turned.mT @ (root[..., None] * coordinates)).square()
    heights = torch.where(nodes > noise, g(nodes.clamp(min=noise)), 0.0)
    lower = (weights * heights[..., None]).sum(-2)
    return lower, upper


def _orthonormal(block: Tensor, threshold: float) -> Tensor:
    """An orthonormal basis of the columns' span, directions shorter than the threshold dropped."""
    for _ in range(2):
        if block.shape[1] == 0:
            break
        values, vectors = torch.linalg.eigh((block.mT @ block).cpu())
        kept = values > max(threshold**2, NEGLIGIBLE * float(values[-1]))
        block = block @ (vectors[:, kept] / values[kept].sqrt()).to(block.device)
        threshold = 0.0
    return block


def _divided(vectors: Tensor, lengths: Tensor, threshold: Tensor) -> Tensor:
    """Columns of unit length; zero where the length is within rounding."""
    alive = lengths > threshold
    return torch.where(alive, vectors / torch.where(alive, lengths, 1.0), 0.0)
