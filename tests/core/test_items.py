"""Sets of items: similarities that belong to distances, and one bandwidth for sets that are compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import condvne as cv
from tests.references import points


@pytest.mark.parametrize(("metric", "kernel"), [("cosine", "cosine"), ("euclidean", cv.Gaussian(1.7))])
def test_similarities_are_those_of_the_engine(metric: Any, kernel: Any) -> None:
    x = points(12, 5, 0)
    items = cv.ItemSet.from_features(x, metric, bandwidth=1.7 if metric == "euclidean" else None)
    found = cv.profile(items, "vendi", [0.5, 1.0, 2.0, float("inf")], resamples=0)
    for q, value in zip(found.grid, found.values, strict=True):
        assert float(value) == pytest.approx(float(cv.vendi(x, kernel=kernel, order=q)), rel=1e-10)


def test_tanimoto_similarities_are_one_minus_the_distance() -> None:
    x = (points(12, 30, 0) > 0).double()
    items = cv.ItemSet.from_features(x, "tanimoto")
    assert items.similarities is not None
    torch.testing.assert_close(items.similarities, 1 - cv.distances(x, "tanimoto"))


def test_sets_share_the_bandwidth_of_the_first() -> None:
    sets = cv.item_sets({"data": points(20, 4, 0), "model": 3 * points(30, 4, 1)}, "euclidean")
    assert sets["data"].representation == sets["model"].representation
    assert sets["model"].n == 30
    expected = cv.Gaussian().fit(points(20, 4, 0)).fixed_bandwidth
    assert f"{expected:.6g}" in sets["data"].representation


def test_single_precision_features_have_similarities_without_negative_eigenvalues() -> None:
    items = cv.ItemSet.from_features(points(50, 5, 2).float(), "cosine")
    assert float(cv.profile(items, "vendi", [0.1, 1.0], resamples=0).values[0]) < 5.1


def test_a_subset_keeps_what_belongs_to_it() -> None:
    items = cv.ItemSet.from_features(points(10, 4, 3), "cosine", name="ten")
    rows = torch.tensor([1, 4, 7])
    part = items.subset(rows)
    assert (part.n, part.name, part.representation) == (3, "ten", items.representation)
    assert part.similarities is not None
    torch.testing.assert_close(part.distances, items.distances[rows][:, rows])


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: cv.ItemSet.from_features(torch.ones(1, 3), name="one"), "distance matrix of one holds 1 items"),
        (lambda: cv.ItemSet.from_features(points(3, 2, 0), "cosine", bandwidth=1.0), "have no bandwidth"),
        (lambda: cv.ItemSet.from_features(torch.ones(3, 2), "euclidean"), "all rows are equal"),
        (lambda: cv.ItemSet(torch.zeros(3, 3), torch.eye(2), name="x"), r"x: similarities have shape \(2, 2\)"),
        (lambda: cv.ItemSet(torch.zeros(3, 3), 2 * torch.eye(3)), "diagonal of K must be 1"),
        (lambda: cv.item_sets({}), "no sets of items"),
        (lambda: cv.item_sets({"a": points(5, 4, 0), "b": points(5, 7, 0)}), "one width d, but have a 4, b 7"),
        (lambda: cv.item_sets({"a": torch.rand(5, 4, 2)}, "euclidean"), r"a must have shape \(n, d\)"),
    ],
)
def test_sets_that_cannot_be(make: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        make()


def test_nested_lists_are_distances_too() -> None:
    items = cv.ItemSet([[0, 1], [1, 0]], [[1, 0.5], [0.5, 1]])  # type: ignore[arg-type]
    assert items.subset(torch.tensor([1, 0])).distances.tolist() == [[0, 1], [1, 0]]
