"""Sums of covariances: any split of a stream, in one process or several, is one pass over the whole."""

from __future__ import annotations

import json
import math
import multiprocessing as mp
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

import condvne as cv
from condvne.core.covariance import FLUSH_ROWS, SketchedCovariance
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy
from condvne.core.streams import SketchedStream
from tests.references import points, random_weights

R = 16
GAUSSIAN = cv.Gaussian(2.0)


def unit_rows(n: int, seed: int, r: int = R) -> Tensor:
    rows = points(n, r, seed)
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return unit


def accumulated(rows: Tensor, weights: Tensor | None = None, dtype: torch.dtype = torch.float64) -> SketchedCovariance:
    covariance = SketchedCovariance(rows.shape[1], dtype)
    covariance.update(rows, weights)
    return covariance


def pair_stream(seed: int = 0, r: int = 64) -> SketchedStream:
    kernels = (GAUSSIAN, cv.Cosine())
    return SketchedStream(JointSketch.draw(kernels, (3, 4), r, seed, dtype=torch.float64))


def pairs(n: int, seed: int) -> tuple[Tensor, Tensor]:
    return points(n, 3, seed), points(n, 4, seed + 100)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("r", [1, 7, R])
def test_sum_is_that_of_outer_products(weighted: bool, r: int) -> None:
    rows = unit_rows(50, 1, r)
    w = 3 * random_weights(50, 2) if weighted else torch.ones(50, dtype=torch.float64)
    covariance = accumulated(rows, w if weighted else None)
    expected = torch.einsum("i,ia,ib->ab", w, rows, rows)
    torch.testing.assert_close(covariance.sum(), expected, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(covariance.matrix(), expected / w.sum(), rtol=1e-13, atol=1e-14)
    assert covariance.count == 50
    assert covariance.weight == pytest.approx(float(w.sum()))


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_entropy_is_that_of_the_density_matrix_of_the_features(order: float) -> None:
    rows = unit_rows(30, 3, 40)
    expected = matrix_entropy(rows @ rows.mT / 30, order)
    assert float(accumulated(rows).entropy(order)) == pytest.approx(float(expected), abs=1e-12)


def test_blocks_in_any_order_are_one_pass() -> None:
    rows, w = unit_rows(101, 4), random_weights(101, 5)
    whole = accumulated(rows, w)
    blocks = SketchedCovariance(R, torch.float64)
    for start in (60, 0, 30):
        stop = {60: 101, 0: 30, 30: 60}[start]
        blocks.update(rows[start:stop], w[start:stop])
    torch.testing.assert_close(blocks.sum(), whole.sum(), rtol=1e-13, atol=1e-15)
    assert blocks.count == whole.count


def test_merged_parts_are_one_pass_and_the_other_part_is_left_alone() -> None:
    rows = unit_rows(90, 6)
    first, second, whole = accumulated(rows[:20]), accumulated(rows[20:]), accumulated(rows)
    first.merge(second)
    torch.testing.assert_close(first.sum(), whole.sum(), rtol=1e-13, atol=1e-14)
    assert (first.count, first.weight) == (90, 90.0)
    assert second.count == 70
    first.update(rows[:5])
    assert first.count == 95


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_taken_out_leave_the_rest(weighted: bool) -> None:
    rows = unit_rows(60, 7)
    w = random_weights(60, 8) if weighted else None
    covariance = accumulated(rows, w)
    covariance.downdate(rows[:25], None if w is None else w[:25])
    rest = accumulated(rows[25:], None if w is None else w[25:])
    torch.testing.assert_close(covariance.sum(), rest.sum(), rtol=1e-12, atol=1e-14)
    assert covariance.count == 35
    assert covariance.weight == pytest.approx(rest.weight)
    covariance.downdate(rows[25:], None if w is None else w[25:])
    assert (covariance.count, covariance.weight) == (0, 0.0)
    assert not covariance.sum().any()


def test_scaling_fades_old_samples_against_new_ones() -> None:
    rows = unit_rows(40, 9)
    faded = accumulated(rows[:20]).scaled(0.25)
    faded.update(rows[20:])
    w = torch.cat([torch.full((20,), 0.25), torch.ones(20)]).double()
    torch.testing.assert_close(faded.matrix(), accumulated(rows, w).matrix(), rtol=1e-13, atol=1e-15)
    assert faded.weight == pytest.approx(25.0)


def test_single_precision_products_lose_nothing_over_a_long_stream() -> None:
    rows = unit_rows(1000, 10).float()
    exact = accumulated(rows.double()).matrix()
    single = SketchedCovariance(R)
    for _ in range(20 * FLUSH_ROWS // 1000):
        for block in rows.split(100):  # type: ignore[no-untyped-call]
            single.update(block)
    assert single.count == 20_000
    assert (single.matrix() - exact).abs().max() < 2e-6 * exact.abs().max()


def test_features_are_detached() -> None:
    rows = unit_rows(20, 11).requires_grad_()
    assert not accumulated(rows).entropy().requires_grad


def test_a_stream_without_samples_has_no_entropy() -> None:
    for empty in (SketchedCovariance(R), accumulated(unit_rows(3, 1), torch.zeros(3))):
        with pytest.raises(cv.InputError, match="stream held no samples of positive weight: update"):
            empty.entropy()
    with pytest.raises(cv.InputError, match="stream held no samples"):
        pair_stream().estimate()
    none = SketchedCovariance(R)
    none.update(torch.empty(0, R))
    assert none.count == 0


def spoilt(value: float) -> Tensor:
    rows = unit_rows(8, 12)
    rows[[2, 5]] = value
    return rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(unit_rows(3, 1, 8)), r"features must have shape \(n, 16\), but have \(3, 8\)"),
        (lambda c: c.update(unit_rows(3, 1)[0]), r"must have shape \(n, 16\), but have \(16,\)"),
        (lambda c: c.update(spoilt(float("nan"))), r"row 2 has norm nan \(rows 2, 5\)"),
        (lambda c: c.update(spoilt(float("inf"))), r"row 2 has norm inf \(rows 2, 5\)"),
        (lambda c: c.update(3 * unit_rows(9, 1)), r"row 0 has norm 3 \(rows 0, 1, 2, 3, 4, … \(9 in all\)\)"),
        (lambda c: c.update(unit_rows(3, 1), torch.ones(4)), "weights must be 3 finite non-negative numbers"),
        (
            lambda c: c.update(unit_rows(2, 1), torch.tensor([1.0, -1.0])),
            "weights must be 2 finite non-negative",
        ),
        (lambda c: c.update(unit_rows(2, 1), torch.tensor([1.0, float("nan")])), "weights must be 2 finite"),
        (lambda c: c.downdate(unit_rows(11, 1)), "11 rows cannot be taken out of a covariance of 10"),
        (
            lambda c: c.downdate(torch.eye(R)[:1].repeat(9, 1)),
            "rows that were never added cannot be taken out",
        ),
        (lambda c: c.merge(SketchedCovariance(8)), "cannot be merged: num_features 16 and 8"),
        (lambda c: c.merge(SketchedCovariance(R, source="b")), "cannot be merged: source '' and 'b'"),
        (lambda c: c.scaled(0.0), r"factor must be positive and finite, but is 0\.0"),
    ],
)
def test_what_is_no_part_of_the_stream_is_refused_and_changes_nothing(
    change: Callable[[SketchedCovariance], object], message: str
) -> None:
    covariance = accumulated(unit_rows(10, 13))
    before = covariance.sum()
    with pytest.raises(cv.InputError, match=message):
        change(covariance)
    assert torch.equal(covariance.sum(), before)
    assert (covariance.count, covariance.weight) == (10, 10.0)


@pytest.mark.parametrize("num_features", [0, -1, 2.5, True])
def test_sizes_out_of_range_are_refused(num_features: int) -> None:
    with pytest.raises(cv.InputError, match="num_features of a covariance must be a positive integer"):
        SketchedCovariance(num_features)


def test_precisions_without_products_are_refused() -> None:
    with pytest.raises(cv.InputError, match="dtype of a covariance must be float32 or float64"):
        SketchedCovariance(4, torch.bfloat16)


def test_covariances_of_different_draws_or_sides_are_not_merged() -> None:
    first, second = pair_stream(seed=0), pair_stream(seed=1)
    with pytest.raises(cv.InputError, match="different features cannot be merged: source"):
        first.merge(second)
    joint = SketchedCovariance.of(first.sketch)
    with pytest.raises(cv.InputError, match="different features cannot be merged: source"):
        joint.merge(SketchedCovariance.of(first.sketch, (0,)))
    joint.merge(SketchedCovariance.of(pair_stream(seed=0).sketch))


def test_a_saved_covariance_is_gone_on_with(tmp_path: Path) -> None:
    rows, w = unit_rows(30, 14), random_weights(30, 15)
    covariance = accumulated(rows[:20], w[:20])
    covariance.save(tmp_path / "c.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]
    loaded = SketchedCovariance.load(tmp_path / "c.safetensors")
    loaded.update(rows[20:], w[20:])
    torch.testing.assert_close(loaded.sum(), accumulated(rows, w).sum(), rtol=1e-13, atol=1e-15)
    assert (loaded.count, loaded.dtype) == (30, torch.float64)
    assert loaded.weight == pytest.approx(1.0)


def test_a_damaged_covariance_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    settings = {"num_features": 3, "dtype": "float64", "source": "", "count": 1, "weight": 1.0}
    for total, changed, message in (
        (torch.eye(4).double(), settings, "the sum must be float64 of shape"),
        (torch.eye(3), settings, "the sum must be float64 of shape"),
        (torch.eye(3).double(), {**settings, "dtype": "int8"}, "settings of the covariance cannot be read"),
        (torch.eye(3).double(), {"count": 1}, "settings of the covariance cannot be read"),
    ):
        save_file({"sum": total}, path, {"kind": "condvne covariance", "settings": json.dumps(changed)})
        with pytest.raises(cv.DataError, match=message):
            SketchedCovariance.load(path)


def test_streams_merge_shrink_scale_and_save_as_one_pass(tmp_path: Path) -> None:
    x, y = pairs(120, 1)
    whole, first, second = pair_stream(), pair_stream(), pair_stream()
    whole.update(x, y)
    first.update(x[:50], y[:50])
    first.save(tmp_path / "stream")
    first = SketchedStream.load(tmp_path / "stream")
    second.update(x[50:], y[50:])
    extra = pairs(9, 2)
    second.update(*extra)
    second.downdate(*extra)
    first.merge(second.scaled(1.0))
    assert first.count == whole.count == 120
    for order in (1.0, 2.0):
        mine, theirs = first.estimate(order), whole.estimate(order)
        for field in ("value", "plain", "standard_error", "lower", "upper"):
            assert float(getattr(mine, field)) == pytest.approx(float(getattr(theirs, field)), abs=1e-10)


def test_a_stream_file_without_its_sums_is_refused(tmp_path: Path) -> None:
    pair_stream().sketch.save(tmp_path / "sketch")
    with pytest.raises(cv.DataError, match="a condvne stream was expected"):
        SketchedStream.load(tmp_path / "sketch")
    save_file({"a": torch.ones(1)}, tmp_path / "s", {"kind": "condvne stream", "settings": "{}"})
    with pytest.raises(cv.DataError, match="settings of the sketch cannot be read"):
        SketchedStream.load(tmp_path / "s")


def test_a_stream_of_one_side_gives_its_entropy() -> None:
    x = points(200, 3, 3)
    stream = SketchedStream(JointSketch.draw((GAUSSIAN,), (3,), 512, dtype=torch.float64))
    stream.update(x, weights=torch.full((200,), 2.0))
    found = stream.estimate()
    assert abs(float(found.value) - float(cv.entropy(x, kernel=GAUSSIAN))) < 2 * float(found.standard_error)


def test_memory_does_not_grow_with_the_stream() -> None:
    # 20 × 1,000 pairs, of which no more than one block may stay alive: everything a stream keeps is r × r or drawn.
    stream = pair_stream(r=32)
    kept = []
    for i in range(20):
        stream.update(*pairs(1000, i))
        held = [t for c in stream._covariances.values() for t in vars(c).values() if isinstance(t, Tensor)]
        kept.append(sum(t.untyped_storage().nbytes() for t in held))
    assert stream.count == 20_000
    assert kept == [kept[0]] * 20
    assert kept[0] == 2 * 2 * 32 * 32 * 8


def test_a_stream_may_begin_in_inference_mode() -> None:
    x, y = pairs(60, 5)
    with torch.inference_mode():
        stream = pair_stream()
        stream.update(x[:30], y[:30])
        first = stream.estimate()
    stream.update(x[30:], y[30:])
    whole = pair_stream()
    whole.update(x, y)
    assert float(stream.estimate().value) == pytest.approx(float(whole.estimate().value), abs=1e-12)
    assert math.isfinite(float(first.value))
    assert stream.sketch.features(x.requires_grad_(), y).requires_grad


def both_ranks(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(minutes=3)
    )
    x, y = pairs(50, 1)
    mine = slice(0, 37) if rank == 0 else slice(37, 50)
    stream, alone = pair_stream(), pair_stream()
    stream.update(x[mine], y[mine])
    if rank == 1:
        alone.update(x, y)  # rank 0 has no samples
    different = SketchedCovariance(4, source=f"draw {rank}")
    try:
        different.all_reduce()
        refusal = "none"
    except cv.InputError as error:
        refusal = str(error)
    together, lopsided = stream.all_reduce(), alone.all_reduce()
    found = {
        "counts": [stream.count, together.count, lopsided.count],
        "values": [float(together.estimate(a).value) for a in (1.0, 2.0)],
        "lopsided": [float(lopsided.estimate(a).value) for a in (1.0, 2.0)],
        "refusal": refusal,
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_two_processes_with_uneven_parts_are_one_pass() -> None:
    with tempfile.TemporaryDirectory() as folder:
        other = mp.get_context("spawn").Process(target=both_ranks, args=(1, folder))
        other.start()
        both_ranks(0, folder)
        other.join()
        assert other.exitcode == 0
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in (0, 1)]
    whole = pair_stream()
    whole.update(*pairs(50, 1))
    expected = [float(whole.estimate(a).value) for a in (1.0, 2.0)]
    assert [f["counts"] for f in found] == [[37, 50, 50], [13, 50, 50]]
    for f in found:
        assert f["values"] == pytest.approx(expected, abs=1e-12)
        assert f["lopsided"] == pytest.approx(expected, abs=1e-12)
        assert "ranks [1] have other settings than rank 0" in f["refusal"]


def test_without_a_process_group_the_sum_over_ranks_is_a_copy() -> None:
    covariance = accumulated(unit_rows(10, 1))
    copy = covariance.all_reduce()
    assert torch.equal(copy.sum(), covariance.sum())
    copy.update(unit_rows(1, 2))
    assert (covariance.count, copy.count) == (10, 11)


def test_a_stream_needs_a_sketch() -> None:
    with pytest.raises(cv.InputError, match=r"sketch must be a JointSketch, from JointSketch\.draw\(\.\.\.\), not str"):
        SketchedStream("x")  # type: ignore[arg-type]
