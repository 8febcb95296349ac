"""The configuration of `condvne study`: one corpus and model, a grid of lengths, encoders and kernels."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from condvne.data.config.generating import CorpusSource, Generation, Model, Paragraphs
from condvne.data.config.scoring import Encoder, Evaluation, Kernels
from condvne.data.config.settings import Settings, load_yaml, validate

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class Grid(Settings):
    """What is varied: every combination is one cell."""

    prefix_tokens: list[int] = Field(default=[3], min_length=1)
    continuation_tokens: list[int] = Field(default=[2], min_length=1)
    chunk_tokens: list[int | None] = Field(default=[None], min_length=1)  # null: texts are embedded whole
    encoders: dict[str, Encoder] = Field(default={"encoder": Encoder()}, min_length=1)  # each with a name of its own
    kernels: dict[str, Kernels] = Field(default={"gaussian": Kernels()}, min_length=1)

    @field_validator("prefix_tokens", "continuation_tokens", "chunk_tokens")
    @classmethod
    def _positive(cls, value: list[int | None]) -> list[int | None]:
        if any(n is not None and n < 1 for n in value) or len(set(value)) < len(value):
            raise ValueError("lengths must be at least 1 token and differ from each other")
        return value

    @field_validator("encoders", "kernels")
    @classmethod
    def _named(cls, value: dict[str, Settings]) -> dict[str, Settings]:
        odd = [name for name in value if not name.replace("-", "").replace("_", "").replace(".", "").isalnum()]
        if odd:
            raise ValueError(f"{odd[0]!r} is no name for a folder; use letters, digits, '.', '_' and '-'")
        return value


class StudyConfig(Settings):
    """`condvne study`: a gap measured over a grid of settings that share pairs, generations and embeddings."""

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    corpus: CorpusSource
    paragraphs: Paragraphs = Paragraphs()
    count: int = Field(ge=1)  # pairs of each prefix length
    model: Model
    generation: Generation = Generation()
    grid: Grid
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _sizes_exist(self) -> StudyConfig:
        too_large = [n for n in self.evaluation.sizes if n > self.count]
        if too_large:
            raise ValueError(f"evaluation.sizes asks for {too_large[0]} pairs, but count is {self.count}")
        return self


def load_study_config(path: str | Path) -> StudyConfig:
    """Read and validate a YAML configuration of `condvne study`. Raises ConfigError naming file and key."""
    return validate(StudyConfig, load_yaml(path), str(path))
