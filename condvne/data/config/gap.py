"""The configuration of `condvne gap`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from condvne.data.config.generating import CorpusSource, Generation, Model, Pairs, Paragraphs
from condvne.data.config.scoring import Encoder, Evaluation, Kernels
from condvne.data.config.settings import Settings, load_yaml, validate


class Recording(Settings):
    """Which pairs of a corpus a model continues, and how it decodes."""

    seed: int = Field(default=0, ge=0)
    device: str = "auto"  # "auto": CUDA where there is one, else the CPU
    corpus: CorpusSource
    paragraphs: Paragraphs = Paragraphs()
    pairs: Pairs
    model: Model
    generation: Generation = Generation()


class GapConfig(Recording):
    """`condvne gap`: a language model against the text it was trained on."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    encoder: Encoder = Encoder()
    chunk_tokens: int | None = Field(default=None, ge=1)  # embed chunks of so many tokens, vectors one after another
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _sizes_exist(self) -> GapConfig:
        too_large = [n for n in self.evaluation.sizes if n > self.pairs.count]
        if too_large:
            raise ValueError(f"evaluation.sizes asks for {too_large[0]} pairs, but pairs.count is {self.pairs.count}")
        return self


def load_gap_config(path: str | Path) -> GapConfig:
    """Read and validate a YAML configuration of `condvne gap`. Raises ConfigError naming file and key."""
    return validate(GapConfig, load_yaml(path), str(path))
