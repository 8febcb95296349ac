"""Conditional profiles of a gap: every order with every pair of bandwidths."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import condvne as cv
from condvne.core.groups import OutputGroup
from condvne.core.kernels import Kernel
from condvne.data.config import Evaluation
from condvne.data.results import RobustnessMap
from condvne.evaluation.comparison import Comparison
from condvne.evaluation.features import Embedded
from condvne.evaluation.robustness import map_of, robustness_maps

N = 24
SETTINGS = Evaluation(sizes=[N], robustness_orders=[1.0, 2.0], robustness_multipliers=[0.1, 1.0, 10.0])


def embedded(kernel_x: Kernel | None = None) -> Embedded:
    """Conditions on a line; `other` has outputs close together within a condition's neighbourhood, and far beyond."""
    draw = torch.Generator().manual_seed(0)
    x = torch.arange(N, dtype=torch.float64)[:, None] // 4
    reference = torch.randn(N, 2, generator=draw, dtype=torch.float64)
    clustered = 6 * torch.randn(N // 4, 2, generator=draw, dtype=torch.float64).repeat_interleave(4, 0)
    other = clustered + 0.3 * torch.randn(N, 2, generator=draw, dtype=torch.float64)
    owners = torch.arange(N)
    return Embedded(
        x,
        {"reference": OutputGroup(reference, owners), "other": OutputGroup(other, owners)},
        kernel_x or cv.Gaussian(1.0),
        cv.Gaussian(1.0),
        "reference",
        [],
    )


def maps(found: Embedded) -> RobustnessMap:
    names = [str(i) for i in range(N)]
    outputs = {name: [[name] for _ in names] for name in found.groups}
    comparison = Comparison(names, names, outputs, {}, "words", "reference")
    (found_map,) = robustness_maps(comparison, found, SETTINGS, 0, lambda *_: None)
    return found_map


def test_every_pair_of_bandwidths_is_that_of_the_public_function() -> None:
    data = embedded()
    found = maps(data)
    assert found.gaps == [[plane[k][k] for k in range(3)] for plane in found.separate]
    for i, order in enumerate([1.0, 2.0]):
        for j, of_x in enumerate(SETTINGS.robustness_multipliers):
            for k, of_y in enumerate(SETTINGS.robustness_multipliers):
                entropies = {
                    name: cv.conditional_entropy(
                        data.x, group.features, order=order, kernel_x=cv.Gaussian(of_x), kernel_y=cv.Gaussian(of_y)
                    )
                    for name, group in data.groups.items()
                }
                expected = float(entropies["other"] - entropies["reference"])
                assert found.separate[i][j][k] == pytest.approx(expected, abs=1e-9)


def test_signs_that_differ_off_the_diagonal_alone_decide_nothing() -> None:
    gaps = [{(1.0, 1.0): -0.1, (1.0, 2.0): 0.2, (2.0, 1.0): -0.3, (2.0, 2.0): -0.1}]
    found = map_of("other", "reference", 24, [1.0], [1.0, 2.0], gaps)
    assert found.gaps == [[-0.1, -0.1]]
    assert found.separate == [[[-0.1, 0.2], [-0.3, -0.1]]]
    assert found.verdict == "undecided"
    assert found.sentence == (
        "other is below reference at 3 and above it at 1 of 4 combinations of order and bandwidths (n = 24): the "
        "ranking depends on the resolution, so no single number decides it."
    )


def test_one_side_without_a_bandwidth_leaves_one_row_of_multipliers() -> None:
    data = embedded(cv.Cosine())
    data = dataclasses.replace(data, x=torch.nn.functional.one_hot(data.x[:, 0].long()).double())
    found = maps(data)
    assert found.separate == []
    assert found.differences() == [gap for row in found.gaps for gap in row]
    assert len(found.gaps[0]) == 3
