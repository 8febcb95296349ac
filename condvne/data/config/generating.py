"""Settings of what is read and generated: corpora, paragraphs, pairs, models and decoding strategies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from condvne.data.config.settings import Settings


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
    packages: list[str] = Field(default=["torch", "numpy", "scipy"])
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
    gguf: str | None = None  # a quantised checkpoint's file within it; weights and tokenizer come from there
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


def named_strategy(value: Any) -> Any:
    """The strategy of a name; other values as they are. Raises ValueError for an unknown name."""
    if isinstance(value, str) and value not in NAMED_STRATEGIES:
        raise ValueError(f"no strategy is named {value!r}; named ones are {', '.join(NAMED_STRATEGIES)}")
    return NAMED_STRATEGIES[value] if isinstance(value, str) else value


def _sensible(value: int | str) -> int | str:
    if isinstance(value, int) and value < 1:
        raise ValueError("batch_size must be at least 1, or auto")
    return value


BatchSize = Annotated[int | Literal["auto"], AfterValidator(_sensible)]


class Generation(Settings):
    """Which strategies decode, and in batches of what size."""

    strategies: list[Strategy] = Field(default=[GREEDY, NUCLEUS, ANCESTRAL])
    batch_size: BatchSize = "auto"

    @field_validator("strategies", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return [named_strategy(v) for v in value] if isinstance(value, list) else value

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
