"""γ = α β: closed forms, the relation to the conditional entropy, and bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import condvne as cv
from tests.references import ORDERS, double, points, random_weights, renyi

laws = settings(derandomize=True, deadline=None, max_examples=60)
orders = st.sampled_from(ORDERS)


def gram(n: int, seed: int, d: int = 3) -> torch.Tensor:
    return cv.Gaussian(1.0).gram(points(n, d, seed))


@given(st.integers(2, 12), st.integers(0, 10_000), orders)
@laws
def test_alpha_is_the_conditional_score_with_a_delta_kernel(n: int, seed: int, order: float) -> None:
    labels = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
    y, w = points(n, 3, seed), random_weights(n, seed)
    kernel = cv.Gaussian(1.0)
    found = cv.partition(kernel.gram(y), labels, order=order, weights=w)
    options: dict[str, Any] = {"order": order, "weights": w}
    alpha = cv.conditional_vendi(labels[:, None], y, kernel_x="delta", kernel_y=kernel, **options)
    beta = cv.mutual_information(labels[:, None], y, kernel_x="delta", kernel_y=kernel, **options).exp()
    assert float(found.alpha) == pytest.approx(float(alpha), rel=1e-9)
    assert float(found.gamma) == pytest.approx(float(cv.vendi(y, kernel=kernel, **options)), rel=1e-9)
    assert float(found.beta) == pytest.approx(float(beta), rel=1e-9)
    assert float(found.alpha * found.beta) == pytest.approx(float(found.gamma), rel=1e-12)
    assert float(found.alpha) >= 1 - 1e-9


@given(st.integers(2, 12), st.integers(0, 10_000))
@laws
def test_at_order_one_alpha_is_the_weighted_geometric_mean(n: int, seed: int) -> None:
    labels = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
    K, w = gram(n, seed), random_weights(n, seed)
    expected, shares = 0.0, []
    for label in range(3):
        rows = torch.nonzero(labels == label).squeeze(-1)
        if not len(rows):
            continue
        share = float(w[rows].sum())
        expected += share * float(cv.entropy_from_gram(K[rows][:, rows], weights=w[rows] / share))
        shares.append(share)
    found = cv.partition(K, labels, weights=w)
    assert float(found.alpha) == pytest.approx(math.exp(expected), rel=1e-9)
    assert 1 - 1e-9 <= float(found.beta) <= math.exp(renyi(shares, 1.0)) + 1e-9


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000), orders)
@laws
def test_beta_counts_conditions_of_equal_weight(groups: int, outputs: int, seed: int, order: float) -> None:
    """1 <= β <= number of conditions at every order; the ends are equal and unrelated conditions."""
    labels = [f"condition {k}" for k in range(groups) for _ in range(outputs)]
    found = cv.partition(gram(groups * outputs, seed), labels, order=order)
    assert found.conditions == groups
    assert 1 - 1e-8 <= float(found.beta) <= groups + 1e-8
    within = gram(outputs, seed)
    same = cv.partition(within.repeat(groups, groups), labels, order=order)
    apart = cv.partition(torch.kron(torch.eye(groups, dtype=torch.float64), within), labels, order=order)
    assert float(same.beta) == pytest.approx(1, rel=1e-8)
    assert float(apart.beta) == pytest.approx(groups, rel=1e-8)
    assert float(same.alpha) == pytest.approx(float(apart.alpha), rel=1e-8)


def test_delta_similarities_are_hill_numbers() -> None:
    """Species counts in two sites: γ, α, β of Jost (2007)."""
    table = np.array([[6, 2, 0], [1, 1, 10]])
    sites, species = np.nonzero(table)
    w = double(table[sites, species] / table.sum())
    K = cv.Delta().gram(torch.as_tensor(species)[:, None])
    p = table.sum(1) / table.sum()
    for q in (0.5, 1.0, 2.0, 3.0):
        found = cv.partition(K, sites.tolist(), order=q, weights=w)
        rows = [row / row.sum() for row in table]
        if q == 1.0:
            alpha = math.exp(sum(s * renyi(row, 1.0) for s, row in zip(p, rows, strict=True)))
        else:
            alpha = (sum(s**q * (row**q).sum() for s, row in zip(p, rows, strict=True)) / (p**q).sum()) ** (1 / (1 - q))
        assert float(found.gamma) == pytest.approx(math.exp(renyi(table.sum(0) / table.sum(), q)), rel=1e-10)
        assert float(found.alpha) == pytest.approx(alpha, rel=1e-10)


def test_gradients() -> None:
    y, w = points(6, 2, 0).requires_grad_(), random_weights(6, 1)

    def beta(y: torch.Tensor) -> torch.Tensor:
        return cv.partition(cv.Gaussian(1.0).gram(y), [0, 0, 1, 1, 1, 2], order=1.5, weights=w).beta

    assert torch.autograd.gradcheck(beta, (y,))


@pytest.mark.parametrize(
    ("labels", "options", "complaint"),
    [
        ([0, 1], {}, "there are 2 conditions and 3 outputs"),
        ([0, 1, 1], {"order": -1.0}, r"order must be a number in \[0, inf\]"),
        ([0, 1, 1], {"weights": torch.tensor([0.5, 0.5, 0.5])}, "weights sum to 1.5"),
    ],
)
def test_bad_input(labels: Any, options: Any, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        cv.partition(torch.eye(3), labels, **options)


def test_rows_are_no_labels() -> None:
    for labels in (torch.zeros(6, 2), [[1]] * 6):
        with pytest.raises(cv.InputError, match="conditions must be labels"):
            cv.partition(torch.eye(6), labels)  # type: ignore[arg-type]
