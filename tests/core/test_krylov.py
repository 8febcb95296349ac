"""Krylov spaces: Ritz pairs, and bounds of every single quadratic form."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.krylov import BlockKrylov, Deflation, ProbeRecurrence
from condvne.core.traces import ConcaveTrace
from tests.references import points

N = 120
NOISE = 1e-14


def density(rank: int | None = None) -> Tensor:
    if rank is None:
        return cv.Gaussian(bandwidth=1.5).gram(points(N, 4, 0)) / N
    half = points(N, rank, 0)
    product = half @ half.mT
    return product / torch.trace(product)


def deflated(A: Tensor, count: int, blocks: int) -> Deflation:
    space = BlockKrylov(points(N, count, 1))
    for _ in range(blocks):
        if space.block is not None:
            space.absorb(A @ space.block)
    return space.deflation(space.leading(count))


def test_ritz_pairs_are_orthonormal_below_the_eigenvalues_and_carry_their_images() -> None:
    A = density()
    found = deflated(A, 6, 3)
    assert torch.allclose(found.vectors.mT @ found.vectors, torch.eye(6, dtype=torch.float64), atol=1e-13)
    assert torch.allclose(found.images, A @ found.vectors, atol=1e-14)
    assert torch.allclose(found.leading.second, found.images.mT @ found.images, atol=1e-14)
    eigenvalues = torch.linalg.eigvalsh(A).flip(0)[:6]
    assert bool((found.leading.values <= eigenvalues + 1e-14).all())
    nystrom = found.leading.nystrom_values().flip(0)
    assert bool((found.leading.values <= nystrom + 1e-14).all())
    assert bool((nystrom <= eigenvalues + 1e-14).all())


def test_an_invariant_space_ends() -> None:
    A = density(rank=5)
    space = BlockKrylov(points(N, 4, 1))
    while space.block is not None:
        space.absorb(A @ space.block)
    values = space.leading(5).values
    assert space.dimension <= 4 + 5
    assert torch.allclose(values, torch.linalg.eigvalsh(A).flip(0)[:5], atol=1e-14)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5])
def test_bounds_hold_for_every_probe_and_close_with_steps(order: float) -> None:
    A, f = density(), ConcaveTrace(order)
    deflation = deflated(A, 6, 2)  # far from converged: the coupling to the rest is part of the bounds
    recurrence = ProbeRecurrence(deflation, points(N, 8, 2).sign())
    values, vectors = torch.linalg.eigh(A)
    truth = ((vectors.mT @ recurrence.probes).square() * f.values(values.clamp(min=0))[:, None]).sum(0)
    widths = []
    for _ in range(24):
        recurrence.absorb(A @ recurrence.vectors)
        lower, upper = recurrence.bounds(f.values, f.quotient, NOISE)
        assert bool((lower <= truth + 1e-11).all())
        assert bool((truth <= upper + 1e-11).all())
        widths.append(float((upper - lower).sum()))
    assert all(after <= before + 1e-11 for before, after in pairwise(widths))
    assert widths[-1] < 0.05 * widths[0]


def test_moments_are_exact_and_joined_recurrences_are_those_of_all_probes() -> None:
    A = density()
    deflation = deflated(A, 6, 3)
    U, z = deflation.vectors, points(N, 8, 2).sign()
    whole, halves = (
        ProbeRecurrence(deflation, z),
        [ProbeRecurrence(deflation, part) for part in torch.split(z, 4, dim=1)],
    )
    for recurrence in (whole, *halves):
        for _ in range(4):
            recurrence.absorb(A @ recurrence.vectors)
    P = torch.eye(N, dtype=torch.float64) - U @ U.mT
    rest = P @ A @ P
    moments = torch.stack([(z * (M @ z)).sum(0) for M in (P, rest, rest @ rest)], dim=1)
    assert torch.allclose(whole.moments(), moments, rtol=1e-10)
    assert torch.allclose(whole.images(), rest @ z, atol=1e-13)
    joined = halves[0].joined(halves[1])
    assert (joined.count, joined.steps) == (8, 4)
    assert torch.allclose(joined.tridiagonal(), whole.tridiagonal(), atol=1e-13)
