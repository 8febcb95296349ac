"""The matrix-free estimates: bounds, standard errors, gradients and work, against eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import condvne as cv
from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.lanczos import LanczosDifference, LanczosEstimate, difference, lanczos_entropies, lanczos_entropy
from condvne.core.operators import KernelOperator, KernelOperators
from condvne.core.spectral import matrix_entropy
from condvne.core.tiles import Precision
from condvne.errors import InputError
from tests.references import KERNELS, points, random_weights

PAIR = ((0,), (0, 1))
ESTIMATED_ORDERS = (0.5, 1.0, 1.5, 3.0, math.inf)
UNIT_KERNELS: dict[str, Kernel] = {
    "gaussian": cv.Gaussian(bandwidth=0.6),
    "laplacian": cv.Laplacian(bandwidth=4.0),
    "cosine": cv.Cosine(),
    "polynomial": cv.Polynomial(),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clusters(n: int, d: int, seed: int) -> Tensor:
    """Unit vectors (n, d) around 12 centres, float64."""
    generator = seeded(seed)
    centres = torch.randn(12, d, generator=generator, dtype=torch.float64)
    x = centres[torch.randint(12, (n,), generator=generator)]
    x = x + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    unit: Tensor = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return unit


def pair_state(kernel: Kernel, n: int, weights: Tensor | None = None, d: int = 24) -> DensityState:
    return DensityState((kernel, kernel), (clusters(n, d, 0), clusters(n, d, 1)), weights)


def exact(state: DensityState, order: float) -> list[Tensor]:
    return [matrix_entropy(state.marginal(term).density_matrix(), order) for term in PAIR]


def reading_of(estimate: LanczosEstimate | LanczosDifference) -> tuple[float, float, float]:
    return estimate.lower, estimate.upper, estimate.standard_error


def assert_holds(estimate: LanczosEstimate | LanczosDifference, value: float, rounding: float = 2e-6) -> None:
    lower, upper, error = reading_of(estimate)
    assert lower - 3 * error - rounding <= value <= upper + 3 * error + rounding


@pytest.mark.parametrize("order", ESTIMATED_ORDERS)
@pytest.mark.parametrize("name", UNIT_KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_brackets_hold_the_exact_entropies(name: str, order: float, weighted: bool) -> None:
    state = pair_state(UNIT_KERNELS[name], 500, random_weights(500, 2) if weighted else None)
    expected = [float(value) for value in exact(state, order)]
    estimates = lanczos_entropies(KernelOperators.from_state(state, PAIR), order)
    for estimate, value in zip(estimates, expected, strict=True):
        assert_holds(estimate, value)
        assert float(estimate.value) == pytest.approx(value, abs=0.1 if order < 1 else 0.01)
        assert estimate.products >= (estimate.deflation + estimate.probes * estimate.steps)
    assert_holds(difference(estimates[1], estimates[0]), expected[1] - expected[0])


@pytest.mark.parametrize("name", KERNELS)
def test_order_two_is_the_closed_form(name: str) -> None:
    state = pair_state(KERNELS[name], 400, random_weights(400, 2))
    for estimate, value in zip(
        lanczos_entropies(KernelOperators.from_state(state, PAIR), 2.0), exact(state, 2.0), strict=True
    ):
        assert float(estimate.value) == pytest.approx(float(value), abs=2e-6)
        assert estimate.standard_error < 1e-12
        assert estimate.products == 0


def test_coverage_and_standard_error_over_seeds() -> None:
    state = pair_state(UNIT_KERNELS["gaussian"], 500, random_weights(500, 2))
    H_x, H_xy = (float(value) for value in exact(state, 1.0))
    operators = KernelOperators.from_state(state, PAIR)
    truths, covered, errors, stated = (H_x, H_xy, H_xy - H_x), 0, [], []
    for seed in range(20):
        marginal, joint = lanczos_entropies(operators, generator=seeded(seed))
        conditional = difference(joint, marginal)
        for reading, truth in zip(
            (reading_of(marginal), reading_of(joint), reading_of(conditional)), truths, strict=True
        ):
            lower, upper, error = reading
            covered += lower - 3 * error <= truth <= upper + 3 * error
        errors.append([float(marginal.value) - H_x, float(joint.value) - H_xy, float(conditional.value) - truths[2]])
        stated.append([marginal.standard_error, joint.standard_error, conditional.standard_error])
    assert covered >= 58  # of 60
    spread = torch.tensor(errors).std(0) / torch.tensor(stated).mean(0)
    assert bool((spread > 0.6).all())
    assert bool((spread < 1.5).all())


def test_a_difference_of_like_matrices_is_more_precise_than_either() -> None:
    x = clusters(600, 24, 0)
    near = x + 0.01 * points(600, 24, 5)
    kernel = UNIT_KERNELS["gaussian"]
    operators = KernelOperators.from_state(DensityState((kernel, kernel), (x, near)), ((0,), (1,)))
    a, b = lanczos_entropies(operators)
    paired = difference(a, b)
    unpaired = math.hypot(a.standard_error, b.standard_error)
    assert paired.standard_error < 0.5 * unpaired
    expected = float(matrix_entropy(kernel.gram(x) / 600) - matrix_entropy(kernel.gram(near) / 600))
    assert_holds(paired, expected)


def test_separate_calls_with_equal_seeds_share_their_probes() -> None:
    state = pair_state(UNIT_KERNELS["gaussian"], 500)
    together = difference(*lanczos_entropies(KernelOperators.from_state(state, PAIR), generator=seeded(3)))
    apart = difference(
        *(lanczos_entropy(KernelOperators.from_state(state, (term,)), generator=seeded(3)) for term in PAIR)
    )
    assert apart.standard_error == pytest.approx(together.standard_error, rel=0.05)
    assert float(apart.value) == pytest.approx(float(together.value), abs=1e-4)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
class TestSpectraKnownBeforehand:
    def test_equal_points(self, order: float, precision: Precision) -> None:
        state = DensityState((cv.Gaussian(1.0),), (torch.ones(400, 3, dtype=torch.float64),))
        for memory in (None, 0):
            operators = KernelOperators.from_state(state, precision=precision, memory=memory)
            estimate = lanczos_entropy(operators, order)
            assert float(estimate.value) == pytest.approx(0.0, abs=2e-6)
            assert_holds(estimate, 0.0)

    def test_identity(self, order: float, precision: Precision) -> None:
        operators = KernelOperators.from_grams(torch.eye(400, dtype=torch.float64), precision=precision)
        assert float(lanczos_entropy(operators, order).value) == pytest.approx(math.log(400), abs=1e-6)

    @pytest.mark.parametrize("classes", [7, 210])
    def test_labels(self, classes: int, order: float, precision: Precision) -> None:
        labels = (torch.arange(420) % classes).double()[:, None]
        operators = KernelOperators.from_state(DensityState((cv.Delta(),), (labels,)), precision=precision)
        estimate = lanczos_entropy(operators, order)
        assert float(estimate.value) == pytest.approx(math.log(classes), abs=2e-4 if order < 1 else 2e-6)
        assert_holds(estimate, math.log(classes))


@pytest.mark.parametrize("order", [1.0, 3.0, math.inf])
@pytest.mark.parametrize("n", [1, 2, 60, 352])
def test_few_points_are_decomposed(n: int, order: float) -> None:
    state = DensityState((cv.Gaussian(0.6),), (clusters(n, 8, 0),))
    estimate = lanczos_entropy(KernelOperators.from_state(state), order)
    assert float(estimate.value) == pytest.approx(float(matrix_entropy(state.density_matrix(), order)), abs=1e-12)
    assert (estimate.standard_error, estimate.products, estimate.probes) == (0.0, 0, 0)
    assert estimate.lower == estimate.upper == float(estimate.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_matrices_of_the_users_own(dtype: torch.dtype) -> None:
    w = random_weights(500, 1)
    K = UNIT_KERNELS["gaussian"].gram(clusters(500, 24, 0))
    expected = float(matrix_entropy(w.sqrt()[:, None] * K * w.sqrt()))
    precisions: tuple[Precision, ...] = ("float32", "float64")
    for precision in precisions:
        operators = KernelOperators.from_grams(K.to(dtype), weights=w, precision=precision)
        assert_holds(lanczos_entropy(KernelOperator(operators)), expected)


def gradients(value: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(inputs))])


@pytest.mark.parametrize(
    ("name", "order"),
    [("gaussian", 1.0), ("gaussian", 1.5), ("gaussian", 3.0), ("laplacian", 1.0)]
    + [(name, order) for name in ("laplacian", "polynomial") for order in (2.0, math.inf)],
)
def test_gradients_are_those_of_the_exact_route_in_the_mean(name: str, order: float) -> None:
    kernel = cv.Laplacian(bandwidth=3.0) if name == "laplacian" else UNIT_KERNELS[name]
    inputs = [clusters(370, 12, 0), clusters(370, 12, 1), random_weights(370, 2)]
    for leaf in inputs:
        leaf.requires_grad_()
    state = DensityState((kernel, kernel), (inputs[0], inputs[1]), inputs[2])
    H_x, H_xy = exact(state, order)
    expected = torch.autograd.grad(H_xy - H_x, inputs)
    operators = KernelOperators.from_state(state, PAIR)
    runs = [difference(*reversed(lanczos_entropies(operators, order, generator=seeded(seed)))) for seed in range(6)]
    found = [torch.autograd.grad(run.value, inputs) for run in runs]
    for truth, seen in zip(expected, zip(*found, strict=True), strict=True):
        single = torch.stack(seen).flatten(1)
        assert float(torch.cosine_similarity(single, truth.flatten()[None], dim=1).min()) > 0.98
        error = torch.linalg.vector_norm(single.mean(0) - truth.flatten())
        noise = torch.linalg.vector_norm(single.std(0)) / math.sqrt(len(single))
        assert float(error) <= 1.5 * float(noise) + 2e-6 * float(torch.linalg.vector_norm(truth))


def test_gradients_of_a_low_rank_matrix_carry_no_noise_of_its_null_space() -> None:
    inputs = [clusters(400, 8, 0).requires_grad_(), random_weights(400, 2).requires_grad_()]
    state = DensityState((cv.Cosine(),), (inputs[0],), inputs[1])
    expected = gradients(matrix_entropy(state.density_matrix()), inputs)
    found = gradients(lanczos_entropy(KernelOperators.from_state(state)).value, inputs)
    assert float(torch.linalg.vector_norm(found - expected)) < 1e-4 * float(torch.linalg.vector_norm(expected))


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the number of elements of the largest tensor made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for item in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.untyped_storage().nbytes() // item.element_size())
        return made


@pytest.mark.parametrize("name", ["gaussian", "laplacian"])
def test_neither_values_nor_gradients_make_a_whole_matrix(name: str) -> None:
    n, d = 480, 12
    x, y = clusters(n, d, 0).requires_grad_(), clusters(n, d, 1).requires_grad_()
    w = random_weights(n, 2).requires_grad_()
    with Largest() as seen:  # type: ignore[no-untyped-call]
        operators = KernelOperators.from_state(DensityState((UNIT_KERNELS[name],) * 2, (x, y), w), PAIR, memory=1)
        marginal, joint = lanczos_entropies(operators, deflation=16, probes=4, steps=3)
        torch.autograd.grad(joint.value - marginal.value, (x, y, w))
    assert operators.tile**2 <= seen.elements < n * n // 4


def test_no_gradient_where_none_is_asked_for() -> None:
    x = clusters(400, 8, 0).requires_grad_()
    state = DensityState((cv.Gaussian(0.6), cv.Gaussian(0.6)), (x, clusters(400, 8, 1)))
    with torch.no_grad():
        assert not lanczos_entropies(KernelOperators.from_state(state, PAIR))[0].value.requires_grad
    conditional = difference(*reversed(lanczos_entropies(KernelOperators.from_state(state, PAIR))))
    conditional.value.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert state.features[1].grad is None


@pytest.mark.parametrize(("order", "least"), [(0.5, 3e-3), (1.0, 1e-3), (3.0, 3e-3)])
def test_a_tolerance_drives_the_work(order: float, least: float) -> None:
    state = DensityState((UNIT_KERNELS["gaussian"],), (clusters(600, 24, 0),))
    expected = float(matrix_entropy(state.density_matrix(), order))
    loose, tight = (
        lanczos_entropy(KernelOperators.from_state(state), order, tolerance=tolerance) for tolerance in (0.3, least)
    )
    assert loose.reached
    assert tight.reached
    assert loose.products < tight.products
    for estimate, tolerance in ((loose, 0.3), (tight, least)):
        assert (estimate.upper - estimate.lower) / 2 + 2 * estimate.standard_error <= tolerance
        assert abs(float(estimate.value) - expected) <= 2 * tolerance


def test_a_tolerance_is_met_at_once_where_the_leading_pairs_are_all_there_is() -> None:
    x = torch.randn(400, 1, generator=seeded(0), dtype=torch.float64)  # a smooth kernel on a line: rank 20 or so
    state = DensityState((cv.Gaussian(1.0),), (x,))
    estimate = lanczos_entropy(KernelOperators.from_state(state), tolerance=1e-3)
    assert estimate.reached
    assert float(estimate.value) == pytest.approx(float(matrix_entropy(state.density_matrix())), abs=1e-3)


def test_a_tolerance_out_of_reach_is_said_to_be() -> None:
    state = DensityState((UNIT_KERNELS["gaussian"],), (clusters(400, 24, 0),))
    estimate = lanczos_entropy(
        KernelOperators.from_state(state), tolerance=1e-9, deflation=4, probes=2, steps=1, generator=seeded(1)
    )
    assert not estimate.reached
    assert (estimate.upper - estimate.lower) / 2 + 2 * estimate.standard_error > 1e-9
    assert estimate.probes <= 16
    assert_holds(estimate, float(matrix_entropy(state.density_matrix())))


def test_generators_decide_and_the_global_one_is_left_alone() -> None:
    state = DensityState((UNIT_KERNELS["gaussian"],), (clusters(400, 24, 0),))
    before = torch.get_rng_state()
    values = [
        float(lanczos_entropy(KernelOperators.from_state(state), generator=g).value)
        for g in (seeded(1), seeded(1), seeded(2), None, None)
    ]
    assert values[0] == values[1] != values[2]
    assert values[3] == values[4]
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("memory", [None, 0])
def test_without_a_tolerance_sizes_are_those_asked_for(memory: int | None) -> None:
    state = DensityState((UNIT_KERNELS["gaussian"],), (clusters(400, 24, 0),))
    operators = KernelOperators.from_state(state, memory=memory)
    estimate = lanczos_entropy(operators, deflation=16, probes=5, steps=3)
    assert (estimate.deflation, estimate.probes, estimate.steps) == (16, 5, 3)
    assert estimate.contributions.shape == (5,)


def test_products_are_counted() -> None:
    state = pair_state(UNIT_KERNELS["gaussian"], 400)
    operators = KernelOperators.from_state(state, PAIR)
    few, many = (lanczos_entropies(operators, probes=probes, steps=5)[1].products for probes in (4, 20))
    leading = few - 4 * 5
    assert leading >= 64
    assert many - few == leading + 20 * 5  # operators count on


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0.0}, "order 0 is the rank"),
        ({"order": -1.0}, "order"),
        ({"order": math.nan}, "order"),
        ({"deflation": 0}, "deflation must be a whole number of at least 1, but is 0"),
        ({"probes": -3}, "probes must be"),
        ({"probes": 1}, "probes must be a whole number of at least 2"),
        ({"steps": 2.5}, "steps must be"),
        ({"steps": True}, "steps must be"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"tolerance": -1.0}, "tolerance must be positive"),
        ({"tolerance": math.nan}, "tolerance must be positive"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    operators = KernelOperators.from_grams(torch.eye(5, dtype=torch.float64))
    with pytest.raises(InputError, match=words):
        lanczos_entropies(operators, **options)


@pytest.mark.parametrize("n", [100, 500])
def test_an_indefinite_matrix_is_refused(n: int) -> None:
    x = clusters(n, 24, 0)
    K = torch.tanh(1 - 1.5 * torch.cdist(x, x).square()) / math.tanh(1.0)
    with pytest.raises(InputError, match="not positive semidefinite"):
        lanczos_entropy(KernelOperators.from_grams(K))


def test_one_matrix_where_there_are_two_is_refused() -> None:
    with pytest.raises(InputError, match="use lanczos_entropies"):
        lanczos_entropy(KernelOperators.from_state(pair_state(cv.Gaussian(1.0), 8), PAIR))


def test_a_weight_of_zero_has_no_gradient() -> None:
    w = random_weights(400, 0)
    w[0] = 0.0
    w = (w / w.sum()).requires_grad_()
    state = DensityState((cv.Gaussian(0.6),), (clusters(400, 8, 0),), w)
    estimate = lanczos_entropy(KernelOperators.from_state(state))
    assert_holds(estimate, float(matrix_entropy(state.density_matrix()).detach()))
    with pytest.raises(InputError, match="weights of zero"):
        torch.autograd.grad(estimate.value, w)
