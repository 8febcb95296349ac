"""Guidance by the gradient of the conditional von Neumann entropy (paper A, appendix E.4), as functions of tensors.

    history = History()                                # finished images and their captions
    objective = history.objective(captions, order=1.0)
    moved = push(objective, latents, flattened, PushSettings()).moved
    history.add(captions, flattened(finished))

Captions are (b, dx), latents (b, …). `condvne.integrations.diffusers` does this inside a pipeline.
"""

from condvne.tasks.guidance.features import (
    LatentFeatures,
    flattened,
    latent_features,
    pooled,
    unit_captions,
)
from condvne.tasks.guidance.history import History, HistorySettings, Route
from condvne.tasks.guidance.objectives import (
    ExactObjective,
    Gradient,
    Objective,
    SketchObjective,
)
from condvne.tasks.guidance.push import Normalize, Push, PushSettings, push

__all__ = [
    "ExactObjective",
    "Gradient",
    "History",
    "HistorySettings",
    "LatentFeatures",
    "Normalize",
    "Objective",
    "Push",
    "PushSettings",
    "Route",
    "SketchObjective",
    "flattened",
    "latent_features",
    "pooled",
    "push",
    "unit_captions",
]
