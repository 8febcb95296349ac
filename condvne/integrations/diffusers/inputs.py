"""What a pipeline hands to a callback, and the caption vectors in it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from condvne.errors import InputError

POOLED = ("add_text_embeds", "pooled_prompt_embeds", "prompt_embeds")  # the first that a pipeline offers is used


def offered_inputs(pipe: Any, needs_captions: bool) -> list[str]:
    """The tensors to ask this pipeline for. Raises InputError where it would ignore the callback."""
    if not callable(pipe):
        raise InputError(f"pipe must be a pipeline of diffusers, but is {pipe!r}.")
    if "callback_on_step_end" not in signature(pipe.__call__).parameters:
        raise InputError(
            f"{type(pipe).__name__} takes no callback_on_step_end and would ignore it silently; "
            "use pipe(prompt, callback=guide.legacy(pipe, prompt)) with a guide made without pipe."
        )
    offered = getattr(pipe, "_callback_tensor_inputs", ["latents"])
    caption = next((name for name in POOLED if name in offered), None)
    wanted = [caption] if caption and needs_captions else []
    return ["latents", *wanted, *(["denoised"] if "denoised" in offered else [])]


def encoded_prompts(pipe: Any, prompts: list[str]) -> Tensor:
    """Mean over the tokens of each prompt's own embedding, (B, dx)."""
    with torch.no_grad():
        embeddings, mask = pipe.encode_prompt(prompts, do_classifier_free_guidance=False)[:2]
    weights = mask.to(torch.float32)[..., None]
    mean: Tensor = (embeddings.to(torch.float32) * weights).sum(1) / weights.sum(1).clamp(min=1)
    return mean


def pooled_captions(given: Mapping[str, Any], rows: int) -> Tensor:
    """The pipeline's own embedding of each caption, (rows, dx), float32.

    Raises InputError where the pipeline handed over none, or not one an image.
    """
    name = next((n for n in POOLED if isinstance(given.get(n), Tensor)), None)
    if name is None:
        raise InputError(
            "the pipeline handed over no prompt embedding; pass callback_on_step_end_tensor_inputs="
            "guide.tensor_inputs, or vectors by guide.about(vectors)."
        )
    vectors: Tensor = given[name].detach()[-rows:]  # under classifier-free guidance the positive half comes last
    if vectors.shape[0] != rows:
        raise InputError(f"{name} has {vectors.shape[0]} rows for {rows} images; give vectors by about().")
    vectors = vectors.to(torch.float32)
    return vectors.mean(1) if vectors.ndim == 3 else vectors
