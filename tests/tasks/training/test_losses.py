"""Losses are the entropies of `condvne` with a sign or a target, in any precision, and refuse what has no entropy."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.errors import InputError
from condvne.tasks.training import (
    ConditionalEntropyLoss,
    RepresentationEntropyLoss,
    conditional_entropy_loss,
    representation_entropy_loss,
)
from tests.references import points

X, Y = points(24, 3, 1), points(24, 4, 2)
KX, KY = cv.Gaussian(1.5), cv.Gaussian(2.0)
FITTED: dict[str, Any] = {"kernel_x": KX, "kernel_y": KY}
ORDERS = (0.0, 0.5, 1.0, 1.3, 2.0, 3.0, math.inf)


def leaf(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return x.detach().to(dtype).requires_grad_()


@pytest.mark.parametrize("kernels", [(KX, KY), ("cosine", KY), ("cosine", "cosine"), (cv.Laplacian(2.0), KY)])
@pytest.mark.parametrize("order", ORDERS)
def test_value_and_gradient_are_those_of_the_engine(kernels: tuple[Any, Any], order: float) -> None:
    x, y = leaf(X), leaf(Y)
    loss = conditional_entropy_loss(x, y, kernel_x=kernels[0], kernel_y=kernels[1], order=order)
    H = cv.conditional_entropy(x, y, kernel_x=kernels[0], kernel_y=kernels[1], order=order)
    assert loss.item() == pytest.approx(-H.item(), abs=1e-12)
    ours = torch.autograd.grad(loss, (x, y))
    theirs = torch.autograd.grad(-H, (x, y))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_lower_precision_is_computed_in_single(dtype: torch.dtype, order: float) -> None:
    x, y = X.to(dtype), leaf(Y, dtype)
    loss = conditional_entropy_loss(x, y, **FITTED, order=order)
    assert loss.dtype == torch.float32
    (gradient,) = torch.autograd.grad(loss, y)
    assert gradient.dtype == dtype
    wide = leaf(y)
    exact = -cv.conditional_entropy(x.double(), wide, **FITTED, order=order)
    (expected,) = torch.autograd.grad(exact, wide)
    assert loss.item() == pytest.approx(exact.item(), abs=1e-5)
    tolerance = 1e-4 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    assert (gradient - expected).norm() <= tolerance * expected.norm()


def test_batches_of_smooth_spectra_keep_their_gradient_in_single() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(300, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    single, double = leaf(y, torch.float32), leaf(y)
    conditional_entropy_loss(x.float(), single, **FITTED).backward()  # type: ignore[no-untyped-call]
    (-cv.conditional_entropy(x, double, **FITTED)).backward()
    assert single.grad is not None
    assert double.grad is not None
    assert (single.grad - double.grad).norm() <= 1e-3 * double.grad.norm()


def test_targets_pull_from_both_sides_and_leave_the_margin_alone() -> None:
    H = cv.conditional_entropy(X, Y, **FITTED).item()
    for target, margin, value, sign in ((H + 1, 0.25, 0.75, -1), (H - 0.5, 0.25, 0.25, 1), (H + 0.1, 0.25, 0.0, 0)):
        y = leaf(Y)
        loss = conditional_entropy_loss(X, y, **FITTED, target=target, margin=margin)
        assert loss.item() == pytest.approx(value, abs=1e-9)
        (gradient,) = torch.autograd.grad(loss, y)
        (of_entropy,) = torch.autograd.grad(cv.conditional_entropy(X, y, **FITTED), y)
        assert torch.allclose(gradient, sign * of_entropy)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
def test_groups_are_averaged(order: float) -> None:
    x, y = leaf(X.reshape(4, 6, 3)), leaf(Y.reshape(4, 6, 4))
    loss = conditional_entropy_loss(x, y, **FITTED, order=order, target=1.0)
    parts = torch.stack(
        [conditional_entropy_loss(a, b, **FITTED, order=order, target=1.0) for a, b in zip(x, y, strict=True)]
    )
    assert loss.item() == pytest.approx(parts.mean().item(), abs=1e-12)
    (together,), (apart,) = torch.autograd.grad(loss, y), torch.autograd.grad(parts.mean(), y)
    assert torch.allclose(together, apart)
    one = conditional_entropy_loss(x[0], y, **FITTED)  # conditions may be shared
    assert one.item() == pytest.approx(conditional_entropy_loss(x[:1].expand(4, 6, 3), y, **FITTED).item())


def test_representations_of_tokens_with_a_mask() -> None:
    hidden = leaf(points(30, 5, 3).reshape(3, 10, 5))
    mask = torch.arange(10) < torch.tensor([[10], [7], [3]])
    loss = representation_entropy_loss(hidden, mask=mask)
    alone = [cv.entropy(h[m], kernel="cosine") for h, m in zip(hidden, mask, strict=True)]
    assert loss.item() == pytest.approx(-torch.stack(alone).mean().item(), abs=1e-9)
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert float(gradient[~mask].abs().max()) < 1e-7
    assert RepresentationEntropyLoss()(hidden, mask).item() == pytest.approx(loss.item())


def test_weights_are_relative_and_carry_a_gradient() -> None:
    w = leaf(torch.rand(24, generator=torch.Generator().manual_seed(0)) + 0.1)
    loss = conditional_entropy_loss(X, Y, **FITTED, weights=w)
    assert loss.item() == pytest.approx(conditional_entropy_loss(X, Y, **FITTED, weights=5 * w).item())
    assert loss.item() == pytest.approx(-cv.conditional_entropy(X, Y, **FITTED, weights=w / w.sum()).item())
    assert torch.autograd.gradcheck(lambda w: conditional_entropy_loss(X, Y, **FITTED, weights=w), (w,))
    sketched = ConditionalEntropyLoss(KX, KY, num_features=32)
    assert torch.autograd.gradcheck(lambda w: sketched(X, Y, w), (w,))


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("num_features", [None, 8])
def test_double_backward(order: float, num_features: int | None) -> None:
    rows = 6 if num_features is None else 20  # of full rank: at order 0.5 null directions have no derivative
    x, y = leaf(X[:rows]), leaf(Y[:rows])
    loss = ConditionalEntropyLoss(KX, KY, order=order, num_features=num_features)
    assert torch.autograd.gradcheck(loss, (x, y))
    assert torch.autograd.gradgradcheck(loss, (x, y))


def test_no_graph_under_no_grad_and_nothing_is_remembered() -> None:
    loss = ConditionalEntropyLoss(KX, KY, num_features=16, decay=0.5)
    with torch.no_grad():
        value = loss(X, leaf(Y))
    assert not value.requires_grad
    assert loss.batches.running is not None
    assert not loss.batches.running.past
    assert value.item() == pytest.approx(loss(X, Y).item())


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_equal_rows_give_a_zero_gradient_and_one_warning(order: float) -> None:
    loss = ConditionalEntropyLoss(KX, KY, order=order)
    y = leaf(torch.ones(5, 4))
    with pytest.warns(UserWarning, match="all rows of a batch are equal"):
        value = loss(X[:5], y)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-9)
    assert y.grad is not None
    assert float(y.grad.abs().max()) < 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(X[:5], y)  # said once
    with pytest.warns(UserWarning, match="all rows of a batch are equal"):  # one group of two
        ConditionalEntropyLoss(KX, KY)(X[:10].reshape(2, 5, 3), torch.stack([Y[:5], torch.ones(5, 4)]))


def test_equal_rows_in_a_sketch_can_leave_each_other() -> None:
    loss = ConditionalEntropyLoss(KX, KY, num_features=16)
    y = leaf(torch.ones(5, 4))
    with pytest.warns(UserWarning, match="all rows of a batch are equal: what the sketch gives .* is its own noise"):
        value = loss(X[:5], y)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-9)
    assert y.grad is not None
    assert bool(torch.isfinite(y.grad).all())


@pytest.mark.parametrize("options", [{}, {"num_features": 16}, {"order": 2.0}])
def test_a_batch_of_one_row_gives_zero_with_a_warning_unless_others_are_remembered(options: dict[str, Any]) -> None:
    y = leaf(Y[:1])
    with pytest.warns(UserWarning, match="a batch of one row has entropy 0"):
        value = ConditionalEntropyLoss(KX, KY, **options)(X[:1], y)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-9)
    assert y.grad is not None
    assert float(y.grad.abs().max()) < 1e-6
    remembering = ConditionalEntropyLoss(KX, KY, num_features=16, decay=0.9)
    remembering(X, Y)
    (gradient,) = torch.autograd.grad(remembering(X[:1], y), y)
    assert float(gradient.abs().max()) > 1e-3


def test_equal_rows_do_not_fix_the_bandwidth() -> None:
    loss = ConditionalEntropyLoss()
    with pytest.warns(UserWarning, match="equal"):
        loss(torch.ones(4, 3), torch.ones(4, 2))
    assert [kernel.fixed_bandwidth for kernel in loss.batches.kernels] == [None, None]
    loss(X, Y)
    kept = [kernel.fixed_bandwidth for kernel in loss.batches.kernels]
    assert kept == [cv.Gaussian().fit(X).bandwidth, cv.Gaussian().fit(Y).bandwidth]
    loss(3 * X, 3 * Y)
    assert [kernel.fixed_bandwidth for kernel in loss.batches.kernels] == kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["cosine", KY, cv.Laplacian(2.0)])
def test_rank_deficient_batches_have_finite_gradients(dtype: torch.dtype, kernel: Any) -> None:
    y = leaf(Y[:6].repeat(4, 1), dtype)
    loss = conditional_entropy_loss(X.to(dtype), y, kernel_x=KX, kernel_y=kernel)
    loss.backward()  # type: ignore[no-untyped-call]
    assert y.grad is not None
    assert bool(torch.isfinite(y.grad).all())
    assert float(y.grad.abs().max()) > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("options", [{}, {"num_features": 16, "decay": 0.5}])
def test_features_that_are_not_finite_are_named(bad: float, options: dict[str, Any]) -> None:
    y = Y.clone()
    y[3, 1] = y[7, 0] = bad
    loss = ConditionalEntropyLoss(KX, KY, **options)
    with pytest.raises(InputError, match="y holds NaN or infinite values in rows 3, 7"):
        loss(X, y)
    assert math.isfinite(loss(X, Y).item())  # nothing of the bad batch stays
    with pytest.raises(InputError, match="x holds NaN or infinite values in rows 0"):
        loss(X.clone().index_fill_(0, torch.tensor([0]), bad), Y)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((X, Y[:5]), {}, "x has 24 rows and y has 5"),
        ((X[:0], Y[:0]), {}, "x is empty"),
        ((X, Y[0]), {}, "y must have shape"),
        ((X, Y, -torch.ones(24)), {}, "weights must be finite and non-negative, but are not at 0, 1, 2, 3, 4"),
        ((X, Y, torch.zeros(24)), {}, "all zero"),
        ((X, Y, torch.zeros(24)), {"num_features": 16}, "all zero"),
        ((X, Y, torch.ones(23)), {}, "weights must have 24 entries"),
        ((X, Y, torch.ones(2, 24)), {}, r"weights of one batch must have shape \(24,\)"),
        ((X.expand(2, 24, 3), Y.expand(2, 24, 4)), {"num_features": 16}, "a sketch takes one batch"),
    ],
)
def test_batches_without_an_entropy_are_refused(
    arguments: tuple[Tensor, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        ConditionalEntropyLoss(KX, KY, **options)(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": -1.0}, "target of an entropy loss must be finite and non-negative"),
        ({"target": math.nan}, "target of an entropy loss"),
        ({"target": 1.0, "margin": -0.1}, "margin of an entropy loss"),
        ({"margin": 0.1}, "margin=0.1 has no meaning without a target"),
        ({"order": -1.0}, "order must be"),
        ({"num_features": 10}, "multiple of 4"),
        ({"decay": 0.5}, "decay needs a sketch"),
        ({"num_features": 16, "decay": 1.0}, r"decay must be in \[0, 1\)"),
        ({"kernel_x": "none"}, "no kernel 'none'"),
        ({"method": "lanczos", "num_features": 16}, "method must be one of auto, fourier, .* but is 'lanczos'"),
        ({"method": "fourier"}, "method 'fourier' is of a sketch: give num_features, too"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ConditionalEntropyLoss(**options)


def test_mask_and_weights_exclude_each_other() -> None:
    with pytest.raises(InputError, match="either mask or weights"):
        representation_entropy_loss(Y, mask=torch.ones(24), weights=torch.ones(24))
    with pytest.raises(InputError, match="mask must have shape"):
        representation_entropy_loss(Y, mask=torch.ones(5))


@pytest.mark.parametrize("device_dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_left_outside(device_dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.copy_(points(4, 4, 5))
    with torch.autocast("cpu", dtype=device_dtype):
        y = layer(Y.float())
        assert y.dtype == device_dtype
        inside = conditional_entropy_loss(X.float(), y, **FITTED)
        sketched = ConditionalEntropyLoss(KX, KY, num_features=32)
        sketched_inside = sketched(X.float(), y)
    assert inside.dtype == sketched_inside.dtype == torch.float32
    assert inside.item() == conditional_entropy_loss(X.float(), y, **FITTED).item()
    assert sketched_inside.item() == sketched(X.float(), y).item()
    inside.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    assert bool(torch.isfinite(layer.weight.grad).all())


def test_a_scaler_that_overflows_skips_the_step_and_training_goes_on() -> None:
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    loss = ConditionalEntropyLoss(KX, KY, num_features=16, decay=0.5)
    before = layer.weight.detach().clone()
    skipped = 0
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            value = loss(X.float(), layer(Y.float()))
        scaler.scale(value).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
        if scaler.get_scale() < scale:
            assert torch.equal(layer.weight, before)
        before = layer.weight.detach().clone()
    assert 0 < skipped < 40
    assert loss.batches.running is not None
    assert all(bool(torch.isfinite(total).all()) for total in loss.batches.running.past.values())
    assert bool(torch.isfinite(layer.weight).all())


def test_a_state_goes_on_where_it_was_saved() -> None:
    options: dict[str, Any] = {"num_features": 16, "decay": 0.5}
    first = ConditionalEntropyLoss(**options)
    first(X, Y)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = ConditionalEntropyLoss(**options)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert first(X + 0.1, 2 * Y).item() == second(X + 0.1, 2 * Y).item()
    with pytest.raises(InputError, match="other kernels or num_features"):
        ConditionalEntropyLoss("cosine", "cosine").load_state_dict(first.state_dict())


def test_steps_raise_the_entropy_and_a_target_is_met() -> None:
    y = leaf(0.1 * Y)
    start = cv.conditional_entropy(X, y, **FITTED).item()
    optimizer = torch.optim.Adam([y], lr=0.02)
    loss = ConditionalEntropyLoss(KX, KY, target=start + 0.3, margin=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        value = loss(X, y)
        value.backward()
        optimizer.step()
    assert cv.conditional_entropy(X, y, **FITTED).item() == pytest.approx(start + 0.3, abs=0.06)
