"""Problems with known answers, and plain NumPy forms of the definitions: what the package is checked against."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import condvne as cv

Array = npt.NDArray[np.float64]

ORDERS = (0.0, 0.25, 0.5, 1.0, 1 + 1e-9, 1.2, 2.0, 3.0, 50.0, math.inf)
SMOOTH_ORDERS = ORDERS[1:]  # order 0 counts the rank and has no derivative
KERNELS: dict[str, cv.Kernel] = {
    "gaussian": cv.Gaussian(bandwidth=1.3),
    "laplacian": cv.Laplacian(bandwidth=1.7),
    "cosine": cv.Cosine(),
    "polynomial": cv.Polynomial(),
    "delta": cv.Delta(),
}
SMOOTH_KERNELS = {name: kernel for name, kernel in KERNELS.items() if name != "delta"}


def oracles() -> dict[str, Any]:
    """Values computed elsewhere, as stored."""
    values: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "oracles.json").read_text())
    return values


def double(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def points(n: int, d: int, seed: int, *batch: int) -> Tensor:
    """Standard normal rows (*batch, n, d) in float64."""
    return torch.randn(*batch, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_weights(n: int, seed: int) -> Tensor:
    """Unequal weights (n,) that sum to one."""
    return torch.softmax(points(n, 1, seed).squeeze(-1), dim=0)


def renyi(probabilities: Any, order: float) -> float:
    """Rényi entropy of a distribution in nats; Shannon's at order 1."""
    p = np.asarray(probabilities, dtype=np.float64).ravel()
    p = p[p > 0]
    if order == 1:
        return float(-(p * np.log(p)).sum())
    if math.isinf(order):
        return float(-np.log(p.max()))
    if abs(order - 1) < 1e-3:  # the direct form cancels here
        return float(np.log1p((p * np.expm1((order - 1) * np.log(p))).sum()) / (1 - order))
    scaled = p / p.max()  # p**50 would underflow
    return float((order * np.log(p.max()) + np.log((scaled**order).sum())) / (1 - order))


def gram_by_rows(kernel: str, x: Array, z: Array) -> Array:
    """The kernels of `KERNELS` by their formulas, pair by pair."""

    def polynomial(a: Array, b: Array) -> float:
        return float((a @ b + 1.0) ** 3)

    def value(a: Array, b: Array) -> float:
        if kernel == "gaussian":
            return math.exp(-float(((a - b) ** 2).sum()) / (2 * 1.3**2))
        if kernel == "laplacian":
            return math.exp(-float(np.abs(a - b).sum()) / 1.7)
        if kernel == "cosine":
            return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        if kernel == "polynomial":
            return polynomial(a, b) / math.sqrt(polynomial(a, a) * polynomial(b, b))
        return float(np.array_equal(a, b))

    return np.array([[value(a, b) for b in z] for a in x])


def entropy_by_numpy(K: Array, order: float, weights: Array | None = None) -> float:
    """H_α of diag(√w) K diag(√w) from NumPy's eigenvalues, rounding cut off."""
    n = len(K)
    root = np.sqrt(np.full(n, 1 / n) if weights is None else weights)
    eigenvalues = np.linalg.eigvalsh(root[:, None] * K * root[None, :])
    return renyi(np.where(eigenvalues > 1e-13, eigenvalues, 0.0), order)


def median_by_numpy(x: Array, norm: int = 2) -> float:
    """Median of the positive pairwise distances."""
    distances = [float(np.linalg.norm(a - b, ord=norm)) for i, a in enumerate(x) for b in x[i + 1 :]]
    return float(np.median([d for d in distances if d > 0]))


@dataclass(frozen=True)
class Problem:
    """Points whose spectrum is known: the entropy of order α is that of the distribution `spectrum`.

    `conditional`, where given, is the pair of known spectra (joint, marginal of x).
    """

    name: str
    x: Tensor
    spectrum: Sequence[float]
    kernel: cv.Kernel | str
    weights: Tensor | None = None

    def entropy(self, order: float) -> float:
        return renyi(self.spectrum, order)


@dataclass(frozen=True)
class PairProblem:
    """Pairs whose joint and marginal spectra are known."""

    name: str
    x: Tensor
    y: Tensor
    joint: Sequence[float]
    marginal_x: Sequence[float]
    marginal_y: Sequence[float]
    kernel: cv.Kernel | str = "cosine"
    weights: Tensor | None = field(default=None)

    def conditional(self, order: float) -> float:
        return renyi(self.joint, order) - renyi(self.marginal_x, order)

    def mutual_information(self, order: float) -> float:
        return renyi(self.marginal_x, order) + renyi(self.marginal_y, order) - renyi(self.joint, order)


def problems() -> list[Problem]:
    eye = torch.eye(6, dtype=torch.float64)
    sizes = (1, 2, 5)
    blocks = torch.cat([eye[i].expand(size, 6) for i, size in enumerate(sizes)])
    w = double([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    c, weights = 0.6, double([0.3, 0.7])
    root = math.sqrt(1 - 4 * 0.3 * 0.7 * (1 - c**2))
    shared = torch.cat([eye[:5, :5], torch.ones(5, 1, dtype=torch.float64)], dim=1)  # cosine 1/2 between any two
    return [
        Problem("identical", torch.ones(7, 3, dtype=torch.float64), [1.0], "gaussian"),
        Problem("one point", double([[3.0, -1.0]]), [1.0], "gaussian"),
        Problem("orthogonal", eye, [1 / 6] * 6, "cosine"),
        Problem("orthogonal, more columns", torch.eye(6, 9, dtype=torch.float64), [1 / 6] * 6, "cosine"),
        Problem("far apart", 100 * eye, [1 / 6] * 6, cv.Gaussian(bandwidth=1.0)),
        Problem("equal blocks", eye[:3].repeat(4, 1), [1 / 3] * 3, "cosine"),
        Problem("unequal blocks", blocks, [size / 8 for size in sizes], "cosine"),
        Problem("weighted", eye, w.tolist(), "cosine", w),
        Problem("weighted labels", torch.arange(6).unsqueeze(-1), w.tolist(), "delta", w),
        Problem("two points", double([[1, 0], [c, 0.8]]), [(1 + root) / 2, (1 - root) / 2], "cosine", weights),
        Problem("equicorrelated", shared, [3 / 5] + [1 / 10] * 4, "cosine"),
        Problem("simplex", shared, [(1 + 4 * math.exp(-1)) / 5] + [(1 - math.exp(-1)) / 5] * 4, cv.Gaussian(1.0)),
    ]


def pair_problems() -> list[PairProblem]:
    eye = torch.eye(6, dtype=torch.float64)
    groups, outputs = 3, 4
    conditions = eye[:groups].repeat_interleave(outputs, dim=0)
    distinct = torch.eye(groups * outputs, dtype=torch.float64)
    constant = torch.ones(6, 2, dtype=torch.float64)
    table = np.array([[4, 4, 6, 1], [1, 0, 4, 1], [3, 4, 0, 3]])
    x, y, counts = table_of_counts(table)
    p = counts / counts.sum()
    each, sixth = [1 / 12] * 12, [1 / 6] * 6
    return [
        PairProblem("orthogonal outputs", conditions, distinct, each, [1 / 3] * 3, each),
        PairProblem("shared outputs", conditions, eye[:outputs].repeat(groups, 1), each, [1 / 3] * 3, [1 / 4] * 4),
        PairProblem("constant condition", constant, eye, sixth, [1.0], sixth),
        PairProblem("orthogonal conditions", eye, constant, sixth, sixth, [1.0]),
        PairProblem("copied condition", conditions, conditions, [1 / 3] * 3, [1 / 3] * 3, [1 / 3] * 3),
        PairProblem(
            "weighted table",
            x,
            y,
            p.tolist(),
            (table.sum(1) / table.sum()).tolist(),
            (table.sum(0) / table.sum()).tolist(),
            "delta",
            double(p),
        ),
    ]


def table_of_counts(table: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor, npt.NDArray[np.int64]]:
    """Rows and columns of the cells that are not empty, (n, 1) each, and their counts (n,)."""
    rows, columns = np.nonzero(table)
    return torch.as_tensor(rows).unsqueeze(-1), torch.as_tensor(columns).unsqueeze(-1), table[rows, columns]


def gaussian_population(variances: Sequence[float], bandwidth: float, order: float) -> float:
    """Entropy of N(0, diag(variances)) under a Gaussian kernel, from its geometric spectrum (1 - B) B^k (Mehler)."""
    total = 0.0
    for variance in variances:
        a, b = 1 / (4 * variance), 1 / (2 * bandwidth**2)
        ratio = b / (a + b + math.sqrt(a**2 + 2 * a * b))
        if order == 1:
            total += -math.log(1 - ratio) - ratio / (1 - ratio) * math.log(ratio)
        elif math.isinf(order):
            total += -math.log(1 - ratio)
        else:
            total += (order * math.log(1 - ratio) - math.log(1 - ratio**order)) / (1 - order)
    return total


@dataclass(frozen=True)
class GaussianPair:
    """A correlated Gaussian pair under Gaussian kernels of one bandwidth: the limit of large n is known."""

    std_x: float
    std_y: float
    correlation: float
    bandwidth: float

    def sample(self, seeds: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """(seeds, n, 1) each."""
        z = points(n, 2, seed, seeds)
        mixed = self.correlation * z[..., :1] + math.sqrt(1 - self.correlation**2) * z[..., 1:]
        return self.std_x * z[..., :1], self.std_y * mixed

    def marginal(self, order: float) -> float:
        return gaussian_population([self.std_x**2], self.bandwidth, order)

    def conditional(self, order: float) -> float:
        cross = self.correlation * self.std_x * self.std_y
        covariance = np.array([[self.std_x**2, cross], [cross, self.std_y**2]])
        directions = np.linalg.eigvalsh(covariance).tolist()
        return gaussian_population(directions, self.bandwidth, order) - self.marginal(order)
