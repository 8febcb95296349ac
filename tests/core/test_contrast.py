"""Histograms of distances, their contrast, and warnings of grids that say nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.core.contrast import distance_contrast, saturated_share, saturation_warning
from tests.references import double, points


def test_a_histogram_of_few_distances() -> None:
    D = cv.distances(double([0, 1, 3])[:, None])
    found = distance_contrast(D, bins=2)
    assert found.counts.tolist() == [1, 2]
    assert found.edges.tolist() == [1, 2, 3]
    assert (found.mean, found.items, found.pairs.tolist()) == (2.0, 3, [1, 2, 3])
    assert found.relative_contrast == pytest.approx(2 / ((1 + 1 + 2) / 3))
    assert found.variation == pytest.approx(math.sqrt(2 / 3) / 2)
    assert found.share_below(double([0.5, 1.0, 2.5, 3.0])).tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_distances_concentrate_in_many_dimensions() -> None:
    few, many = (distance_contrast(cv.distances(points(200, d, 0))) for d in (2, 500))
    assert few.relative_contrast > 5 > 1.2 > many.relative_contrast > 1
    assert few.variation > 5 * many.variation


def test_large_sets_are_sampled() -> None:
    D = cv.distances(points(300, 3, 0))
    part, again = (distance_contrast(D, items=50) for _ in range(2))
    assert part.items == 50
    assert len(part.pairs) == int(part.counts.sum()) == 50 * 49 // 2
    assert torch.equal(part.pairs, again.pairs)
    assert part.mean == pytest.approx(distance_contrast(D).mean, rel=0.1)


def test_copies() -> None:
    assert distance_contrast(torch.zeros(3, 3)).relative_contrast == 1.0
    assert distance_contrast(cv.distances(double([0, 0, 1, 1])[:, None])).relative_contrast == math.inf


@pytest.mark.parametrize("options", [{"bins": 0}, {"items": 1}])
def test_nothing_to_count(options: Any) -> None:
    with pytest.raises(cv.InputError, match="at least 1 bin and 2 items"):
        distance_contrast(1 - torch.eye(3), **options)


def items() -> cv.ItemSet:
    return cv.ItemSet.from_features(points(30, 3, 0), "euclidean", name="cloud")


@pytest.mark.parametrize("family", ["magnitude", "circles", "energy"])
def test_default_grids_are_not_saturated(family: Any) -> None:
    assert saturation_warning(cv.profile(items(), family, resamples=0)) is None


def test_grids_where_nothing_moves() -> None:
    low = cv.profile(items(), "circles", [1e-5, 1e-4, 1e-3, 1.0, 50.0], resamples=0)
    assert saturated_share(low) == (0.6, 0.2)
    assert saturation_warning(low) == (
        "The Circles profile of cloud is saturated: 60 % of its thresholds score nearly all 30 items and 20 % of its "
        "thresholds score nearly one item; only the rest of the grid can tell sets apart."
    )
    far = cv.profile(items(), "magnitude", [1e-5, 1e-4, 1.0], resamples=0)
    assert "67 % of its scales score nearly one item;" in str(saturation_warning(far))


def test_similarities_that_say_nothing() -> None:
    tiny = cv.ItemSet.from_features(points(30, 3, 0), "euclidean", bandwidth=1e-3, name="cloud")
    warning = saturation_warning(cv.profile(tiny, "vendi", resamples=0))
    assert warning is not None
    assert "100 % of its orders score nearly all 30 items; use a kernel of another bandwidth" in warning
