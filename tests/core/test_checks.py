"""Every kind of bad input is refused in one sentence that says what and where; every odd but good one passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.core.checks import answer_dtype, checked_features, checked_gram, checked_points, checked_weights
from tests.references import double, points, random_weights

ONE_SIDED: dict[str, Callable[..., Any]] = {"entropy": cv.entropy, "vendi": cv.vendi, "rke": cv.rke}
TWO_SIDED: dict[str, Callable[..., Any]] = {
    "conditional_entropy": cv.conditional_entropy,
    "mutual_information": cv.mutual_information,
    "conditional_vendi": cv.conditional_vendi,
    "conditional_rke": cv.conditional_rke,
}
one_sided = pytest.mark.parametrize("function", ONE_SIDED.values(), ids=ONE_SIDED)
two_sided = pytest.mark.parametrize("function", TWO_SIDED.values(), ids=TWO_SIDED)
good = points(6, 2, seed=0)


def with_rows(value: float, *rows: Any) -> Tensor:
    x = points(6, 2, seed=0)
    for row in rows:
        x[row, 1] = value
    return x


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@one_sided
def test_rows_that_are_not_finite_are_named(function: Callable[..., Any], value: float, dtype: torch.dtype) -> None:
    with pytest.raises(cv.InputError, match=r"^x holds NaN or infinite values in rows 2, 4; drop"):
        function(with_rows(value, 2, 4).to(dtype))


@two_sided
def test_rows_that_are_not_finite_are_named_on_either_side(function: Callable[..., Any]) -> None:
    with pytest.raises(cv.InputError, match=r"^x holds NaN or infinite values in rows 0;"):
        function(with_rows(math.nan, 0), good)
    with pytest.raises(cv.InputError, match=r"^y holds NaN or infinite values in rows 5;"):
        function(good, with_rows(math.inf, 5))


def test_many_rows_are_named_in_part_and_counted_and_batches_by_place() -> None:
    x = points(20, 2, seed=1)
    x[3:] = math.nan
    with pytest.raises(cv.InputError, match=r"rows 3, 4, 5, 6, 7, … \(17 in all\)"):
        cv.entropy(x)
    with pytest.raises(cv.InputError, match=r"rows \(1, 2\);"):
        cv.entropy(torch.stack([good, with_rows(math.nan, 2)]))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(3), r"shape \(\.\.\., n, d\), but has shape \(3,\); add a column with unsqueeze"),
        (torch.tensor(1.0), r"shape \(\.\.\., n, d\), but has shape \(\)\.$"),
        (torch.ones(0, 2), r"x is empty: shape \(0, 2\)"),
        (torch.ones(2, 0), r"x is empty: shape \(2, 0\)"),
        (torch.ones(0, 4, 2), "x is empty"),
        (torch.ones(3, 2, dtype=torch.complex64), "x is complex"),
        ([[1.0, 2.0], [3.0]], "x cannot be made a tensor"),
        ("features", "x cannot be made a tensor"),
        (None, "x cannot be made a tensor"),
        (torch.tensor([[2**60 + 1], [2**60]]), r"beyond 2\*\*53"),
    ],
)
@one_sided
def test_what_is_not_a_feature_matrix(function: Callable[..., Any], x: Any, message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        function(x)


@two_sided
def test_sides_that_do_not_match(function: Callable[..., Any]) -> None:
    with pytest.raises(cv.InputError, match="x has 6 rows and y has 5: pass one output for each condition"):
        function(good, good[:5])
    with pytest.raises(cv.InputError, match=r"leading dimensions of x and y do not match: \(2,\) and \(3,\)"):
        function(points(6, 2, 0, 2), points(6, 2, 0, 3))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"weights must have 6 entries in the last dimension, one a point; shape \(2,\)"),
        (0.5, "weights must have 6 entries"),
        ([0.2] * 6, r"weights sum to 1\.2 instead of 1; divide"),
        ([0.0] * 6, "weights sum to 0 instead of 1"),
        ([0.5, 0.6, 0.1, 0.1, -0.2, -0.1], "weights are negative at 4, 5; they must"),
        ([0.5, math.nan, 0.1, 0.1, 0.1, 0.1], "weights are not finite at 1"),
        ([math.inf, 0.1, 0.1, 0.1, 0.1, 0.1], "weights are not finite at 0"),
        ([[1 / 6] * 6] * 3, r"leading dimensions of weights and x( and y)? do not match: \(3,\) and \(2,\)"),
        ("even", "weights cannot be made a tensor"),
        (torch.full((6,), 1 / 6, dtype=torch.complex64), "weights is complex"),
    ],
)
def test_bad_weights(weights: Any, message: str) -> None:
    x = points(6, 2, 0, 2)
    for one in ONE_SIDED.values():
        with pytest.raises(cv.InputError, match=message):
            one(x, weights=weights)
    for two in TWO_SIDED.values():
        with pytest.raises(cv.InputError, match=message):
            two(x, x, weights=weights)
    if np.ndim(weights) < 2:
        with pytest.raises(cv.InputError, match=message):
            cv.entropy_from_gram(torch.eye(6), weights=weights)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (torch.ones(3), r"K must be square.* shape \(3,\)"),
        (torch.ones(2, 3), r"K must be square.* shape \(2, 3\)"),
        (torch.ones(0, 0), "K must be square"),
        ([[1.0, math.nan], [math.nan, 1.0]], "K holds NaN or infinite values in rows 0, 1"),
        ([[1.0, 0.5], [0.4, 1.0]], r"K is not symmetric; score \(K \+ K\.T\) / 2"),
        ([[2.0, 0.5], [0.5, 2.0]], r"the diagonal of K must be 1; divide K by sqrt"),
        (torch.eye(2, dtype=torch.complex64), "K is complex"),
        ("K", "K cannot be made a tensor"),
    ],
)
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_bad_gram_matrices(K: Any, message: str, order: float) -> None:
    with pytest.raises(cv.InputError, match=message):
        cv.entropy_from_gram(K, order=order)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 1.2, 3.0, math.inf])
def test_gram_matrices_that_are_not_semidefinite(order: float, dtype: torch.dtype) -> None:
    K = torch.tensor([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]], dtype=dtype)
    with pytest.raises(
        cv.InputError, match=r"not positive semidefinite: .* eigenvalue -0\.26.*use a positive-definite"
    ):
        cv.entropy_from_gram(K, order=order)
    with pytest.raises(cv.InputError, match=r"eigenvalue -0\.26"):
        cv.entropy_from_gram(torch.stack([torch.eye(3, dtype=dtype), K]), order=order)


def test_order_two_notices_entries_above_the_diagonal() -> None:
    for entry in (2, -2, 1.0001):
        with pytest.raises(cv.InputError, match=rf"K holds the value {abs(entry)}, but \|k\(z, z'\)\| <= 1"):
            cv.entropy_from_gram(double([[1, entry], [entry, 1]]), order=2)


def test_features_beyond_the_range_of_squares() -> None:
    for order in (0.5, 1.0, 2.0, math.inf):
        value = cv.entropy(1e200 * good, kernel=cv.Gaussian(bandwidth=1.0), order=order)
        assert float(value) == pytest.approx(math.log(6))
        with pytest.raises(cv.InputError):
            cv.entropy((1e200 * good).requires_grad_(), kernel=cv.Gaussian(bandwidth=1.0), order=order)
    assert float(cv.entropy(1e200 * good)) == pytest.approx(float(cv.entropy(good)))


@pytest.mark.parametrize("order", [-0.5, math.nan, "2", None, True])
def test_bad_orders(order: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: cv.entropy(good, order=order),
        lambda: cv.vendi(good, order=order),
        lambda: cv.conditional_entropy(good, good, order=order),
        lambda: cv.conditional_vendi(good, good, order=order),
        lambda: cv.mutual_information(good, good, order=order),
        lambda: cv.entropy_from_gram(torch.eye(3), order=order),
    ]
    for call in calls:
        with pytest.raises(cv.InputError, match=r"order must be a number in \[0, inf\]"):
            call()


def test_unknown_names() -> None:
    for one in ONE_SIDED.values():
        with pytest.raises(cv.InputError, match="no kernel 'rbf': give one of gaussian"):
            one(good, kernel="rbf")
        with pytest.raises(cv.InputError, match=r"method must be one of auto, .*but is 'fast'"):
            one(good, method="fast")
    for two in TWO_SIDED.values():
        with pytest.raises(cv.InputError, match="no kernel 'rbf'"):
            two(good, good, kernel_y="rbf")
        with pytest.raises(cv.InputError, match=r"method must be one of auto, .*but is 'fast'"):
            two(good, good, method="fast")


def test_rows_of_zeros_have_no_cosine() -> None:
    x = points(4, 2, seed=0)
    x[2] = 0
    for order in (1.0, 2.0):
        with pytest.raises(cv.InputError, match="Cosine kernel: rows 2 are zero"):
            cv.entropy(x, kernel="cosine", order=order)


def test_arrays_and_lists_are_features() -> None:
    x, weights = points(5, 2, seed=2), random_weights(5, seed=3)
    expected = cv.entropy(x, weights=weights)
    torch.testing.assert_close(cv.entropy(x.numpy(), weights=weights.numpy()), expected)  # type: ignore[call-overload]
    from_lists = cv.entropy(x.tolist(), weights=weights.tolist())  # type: ignore[call-overload]
    torch.testing.assert_close(from_lists, expected.float(), rtol=1e-6, atol=0)
    halves = x.numpy().astype(np.float16)
    assert cv.entropy(halves).dtype == torch.float32  # type: ignore[call-overload]
    K = cv.Gaussian(1.0).gram(x)
    assert float(cv.entropy_from_gram(K.numpy())) == float(cv.entropy_from_gram(K))  # type: ignore[arg-type]


def test_reversed_read_only_and_sparse_inputs() -> None:
    x = points(5, 2, seed=2)
    expected = cv.entropy(x)
    array = x.numpy()[::-1]
    array.setflags(write=False)
    torch.testing.assert_close(cv.entropy(array), expected)  # type: ignore[call-overload]
    torch.testing.assert_close(cv.entropy(x.to_sparse()), expected)
    assert float(cv.entropy_from_gram(torch.eye(50).to_sparse(), order=0.25).exp()) == pytest.approx(50, rel=1e-6)


def test_answers_keep_the_precision() -> None:
    assert answer_dtype(torch.float64) == answer_dtype(torch.int64) == answer_dtype(torch.bool) == torch.float64
    assert answer_dtype(torch.float32) == answer_dtype(torch.float16) == answer_dtype(torch.bfloat16) == torch.float32
    halves, singles, doubles, ids = good.bfloat16(), good.float(), good, torch.arange(6).unsqueeze(-1)
    for x, y, dtype in (
        (halves, halves, torch.float32),
        (halves, doubles, torch.float64),
        (singles, ids, torch.float32),
        (ids, ids, torch.float64),
    ):
        assert checked_points((x, y), ("x", "y")).dtype == dtype
        assert cv.conditional_entropy(x, y).dtype == dtype


def test_checks_return_what_they_were_given() -> None:
    x = good.float()
    assert checked_features(x, "x") is x
    assert checked_weights(None, (good,)) is None
    weights = checked_weights(torch.full((6,), 1 / 6), (good,))
    assert weights is not None
    assert weights.dtype == torch.float64
    gram = checked_gram(torch.eye(2, dtype=torch.float16))
    assert (gram.values.dtype, gram.dtype, gram.epsilon) == (torch.float64, torch.float32, 2**-10)
    torch.testing.assert_close(gram.values, double([[1, 0], [0, 1]]))
