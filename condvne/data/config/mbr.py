"""The configuration of `condvne mbr`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from condvne.data.config.generating import (
    NUCLEUS,
    BatchSize,
    CorpusSource,
    HubCorpus,
    Model,
    Paragraphs,
    Strategy,
    named_strategy,
)
from condvne.data.config.scoring import Encoder, Kernels
from condvne.data.config.settings import Settings, load_yaml, validate

Method = Literal["mc", "mbmbr", "mbmbr_l", "cvs"]
MeasureName = Literal["rouge_l", "bertscore", "cosine"]
MetricName = Literal["rouge_l", "bertscore", "cosine", "distinct_2", "self_bleu_2", "conditional_vendi"]
MODEL_BASED: tuple[Method, ...] = ("mbmbr", "mbmbr_l")  # they need log-probabilities
AGAINST_REFERENCES: tuple[MeasureName, ...] = ("rouge_l", "bertscore", "cosine")


class FileInputs(Settings):
    """Inputs in a table file (JSONL, JSON, CSV, TSV, also .gz, .zst): a text and its references a row."""

    source: Literal["file"]
    path: str
    condition_field: str = "condition"
    references_field: str | None = "references"  # a text or a list of them
    id_field: str | None = "id"  # null: row numbers


class HubInputs(HubCorpus):
    """Inputs in a data set of the Hugging Face hub, or one saved on disk; `text_field` is the input's text."""

    references_field: str | None = None


class CorpusInputs(Settings):
    """Beginnings of a corpus's paragraphs, each with what follows in the paragraph as its reference."""

    source: Literal["corpus"]
    corpus: CorpusSource
    paragraphs: Paragraphs = Paragraphs()
    prefix_tokens: int = Field(default=32, ge=1)
    continuation_tokens: int = Field(default=32, ge=1)


class GeneratedCandidates(Settings):
    """Candidates drawn from a model (paper A, D.3: nucleus sampling with p = 0.9, 50 inputs)."""

    source: Literal["generate"]
    inputs: Annotated[FileInputs | HubInputs | CorpusInputs, Field(discriminator="source")]
    count: int = Field(default=50, ge=1)  # inputs, a seeded random choice
    architecture: Literal["seq2seq", "causal"]
    model: Model
    prompt: str = "{condition}"
    chat: bool = False  # the prompt becomes a user's message in the tokenizer's chat template
    number: int = Field(default=32, ge=2)  # candidates of each input
    strategy: Strategy = NUCLEUS
    max_new_tokens: int = Field(default=128, ge=1)
    max_input_tokens: int = Field(default=1024, ge=1)  # longer inputs are cut at their end, and counted
    batch_size: BatchSize = "auto"

    @field_validator("strategy", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return named_strategy(value)

    @field_validator("strategy")
    @classmethod
    def _sampled(cls, value: Strategy) -> Strategy:
        if not value.do_sample:
            raise ValueError(f"strategy {value.name} does not sample, so all candidates of an input would be equal")
        return value

    @field_validator("prompt")
    @classmethod
    def _holds_condition(cls, value: str) -> str:
        if value.count("{condition}") != 1:
            raise ValueError("the prompt must hold {condition} once, where the input's text goes")
        return value


class FileCandidates(Settings):
    """Candidates that exist: JSONL of id, condition, outputs, and where there are any logprobs, lengths, references."""

    source: Literal["file"]
    path: str


class BertScore(Settings):
    """The model of BERTScore: a folder or hub name, and the layer whose vectors are compared."""

    path: str = "roberta-large"
    layers: int | None = Field(default=None, ge=1)  # null: what bert-score recommends for this model
    batch_size: int = Field(default=64, ge=1)


class Projection(Settings):
    """The weights of CVS-MBR: a projection of the candidates' weights onto higher conditional entropy."""

    features: Literal["sketch", "covariance", "kernel"] = "sketch"
    num_features: int = Field(default=1024, ge=4)  # of the sketch
    lam: list[float] | None = None  # prices of a nat, a variant of CVS-MBR each
    targets: list[float] | None = None  # in their place: conditional entropies in nats
    prior: Literal["mc", "mbmbr", "mbmbr_l"] = "mc"  # weights before
    tolerance: float = Field(default=1e-4, gt=0)  # of the certificate, relative to λ log(number of candidates)
    max_iterations: int = Field(default=500, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        single = {k: [v] for k, v in value.items() if k in ("lam", "targets") and isinstance(v, int | float)}
        given = value | single
        return given if given.get("lam") is not None or given.get("targets") is not None else given | {"lam": [0.1]}

    @model_validator(mode="after")
    def _one_of_both(self) -> Projection:
        if (self.lam is None) == (self.targets is None):
            raise ValueError("give either lam or targets: prices of a nat, or the entropies to be reached")
        values = self.lam or self.targets or []
        if not values or any(v < 0 for v in values) or len(set(values)) < len(values):
            raise ValueError("lam and targets must be different non-negative numbers, at least one")
        if self.num_features % 4:
            raise ValueError("num_features must be a multiple of 4")
        return self


class MbrConfig(Settings):
    """`condvne mbr`: one output for each input, chosen from its candidates by minimum Bayes risk."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    device: str = "auto"  # "auto": CUDA where there is one, else the CPU
    candidates: Annotated[GeneratedCandidates | FileCandidates, Field(discriminator="source")]
    empty_candidates: Literal["refuse", "drop"] = "refuse"
    few_candidates: Literal["refuse", "drop"] = "refuse"  # inputs that are left with one candidate or none
    methods: list[Method] = Field(default=["mc", "mbmbr", "mbmbr_l", "cvs"], min_length=1)
    reference: Method = "mbmbr_l"  # the method that the others are compared with
    utilities: list[MeasureName] = Field(default=["rouge_l", "bertscore", "cosine"], min_length=1)
    metrics: list[MetricName] = Field(
        default=["rouge_l", "bertscore", "distinct_2", "self_bleu_2", "conditional_vendi"], min_length=1
    )
    rouge_stemmer: bool = True
    bertscore: BertScore = BertScore()
    projection: Projection = Projection()
    encoder: Encoder = Encoder()  # of the cosine utility, the projection and the conditional entropy
    kernels: Kernels = Kernels()
    resamples: int = Field(default=2000, ge=1)
    confidence: float = Field(default=0.95, gt=0, lt=1)

    @field_validator("methods", "utilities", "metrics")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        twice = [v for v in value if value.count(v) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is listed twice")
        return value

    @model_validator(mode="after")
    def _reference_is_run(self) -> MbrConfig:
        if self.reference not in self.methods:
            raise ValueError(f"reference: {self.reference} is not among the methods, {', '.join(self.methods)}")
        if self.reference == "cvs" and len(self.projection.lam or self.projection.targets or []) > 1:
            raise ValueError("reference: cvs has several variants; give one lam or target, or another reference")
        return self

    @property
    def needs_logprobs(self) -> list[Method]:
        """The methods that weigh candidates by the model's probabilities, the prior of the projection included."""
        used = [*self.methods, *([self.projection.prior] if "cvs" in self.methods else [])]
        return [m for m in MODEL_BASED if m in used]


def load_mbr_config(path: str | Path) -> MbrConfig:
    """Read and validate a YAML configuration of `condvne mbr`. Raises ConfigError naming file and key."""
    return validate(MbrConfig, load_yaml(path), str(path))
