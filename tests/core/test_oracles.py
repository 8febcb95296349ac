"""Stored values computed elsewhere and printed values of the papers: 1e-10 in float64, 2e-5 in float32."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import condvne as cv
from tests.references import GaussianPair, double, oracles, renyi, table_of_counts

ORACLES = oracles()
PEERS = ORACLES["from_papers_and_peers"]
PRECISIONS = [(torch.float64, 1e-10), (torch.float32, 2e-5)]
precisions = pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["float64", "float32"])


def assert_near(value: Tensor, expected: Any, tolerance: float) -> None:
    torch.testing.assert_close(value.detach().double(), double(expected), rtol=tolerance, atol=0.0)


@precisions
@pytest.mark.parametrize("entry", ORACLES["conditional_gaussian"], ids=["uniform", "weighted 8", "weighted 10"])
def test_conditional_gaussian(entry: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    x, y, weights = (torch.tensor(entry[key], dtype=dtype) for key in ("x", "y", "weights"))
    kernel_x, kernel_y = cv.Gaussian(bandwidth=entry["bandwidth_x"]), cv.Gaussian(bandwidth=entry["bandwidth_y"])
    for name, expected in entry["orders"].items():
        order = float(name)
        of_x = cv.entropy(x, kernel=kernel_x, order=order, weights=weights)
        of_y = cv.entropy(y, kernel=kernel_y, order=order, weights=weights)
        given = cv.conditional_entropy(x, y, kernel_x=kernel_x, kernel_y=kernel_y, order=order, weights=weights)
        assert {v.dtype for v in (of_x, of_y, given)} == {dtype}
        assert_near(of_x, expected["H_X"], tolerance)
        assert_near(of_y, expected["H_Y"], tolerance)
        assert_near(of_x.double() + given.double(), expected["H_XY"], tolerance)
        assert_near(given, expected["H_Y_given_X"], tolerance)


def many(x: Tensor, weights: Tensor, copies: int = 100) -> tuple[Tensor, Tensor]:
    """Every point many times with its weight shared out: the same entropies from n beyond the dense route."""
    return x.repeat_interleave(copies, dim=0), weights.repeat_interleave(copies) / copies


@pytest.mark.parametrize("entry", ORACLES["conditional_gaussian"], ids=["uniform", "weighted 8", "weighted 10"])
@pytest.mark.parametrize("method", ["lanczos", "sketch"])
def test_conditional_gaussian_within_the_error_that_the_route_states(
    entry: dict[str, Any], method: Literal["lanczos", "sketch"]
) -> None:
    weights = double(entry["weights"])
    (x, w), (y, _) = (many(double(entry[key]), weights) for key in ("x", "y"))
    for name, expected in entry["orders"].items():
        found = cv.conditional_entropy(
            x,
            y,
            kernel_x=cv.Gaussian(entry["bandwidth_x"]),
            kernel_y=cv.Gaussian(entry["bandwidth_y"]),
            order=float(name),
            weights=w,
            method=method,
            details=True,
        )
        # Tiles are float32: at order 1/2 eigenvalues of that size count as their roots.
        rounding = 1e-3 if name == "0.5" else 1e-5
        error = (4 if method == "sketch" else 3) * float(found.standard_error) + rounding
        assert found.method == ("exact" if method == "lanczos" and name == "2" else method)  # a closed form
        assert float(found.lower) - error <= expected["H_Y_given_X"] <= float(found.upper) + error
        if method == "lanczos":
            assert float(found.value) == pytest.approx(expected["H_Y_given_X"], abs=2e-3)


@pytest.mark.parametrize("entry", ORACLES["delta_kernel_tables"], ids=lambda entry: str(np.shape(entry["table"])))
def test_delta_kernel_by_products_with_the_matrix(entry: dict[str, Any]) -> None:
    x, y, counts = table_of_counts(np.array(entry["table"]))
    (x, w), (y, _) = (many(side, double(counts / counts.sum()), 60) for side in (x, y))
    for order, name in ((1.0, "H1_Y_given_X"), (2.0, "H2_Y_given_X")):
        value = cv.conditional_entropy(
            x, y, kernel_x="delta", kernel_y="delta", order=order, weights=w, method="lanczos"
        )
        assert_near(value, entry[name], 1e-5)


@pytest.mark.parametrize("weighted", [False, True], ids=["repeated rows", "weighted cells"])
@pytest.mark.parametrize("entry", ORACLES["delta_kernel_tables"], ids=lambda entry: str(np.shape(entry["table"])))
def test_delta_kernel_is_the_entropy_of_the_table(entry: dict[str, Any], weighted: bool) -> None:
    x, y, counts = table_of_counts(np.array(entry["table"]))
    weights = double(counts / counts.sum())
    repeats = torch.as_tensor(counts)
    if not weighted:
        x, y = x.repeat_interleave(repeats, dim=0), y.repeat_interleave(repeats, dim=0)
    for order, name in ((1.0, "H1_Y_given_X"), (2.0, "H2_Y_given_X")):
        value = cv.conditional_entropy(
            x, y, kernel_x="delta", kernel_y="delta", order=order, weights=weights if weighted else None
        )
        assert_near(value, entry[name], 1e-10)


@pytest.mark.parametrize("entry", ORACLES["gaussian_population"], ids=lambda e: f"correlation {e['correlation']}")
def test_gaussian_population_is_approached_from_below(entry: dict[str, Any]) -> None:
    pair = GaussianPair(entry["std_x"], entry["std_y"], entry["correlation"], entry["bandwidth"])
    kernel = cv.Gaussian(bandwidth=pair.bandwidth)
    x, y = pair.sample(20, 320)
    for order in (1.0, 2.0):
        population = entry[f"population_H{order:.0f}_Y_given_X"]
        assert pair.conditional(order) == pytest.approx(population, rel=1e-12)
        assert pair.marginal(order) == pytest.approx(entry[f"population_H{order:.0f}_X"], rel=1e-12)
        means, errors = [], []
        for n in (20, 40, 80, 160, 320):
            # The same points at every n, cut into more sets where n is smaller.
            sets = [side.reshape(-1, n, 1) for side in (x, y)]
            values = cv.conditional_entropy(*sets, kernel_x=kernel, kernel_y=kernel, order=order)
            means.append(float(values.mean()))
            errors.append(float(values.std()) / math.sqrt(len(values)))
        gaps = [population - mean for mean in means]
        assert means == sorted(means)
        assert all(gap > -2 * error for gap, error in zip(gaps, errors, strict=True))
        assert gaps[-1] < 0.15 * gaps[0]
        assert gaps[-1] < 0.03 * population + 2 * errors[-1]


@precisions
@pytest.mark.parametrize("entry", ORACLES["gradients"], ids=["distinct", "repeated eigenvalues"])
def test_gradients(entry: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    for name, expected in entry["gradient"].items():
        x = torch.tensor(entry["x"], dtype=dtype, requires_grad=True)
        value = cv.entropy(x, kernel=cv.Gaussian(bandwidth=entry["bandwidth"]), order=float(name))
        (gradient,) = torch.autograd.grad(value, x)
        largest = np.abs(expected).max()
        torch.testing.assert_close(gradient.double(), double(expected), rtol=tolerance, atol=tolerance * largest)


@precisions
def test_vendi_of_three_points(dtype: torch.dtype, tolerance: float) -> None:
    entry = PEERS["vendi_K3"]
    for order, expected in entry["order"].items():
        value = cv.entropy_from_gram(torch.tensor(entry["K"], dtype=dtype), order=float(order)).exp()
        assert_near(value, expected, tolerance)


@precisions
def test_conditional_entropy_and_mutual_information_of_three_points(dtype: torch.dtype, tolerance: float) -> None:
    entry = PEERS["conditional_K3_KY"]
    K_X, K_Y = torch.tensor(entry["K_X"], dtype=dtype), torch.tensor(entry["K_Y"], dtype=dtype)

    def entropies(order: float) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(cv.entropy_from_gram(K, order=order).double() for K in (K_X, K_Y, K_X * K_Y))  # type: ignore[return-value]

    printed = 6e-13  # twelve decimals
    for order, expected in entry["H_Y_given_X"].items():
        of_x, _, joint = entropies(float(order))
        assert_near(joint - of_x, expected, max(tolerance, printed / expected))
    for order, expected in entry["mutual_information"].items():
        of_x, of_y, joint = entropies(float(order))
        assert_near(of_x + of_y - joint, expected, max(tolerance, printed / expected))


def test_the_same_three_points_through_features() -> None:
    entry = PEERS["conditional_K3_KY"]
    x, y = (torch.linalg.cholesky(double(entry[key])) for key in ("K_X", "K_Y"))
    for order, expected in entry["H_Y_given_X"].items():
        value = cv.conditional_entropy(x, y, kernel_x="cosine", kernel_y="cosine", order=float(order))
        assert_near(value, expected, 1e-10)
    for order, expected in entry["mutual_information"].items():
        value = cv.mutual_information(x, y, kernel_x="cosine", kernel_y="cosine", order=float(order))
        assert_near(value, expected, 1e-10)


@precisions
def test_equicorrelated_points(dtype: torch.dtype, tolerance: float) -> None:
    entry = PEERS["equicorrelated"]
    K = torch.full((entry["n"], entry["n"]), entry["off_diagonal"], dtype=dtype).fill_diagonal_(1.0)
    for order, expected in entry["vendi"].items():
        assert_near(cv.entropy_from_gram(K, order=float(order)).exp(), expected, max(tolerance, 2e-13))


def test_vendi_of_order_half_as_printed() -> None:
    entry = PEERS["paper_B_vendi_order_half"]
    for matrix, printed in (("K", "vendi"), ("K_less_similar", "vendi_less_similar")):
        value = cv.entropy_from_gram(double(entry[matrix]), order=0.5).exp()
        assert round(float(value), entry["digits"]) == entry[printed]


@precisions
@pytest.mark.parametrize(("groups", "outputs"), [(1, 5), (4, 3), (5, 1)])
def test_orthogonal_outputs_count_themselves(groups: int, outputs: int, dtype: torch.dtype, tolerance: float) -> None:
    x = torch.eye(groups, dtype=dtype).repeat_interleave(outputs, dim=0)
    y = torch.eye(groups * outputs, dtype=dtype)
    options: dict[str, Any] = {"kernel_x": "cosine", "kernel_y": "cosine"}
    assert_near(cv.conditional_vendi(x, y, **options), outputs, tolerance)
    assert_near(cv.conditional_rke(x, y, **options), outputs, tolerance)


@precisions
def test_duplicate_of_two_orthogonal_points(dtype: torch.dtype, tolerance: float) -> None:
    entry = PEERS["duplicate_of_two_orthogonal"]
    for order in (0.5, 1.0, 2.0, 3.0, math.inf):
        value = cv.entropy_from_gram(torch.tensor(entry["K"], dtype=dtype), order=order)
        assert_near(value, renyi(entry["eigenvalues_over_n"], order), tolerance)
