"""Products by tiles against the density matrix itself, their count, their memory, and what is refused."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

import condvne.core.tiles as tiles
from condvne.core.density import DensityState
from condvne.core.kernels import Gaussian, Kernel
from condvne.core.operators import KernelOperator, KernelOperators
from condvne.core.tiles import Precision
from condvne.errors import InputError
from tests.references import KERNELS, points, random_weights

N = 150  # two full tiles of 64 rows and a rest
TERMS = ((0,), (0, 1))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CPU_TILE", 64)


class Counting(Gaussian):
    """A Gaussian kernel that counts its evaluations and knows the largest."""

    calls = 0
    largest = 0

    def evaluate(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        values = super().evaluate(u, v)
        type(self).calls += 1
        type(self).largest = max(self.largest, values.numel())
        return values


def pairs(kernel: Kernel, weights: Tensor | None = None, shift: float = 0.0) -> DensityState:
    x, y = points(N, 3, 1), points(N, 2, 2)
    x, y = (x[:, :1] > 0).double() + x.round(), y.round()  # some rows are equal
    return DensityState((kernel, kernel), (x + shift + 0.25, y + shift + 0.25), weights)


def matrices(state: DensityState) -> list[Tensor]:
    return [state.marginal(term).density_matrix() for term in TERMS]


@pytest.mark.parametrize("memory", [None, 0], ids=["stored", "evaluated"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("name", KERNELS)
def test_products_and_squares_are_those_of_the_matrix(
    name: str, precision: Precision, tolerance: float, weighted: bool, memory: int | None
) -> None:
    state = pairs(KERNELS[name], random_weights(N, 3) if weighted else None)
    operators = KernelOperators.from_state(state, TERMS, precision=precision, memory=memory)
    vectors = [points(N, 4, 4), points(N, 1, 5)]
    for _ in range(2):  # the second pass may read what the first one stored
        products = operators.multiply(vectors)
        for product, A, V in zip(products, matrices(state), vectors, strict=True):
            assert product is not None
            assert product.dtype == torch.float64
            torch.testing.assert_close(product, A @ V, rtol=0, atol=tolerance)
    for purity, A in zip(operators.purities(), matrices(state), strict=True):
        assert float(purity) == pytest.approx(float(A.square().sum()), rel=10 * tolerance)
    assert operators.stored == ((True, True) if memory is None else (False, False))


def test_passes_and_columns_are_counted_and_squares_come_with_the_first_pass() -> None:
    operators = KernelOperators.from_state(pairs(Gaussian(1.3)), TERMS)
    operators.multiply([points(N, 3, 1), points(N, 5, 2)])
    operators.multiply([None, points(N, 2, 2)])
    operators.purities()
    assert operators.passes == 2
    assert operators.products == [3, 7]
    assert operators.multiply([None, None]) == [None, None]
    assert operators.passes == 2


def test_squares_asked_for_first_cost_one_pass_and_no_product() -> None:
    operators = KernelOperators.from_state(pairs(Gaussian(1.3)), TERMS)
    first = [float(p) for p in operators.purities()]
    assert [float(p) for p in operators.purities()] == first
    assert (operators.passes, operators.products) == (1, [0, 0])


@pytest.mark.parametrize(("memory", "passes_that_evaluate"), [(0, 3), (None, 1)])
def test_shared_sides_are_evaluated_once_a_pass_and_stored_ones_never_again(
    memory: int | None, passes_that_evaluate: int
) -> None:
    kernel = Counting(bandwidth=1.3)
    operators = KernelOperators.from_state(pairs(kernel), TERMS, memory=memory)
    Counting.calls = 0
    for _ in range(3):
        operators.multiply([points(N, 2, 1), points(N, 2, 2)])
    tiles = 3 * 4 // 2
    assert Counting.calls == passes_that_evaluate * tiles * 2  # x and y


def test_memory_decides_what_is_stored_and_the_size_of_tiles() -> None:
    state = pairs(Gaussian(1.3))
    working = 8 * 4 * 64**2  # two sides, two terms and four temporaries in float32
    half = 4 * N * (N + 64) // 2
    enough_for_one = KernelOperators.from_state(state, TERMS, memory=working + half)
    assert enough_for_one.tile == 64
    assert enough_for_one.stored == (True, False)
    little = KernelOperators.from_state(state, TERMS, memory=1)
    assert (little.tile, little.stored) == (tiles.LEAST_TILE, (False, False))
    V = points(N, 2, 1)
    for operators in (enough_for_one, little):
        for product, A in zip(operators.multiply([V, V]), matrices(state), strict=True):
            torch.testing.assert_close(product, A @ V, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["gaussian", "laplacian"])
def test_data_far_from_the_origin_lose_nothing_in_float32(name: str) -> None:
    near = KernelOperators.from_state(pairs(KERNELS[name]))
    far = KernelOperators.from_state(pairs(KERNELS[name], shift=1e5))
    V = points(N, 2, 1)
    torch.testing.assert_close(KernelOperator(near).matmat(V), KernelOperator(far).matmat(V), rtol=0, atol=1e-6)


def test_given_gram_matrices_are_multiplied_as_they_are() -> None:
    state = pairs(Gaussian(1.3))
    K_x, K_y = (k.gram(x) for k, x in zip(state.kernels, state.features, strict=True))
    w = random_weights(N, 3)
    V = points(N, 3, 4)
    for grams in ((K_x, K_x * K_y), (K_x.float(), (K_x * K_y).float())):
        operators = KernelOperators.from_grams(*grams, weights=w)
        expected = matrices(DensityState(state.kernels, state.features, w))
        for product, dense, A in zip(operators.multiply([V, V]), operators.dense(), expected, strict=True):
            torch.testing.assert_close(product, A @ V, rtol=0, atol=2e-6)
            torch.testing.assert_close(dense, A, rtol=0, atol=1e-6)
        assert operators.rounding is None
        assert operators.cheap == (True, True)


def test_given_gram_matrices_are_copied_only_to_round_them() -> None:
    K = torch.eye(N, dtype=torch.float64)
    assert KernelOperators.from_grams(K, precision="float64").stored == (False,)
    assert KernelOperators.from_grams(K, precision="float32").stored == (True,)


def test_one_operator_of_several_multiplies_its_own_matrix() -> None:
    state = pairs(Gaussian(1.3))
    operators = KernelOperators.from_state(state, TERMS)
    joint = KernelOperator(operators, term=1)
    V = points(N, 2, 1)
    torch.testing.assert_close(joint.matmat(V), matrices(state)[1] @ V, rtol=0, atol=2e-6)
    assert float(joint.frobenius()) == pytest.approx(float(matrices(state)[1].square().sum()), rel=1e-6)
    assert (joint.n, joint.products, operators.products) == (N, 2, [0, 2])


def test_the_loss_of_precision_is_measured() -> None:
    state = pairs(Gaussian(1.3))
    losses = {}
    precisions: tuple[Precision, ...] = ("float64", "float32", "bfloat16")
    for precision in precisions:
        rounding = KernelOperators.from_state(state, TERMS, precision=precision).rounding
        assert rounding is not None
        assert rounding.root_mean_square <= rounding.largest
        losses[precision] = rounding.largest
    assert losses["float64"] < 1e-15
    assert 0 < losses["float32"] < 1e-6
    assert 1e-4 < losses["bfloat16"] < 0.2


def test_labels_survive_bfloat16() -> None:
    labels = torch.arange(N, dtype=torch.float64)[:, None]
    operators = KernelOperators.from_state(DensityState((KERNELS["delta"],), (labels,)), precision="bfloat16")
    assert operators.rounding is not None
    assert operators.rounding.largest == 0


def test_the_callers_precision_settings_neither_matter_nor_change() -> None:
    state = pairs(Gaussian(1.3))
    V = points(N, 2, 1)
    expected = KernelOperator(KernelOperators.from_state(state, ((0, 1),))).matmat(V)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = KernelOperator(KernelOperators.from_state(state, ((0, 1),))).matmat(V)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(product, expected)


def test_weights_of_zero_take_their_points_out() -> None:
    w = random_weights(N, 3)
    w[:20] = 0
    w = w / w.sum()
    state = pairs(Gaussian(1.3), w)
    V = points(N, 2, 1)
    product = KernelOperator(KernelOperators.from_state(state)).matmat(V)
    assert float(product[:20].abs().max()) == 0
    assert bool(torch.isfinite(product).all())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: KernelOperators.from_state(pairs(Gaussian(1.0)), precision=cast(Precision, "half")),
            "precision must be one of",
        ),
        (lambda: KernelOperators.from_state(pairs(Gaussian(1.0)), precision="tf32"), "needs CUDA"),
        (lambda: KernelOperators.from_state(pairs(Gaussian(1.0)), memory=-1), "memory must be"),
        (
            lambda: KernelOperators.from_state(DensityState((Gaussian(1.0),), (points(5, 2, 1, 3),))),
            "one problem at a time",
        ),
        (
            lambda: KernelOperators.from_state(
                DensityState((Gaussian(1.0),), (points(5, 2, 1),), torch.ones(2, 5) / 5)
            ),
            "one problem at a time",
        ),
        (lambda: KernelOperators.from_grams(torch.eye(3), torch.eye(4)), "of one size"),
        (lambda: KernelOperators.from_grams(torch.ones(3, 4)), "square"),
        (lambda: KernelOperators.from_grams(), "Gram matrix"),
        (lambda: KernelOperators.from_state(pairs(Gaussian(1.0)), ()), "terms"),
        (lambda: KernelOperators.from_state(pairs(Gaussian(1.0)), ((0, 2),)), "terms"),
    ],
)
def test_what_cannot_be_multiplied_is_refused_with_a_reason(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(InputError, match=message):
        build()


def test_no_block_is_larger_than_a_tile() -> None:
    kernel = Counting(bandwidth=1.3)
    operators = KernelOperators.from_state(pairs(kernel), TERMS, memory=0)
    Counting.largest = 0
    operators.multiply([points(N, 2, 1), points(N, 2, 2)])
    assert Counting.largest == operators.tile**2 < N**2 // 4


def test_far_points_are_looked_for_once_and_not_in_every_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    original = Gaussian._any_far

    def counted(*square_norms: Tensor) -> bool:
        looked.append(1)
        return original(*square_norms)

    monkeypatch.setattr(Gaussian, "_any_far", staticmethod(counted))
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = DensityState((Gaussian(1.0),), (x,))
    operators = KernelOperators.from_state(state, memory=0)
    before = len(looked)
    operators.multiply([torch.ones(300, 1, dtype=torch.float64)])
    assert len(looked) == before
    far = DensityState((Gaussian(1e-3),), (x,))
    product = KernelOperators.from_state(far, memory=0).multiply([torch.ones(300, 1, dtype=torch.float64)])[0]
    torch.testing.assert_close(product, far.density_matrix() @ torch.ones(300, 1, dtype=torch.float64))
