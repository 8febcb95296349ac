"""The configuration of `condvne temperature`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from condvne.data.config.gap import GapConfig
from condvne.data.config.generating import Model
from condvne.data.config.settings import Settings, load_yaml, validate


class Search(Settings):
    """The search for the temperature at which the model's conditional entropy is the training text's."""

    lower: float = Field(default=0.5, gt=0)
    upper: float = Field(default=2.0, gt=0)
    generations: int = Field(default=8, ge=2)  # at most so many temperatures are generated for the search
    tolerance: float = Field(default=0.02, gt=0)  # nats

    @model_validator(mode="after")
    def _ordered(self) -> Search:
        if self.lower >= self.upper:
            raise ValueError(f"lower, {self.lower:g}, must be below upper, {self.upper:g}")
        return self


REWEIGHTED = "reweighted"  # the group of the reweighted candidates


class Reweighted(Settings):
    """Candidates whose weights are projected until draws, one a prefix, are as diverse as the training text."""

    candidates: int = Field(default=10, ge=2)  # a prefix
    temperature: float = Field(default=1.0, gt=0)  # of the candidates
    num_features: int = Field(default=1024, ge=4)  # of the sketch, a multiple of 4
    tolerance: float = Field(default=0.02, gt=0)  # nats, from the training text's conditional entropy
    certificate: float = Field(default=1e-4, gt=0)  # of a projection, relative to λ log M
    max_iterations: int = Field(default=100, ge=1)


class TemperatureConfig(GapConfig):
    """`condvne temperature`: ancestral sampling at several temperatures, and at the one that matches the text."""

    temperatures: list[float] = Field(default=[0.5, 0.7, 0.85, 1.0, 1.2], min_length=1)
    search: Search | None = Search()  # null: no search
    reweight: Reweighted | None = None  # adds a row of reweighted candidates
    judge: Model | None = None  # an independent model that says how likely it finds the continuations
    neighbours: int = Field(default=5, ge=1)  # of the estimate of support

    @field_validator("temperatures")
    @classmethod
    def _positive(cls, value: list[float]) -> list[float]:
        if any(t <= 0 for t in value):
            raise ValueError("temperatures must be above 0")
        return sorted(set(value))

    @model_validator(mode="after")
    def _name_is_free(self) -> TemperatureConfig:
        if self.reweight is not None and any(s.name == REWEIGHTED for s in self.generation.strategies):
            raise ValueError(f"a strategy is named {REWEIGHTED}, as the reweighted candidates are; rename it")
        return self


def load_temperature_config(path: str | Path) -> TemperatureConfig:
    """Read and validate a YAML configuration of `condvne temperature`. Raises ConfigError naming file and key."""
    return validate(TemperatureConfig, load_yaml(path), str(path))
