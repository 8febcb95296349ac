"""Images of a pipeline with a seed each, guided or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch

from condvne.errors import ConfigError
from condvne.integrations.diffusers import ConditionalVNEGuidance

if TYPE_CHECKING:
    from PIL.Image import Image


def load_pipeline(path: str, dtype: str, device: torch.device, revision: str | None, variant: str | None) -> Any:
    """The text-to-image pipeline in a folder or on the hub. Raises ConfigError where it cannot be loaded."""
    from diffusers import AutoPipelineForText2Image, DiffusionPipeline

    options = {"dtype": getattr(torch, dtype), "revision": revision, "variant": variant}
    try:
        try:
            pipe = AutoPipelineForText2Image.from_pretrained(path, **options)
        except ValueError:  # of a kind that the automatic choice does not know
            pipe = DiffusionPipeline.from_pretrained(path, **options)
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"pipeline.path: {path} cannot be loaded by diffusers ({reason}).") from error
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def takes_new_callbacks(pipe: Any) -> bool:
    """Whether a pipeline knows `callback_on_step_end`; PixArt and a few others know the old callback alone."""
    return "callback_on_step_end" in signature(pipe.__call__).parameters


class PipelineSampler:
    """Draws images by a pipeline.

    Args:
        pipe: a text-to-image pipeline.
        options: of every call, e.g. `num_inference_steps`; those that are None are left out.
        guide: moves the latents; None for plain sampling.
        watch: let the guide watch the scheduler's own predictions.
    """

    def __init__(
        self, pipe: Any, options: dict[str, Any], guide: ConditionalVNEGuidance | None = None, *, watch: bool = False
    ) -> None:
        self.pipe, self.guide, self.watch = pipe, guide, watch
        self.options = {name: value for name, value in options.items() if value is not None}

    def __call__(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """One image a prompt; each has a generator of its own, so its noise depends on its seed alone."""
        options = dict(self.options)
        if "negative_prompt" in options:
            options["negative_prompt"] = [options["negative_prompt"]] * len(prompts)
        guide, watching = self.guide, nullcontext()
        if guide is not None:
            if takes_new_callbacks(self.pipe):
                options |= {"callback_on_step_end": guide, "callback_on_step_end_tensor_inputs": guide.tensor_inputs}
            else:
                options["callback"] = guide.legacy(self.pipe, list(prompts))
            if self.watch:
                watching = guide.watching(self.pipe)  # type: ignore[assignment]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        with watching:
            images: list[Image] = self.pipe(list(prompts), generator=generators, output_type="pil", **options).images
        return images
