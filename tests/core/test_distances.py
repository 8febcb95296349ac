"""Distances of features against plain formulas, and what their checks refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import condvne as cv
from condvne.core.distances import checked_distances, distinct_items
from tests.references import points


def by_rows(x: Any, metric: str) -> Any:
    def value(a: Any, b: Any) -> float:
        if metric == "euclidean":
            return float(np.linalg.norm(a - b))
        if metric == "cosine":
            return 1 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        union = float(((a + b) > 0).sum())
        return 1 - float((a * b).sum()) / union if union else 0.0

    return np.array([[value(a, b) for b in x] for a in x])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "tanimoto"])
def test_against_the_formula(metric: Any) -> None:
    x = points(9, 12, 0)
    x = (x > 0.3).double() if metric == "tanimoto" else x
    x = torch.cat([x, torch.zeros(2, 12, dtype=torch.float64)]) if metric == "tanimoto" else x
    np.testing.assert_allclose(cv.distances(x, metric).numpy(), by_rows(x.numpy(), metric), rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_copies_are_at_distance_zero_and_small_distances_keep_their_digits(metric: Any) -> None:
    x = torch.cat([points(1, 300, 0)] * 2 + [points(1, 300, 0) * 3, points(1, 300, 1)]) + 100
    D = cv.distances(x, metric)
    assert D[0, 1] == 0
    angle = 1e-6
    pair = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    expected = 2 * math.sin(angle / 2) ** (2 if metric == "cosine" else 1)
    assert float(cv.distances(pair, metric)[0, 1]) == pytest.approx(expected, rel=1e-8)


def test_one_direction_at_two_lengths_is_at_cosine_distance_zero() -> None:
    x = points(1, 50, 3)
    assert cv.distances(torch.cat([x, 3 * x, 0.1 * x]), "cosine").count_nonzero() == 0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_gradient(metric: Any) -> None:
    x = points(5, 3, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: cv.distances(x, metric).sum(), (x,))


def test_gradient_between_copies_is_zero_and_not_nan() -> None:
    x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    for metric in ("euclidean", "cosine"):
        cv.distances(x, metric).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert x.grad.abs().max() == 0


def test_precision_of_the_answer() -> None:
    assert cv.distances(points(3, 2, 0).half()).dtype == torch.float32
    assert cv.distances(torch.tensor([[1, 0], [1, 1]]), "tanimoto").dtype == torch.float64


@pytest.mark.parametrize(
    ("x", "metric", "complaint"),
    [
        (torch.ones(2, 2), "hamming", "no metric 'hamming'"),
        (torch.ones(2, 2, 2), "euclidean", r"shape \(n, d\)"),
        (torch.tensor([[1.0, 0.0], [0.5, 1.0]]), "tanimoto", "rows 1; use 'cosine', or binarise"),
        (torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "cosine", "rows 1 are zero"),
        (torch.tensor([[1.0, math.nan], [0.0, 0.0]]), "euclidean", "NaN or infinite values in rows 0"),
    ],
)
def test_features_that_have_no_distances(x: Any, metric: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        cv.distances(x, metric)


def changed(i: int, j: int, value: float, both: bool = True) -> Any:
    D = 1 - torch.eye(4, dtype=torch.float64)
    D[i, j] = value
    if both:
        D[j, i] = value
    return D


BAD = [
    (torch.zeros(1, 1), "holds 1 items"),
    (torch.zeros(2, 3), "must be square"),
    (torch.zeros(4), "must be square"),
    (changed(1, 2, math.nan), "NaN or infinite values in rows 1, 2"),
    (changed(0, 3, math.inf), "NaN or infinite values in rows 0, 3"),
    (changed(0, 1, -0.5), r"negative distances at \(0, 1\), \(1, 0\)"),
    (changed(2, 3, 0.5, both=False), r"not symmetric at \(2, 3\), \(3, 2\)"),
    (changed(2, 2, 1.0), "diagonal of D is not zero in rows 2"),
    ("text", "cannot be made a tensor"),
]


@pytest.mark.parametrize(
    "score",
    [
        cv.richness,
        cv.average_distance,
        lambda D: cv.energy(D, 1.0),
        lambda D: cv.circles(D, 0.5),
        lambda D: cv.magnitude(D, 1.0),
    ],
    ids=["richness", "average distance", "energy", "circles", "magnitude"],
)
@pytest.mark.parametrize(("D", "complaint"), BAD, ids=[complaint[:20] for _, complaint in BAD])
def test_matrices_that_are_no_distances(score: Any, D: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        score(D)


def test_rounding_of_float32_is_no_asymmetry() -> None:
    x = points(40, 300, 0).float() + 3
    D = torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist")  # neither symmetric nor of zero diagonal
    D = D.masked_fill(torch.eye(40, dtype=torch.bool), 1e-4)
    D[0, 1] *= 1 + 1e-6
    assert cv.average_distance(D).dtype == torch.float32
    assert float(cv.average_distance(D)) == pytest.approx(float(cv.average_distance(cv.distances(x))), rel=1e-5)
    assert checked_distances(D).values.diagonal().count_nonzero() == 0


def test_items_at_distance_zero_that_differ_otherwise_cannot_be_merged() -> None:
    D = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    with pytest.raises(cv.InputError, match="items 0 and 1 are at distance 0, but not equally far"):
        cv.magnitude(D, 1.0)


def test_distinct_items_are_the_first_of_each_kind() -> None:
    labels = torch.tensor([3.0, 1.0, 3.0, 3.0, 2.0, 1.0])
    D = (labels[:, None] - labels).abs()
    assert distinct_items(checked_distances(D)).tolist() == [0, 1, 4]
