"""The configuration of `condvne guide`: pipeline, captions, guidance, and how guided and plain images are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from condvne.data.config.images import (
    ConditionEncoderChoice,
    Decoding,
    GroupSource,
    ImageEncoderChoice,
    Matching,
    Pictures,
)
from condvne.data.config.scoring import Distinct, Evaluation, KernelChoice, Kernels
from condvne.data.config.settings import Settings, load_yaml, validate


class Pipeline(Settings):
    """A text-to-image pipeline of diffusers."""

    path: str  # a folder, or a name on the hub
    revision: str | None = None
    variant: str | None = None  # e.g. fp16
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"


class ListedCaptions(Settings):
    """Captions written here."""

    source: Literal["list"]
    texts: list[str] = Field(min_length=1)


class TextCaptions(Settings):
    """A text file, a caption a line; also .gz or .zst."""

    source: Literal["text"]
    path: str
    count: int | None = Field(default=None, ge=1)  # the first so many; default all


class CocoCaptionFile(Settings):
    """MS-COCO's captions JSON: of each image, by its id, the caption of the lowest annotation id."""

    source: Literal["coco"]
    path: str
    count: int | None = Field(default=None, ge=1)


CaptionSource = Annotated[ListedCaptions | TextCaptions | CocoCaptionFile, Field(discriminator="source")]


class Sampling(Settings):
    """How images are drawn; guided and unguided ones alike."""

    steps: int = Field(default=30, ge=1)
    guidance_scale: float = Field(default=5.0, ge=0)  # classifier-free
    batch: int = Field(default=8, ge=1)  # images in one call: they are guided jointly
    height: int | None = Field(default=None, ge=8)
    width: int | None = Field(default=None, ge=8)
    negative_prompt: str | None = None


class Guidance(Settings):
    """Options of `ConditionalVNEGuidance`."""

    scale: float = Field(default=0.01, ge=0)
    normalize: Literal["relative", "raw"] = "relative"
    target: float | None = Field(default=None, ge=0)  # nats
    max_norm: float = Field(default=0.1, gt=0, le=1)
    order: float = Field(default=1.0, gt=0)
    start: float = Field(default=0.1, ge=0, le=1)
    stop: float = Field(default=0.9, ge=0, le=1)
    every: int = Field(default=1, ge=1)
    space: Literal["predicted_original", "latent"] = "predicted_original"
    features: Literal["flattened", "pooled"] = "flattened"
    watch: bool = False  # take the clean latent from the scheduler's own prediction


class HistoryChoice(Settings):
    """What is kept of the images made so far."""

    route: Literal["sketch", "exact"] = "sketch"
    caption: KernelChoice = KernelChoice()
    latent: KernelChoice = KernelChoice(multiplier=0.5)
    num_features: int = Field(default=1024, ge=4, multiple_of=4)
    fit_after: int = Field(default=16, ge=2)
    capacity: int | None = Field(default=None, ge=1)


def _no_text_counts() -> Evaluation:
    return Evaluation(distinct=Distinct(orders=[], unit="words"))


class GuideConfig(Settings):
    """`condvne guide`: guided and unguided images of one pipeline with the same seeds."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    pipeline: Pipeline
    captions: CaptionSource
    images_per_caption: int = Field(default=1, ge=1)
    sampling: Sampling = Sampling()
    guidance: Guidance = Guidance()
    history: HistoryChoice = HistoryChoice()
    save_every: int = Field(default=4, ge=1)  # calls between two saved histories: a kill loses at most these
    real: GroupSource | None = None  # images under the same captions: the reference of scores, precision and recall
    matching: Matching = Matching(unbalanced="trim")
    decoding: Decoding = Decoding()
    encoder: ImageEncoderChoice
    condition_encoder: ConditionEncoderChoice
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Field(default_factory=_no_text_counts)
    neighbours: int = Field(default=5, ge=1)  # of precision, recall and agreement
    agreement: bool = False  # share of images whose nearest real ones carry their caption: for few captions
    grid: Pictures = Pictures()

    @model_validator(mode="after")
    def _go_together(self) -> GuideConfig:
        if self.guidance.start > self.guidance.stop:
            raise ValueError("guidance.start must not be above guidance.stop")
        capacity = self.history.capacity
        if capacity is not None and capacity < self.sampling.batch:
            raise ValueError(f"history.capacity {capacity} is less than sampling.batch, {self.sampling.batch} images")
        if self.agreement and self.real is None:
            raise ValueError("agreement is with real images; give real, or leave agreement out")
        return self


def load_guide_config(path: str | Path) -> GuideConfig:
    """Read and validate a YAML configuration of `condvne guide`. Raises ConfigError naming file and key."""
    raw = load_yaml(path)
    evaluation = raw.get("evaluation")
    if isinstance(evaluation, dict) and "distinct" not in evaluation:
        raw = raw | {"evaluation": evaluation | {"distinct": {"orders": [], "unit": "words"}}}
    return validate(GuideConfig, raw, str(path))
