"""One move of the current latents up the gradient of the conditional entropy: how far, and when not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.spectral import as_number
from condvne.errors import InputError
from condvne.tasks.guidance.objectives import Objective

Normalize = Literal["relative", "raw"]
NO_DIRECTION = 1e-6  # gradients this much shorter than the longest of the batch are rounding


@dataclass(frozen=True)
class PushSettings:
    """How far latents move.

    Attributes:
        scale: κ, the length of a step relative to each latent's norm ("relative"); or η, the factor of the raw
            gradient ("raw"; paper A uses 0.03).
        normalize: "relative" or "raw".
        target: conditional entropy in nats beyond which nothing is pushed; None for no end.
        max_norm: longest step relative to each latent's norm; longer ones are shortened to it.
    """

    scale: float = 0.01
    normalize: Normalize = "relative"
    target: float | None = None
    max_norm: float = 0.1

    def __post_init__(self) -> None:
        scale, longest = as_number(self.scale), as_number(self.max_norm)
        if scale is None or not 0 <= scale < math.inf:
            raise InputError(f"scale must be a finite number of at least 0, but is {self.scale!r}.")
        if self.normalize not in ("relative", "raw"):
            raise InputError(f"normalize must be 'relative' or 'raw', but is {self.normalize!r}.")
        if longest is None or not 0 < longest <= 1:
            raise InputError(
                f"max_norm must lie in (0, 1], as a share of each latent's norm, but is {self.max_norm!r}."
            )
        if self.normalize == "relative" and scale > longest:
            raise InputError(
                f"scale {self.scale:g} moves each latent by more than max_norm = {self.max_norm:g} of its own norm at "
                "every step; 0.005 to 0.02 are usual."
            )
        target = 0.0 if self.target is None else as_number(self.target)
        if target is None or not 0 <= target < math.inf:
            raise InputError(f"target must be a conditional entropy in nats, at least 0, but is {self.target!r}.")


@dataclass(frozen=True)
class Push:
    """What one move did.

    Attributes:
        moved: latents (b, …) after it, float32; None where nothing moved.
        before, after: H_α(Y|X) in nats; None where it was not computed.
        gradient_norm: largest norm over the batch, of the gradient in the latents.
        clipped: latents whose step was shortened to `max_norm`.
        skipped: why nothing moved; None where it did.
    """

    moved: Tensor | None
    before: float | None = None
    after: float | None = None
    gradient_norm: float | None = None
    clipped: int = 0
    skipped: str | None = None


def push(
    objective: Objective,
    latents: Tensor,
    features: Callable[[Tensor], Tensor],
    settings: PushSettings,
    history_entropy: float = 0.0,
) -> Push:
    """Move latents (b, …) up the gradient of the conditional entropy.

    Args:
        objective: of the current captions and the history.
        latents: float32, any shape behind b.
        features: latents to rows (b, d), differentiable.
        settings: how far.
        history_entropy: H_α(Y|X) of the finished images alone: a target it has reached ends the push, since the
            current images, seen half-way, are less diverse than they will be.

    Never raises for values that are not finite: the move is skipped and says why.
    """
    if not bool(torch.isfinite(latents).all()):
        return Push(None, skipped="non-finite latents")
    if settings.target is not None and history_entropy >= settings.target:
        return Push(
            None,
            before=history_entropy,
            after=history_entropy,
            skipped="target reached",
        )
    with torch.enable_grad():
        leaf = latents.detach().clone().requires_grad_()
        rows = features(leaf)
        objective = objective.at(rows.detach())
        found = objective.gradient(rows.detach())
        (gradient,) = torch.autograd.grad(rows, leaf, found.values.to(rows.dtype))
    if not (bool(torch.isfinite(gradient).all()) and math.isfinite(found.entropy)):
        return Push(None, skipped="non-finite gradient")
    lengths = _norms(gradient)
    longest = float(lengths.max())
    if settings.target is not None and found.entropy >= settings.target:
        return Push(None, found.entropy, found.entropy, longest, skipped="target reached")
    if longest == 0.0:
        return Push(None, found.entropy, found.entropy, 0.0, skipped="no gradient")
    step, clipped = _step(gradient, latents, settings)
    step = step * _share_to_target(found.entropy, float((gradient * step).sum()), settings.target)
    moved = latents.detach() + step
    after = objective.entropy(features(moved).detach())
    return Push(moved, found.entropy, after, longest, clipped)


def _step(gradient: Tensor, latents: Tensor, settings: PushSettings) -> tuple[Tensor, int]:
    lengths, sizes = _norms(gradient), _norms(latents.detach())
    if settings.normalize == "relative":
        known = lengths > NO_DIRECTION * lengths.max()
        return gradient / torch.where(known, lengths, torch.inf) * (settings.scale * sizes), 0
    wanted, allowed = settings.scale * lengths, settings.max_norm * sizes
    shrink = torch.where(wanted > allowed, allowed / wanted.clamp(min=1e-30), 1.0)
    return settings.scale * shrink * gradient, int((wanted > allowed).sum())


def _share_to_target(entropy: float, gain: float, target: float | None) -> float:
    """The share of a step that reaches the target, to first order."""
    if target is None or gain <= 0:
        return 1.0
    return min(1.0, (target - entropy) / gain)


def _norms(latents: Tensor) -> Tensor:
    """Of each latent, shaped to multiply it."""
    norms: Tensor = torch.linalg.vector_norm(latents.flatten(1), dim=1)
    return norms.reshape(-1, *(1,) * (latents.ndim - 1))
