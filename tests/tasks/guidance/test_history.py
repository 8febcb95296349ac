from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from condvne import Cosine, Gaussian, conditional_entropy
from condvne.errors import DataError, InputError
from condvne.tasks.guidance import History, HistorySettings, PushSettings, flattened, pooled, push, unit_captions
from condvne.tasks.guidance.history import EQUAL_CAPTIONS


def images(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(3, (count,), generator=draw)
    return torch.eye(3)[kinds], torch.randn(count, 5, generator=draw) + 2 * torch.eye(5)[kinds]


SMALL: dict[str, Any] = {"num_features": 256, "fit_after": 8}


def test_the_first_images_are_exact_then_the_sketch_takes_over_and_stops_growing() -> None:
    history = History(HistorySettings(**SMALL))
    history.add(*images(4))
    assert history.objective(torch.eye(3), 1.0).route == "exact"
    history.add(*images(4, 1))
    assert history.sketch is not None
    x, y = (torch.cat(pair) for pair in zip(images(4), images(4, 1), strict=True))
    assert [k.fixed_bandwidth for k in history.sketch.kernels] == [
        Gaussian().fit(x).fixed_bandwidth, Gaussian(None, 0.5).fit(y).fixed_bandwidth,
    ]  # fmt: skip
    history.objective(torch.eye(3), 1.0)
    size = history.bytes
    for seed in range(2, 12):
        history.add(*images(30, seed))
    assert history.objective(torch.eye(3), 1.0).route == "sketch"
    assert history.bytes == size == 8 * (3 * 256**2 + 256)
    assert history.images == len(history) == 308


def test_the_sums_and_the_entropy_are_those_of_all_images() -> None:
    history = History(HistorySettings(**SMALL))
    parts = [images(20, seed) for seed in range(5)]
    for part in parts:
        history.add(*part)
    x, y = (torch.cat(side) for side in zip(*parts, strict=True))
    assert history.sketch is not None
    z = history.sketch.features(x, y).double()
    values, basis = history.spectrum()
    torch.testing.assert_close((basis * values) @ basis.mT, z.mT @ z, rtol=1e-5, atol=1e-5)
    kernels = dict(zip(("kernel_x", "kernel_y"), history.sketch.kernels, strict=True))
    exact = conditional_entropy(x.double(), y.double(), kernel_x=kernels["kernel_x"], kernel_y=kernels["kernel_y"])
    assert history.entropy() == pytest.approx(float(exact), rel=0.12)  # the sketch's own error at r = 256
    assert history.entropy(2.0) < history.entropy(1.0)
    one_by_one = History(HistorySettings(**SMALL))
    one_by_one.add(x[:20], y[:20])
    for i in range(20, 100):
        one_by_one.add(x[i : i + 1], y[i : i + 1])
    assert one_by_one.entropy() == pytest.approx(history.entropy(), abs=1e-5)


def test_an_empty_history_and_one_image_have_no_entropy() -> None:
    history = History()
    assert history.entropy() == 0.0
    history.add(torch.ones(1, 3), torch.ones(1, 5))
    assert history.entropy() == 0.0


@pytest.mark.parametrize("route", ["exact", "sketch"])
def test_capacity_forgets_the_oldest_or_fades(route: Any) -> None:
    history = History(HistorySettings(route=route, capacity=40, **SMALL))
    for seed in range(5):
        history.add(*images(20, seed))
    assert history.images == 100
    assert len(history) == 40
    if route == "exact":
        rows = history.objective(torch.eye(3), 1.0).y_history  # type: ignore[attr-defined]
        torch.testing.assert_close(rows, torch.cat([images(20, 3)[1], images(20, 4)[1]]))
    else:
        assert float(history.spectrum()[0].sum()) == pytest.approx(40.0, rel=1e-5)
    with pytest.raises(InputError, match="41 images in one call are more than the history's capacity of 40"):
        history.add(*images(41))


@pytest.mark.parametrize("route", ["exact", "sketch"])
@pytest.mark.parametrize("count", [4, 20])
def test_a_saved_history_goes_on_as_if_it_had_never_stopped(route: Any, count: int, tmp_path: Path) -> None:
    settings = HistorySettings(route=route, kernel_x=Cosine(), kernel_y=Gaussian(2.0), **SMALL)
    history = History(settings, shape=(4, 8, 8))
    history.add(*images(count))
    history.save(tmp_path / "h.safetensors")
    loaded = History.load(tmp_path / "h.safetensors")
    assert loaded.settings == settings
    assert (loaded.images, len(loaded), loaded.shape) == (count, count, (4, 8, 8))
    for each in (history, loaded):
        each.add(*images(10, 7))
    assert loaded.entropy() == history.entropy()
    y = images(3, 9)[1]
    one, two = (each.objective(torch.eye(3), 1.0).gradient(y) for each in (history, loaded))
    torch.testing.assert_close(one.values, two.values, rtol=0, atol=0)


def test_files_that_are_none_or_changed_are_refused(tmp_path: Path) -> None:
    history = History(HistorySettings(**SMALL))
    history.add(*images(10))
    assert history.sketch is not None
    history.sketch.save(tmp_path / "sketch.safetensors")
    with pytest.raises(DataError, match="a condvne guidance history was expected"):
        History.load(tmp_path / "sketch.safetensors")
    with pytest.raises(DataError, match="there is no such file; name a saved condvne guidance history"):
        History.load(tmp_path / "absent.safetensors")


def test_processes_fill_blank_copies_that_are_merged(tmp_path: Path) -> None:
    history = History(HistorySettings(**SMALL))
    history.add(*images(10))
    history.blank().save(tmp_path / "blank.safetensors")
    program = (
        "import sys, torch\nfrom condvne.tasks.guidance import History\n"
        "from tests.tasks.guidance.test_history import images\n"
        "h = History.load(sys.argv[1])\nh.add(*images(15, int(sys.argv[2])))\nh.save(sys.argv[3])\n"
    )
    for seed in (1, 2):
        target = str(tmp_path / f"{seed}.safetensors")
        arguments = [sys.executable, "-c", program, str(tmp_path / "blank.safetensors"), str(seed), target]
        subprocess.run(arguments, check=True)
        history.merge(History.load(target))
    alone = History(HistorySettings(**SMALL))
    for count, seed in ((10, 0), (15, 1), (15, 2)):
        alone.add(*images(count, seed))
    assert history.images == len(history) == 40
    assert history.entropy() == pytest.approx(alone.entropy(), abs=1e-6)


def test_histories_that_do_not_go_together_are_not_merged() -> None:
    history, other = History(HistorySettings(**SMALL)), History(HistorySettings(**SMALL))
    history.add(*images(10))
    other.add(*images(10, 1))
    with pytest.raises(InputError, match=r"different sketches or bandwidths cannot be merged; .*blank"):
        history.merge(other)
    with pytest.raises(InputError, match="seed is 3 there and 0 here"):
        history.merge(History(HistorySettings(seed=3, **SMALL)))
    rows, more = (History(HistorySettings(route="exact")) for _ in range(2))
    rows.add(*images(3))
    more.add(*images(4, 1))
    rows.merge(more)
    assert len(rows) == 7


def test_widths_and_numbers_must_agree() -> None:
    for route in ("exact", "sketch"):
        history = History(HistorySettings(route=route, **SMALL))
        history.add(*images(10))
        with pytest.raises(InputError, match="the history's latents have 5 numbers and these have 6"):
            history.add(torch.eye(3), torch.ones(3, 6))
        with pytest.raises(InputError, match="the history's captions have 3 numbers and these have 4"):
            history.add(torch.eye(4), torch.ones(4, 5))
        with pytest.raises(InputError, match="3 captions came with 2 images"):
            history.add(torch.eye(3), torch.ones(2, 5))
        assert len(history) == 10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"route": "fast"}, "route must be"),
        ({"num_features": 6}, "multiple of 4"),
        ({"fit_after": 1}, "fit_after must be an integer of at least 2"),
        ({"capacity": 0}, "capacity must be an integer of at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        HistorySettings(**options)


def test_equal_captions_leave_a_bandwidth_for_others() -> None:
    history = History(HistorySettings(**SMALL))
    history.add(torch.eye(3)[[0] * 10], images(10)[1])
    assert history.sketch is not None
    assert history.sketch.kernels[0] == Gaussian(EQUAL_CAPTIONS)
    found = history.objective(torch.eye(3), 1.0).gradient(images(3)[1])
    assert bool(torch.isfinite(found.values).all())


def test_unit_captions_keep_zeros() -> None:
    torch.testing.assert_close(
        unit_captions(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), torch.tensor([[0.6, 0.8], [0.0, 0.0]])
    )


def test_pooled_features_average_cells() -> None:
    latents = torch.arange(32.0).reshape(1, 2, 4, 4)
    rows = pooled(latents, side=2)
    assert rows.shape == (1, 8)
    assert float(rows[0, 0]) == pytest.approx(float(latents[0, 0, :2, :2].mean()) / math.sqrt(8))


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_pushes_raise_the_entropy_by_steps_of_the_length_asked_for(order: float) -> None:
    history = History(HistorySettings(**SMALL))
    history.add(*images(30))
    x, y = images(4, 3)
    latents = y.reshape(4, 5, 1, 1)
    objective = history.objective(x, order)
    found = push(objective, latents, flattened, PushSettings(scale=0.02))
    assert found.moved is not None
    moves = (found.moved - latents).flatten(1).norm(dim=1)
    torch.testing.assert_close(moves, 0.02 * latents.flatten(1).norm(dim=1))
    assert found.before is not None
    assert found.after is not None
    assert found.after > found.before
    assert found.before == pytest.approx(objective.entropy(flattened(latents)), abs=1e-9)
    raw = push(objective, latents, flattened, PushSettings(scale=1e9, normalize="raw", max_norm=0.05))
    assert raw.moved is not None
    assert raw.clipped == 4
    torch.testing.assert_close((raw.moved - latents).flatten(1).norm(dim=1), 0.05 * latents.flatten(1).norm(dim=1))


def test_targets_shorten_the_step_and_end_the_push() -> None:
    history = History(HistorySettings(**SMALL))
    history.add(*images(30))
    x, y = images(4, 3)
    latents, objective = y.reshape(4, 5, 1, 1), history.objective(x, 1.0)
    whole = push(objective, latents, flattened, PushSettings(scale=0.02))
    assert whole.before is not None
    assert whole.after is not None
    half = (whole.before + whole.after) / 2
    near = push(objective, latents, flattened, PushSettings(scale=0.02, target=half))
    assert near.after == pytest.approx(half, abs=0.05 * (whole.after - whole.before))
    reached = push(objective, latents, flattened, PushSettings(scale=0.02, target=whole.before - 0.01))
    assert (reached.moved, reached.skipped) == (None, "target reached")
    by_history = push(objective, latents, flattened, PushSettings(scale=0.02, target=9.0), history_entropy=9.1)
    assert by_history.skipped == "target reached"


def test_what_is_not_finite_is_skipped() -> None:
    history = History(HistorySettings(route="exact"))
    history.add(*images(6))
    latents = images(2)[1].reshape(2, 5, 1, 1)
    objective = history.objective(torch.eye(3)[:2], 1.0)
    broken = latents.clone()
    broken[0, 0] = math.inf
    assert push(objective, broken, flattened, PushSettings()).skipped == "non-finite latents"
    odd = push(
        objective, latents, lambda z: flattened(z) + 0 * (z - z.detach()).abs().sqrt().flatten(1), PushSettings()
    )
    assert (odd.skipped, odd.moved) == ("non-finite gradient", None)
