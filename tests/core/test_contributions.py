from __future__ import annotations

import pytest
import torch

import condvne as cv
from condvne.core.contributions import block_contributions, condition_gaps, joint_spectrum
from condvne.errors import InputError

KERNELS: dict[str, cv.Gaussian] = {"kernel_x": cv.Gaussian(1.3), "kernel_y": cv.Gaussian(0.9)}


def points(n: int = 30, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randn(n, 3, generator=generator)


def labels(n: int = 30, classes: int = 4, seed: int = 1) -> torch.Tensor:
    drawn = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))
    numbers: torch.Tensor = torch.unique(drawn, return_inverse=True)[1]
    return numbers


def test_contributions_add_up_to_the_joint_entropy() -> None:
    x, y = points()
    found = joint_spectrum(x, y, **KERNELS)
    K = KERNELS["kernel_x"].gram(x.double()) * KERNELS["kernel_y"].gram(y.double())
    assert float(found.contributions.sum()) == pytest.approx(float(cv.entropy_from_gram(K)), rel=1e-9)
    assert bool((found.contributions >= 0).all())


def test_contributions_are_the_diagonal_of_minus_a_log_a() -> None:
    x, y = points(12)
    found = joint_spectrum(x, y, **KERNELS)
    A = KERNELS["kernel_x"].gram(x.double()) * KERNELS["kernel_y"].gram(y.double()) / 12
    values, vectors = torch.linalg.eigh(A)
    expected = -(A @ (vectors * values.clamp(min=1e-300).log()) @ vectors.T).diagonal()
    assert torch.allclose(found.contributions, expected, atol=1e-9)


def test_copies_contribute_the_same_and_less_than_what_stands_alone() -> None:
    x = torch.zeros(5, 1)
    y = torch.tensor([[0.0], [0.0], [0.0], [9.0], [-9.0]])
    found = joint_spectrum(x, y, **KERNELS).contributions
    # Of weight 3/5 and 1/5: each copy has a third of -3/5 log 3/5.
    expected = [-(1 / 5) * torch.log(torch.tensor(3 / 5))] * 3 + [-(1 / 5) * torch.log(torch.tensor(1 / 5))] * 2
    assert torch.allclose(found, torch.stack(expected).double(), atol=1e-8)


def test_leading_modes_come_by_weight_with_their_heaviest_points() -> None:
    y = torch.tensor([[9.0], [0.0], [0.0], [0.1], [9.0], [-9.0]])
    found = joint_spectrum(torch.zeros(6, 1), y, **KERNELS)
    modes = found.leading(2, 3)
    assert sorted(modes[0][1].tolist()) == [1, 2, 3]
    assert sorted(modes[1][1].tolist()[:2]) == [0, 4]
    assert modes[0][0] == pytest.approx(0.5, abs=0.01)
    assert modes[1][0] == pytest.approx(1 / 3, abs=0.01)
    assert torch.allclose(found.weights.sum(0), torch.ones(6, dtype=torch.float64))
    assert len(found.leading(9, 2)) == 6


def test_contributions_of_conditions_add_up_to_the_gap() -> None:
    (_, y), (_, z) = points(), points(seed=5)
    conditions = labels()
    one_hot = torch.eye(4)[conditions]
    kernels = {"kernel_x": cv.Cosine(), "kernel_y": cv.Gaussian(0.9)}
    parts = [joint_spectrum(one_hot, outputs, **kernels).contributions for outputs in (y, 0.3 * z)]
    gaps = condition_gaps(parts[1], parts[0], conditions)
    entropies = [
        cv.conditional_entropy(
            one_hot.double(), outputs.double(), method="exact", kernel_x=cv.Cosine(), kernel_y=cv.Gaussian(0.9)
        )
        for outputs in (y, 0.3 * z)
    ]
    assert float(gaps.sum()) == pytest.approx(float(entropies[1] - entropies[0]), abs=1e-9)
    assert len(gaps) == 4
    assert bool((gaps < 0).all())


def test_blocks_give_what_the_whole_matrix_gives() -> None:
    _, y = points()
    conditions = labels()
    one_hot = torch.eye(4)[conditions]
    kernels = {"kernel_x": cv.Cosine(), "kernel_y": cv.Gaussian(0.9)}
    whole = joint_spectrum(one_hot, y, **kernels).contributions
    assert torch.allclose(block_contributions(one_hot, y, conditions, **kernels), whole, atol=1e-10)


def test_shapes_that_differ_are_refused() -> None:
    x, y = points()
    with pytest.raises(InputError, match="as many rows as each other, but have 30 and 29"):
        joint_spectrum(x, y[1:], **KERNELS)
    with pytest.raises(InputError, match=r"one shape, but have \(3,\), \(3,\) and \(2,\)"):
        condition_gaps(torch.zeros(3), torch.zeros(3), torch.zeros(2, dtype=torch.long))
