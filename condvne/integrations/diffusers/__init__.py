"""Conditional-VNE guidance as a callback of diffusers pipelines.

    guide = ConditionalVNEGuidance(pipe)
    images = pipe(prompts, callback_on_step_end=guide, callback_on_step_end_tensor_inputs=guide.tensor_inputs).images

After each denoising step the current latents move up the gradient of the conditional von Neumann entropy of (caption,
latent) over all images made so far and the current ones (paper A, appendix E.4). Finished images enter `guide.history`.

The images of one call are guided jointly, so each depends on its siblings and on the history: the same seed in another
batch, or after other images, gives another image.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers.callbacks import PipelineCallback
from torch import Tensor

from condvne.core.spectral import checked_order
from condvne.errors import InputError, RunError
from condvne.integrations.diffusers.inputs import encoded_prompts, offered_inputs, pooled_captions
from condvne.integrations.diffusers.options import check_reachable, checked_window, opened
from condvne.integrations.diffusers.states import State, View, clean_view, is_whole, level_after, scaled_view
from condvne.tasks.guidance import (
    History,
    HistorySettings,
    LatentFeatures,
    Normalize,
    Objective,
    Push,
    PushSettings,
    latent_features,
    push,
    unit_captions,
)
from condvne.tasks.guidance.resolvents import fractions_of

__all__ = ["ConditionalVNEGuidance", "History", "HistorySettings", "StepRecord"]

Space = Literal["predicted_original", "latent"]
CaptionEncoder = Callable[[Sequence[str]], Tensor]

RECORDS = 10_000  # kept; older ones are dropped, their counts are not
FINISHED = 0.05  # a last state with less noise than this, relative to its clean part, is the image


@dataclass(frozen=True)
class StepRecord:
    """What the guide did after one denoising step.

    Attributes:
        call: number of the pipeline call, from 0.
        step: index of the step.
        source: what was moved: the clean latent from "two states", the "solver" or as "watched"; else the "scaled
            latent", or the "latent" where asked for. None where the step was not looked at.
        route: "exact", "order 2" or "sketch"; None where nothing was computed.
        before, after: conditional entropy of history and current images in nats, around the move.
        gradient_norm: largest norm over the batch.
        clipped: latents whose step was shortened.
        skipped: why nothing moved; None where it did.
        seconds: spent in the callback.
    """

    call: int
    step: int
    source: str | None
    route: str | None
    before: float | None
    after: float | None
    gradient_norm: float | None
    clipped: int
    skipped: str | None
    seconds: float


@dataclass
class _Run:
    """One call of a pipeline, from its first callback to its last."""

    number: int
    thread: int
    pipe: int
    total: int
    captions: Tensor
    before: State | None = None  # as given back after the last whole step
    states: int = 0  # whole steps so far
    objective: Objective | None = None
    history_entropy: float = 0.0


class ConditionalVNEGuidance(PipelineCallback):  # type: ignore[misc]
    """Moves latents towards images that differ from those already made for similar captions.

    Args:
        pipe: the pipeline to be guided; `tensor_inputs` are then those that it offers, and a pipeline without
            `callback_on_step_end` is refused. Without it the mean of `prompt_embeds` stands for a caption.
        scale: length of a step relative to each latent's norm; 0 changes nothing, bit for bit. With
            `normalize="raw"` the factor η of the raw gradient (paper A: 0.03).
        normalize: "relative" or "raw". Raw gradients shrink as the history grows.
        target: conditional entropy in nats at which the push ends (see `entropy`).
        max_norm: longest step relative to each latent's norm.
        order: α of the entropy; 2 is cheapest, at most 4 with a sketched history.
        start, stop: shares of the steps between which latents move.
        every: move at every k-th step.
        space: "predicted_original" moves the clean latent that the scheduler's state implies, "latent" the noisy one.
        captions: "pooled" for the pipeline's own prompt embedding, or a function of prompts (see `about`).
        features: of latents, "flattened", "pooled" (averaged to 16 × 16 cells), or a differentiable function of
            latents (b, …) to rows (b, d).
        history: images made so far, or the settings of a new history; by default a sketch of 1,024 features.

    Raises:
        InputError: an option out of range; a pipeline that would ignore the callback.

    After each step `records` gains a `StepRecord`; `counts` counts why steps were skipped, and runs interrupted.
    """

    def __init__(
        self,
        pipe: Any = None,
        *,
        scale: float = 0.01,
        normalize: Normalize = "relative",
        target: float | None = None,
        max_norm: float = 0.1,
        order: float = 1.0,
        start: float = 0.1,
        stop: float = 0.9,
        every: int = 1,
        space: Space = "predicted_original",
        captions: str | CaptionEncoder = "pooled",
        features: str | LatentFeatures = "flattened",
        history: History | HistorySettings | None = None,
    ) -> None:
        super().__init__()
        self.settings = PushSettings(scale, normalize, target, max_norm)
        self.order = checked_order(order)
        self.start, self.stop, self.every = checked_window(start, stop, every)
        if space not in ("predicted_original", "latent"):
            raise InputError(f"space must be 'predicted_original' or 'latent', but is {space!r}.")
        self.space = space
        if not callable(captions) and captions != "pooled":
            raise InputError(f"captions must be 'pooled' or a function of prompts, but is {captions!r}.")
        self._encoder = captions if callable(captions) else None
        features_name, self._features = latent_features(features)
        captions_name = captions if isinstance(captions, str) else latent_features(captions)[0]  # type: ignore[arg-type]
        self.history = opened(history, (captions_name, features_name))
        if self.history.settings.route == "sketch":
            fractions_of(self.order)  # refuses orders that the sketch cannot guide
            check_reachable(target, self.history.settings.num_features)
        self._inputs = ["latents", "prompt_embeds"] if pipe is None else offered_inputs(pipe, self._encoder is None)
        self.records: deque[StepRecord] = deque(maxlen=RECORDS)
        self.counts: Counter[str] = Counter()
        self._given: Tensor | None = None
        self._run: _Run | None = None
        self._calls = 0
        self._watched: Tensor | None = None
        self._warned = self._told_of_clipping = False

    @property
    def tensor_inputs(self) -> list[str]:
        """What the pipeline is to hand over: pass it as `callback_on_step_end_tensor_inputs`; Flux needs it said."""
        return list(self._inputs)

    def about(self, prompts: str | Sequence[str] | Tensor) -> ConditionalVNEGuidance:
        """This guide, told the captions of the next call: prompts for its encoder, or vectors (B, dx), one a prompt.

        Raises InputError where prompts come without an encoder, or vectors are not a matrix of finite numbers.
        """
        if isinstance(prompts, Tensor):
            vectors = prompts
        elif self._encoder is None:
            raise InputError("prompts need an encoder: pass captions=function, or give about() their vectors.")
        else:
            told = [prompts] if isinstance(prompts, str) else list(prompts)
            vectors = torch.as_tensor(self._encoder(told))
            if vectors.ndim == 2 and len(vectors) != len(told):
                raise InputError(f"captions gave {len(vectors)} vectors for {len(told)} prompts; give one for each.")
        if vectors.ndim == 2 and not vectors.numel():
            raise InputError("there are no captions; name the prompts of the next call.")
        if vectors.ndim != 2 or not bool(torch.isfinite(vectors).all()):
            raise InputError(f"caption vectors must be finite, (B, dx), but have shape {tuple(vectors.shape)}.")
        self._given = vectors.detach()
        return self

    def entropy(self) -> float:
        """Conditional entropy of the finished images in nats, of the guide's order and features."""
        return self.history.entropy(self.order)

    def load(self, path: str | Path) -> None:
        """Take up a saved history. Raises DataError for a file that is none, InputError for other settings."""
        loaded = History.load(path)
        differing = self.history.settings.difference(loaded.settings)
        if differing:
            raise InputError(f"{path}: is the history of another configuration, {differing}; use its settings.")
        self.history = loaded

    def reset(self) -> None:
        """Forget a call that was interrupted in another thread; the history stays."""
        self._run = None

    @contextmanager
    def watching(self, pipe: Any) -> Iterator[None]:
        """Inside, the clean latent is the scheduler's own prediction: for stochastic schedulers, and from step one."""
        scheduler = pipe.scheduler
        step = scheduler.step

        def watched(model_output: Any, timestep: Any, sample: Tensor, *args: Any, **options: Any) -> Any:
            wants = options.pop("return_dict", True)
            result = step(model_output, timestep, sample, *args, return_dict=True, **options)
            clean = getattr(result, "pred_original_sample", None)
            clean = getattr(result, "denoised", None) if clean is None else clean
            self._watched = None if clean is None else clean.detach().clone()
            return result if wants else (result.prev_sample, clean)

        scheduler.step = watched
        try:
            yield
        finally:
            del scheduler.step
            self._watched = None

    def callback_fn(
        self, pipeline: Any, step_index: int, timestep: Any, callback_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What the pipeline calls after each step; a fresh dict with all its keys goes back."""
        latents = callback_kwargs.get("latents")
        if latents is None:
            raise InputError(
                "the pipeline handed over no latents; pass callback_on_step_end_tensor_inputs=guide.tensor_inputs."
            )
        if callback_kwargs.get("denoised") is not None:  # LCM pipelines hand it over
            self._watched = callback_kwargs["denoised"].detach().clone()
        moved = self._after_step(pipeline, step_index, int(pipeline.num_timesteps), latents, callback_kwargs)
        return {**callback_kwargs, "latents": moved}

    def legacy(self, pipe: Any, prompts: str | Sequence[str] | None = None) -> Callable[[int, Any, Tensor], None]:
        """For pipelines with the old `callback=` alone (PixArt): `pipe(prompt, callback=guide.legacy(pipe, prompt))`.

        The old callback's value is ignored, so latents are edited in place. It sees no embeddings: prompts are encoded
        once here by the pipeline itself; without them `about` must have been told vectors.
        """
        if prompts is not None:
            if self._encoder is not None:
                self.about(prompts)
            else:
                self._given = encoded_prompts(pipe, [prompts] if isinstance(prompts, str) else list(prompts))

        def callback(step: int, timestep: Any, latents: Tensor) -> None:
            moved = self._after_step(pipe, step, len(pipe.scheduler.timesteps), latents, {})
            if moved is not latents:
                with torch.no_grad():
                    latents.copy_(moved)

        return callback

    def _after_step(self, pipe: Any, step: int, total: int, latents: Tensor, given: Mapping[str, Any]) -> Tensor:
        begin = time.perf_counter()
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(latents.device.type, enabled=False),
        ):
            run = self._entered(pipe, step, total, latents, given)
            if getattr(pipe, "_interrupt", False):
                self._note(run, step, begin, None, Push(None, skipped="interrupted"))
                self.counts["interrupted runs"] += 1
                self._run = None
                return latents
            if not is_whole(pipe.scheduler) and step + 1 < total:
                self._note(run, step, begin, None, Push(None, skipped="half step"))
                return latents
            state = State(latents.detach().clone().to(torch.float32), level_after(pipe.scheduler, step + 1, total))
            view = self._view(pipe.scheduler, run, state)
            done = self._pushed(run, step, total, view)
            back = latents
            if done.moved is not None:
                carried = state.latents + view.factor * (done.moved - view.latents)
                back = carried.to(latents.dtype)
                if not bool(torch.isfinite(back).all()):
                    back, done = latents, replace(done, moved=None, skipped="non-finite latents")
            run.states += 1
            run.before = State(back.detach().clone().to(torch.float32), state.level)
            self._note(run, step, begin, view.source, done)
            if step + 1 >= total:
                self._finish(run, view, run.before)
            return back

    def _entered(self, pipe: Any, step: int, total: int, latents: Tensor, given: Mapping[str, Any]) -> _Run:
        """The run that this callback belongs to; a new one at step 0."""
        thread, run = threading.get_ident(), self._run
        if run is not None and run.thread != thread and run.thread in {t.ident for t in threading.enumerate()}:
            raise RunError(
                "this guide is at work in another thread; give each thread its own guide and merge their histories "
                "(or call reset() where that run was given up)."
            )
        if run is not None and step > 0:
            if run.pipe != id(pipe):
                raise RunError("this guide is at work for another pipeline; give each pipeline its own guide.")
            return run
        if run is not None:
            self.counts["interrupted runs"] += 1
        shape = tuple(latents.shape[1:])
        if self.history.shape not in (None, shape):
            raise InputError(
                f"the history is of latents of shape {self.history.shape}, but this pipeline makes {shape}; "
                "use one guide for each model and image size."
            )
        captions = self._captions(latents, given)
        self.history.check(captions, self._features(latents.detach().clone().to(torch.float32)))
        self._run = _Run(self._calls, thread, id(pipe), total, captions)
        self._calls += 1
        return self._run

    def _captions(self, latents: Tensor, given: Mapping[str, Any]) -> Tensor:
        """One vector of unit norm for each latent, (b, dx), float32."""
        rows = latents.shape[0]
        if self._given is not None:
            vectors, self._given = self._given, None
            if rows % vectors.shape[0]:
                raise InputError(
                    f"{vectors.shape[0]} caption vectors do not go with {rows} images; give one for each prompt."
                )
            vectors = vectors.to(latents.device).repeat_interleave(rows // vectors.shape[0], dim=0)  # prompt-major
        else:
            if self._encoder is not None:
                raise InputError("tell the guide the prompts of this call: callback_on_step_end=guide.about(prompts).")
            vectors = pooled_captions(given, rows)
        return unit_captions(vectors.clone()).to(latents.device)

    def _view(self, scheduler: Any, run: _Run, state: State) -> View:
        if self.space == "latent":
            return scaled_view(state, "latent")
        watched, self._watched = self._watched, None
        return clean_view(scheduler, run.before, state, None if watched is None else watched.to(state.latents))

    def _pushed(self, run: _Run, step: int, total: int, view: View) -> Push:
        share = (step + 1) / total
        if self.settings.scale == 0:
            return Push(None, skipped="scale 0")
        if not self.start <= share <= self.stop or step + 1 >= total:
            return Push(None, skipped="outside start and stop")
        if run.states % self.every:
            return Push(None, skipped="between steps")
        if run.captions.shape[0] + len(self.history) < 2:
            return Push(None, skipped="alone")
        if run.objective is None:
            run.objective = self.history.objective(run.captions, self.order)
            run.history_entropy = self.history.entropy(self.order) if self.settings.target is not None else 0.0
        return push(run.objective, view.latents, self._features, self.settings, run.history_entropy)

    def _finish(self, run: _Run, view: View, last: State) -> None:
        noisy = last.level is not None and last.level.sigma > FINISHED * last.level.alpha
        latents = view.latents if noisy else last.latents
        self._run = None
        if not bool(torch.isfinite(latents).all()):
            self._warn("a finished image has non-finite latents")
            self.counts["images not entered"] += latents.shape[0]
            return
        self.history.add(run.captions, self._features(latents))
        self.history.shape = tuple(latents.shape[1:])

    def _note(self, run: _Run, step: int, begin: float, source: str | None, done: Push) -> None:
        route = run.objective.route if run.objective is not None and done.before is not None else None
        seconds = time.perf_counter() - begin
        self.records.append(
            StepRecord(
                run.number, step, source, route, done.before, done.after, done.gradient_norm, done.clipped,
                done.skipped, seconds,
            )
        )  # fmt: skip
        self.counts[done.skipped or "moved"] += 1
        if done.clipped and not self._told_of_clipping:
            self._told_of_clipping = True
            warnings.warn(
                f"steps are shortened to max_norm = {self.settings.max_norm:g} of each latent's norm, where scale "
                f"{self.settings.scale:g} says little; lower it.",
                stacklevel=4,
            )
        if done.skipped and done.skipped.startswith("non-finite"):
            self._warn(f"{done.skipped} at step {step}")

    def _warn(self, what: str) -> None:
        if not self._warned:
            warnings.warn(f"{what}: skipped; guide.counts has how often.", stacklevel=4)
        self._warned = True
