"""The callback on real pipelines of every family, at tiny random weights."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from condvne.errors import DataError, InputError, RunError
from condvne.integrations.diffusers import ConditionalVNEGuidance, History, HistorySettings
from tests import pipelines

pytestmark = pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")  # of diffusers' own schedulers
PROMPTS = ["a one", "two of them"]
SMALL: dict[str, Any] = {"num_features": 64, "fit_after": 4}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def run(pipe: Any, guide: Any = None, prompts: Any = PROMPTS, n: int = 2, steps: int = 6, **options: Any) -> Tensor:
    """Final latents."""
    if guide is not None:
        options["callback_on_step_end"] = guide
        options.setdefault("callback_on_step_end_tensor_inputs", getattr(guide, "tensor_inputs", ["latents"]))
    size = {} if "strength" in options else {"height": pipelines.SIDE, "width": pipelines.SIDE}
    arguments = {
        "num_images_per_prompt": n,
        "num_inference_steps": steps,
        "generator": seeded(),
        "output_type": "latent",
    }
    images: Tensor = pipe(prompts, **{**arguments, **size, **options}).images
    return images


def guided(pipe: Any = None, **options: Any) -> ConditionalVNEGuidance:
    return ConditionalVNEGuidance(pipe, **{"history": HistorySettings(**SMALL), **options})


MAKERS: dict[str, Any] = {
    "sdxl": pipelines.sdxl,
    "sd15": pipelines.sd15,
    "sd3": pipelines.sd3,
    "flux": pipelines.flux,
    "turbo": lambda: pipelines.sdxl(
        diffusers.EulerAncestralDiscreteScheduler(beta_schedule="scaled_linear", timestep_spacing="trailing")
    ),
    "lcm": lambda: pipelines.sdxl(diffusers.LCMScheduler(beta_schedule="scaled_linear")),
    "lcm pipeline": lambda: pipelines.sd15(
        diffusers.LCMScheduler(beta_schedule="scaled_linear"), "LatentConsistencyModelPipeline"
    ),
}


@pytest.mark.parametrize("family", MAKERS)
def test_every_pipeline_is_guided_jointly_then_by_its_history(family: str) -> None:
    pipe = MAKERS[family]()
    guide = guided(pipe)
    plain, first, second = run(pipe), run(pipe, guide), run(pipe, guide)
    assert first.dtype == plain.dtype
    assert first.shape == plain.shape
    assert bool(torch.isfinite(second).all())
    assert not torch.equal(first, plain)
    assert not torch.equal(second, first)  # the same seeds, after other images
    moved = [r for r in guide.records if r.skipped is None]
    assert {r.route for r in moved if r.call == 0} == {"exact"}
    assert {r.route for r in moved if r.call == 1} == {"sketch"}
    assert all(r.before is not None and r.after is not None and r.after > r.before for r in moved)
    assert guide.history.images == len(guide.history) == 8
    assert guide.history.shape == tuple(plain.shape[1:])
    watched = {r.source for r in moved}
    assert watched == {"watched"} if family == "lcm pipeline" else "scaled latent" in watched


@pytest.mark.parametrize("kind", ["PixArtSigmaPipeline", "PixArtAlphaPipeline"])
def test_the_old_callback_is_adapted_and_the_new_one_refused(kind: str) -> None:
    pipe = pipelines.pixart(kind)
    options: dict[str, Any] = {"use_resolution_binning": False, "clean_caption": False}
    guide = guided()
    plain = run(pipe, **options)
    first = run(pipe, callback=guide.legacy(pipe, PROMPTS), **options)
    run(pipe, callback=guide.legacy(pipe, PROMPTS), **options)
    assert not torch.equal(first, plain)
    assert guide.counts["moved"] == 10
    assert guide.history.images == 8
    with pytest.raises(InputError, match="takes no callback_on_step_end and would ignore it silently"):
        ConditionalVNEGuidance(pipe)
    vectors = torch.eye(2)
    run(pipe, callback=guided().about(vectors).legacy(pipe), **options)
    with pytest.raises(InputError, match="handed over no prompt embedding"):
        run(pipe, callback=guided().legacy(pipe), **options)


@pytest.mark.parametrize(
    ("kind", "maker"),
    [("StableDiffusionXLImg2ImgPipeline", pipelines.sdxl), ("StableDiffusionImg2ImgPipeline", pipelines.sd15)],
)
def test_image_to_image(kind: str, maker: Any) -> None:
    pipe = maker(kind=kind)
    four = [*PROMPTS, *PROMPTS]
    image = torch.rand((4, 3, pipelines.SIDE, pipelines.SIDE), generator=seeded())
    guide = guided(pipe)
    plain = run(pipe, prompts=four, n=1, image=image, strength=0.6, steps=10)
    first = run(pipe, guide, prompts=four, n=1, image=image, strength=0.6, steps=10)
    assert not torch.equal(first, plain)
    assert guide.history.images == 4
    assert {r.source for r in guide.records if r.skipped is None} == {"scaled latent", "two states"}


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("maker", [pipelines.sdxl, pipelines.sd15])
def test_captions_are_the_positive_embeddings_with_and_without_classifier_free_guidance(
    maker: Any, scale: float
) -> None:
    pipe = maker()
    seen: dict[str, Tensor] = {}

    def keep(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        seen.update(given)
        return given

    name = guided(pipe).tensor_inputs[1]
    run(pipe, keep, callback_on_step_end_tensor_inputs=["latents", name], guidance_scale=scale)
    guide = guided(pipe, history=HistorySettings(route="exact"))
    run(pipe, guide, guidance_scale=scale)
    rows = guide.history.objective(torch.zeros(1, 1), 1.0).x_history  # type: ignore[attr-defined]
    expected = seen[name][-4:]
    expected = expected.mean(1) if expected.ndim == 3 else expected
    assert seen[name].shape[0] == (8 if scale > 1 else 4)
    torch.testing.assert_close(rows, expected / expected.norm(dim=1, keepdim=True))
    torch.testing.assert_close(rows[0], rows[1])  # two images of the first prompt
    assert float((rows[0] - rows[2]).norm()) > 0


SCHEDULERS: dict[str, Any] = {
    "DDIMScheduler": {"clip_sample": False, "steps_offset": 1},
    "EulerDiscreteScheduler": {},
    "DPMSolverMultistepScheduler": {},
    "DPMSolverSinglestepScheduler": {},
    "UniPCMultistepScheduler": {},
    "EulerAncestralDiscreteScheduler": {},
    "DDPMScheduler": {"clip_sample": False},
    "PNDMScheduler": {"skip_prk_steps": True, "steps_offset": 1},
    "HeunDiscreteScheduler": {},
    "LMSDiscreteScheduler": {},
    "DEISMultistepScheduler": {},
    "KDPM2DiscreteScheduler": {},
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_clean_latent_is_the_schedulers_own_prediction(name: str) -> None:
    """Where a step tells its prediction, what follows from consecutive states is the same."""
    scheduler = getattr(diffusers, name)(beta_schedule="scaled_linear", **SCHEDULERS[name])
    pipe = pipelines.sdxl(scheduler)
    predicted: list[Tensor | None] = []
    inner = scheduler.step

    def step(*args: Any, **options: Any) -> Any:
        result = inner(*args, **{**options, "return_dict": True})
        predicted.append(getattr(result, "pred_original_sample", None))
        return (result.prev_sample,)

    scheduler.step = step
    views: list[Any] = []

    class Watching(ConditionalVNEGuidance):
        def _view(self, *arguments: Any) -> Any:
            views.append((len(predicted), super()._view(*arguments)))
            return views[-1][1]

    guide = Watching(pipe, scale=0.0, history=HistorySettings(**SMALL))
    run(pipe, guide, steps=8)
    sources = [view.source for _, view in views]
    if name in ("EulerAncestralDiscreteScheduler", "DDPMScheduler"):
        assert set(sources) == {"scaled latent"}
    elif name.startswith(("DPMSolver", "UniPC")):
        assert set(sources) == {"solver"}
    else:
        assert sources[0] == "scaled latent"
        assert set(sources[2:]) == {"two states"}
    if name in ("DDIMScheduler", "EulerDiscreteScheduler"):
        for calls, view in views[1:]:
            expected = predicted[calls - 1]
            assert expected is not None
            torch.testing.assert_close(view.latents, expected, rtol=1e-3, atol=1e-3)
    assert all(bool(torch.isfinite(view.latents).all()) for _, view in views)
    if name in ("HeunDiscreteScheduler", "KDPM2DiscreteScheduler"):
        assert guide.counts["half step"] == 7
        assert len(views) == 8


@pytest.mark.parametrize("name", ["EulerAncestralDiscreteScheduler", "LCMScheduler", "EulerDiscreteScheduler"])
def test_a_watched_scheduler_tells_its_prediction_and_is_given_back(name: str) -> None:
    pipe = pipelines.sdxl(getattr(diffusers, name)(beta_schedule="scaled_linear"))
    plain = run(pipe)
    guide = guided(pipe)
    with guide.watching(pipe):
        first = run(pipe, guide)
    assert {r.source for r in guide.records} == {"watched"}
    assert not torch.equal(first, plain)
    torch.testing.assert_close(run(pipe), plain, rtol=0, atol=0)
    assert "step" not in vars(pipe.scheduler)


def test_a_move_of_the_clean_latent_is_carried_with_the_signal_of_the_state() -> None:
    """Flow matching: z = (1 - σ) clean + σ noise, so a step δ on the clean latent moves the state by (1 - σ) δ."""
    pipe = pipelines.sd3()
    states: list[tuple[Tensor, Tensor, float]] = []
    views: list[Any] = []

    class Keeping(ConditionalVNEGuidance):
        def callback_fn(self, pipeline: Any, *rest: Any) -> dict[str, Any]:
            given = rest[-1]["latents"].clone()
            result: dict[str, Any] = super().callback_fn(pipeline, *rest)
            sigma = float(pipeline.scheduler.sigmas[pipeline.scheduler.step_index])
            states.append((given, result["latents"], 1 - sigma))
            return result

        def _view(self, *arguments: Any) -> Any:
            views.append(super()._view(*arguments))
            return views[-1]

    guide = Keeping(pipe, scale=0.01, history=HistorySettings(**SMALL))
    run(pipe, guide)
    done = zip(states, views, guide.records, strict=True)
    moved = [(state, view) for state, view, r in done if r.source == "two states" and not r.skipped]
    assert moved
    for (before, after, alpha), view in moved:
        lengths = (after - before).flatten(1).norm(dim=1)
        torch.testing.assert_close(lengths, 0.01 * alpha * view.latents.flatten(1).norm(dim=1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("order", [1.0, 2.0, 1.5])
@pytest.mark.parametrize("route", ["sketch", "exact"])
@pytest.mark.parametrize("space", ["latent", "predicted_original"])
def test_orders_routes_and_spaces(order: float, route: Any, space: Any) -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, order=order, space=space, history=HistorySettings(route=route, **SMALL))
    run(pipe, guide)
    run(pipe, guide)
    moved = [r for r in guide.records if r.skipped is None]
    routes = {"sketch"} if route == "sketch" else {"order 2" if order == 2 else "exact"}
    assert {r.route for r in moved if r.call == 1} == routes
    assert all(r.after is not None and r.before is not None and r.after > r.before for r in moved)
    assert ({r.source for r in moved} == {"latent"}) == (space == "latent")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_pipelines_get_their_own_dtype_back(dtype: torch.dtype) -> None:
    pipe = pipelines.sdxl().to(dtype)
    guide = guided(pipe)
    plain, first = run(pipe), run(pipe, guide)
    assert first.dtype == plain.dtype == dtype
    assert not torch.equal(first, plain)
    assert bool(torch.isfinite(first).all())
    assert guide.counts["moved"] == 5


def test_captions_must_be_one_for_each_prompt() -> None:
    guide = ConditionalVNEGuidance(captions=lambda prompts: torch.ones(2, 7))
    with pytest.raises(InputError, match="captions gave 2 vectors for 4 prompts; give one for each"):
        guide.about(["a"] * 4)
    with pytest.raises(InputError, match="2 vectors for 0 prompts"):
        guide.about([])
    with pytest.raises(InputError, match="there are no captions"):
        guide.about(torch.ones(0, 3))


def test_scale_zero_gives_the_same_latents_bit_for_bit_and_still_fills_the_history() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, scale=0.0)
    assert torch.equal(run(pipe, guide), run(pipe))
    assert guide.history.images == 4


def test_raw_gradients_are_paper_a_and_clipped() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, scale=0.03, normalize="raw")
    run(pipe, guide)
    assert guide.counts["moved"] == 5
    assert all(r.clipped == 0 for r in guide.records)
    huge = guided(pipe, scale=1e6, normalize="raw", max_norm=0.02)
    with pytest.warns(UserWarning, match=r"steps are shortened to max_norm = 0\.02 of each latent's norm"):
        assert bool(torch.isfinite(run(pipe, huge)).all())
    assert max(r.clipped for r in huge.records) == 4


def test_a_target_already_reached_ends_the_push() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, target=0.0)
    assert torch.equal(run(pipe, guide), run(pipe))
    assert guide.counts["target reached"] == 5
    free = guided(pipe)
    run(pipe, free)
    first = next(r for r in free.records if r.skipped is None)
    assert first.before is not None
    assert first.after is not None
    near = guided(pipe, target=first.before + 0.3 * (first.after - first.before))
    run(pipe, near)
    moved = [r for r in near.records if r.skipped is None]
    assert moved
    assert moved[0].after == pytest.approx(near.settings.target, abs=0.1 * (first.after - first.before))


def test_start_stop_and_every() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, start=0.25, stop=0.8, every=2)
    run(pipe, guide, steps=10)
    assert [r.step for r in guide.records if r.skipped is None] == [2, 4, 6]


def test_features_of_the_users_own_and_pooled_ones() -> None:
    pipe = pipelines.sdxl()

    def brightness(latents: Tensor) -> Tensor:
        return latents.mean((2, 3))

    for features in (brightness, "pooled"):
        guide = guided(pipe, features=features)
        run(pipe, guide)
        run(pipe, guide)
        assert guide.counts["moved"] == 10
    with pytest.raises(InputError, match="no height and width to pool over"):
        run(pipelines.flux(), guided(pipelines.flux(), features="pooled"))
    with pytest.raises(InputError, match="no latent features 'edges'"):
        guided(features="edges")


def test_captions_by_an_encoder_or_as_vectors() -> None:
    pipe = pipelines.sdxl()

    def lengths(prompts: Any) -> Tensor:
        return torch.tensor([[len(p), 1.0] for p in prompts])

    guide = guided(pipe, captions=lengths)
    assert guide.tensor_inputs == ["latents"]
    with pytest.raises(InputError, match="tell the guide the prompts"):
        run(pipe, guide)
    run(pipe, guide.about(PROMPTS))
    assert guide.history.images == 4
    vectors = guided(pipe)
    run(pipe, vectors.about(torch.eye(2)))
    with pytest.raises(InputError, match="3 caption vectors do not go with 4 images"):
        run(pipe, guided(pipe).about(torch.eye(3)))
    with pytest.raises(InputError, match="prompts need an encoder"):
        guided(pipe).about("a one")
    with pytest.raises(InputError, match="must be finite"):
        guided(pipe).about(torch.full((1, 2), torch.nan))


def test_other_callbacks_in_the_chain_keep_their_keys() -> None:
    from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback

    class Counting(PipelineCallback):  # type: ignore[misc]
        tensor_inputs = ("add_time_ids",)
        calls = 0

        def callback_fn(self, pipeline: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
            self.calls += given["add_time_ids"] is not None
            return given

    pipe = pipelines.sdxl()
    guide, after = guided(pipe), Counting()
    chain = MultiPipelineCallbacks([guide, after])
    inputs = ["latents", "prompt_embeds", "add_text_embeds", "add_time_ids"]
    run(pipe, chain, callback_on_step_end_tensor_inputs=inputs)
    assert guide.history.images == 4
    assert after.calls == 6
    given = {"latents": torch.zeros(2, 4, 16, 16), "add_text_embeds": torch.eye(2), "other": 3}
    back = guided(pipe)(pipe, 0, 0, given)
    assert set(back) == set(given)
    assert back is not given


def test_outer_inference_mode() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)
    with torch.inference_mode():
        first = run(pipe, guide)
        run(pipe, guide)
    torch.testing.assert_close(first, run(pipe, guided(pipe)))
    assert guide.counts["moved"] == 10


def test_one_image_and_an_empty_history_have_nothing_to_differ_from() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)
    assert torch.equal(run(pipe, guide, prompts="", n=1), run(pipe, prompts="", n=1))  # an empty prompt, too
    assert guide.counts["alone"] == 5
    run(pipe, guide, prompts="", n=1)
    assert guide.counts["moved"] == 5


@pytest.mark.parametrize("prompts", [["", "a one"], ["", ""], ""])
def test_an_empty_prompt_is_a_caption_like_any_other(prompts: Any) -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)
    latents = run(pipe, guide, prompts=prompts)
    assert bool(torch.isfinite(latents).all())
    assert guide.counts["moved"] > 0
    assert guide.history.images == len(latents)


def test_identical_prompts_and_identical_images_are_guided_without_nan() -> None:
    pipe = pipelines.sdxl()
    same = torch.randn((1, 4, 16, 16), generator=seeded()).expand(4, -1, -1, -1)
    guide = guided(pipe)
    images = run(pipe, guide, prompts=["a one", "a one"], latents=same)
    assert bool(torch.isfinite(images).all())
    images = run(pipe, guide, prompts=["a one", "a one"], latents=same)
    assert bool(torch.isfinite(images).all())


def test_latents_that_are_not_finite_are_skipped_counted_and_warned_of_once() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)

    def broken(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = guide(pipe, step, timestep, {**given, "latents": given["latents"] * torch.nan})
        return {"latents": given["latents"] if step < 5 else result["latents"]}

    with pytest.warns(UserWarning, match="non-finite latents at step 0: skipped") as caught:
        run(pipe, broken, callback_on_step_end_tensor_inputs=guide.tensor_inputs)
    assert len([w for w in caught if "non-finite" in str(w.message)]) == 1
    assert guide.counts["non-finite latents"] == 5
    assert guide.counts["images not entered"] == 4
    assert guide.history.images == 0

    odd = guided(pipe, features=lambda z: z.flatten(1) + 0 * (z.flatten(1) - z.flatten(1).detach()).abs().sqrt())
    with pytest.warns(UserWarning, match="non-finite gradient"):
        plain = run(pipe, odd)
    assert torch.equal(plain, run(pipe))
    assert odd.counts["non-finite gradient"] == 5


def test_an_interrupted_call_leaves_the_history_as_it_was() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)
    run(pipe, guide)

    def interrupting(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        pipe._interrupt = step == 2
        result: dict[str, Any] = guide(pipe, step, timestep, given)
        return result

    run(pipe, interrupting, callback_on_step_end_tensor_inputs=guide.tensor_inputs)
    assert guide.records[-1].skipped == "interrupted"
    assert guide.history.images == 4
    run(pipe, guide)
    assert guide.history.images == 8

    def failing(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        if step == 2:
            raise KeyboardInterrupt
        result: dict[str, Any] = guide(pipe, step, timestep, given)
        return result

    with pytest.raises(KeyboardInterrupt):
        run(pipe, failing, callback_on_step_end_tensor_inputs=guide.tensor_inputs)
    run(pipe, guide)
    assert guide.history.images == 12
    assert guide.counts["interrupted runs"] == 2


def test_sharing_between_threads_pipelines_and_shapes_is_refused() -> None:
    pipe, other = pipelines.sdxl(), pipelines.sdxl()
    guide = guided(pipe)
    given = {"latents": torch.randn(2, 4, 16, 16), "add_text_embeds": torch.eye(2)}
    pipe._num_timesteps = other._num_timesteps = 4
    for each in (pipe, other):
        each.scheduler.set_timesteps(4)
    guide(pipe, 0, 0, given)
    with pytest.raises(RunError, match="for another pipeline"):
        guide(other, 1, 0, given)
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            guide(other, 0, 0, given)
        except RunError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "at work in another thread" in str(refused[0])
    guide.reset()
    run(pipe, guide)
    with pytest.raises(InputError, match="use one guide for each model and image size"):
        run(pipe, guide, height=64, width=64)


def test_more_images_than_the_capacity_are_refused_before_the_first_step_is_lost() -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe, history=HistorySettings(capacity=3, **SMALL))
    with pytest.raises(InputError, match="4 images in one call are more than the history's capacity of 3"):
        run(pipe, guide)
    assert guide.history.images == 0


def test_histories_are_saved_taken_up_and_refused_when_of_another_configuration(tmp_path: Path) -> None:
    pipe = pipelines.sdxl()
    guide = guided(pipe)
    run(pipe, guide)
    guide.history.save(tmp_path / "history.safetensors")
    again = guided(pipe)
    again.load(tmp_path / "history.safetensors")
    torch.testing.assert_close(run(pipe, again), run(pipe, guide), rtol=0, atol=0)
    with pytest.raises(InputError, match="num_features is 64 there and 128 here"):
        guided(pipe, history=HistorySettings(num_features=128, fit_after=4)).load(tmp_path / "history.safetensors")
    with pytest.raises(InputError, match="the history is of the features pooled, flattened"):
        guided(pipe, features="pooled", history=History.load(tmp_path / "history.safetensors"))
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"no\.safetensors: cannot be read"):
        guide.load(tmp_path / "no.safetensors")
    with pytest.raises(DataError, match=r"none\.safetensors: there is no such file; name a saved condvne guidance h"):
        guide.load(tmp_path / "none.safetensors")
    with pytest.raises(DataError, match="is a folder; name the file in it that holds the condvne guidance history"):
        guide.load(tmp_path)
    with pytest.raises(RunError, match=r"there is no folder .*missing; make it, or choose another"):
        guide.history.save(tmp_path / "missing" / "history.safetensors")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scale": -0.1}, "scale must be a finite number of at least 0"),
        ({"scale": float("nan")}, "scale must be a finite number"),
        ({"scale": float("inf")}, "scale must be a finite number"),
        ({"scale": 3.0}, "more than max_norm"),
        ({"max_norm": 0.0}, "max_norm must lie in"),
        ({"target": -1.0}, "target must be a conditional entropy"),
        ({"target": 1e9}, "1024 features have an entropy of at most 6.93"),
        ({"normalize": "none"}, "normalize must be"),
        ({"order": 0.0}, "it has no gradient"),
        ({"order": 9.0}, "use route='exact'"),
        ({"start": 0.9, "stop": 0.1}, "start and stop must be shares"),
        ({"every": 0}, "every must be an integer"),
        ({"space": "pixels"}, "space must be"),
        ({"captions": "clip"}, "captions must be"),
        ({"history": 3}, "history must be a History or HistorySettings, but is 3"),
        ({"pipe": 3}, "pipe must be a pipeline of diffusers, but is 3"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ConditionalVNEGuidance(**options)
