"""Settings of scoring: encoders, kernels, Distinct-n, sample sizes and robustness grids."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from condvne.data.config.settings import Settings


class Encoder(Settings):
    """What turns texts into vectors."""

    kind: Literal["sentence_transformer", "hashed_ngrams"] = "sentence_transformer"
    path: str = "Qwen/Qwen3-Embedding-0.6B"  # a folder, a hub name, or package:NAME for a packaged model
    batch_size: int = Field(default=64, ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    trust_remote_code: bool = False
    revision: str | None = None
    ngram_range: tuple[int, int] = (2, 4)  # hashed_ngrams only
    dimension: int = Field(default=1024, ge=2)  # hashed_ngrams only


class KernelChoice(Settings):
    """A kernel by name; `bandwidth: null` is the median heuristic on the reference group."""

    name: Literal["gaussian", "laplacian", "cosine", "polynomial"] = "gaussian"
    bandwidth: float | None = Field(default=None, gt=0)
    multiplier: float = Field(default=1.0, gt=0)
    degree: int = Field(default=3, ge=1)
    gamma: float = Field(default=1.0, gt=0)
    coef0: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _belong_together(self) -> KernelChoice:
        scaled = self.name in ("gaussian", "laplacian")
        if not scaled and (self.bandwidth is not None or self.multiplier != 1):
            raise ValueError(f"{self.name} has no bandwidth; leave out bandwidth and multiplier")
        if self.bandwidth is not None and self.multiplier != 1:
            raise ValueError("multiplier scales the median bandwidth; leave it out where bandwidth is given")
        if self.name != "polynomial" and (self.degree, self.gamma, self.coef0) != (3, 1, 1):
            raise ValueError(f"degree, gamma and coef0 belong to polynomial, not to {self.name}; leave them out")
        return self


class Kernels(Settings):
    """One kernel for the conditions, one for the outputs."""

    condition: KernelChoice = KernelChoice()
    output: KernelChoice = KernelChoice()


class Distinct(Settings):
    """Distinct-n: share of distinct n-grams among all n-grams of a group."""

    orders: list[int] = Field(default=[2, 3])
    unit: Literal["tokens", "words", "characters"] = "tokens"

    @field_validator("orders")
    @classmethod
    def _sane(cls, value: list[int]) -> list[int]:
        if any(n < 1 for n in value):
            raise ValueError("n-gram lengths must be at least 1")
        return sorted(set(value))


class Evaluation(Settings):
    """Sample sizes, subsamples and the grid on which robustness is judged."""

    sizes: list[int] = Field(default_factory=list)  # empty: one size, all that there is
    repeats: int = Field(default=5, ge=1)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    empty_texts: Literal["refuse", "drop"] = "refuse"
    distinct: Distinct = Distinct()
    robustness_orders: list[float] = Field(default=[0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
    robustness_multipliers: list[float] = Field(default=[0.25, 0.5, 1.0, 2.0, 4.0])
    robustness_size: int = Field(default=1000, ge=2)  # outputs of a group, at most
    method: Literal["auto", "exact", "lanczos"] = "auto"  # auto: matrix-free beyond a size measured on the device
    tolerance: float = Field(default=4e-3, gt=0)  # nats, of each matrix-free entropy
    population_size: int = Field(default=2000, ge=8)  # conditions for population values and tests, at most
    permutations: int = Field(default=999, ge=0)  # of the swap test; 0 leaves it out

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)

    @field_validator("sizes")
    @classmethod
    def _increasing(cls, value: list[int]) -> list[int]:
        if any(n < 1 for n in value):
            raise ValueError("sizes must be at least 1")
        return sorted(set(value))

    @model_validator(mode="after")
    def _grids(self) -> Evaluation:
        if any(not o >= 0 for o in self.robustness_orders):
            raise ValueError("robustness_orders must lie in [0, .inf]")
        if any(not 0 < m < math.inf for m in self.robustness_multipliers):
            raise ValueError("robustness_multipliers must be positive and finite")
        return self
