"""Bands of profiles: what their half-samples are, how wide they should be, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.core.families import FAMILIES
from tests.references import points


def items(n: int, seed: int = 0) -> cv.ItemSet:
    return cv.ItemSet.from_features(points(n, 3, seed), "euclidean", bandwidth=1.0, name="cloud")


@pytest.mark.parametrize("family", FAMILIES)
def test_bands_hold_the_curve_and_are_reproducible(family: Any) -> None:
    found = cv.profile(items(24), family, [0.5, 1.0, 2.0], resamples=20)
    again = cv.profile(items(24), family, [0.5, 1.0, 2.0], resamples=20)
    other = cv.profile(items(24), family, [0.5, 1.0, 2.0], resamples=20, generator=torch.Generator().manual_seed(5))
    assert found.lower is not None
    assert found.upper is not None
    assert found.replicates is not None
    assert other.replicates is not None
    assert again.replicates is not None
    assert found.replicates.shape == (20, 3)
    assert found.resample_size == 12
    assert torch.equal(found.replicates, again.replicates)
    assert not torch.equal(found.replicates, other.replicates)
    assert bool((found.lower <= found.values).all())
    assert bool((found.values <= found.upper).all())
    assert bool((found.lower < found.upper).any())


def test_replicates_are_curves_of_half_of_the_items() -> None:
    full = cv.profile(items(10), "circles", [0.0], resamples=8)
    assert full.replicates is not None
    assert full.replicates.tolist() == [[5.0]] * 8
    assert float(full.values[0]) == 10
    assert full.lower is not None
    assert float(full.lower[0]) == 10  # no spread where all items count, however many


@pytest.mark.parametrize(("family", "parameter"), [("energy", 0.5), ("vendi", 2.0), ("magnitude", 0.5)])
def test_bands_have_the_spread_of_fresh_samples(family: Any, parameter: float) -> None:
    """Width at 68 % against the standard deviation of the score over independent sets of the same size."""
    sets = [items(60, seed) for seed in range(80)]
    fresh = torch.stack([cv.profile(s, family, [parameter], resamples=0).values for s in sets]).std()
    widths = []
    for s in sets[:8]:
        found = cv.profile(s, family, [parameter], resamples=100, confidence=math.erf(1 / math.sqrt(2)))
        assert found.lower is not None
        assert found.upper is not None
        widths.append(float(found.upper[0] - found.lower[0]) / 2)
    assert 0.7 < sum(widths) / len(widths) / float(fresh) < 1.4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"resamples": 1}, "cloud: 1 resamples of 5 of 10 items give no band"),
        ({"resamples": -1}, "resamples must be a whole number"),
        ({"resamples": 2.5}, "resamples must be a whole number"),
        ({"resample_size": 10}, "fewer than there are"),
        ({"resample_size": 1}, "of 1 of 10 items"),
        ({"resample_size": 11}, "of 11 of 10 items"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
        ({"epsilon": 0.1}, "epsilon belongs to energy; Circles has none"),
    ],
)
def test_options_out_of_range(options: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        cv.profile(items(10), "circles", [1.0], **options)


def test_too_few_items_for_half_samples() -> None:
    with pytest.raises(cv.InputError, match="of 1 of 3 items"):
        cv.profile(items(3), "circles", [1.0])


def test_energy_of_copies_takes_epsilon() -> None:
    copies = cv.ItemSet.from_features(points(5, 3, 0).repeat(2, 1), "cosine", name="copies")
    with pytest.raises(cv.InputError, match="items 0 and 5"):
        cv.profile(copies, "energy")
    found = cv.profile(copies, "energy", epsilon=0.01, resamples=0)
    assert float(found.values[0]) == pytest.approx(float(cv.energy(copies.distances, found.grid[0], epsilon=0.01)))
