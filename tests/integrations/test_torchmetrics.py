"""The metrics agree with the functions: over batches, over processes, saved, moved, and in half precision."""

from __future__ import annotations

import json
import math
import multiprocessing as mp
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric, MetricCollection

import condvne as cv
from condvne.core.sketched import sketched_conditional_entropy, sketched_entropy
from condvne.integrations.torchmetrics import ConditionalRKE, ConditionalVendiScore, VendiScore
from tests.references import points

X, Y = points(60, 3, 1), points(60, 4, 2)
KX, KY = cv.Gaussian(1.5), cv.Cosine()
R = 32
Make = Callable[..., Metric]


def vendi(**options: Any) -> Metric:
    return VendiScore(KX, 0.5, **options)


def conditional(**options: Any) -> Metric:
    return ConditionalVendiScore(KX, KY, 1.5, **options)


def conditional_rke(**options: Any) -> Metric:
    return ConditionalRKE(KX, KY, **options)


EXACT: dict[Make, Tensor] = {
    vendi: cv.vendi(X, kernel=KX, order=0.5),
    conditional: cv.conditional_vendi(X, Y, kernel_x=KX, kernel_y=KY, order=1.5),
    conditional_rke: cv.conditional_rke(X, Y, kernel_x=KX, kernel_y=KY),
}
SKETCHED: dict[Make, Tensor] = {
    vendi: sketched_entropy(X, KX, num_features=R, order=0.5).value.exp(),
    conditional: sketched_conditional_entropy(X, Y, (KX, KY), num_features=R, order=1.5).value.exp(),
    conditional_rke: sketched_conditional_entropy(X, Y, (KX, KY), num_features=R, order=2.0).value.exp(),
}
each_metric = pytest.mark.parametrize("make", list(EXACT), ids=lambda make: make.__name__)
each_mode = pytest.mark.parametrize("num_features", [None, R], ids=["exact", "sketched"])


def arguments(make: Make, rows: slice = slice(None)) -> tuple[Tensor, ...]:
    return (X[rows],) if make is vendi else (X[rows], Y[rows])


def expected(make: Make, num_features: int | None) -> float:
    return float((EXACT if num_features is None else SKETCHED)[make])


@each_metric
@each_mode
def test_batches_of_any_size_give_the_score_of_the_function(make: Make, num_features: int | None) -> None:
    metric = make(num_features=num_features)
    for rows in (slice(0, 1), slice(1, 30), slice(30, 60)):
        metric.update(*arguments(make, rows))
    score = metric.compute()
    assert score.shape == ()
    assert float(score) == pytest.approx(expected(make, num_features), rel=1e-4)


@each_metric
@each_mode
def test_forward_returns_the_batch_and_keeps_the_whole(make: Make, num_features: int | None) -> None:
    metric = make(num_features=num_features)
    first = metric(*arguments(make, slice(0, 25)))
    alone = make(num_features=num_features)
    alone.update(*arguments(make, slice(0, 25)))
    assert float(first) == pytest.approx(float(alone.compute()), rel=1e-6)
    metric(*arguments(make, slice(25, 60)))
    assert float(metric.compute()) == pytest.approx(expected(make, num_features), rel=1e-4)


@each_metric
@each_mode
def test_reset_forgets_and_compute_without_samples_says_so(make: Make, num_features: int | None) -> None:
    metric = make(num_features=num_features)
    metric.update(*arguments(make))
    metric.compute()
    metric.reset()
    assert getattr(metric, "last_estimate") is None  # noqa: B009
    with (
        pytest.warns(UserWarning, match="before the ``update`` method"),
        pytest.raises(cv.InputError, match=rf"{type(metric).__name__}: no samples yet; call update before compute"),
    ):
        metric.compute()
    metric.update(*arguments(make, slice(0, 10)))
    assert 1 <= float(metric.compute()) <= 10.5


@each_mode
def test_merged_metrics_are_one_pass(num_features: int | None) -> None:
    first, second = conditional(num_features=num_features), conditional(num_features=num_features)
    first.update(X[:40], Y[:40])
    second.update(X[40:], Y[40:])
    first.merge_state(second)
    assert float(first.compute()) == pytest.approx(expected(conditional, num_features), rel=1e-4)


def test_orders_share_a_collection_and_stay_apart() -> None:
    collection = MetricCollection({"first": VendiScore(KX, 1.0), "second": VendiScore(KX, 2.0)})
    for rows in (slice(0, 30), slice(30, 60)):
        collection.update(X[rows])
    for order, score in zip((1.0, 2.0), collection.compute().values(), strict=True):
        assert float(score) == pytest.approx(float(cv.vendi(X, kernel=KX, order=order)), rel=1e-5)


def test_an_open_bandwidth_is_the_median_of_all_samples() -> None:
    metric = ConditionalVendiScore()
    for rows in (slice(0, 30), slice(30, 60)):
        metric.update(X[rows], Y[rows])
    assert float(metric.compute()) == pytest.approx(float(cv.conditional_vendi(X, Y)), rel=1e-5)


def test_a_sketch_tells_its_error() -> None:
    metric = ConditionalVendiScore(KX, KY, num_features=512)
    metric.update(X, Y)
    metric.compute()
    found = metric.last_estimate
    assert found is not None
    exact = float(cv.conditional_entropy(X, Y, kernel_x=KX, kernel_y=KY))
    assert abs(float(found.value) - exact) < 2 * float(found.standard_error)


@each_metric
@each_mode
def test_features_are_detached_and_states_do_not_grow_under_sketches(make: Make, num_features: int | None) -> None:
    metric = make(num_features=num_features)
    given = [t.clone().requires_grad_() for t in arguments(make)]
    for _ in range(3):
        metric(*given)
    assert not metric.compute().requires_grad
    states = [s for state in metric.metric_state.values() for s in (state if isinstance(state, list) else [state])]
    assert not any(s.requires_grad for s in states)
    held = sum(s.numel() for s in states)
    sums = len(given) * R * R + len(given) + 2
    assert held == (sums if num_features else 3 * sum(t.numel() for t in given) + len(given) + 1)
    assert metric.is_differentiable is False
    assert metric.higher_is_better is True
    assert metric.full_state_update is False


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_metric
@each_mode
def test_half_precision_features_are_scored_in_single(make: Make, num_features: int | None, dtype: torch.dtype) -> None:
    metric, single = make(num_features=num_features).half(), make(num_features=num_features)
    given = [t.to(dtype) for t in arguments(make)]
    metric.update(*given)
    single.update(*(t.float() for t in given))
    assert metric.compute().dtype == torch.float32
    assert float(metric.compute()) == pytest.approx(float(single.compute()), rel=1e-6)


def test_double_is_kept_on_request_and_sums_are_always_double() -> None:
    exact = ConditionalVendiScore(KX, KY).set_dtype(torch.float64)
    exact.update(X, Y)
    assert float(exact.compute()) == pytest.approx(
        float(cv.conditional_vendi(X, Y, kernel_x=KX, kernel_y=KY)), abs=1e-12
    )
    sketched = conditional(num_features=R)
    sketched.update(X, Y)
    before = float(sketched.compute())
    sketched.set_dtype(torch.float16)
    assert getattr(sketched, "joint").dtype == torch.float64  # noqa: B009
    sketched.reset()
    sketched.update(X, Y)
    assert float(sketched.compute()) == pytest.approx(before, rel=1e-6)


@each_mode
def test_states_are_saved_on_request_and_gone_on_with(num_features: int | None) -> None:
    assert not conditional(num_features=num_features).state_dict()
    first = conditional(num_features=num_features, persistent=True)
    first.update(X[:40], Y[:40])
    second = conditional(num_features=num_features, persistent=True)
    second.load_state_dict(first.state_dict())
    second.update(X[40:], Y[40:])
    assert float(second.compute()) == pytest.approx(expected(conditional, num_features), rel=1e-4)
    other = ConditionalVendiScore(KX, KY, 1.6, num_features, persistent=True)
    other.load_state_dict(first.state_dict())
    with (
        pytest.warns(UserWarning, match="before the ``update`` method"),
        pytest.raises(cv.InputError, match="loaded state belongs to a metric of other settings"),
    ):
        other.compute()


@each_metric
@each_mode
def test_inference_mode_and_ordinary_mode_can_follow_each_other(make: Make, num_features: int | None) -> None:
    metric = make(num_features=num_features)
    with torch.inference_mode():
        metric(*arguments(make, slice(0, 20)))
        metric.compute()
    metric(*arguments(make, slice(20, 40)))
    with torch.inference_mode():
        metric.update(*arguments(make, slice(40, 60)))
        inside = float(metric.compute())
    assert inside == pytest.approx(expected(make, num_features), rel=1e-4)
    with torch.inference_mode():
        metric.reset()
    metric.update(*arguments(make))
    assert float(metric.compute()) == pytest.approx(expected(make, num_features), rel=1e-4)


@each_mode
def test_clones_are_independent(num_features: int | None) -> None:
    metric = conditional(num_features=num_features)
    metric.update(X[:40], Y[:40])
    clone = metric.clone()
    clone.update(X[40:], Y[40:])
    assert float(clone.compute()) == pytest.approx(expected(conditional, num_features), rel=1e-4)
    assert float(metric.compute()) != pytest.approx(float(clone.compute()), rel=1e-3)


def test_plots_show_one_value_or_several() -> None:
    matplotlib.use("agg")
    metric = vendi()
    values = [metric(X[rows]) for rows in (slice(0, 20), slice(20, 60))]
    _, axes = metric.plot()
    assert axes.get_ylim()[0] >= 0
    assert len(metric.plot(values)[1].lines) >= 1
    matplotlib.pyplot.close("all")


def test_bad_batches_are_refused_and_change_nothing() -> None:
    metric = conditional()
    metric.update(X[:30], Y[:30])
    spoilt = Y[30:].clone()
    spoilt[3] = math.nan
    for give in (metric.update, metric):
        for x, y, message in (
            (X[30:], spoilt, "y holds NaN or infinite values in rows 3"),
            (X[30:], Y[31:], "x has 30 rows and y has 29"),
            (X[30:, :2], Y[30:], r"x must have shape \(n, 3\), but has shape \(30, 2\)"),
            (X[30:][None], Y[30:], r"x must have shape \(n, 3\), but has shape \(1, 30, 3\)"),
            (X[:0], Y[:0], "x is empty"),
        ):
            with pytest.raises(cv.InputError, match=message):
                give(x, y)
    metric.update(X[30:], Y[30:])
    assert float(metric.compute()) == pytest.approx(expected(conditional, None), rel=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: VendiScore(num_features=64),
            r"Gaussian: a sketch needs a fixed bandwidth; fix it with kernel\.fit",
        ),
        (lambda: VendiScore(KX, num_features=6), "num_features must be a positive multiple of 4"),
        (lambda: VendiScore("delta", num_features=8), "Delta kernel has no random features"),
        (lambda: VendiScore(KX, num_features=8, method="tensor"), "cannot be sketched by 'tensor'"),
        (lambda: VendiScore(KX, -1.0), "order must be a number"),
        (lambda: VendiScore("nonesuch"), "no kernel 'nonesuch'"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(make: Callable[[], Metric], message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        make()


def test_metrics_of_other_settings_are_not_merged() -> None:
    first = VendiScore(KX, num_features=8)
    first.update(X)
    others = [VendiScore(KX, num_features=8, seed=1), VendiScore(cv.Gaussian(1.6), num_features=8)]
    for other in others:
        other.update(X)
    wide = VendiScore(KX, num_features=8)
    wide.update(Y)
    for other in (*others, wide):
        with pytest.raises(cv.InputError, match="metrics of different settings cannot be added up"):
            first.merge_state(other)


def both_ranks(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(minutes=3)
    )
    found: dict[str, Any] = {}
    for name, (make, num_features, split) in scenarios().items():
        metric = make(num_features=num_features)
        mine = slice(0, split) if rank == 0 else slice(split, None)
        for rows in (slice(mine.start, mine.start + 7), slice(mine.start + 7, mine.stop)):
            if len(X[mine]):
                metric.update(*arguments(make, rows))
        if not len(X[mine]):
            with pytest.warns(UserWarning, match="before the ``update`` method"):
                found[name] = float(metric.compute())
        else:
            found[name] = float(metric.compute())
            assert sum(len(t) for t in metric.metric_state.get("x", [])) in (0, X[mine].numel())  # ours again
    for name, different in {
        "bandwidth": VendiScore(cv.Gaussian(1.0 + rank)),
        "num_features": VendiScore(KX, num_features=8 + 8 * rank),
    }.items():
        different.update(X)
        try:
            different.compute()
        except cv.InputError as error:
            found[name] = str(error)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def scenarios() -> dict[str, tuple[Make, int | None, int]]:
    """Metric, sketch size, and how many of the 60 rows the first process has."""
    cases: dict[str, tuple[Make, int | None, int]] = {}
    for make in EXACT:
        for num_features in (None, R):
            for split in (41, 60):
                cases[f"{make.__name__} {num_features} {split}"] = (make, num_features, split)
    return cases


def test_two_processes_with_uneven_parts_or_none_give_the_score_of_one() -> None:
    with tempfile.TemporaryDirectory() as folder:
        other = mp.get_context("spawn").Process(target=both_ranks, args=(1, folder))
        other.start()
        both_ranks(0, folder)
        other.join()
        assert other.exitcode == 0
        both = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in (0, 1)]
    for found in both:
        for name, (make, num_features, _) in scenarios().items():
            assert found[name] == pytest.approx(expected(make, num_features), rel=1e-4), name
        for name in ("bandwidth", "num_features"):
            assert "metrics of different settings cannot be added up" in found[name]
    for name in scenarios():
        assert both[0][name] == pytest.approx(both[1][name], rel=1e-9)
