"""What a scheduler's state says of the clean latent, read from the scheduler itself after each step.

A state is z = α · clean + σ · noise. Schedulers in variance-exploding form (Euler, Heun, LMS, KDPM) have α = 1, flow
matching α = 1 - σ, the others α² + σ² = 1. A deterministic first-order step keeps clean and noise and changes α and σ,
so two consecutive states give both (for Euler: d = (z' - z) / (σ' - σ), clean = z - σ d); higher-order deterministic
steps do so on average over the step. Multistep solvers that predict clean latents keep the last one. Stochastic
schedulers tell it only to a watcher of `scheduler.step`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Source = Literal["two states", "solver", "watched", "scaled latent", "latent"]

DETERMINISTIC = {
    "DDIMScheduler",
    "DDIMParallelScheduler",
    "DEISMultistepScheduler",
    "EDMEulerScheduler",
    "EulerDiscreteScheduler",
    "FlowMatchEulerDiscreteScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "HeunDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "LMSDiscreteScheduler",
    "PNDMScheduler",
}
CLOSE = 1e-3  # states whose (α, σ) are this parallel tell clean and noise apart with too few digits


@dataclass(frozen=True)
class Level:
    """α and σ of a state."""

    alpha: float
    sigma: float

    @property
    def spread(self) -> float:
        """Standard deviation of a state whose clean latents have unit variance."""
        return math.hypot(self.alpha, self.sigma)


@dataclass(frozen=True)
class State:
    """Latents after a step, float32, and their level, where the scheduler tells it."""

    latents: Tensor
    level: Level | None


@dataclass(frozen=True)
class View:
    """What guidance moves: latents (b, …), and the factor by which a move is carried to the state."""

    latents: Tensor
    factor: float
    source: Source


def level_after(scheduler: Any, done: int, total: int) -> Level | None:
    """The level of the state after `done` of the `total` calls of a run; None for schedulers of unknown form."""
    index, sigmas = getattr(scheduler, "step_index", None), getattr(scheduler, "sigmas", None)
    if isinstance(sigmas, Tensor) and index is not None:
        return _of_sigma(scheduler, float(sigmas[min(int(index), len(sigmas) - 1)]))
    cumulative = getattr(scheduler, "alphas_cumprod", None)
    if not isinstance(cumulative, Tensor):
        return None
    remaining, timesteps = total - done, scheduler.timesteps
    if remaining <= 0:
        kept = float(getattr(scheduler, "final_alpha_cumprod", 1.0))
    elif remaining <= len(timesteps):
        kept = float(cumulative[int(timesteps[len(timesteps) - remaining])])
    else:
        return None
    return Level(math.sqrt(kept), math.sqrt(1 - kept))


def _of_sigma(scheduler: Any, sigma: float) -> Level:
    config = scheduler.config
    flow = "FlowMatch" in type(scheduler).__name__ or config.get("prediction_type") == "flow_prediction"
    if flow or config.get("use_flow_sigmas"):
        return Level(1 - sigma, sigma)
    if hasattr(scheduler, "_sigma_to_alpha_sigma_t"):
        alpha, of_noise = scheduler._sigma_to_alpha_sigma_t(torch.tensor(sigma, dtype=torch.float64))
        return Level(float(alpha), float(of_noise))
    return Level(1.0, sigma)


def is_whole(scheduler: Any) -> bool:
    """Whether the last call finished a step: second-order schedulers call back half-way as well."""
    return bool(getattr(scheduler, "state_in_first_order", True))


def clean_view(scheduler: Any, before: State | None, after: State, watched: Tensor | None = None) -> View:
    """The clean latent of the state after a step, from the best source there is; else the state at unit variance.

    Args:
        before: the state that the last step began from, as it was given back to the pipeline.
        after: the state now.
        watched: the scheduler's own prediction in the last step.
    """
    level = after.level
    if level is not None:
        if watched is not None:
            return View(watched, level.alpha, "watched")
        kept = _kept_by_solver(scheduler, after.latents)
        if kept is not None:
            return View(kept, level.alpha, "solver")
        clean = _of_two_states(scheduler, before, after)
        if clean is not None:
            return View(clean, level.alpha, "two states")
    return scaled_view(after)


def scaled_view(after: State, source: Source = "scaled latent") -> View:
    """The state divided by the standard deviation that its level implies, or by its own where no level is known."""
    spread = after.level.spread if after.level is not None else float(after.latents.std()) or 1.0
    return View(after.latents / spread, spread, source)


def _kept_by_solver(scheduler: Any, latents: Tensor) -> Tensor | None:
    config = scheduler.config
    clean = str(config.get("algorithm_type", "")).endswith("dpmsolver++") or bool(config.get("predict_x0"))
    outputs = getattr(scheduler, "model_outputs", None)
    if not clean or not outputs or not isinstance(outputs[-1], Tensor) or outputs[-1].shape != latents.shape:
        return None
    return outputs[-1].detach().to(latents)


def _of_two_states(scheduler: Any, before: State | None, after: State) -> Tensor | None:
    known = type(scheduler).__name__ in DETERMINISTIC and not scheduler.config.get("stochastic_sampling")
    if not known or before is None or before.level is None or after.level is None:
        return None
    if before.latents.shape != after.latents.shape:
        return None
    one, two = before.level, after.level
    determinant = two.sigma * one.alpha - one.sigma * two.alpha
    if abs(determinant) < CLOSE * one.spread * two.spread:
        return None
    return (two.sigma * before.latents - one.sigma * after.latents) / determinant
