"""Loading causal language models with their tokenizers, and the facts of a model that decoding needs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from condvne.data.config import Model
from condvne.data.listing import listed
from condvne.errors import ConfigError, DataError

# What configurations call the longest sequence that a model takes, most usual name first.
_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")


def load_model(
    config: Model, device: torch.device | str, architecture: Literal["causal", "seq2seq"] = "causal"
) -> tuple[Any, Any]:
    """Load a causal or sequence-to-sequence language model, in eval mode, and its tokenizer.

    The model lies on `device`, or where `config.device_map` puts it. `dtype="auto"` keeps the dtype of the checkpoint.
    Code of the checkpoint's own runs only when `config.trust_remote_code` is set.

    Raises
    ------
    ConfigError
        Neither a folder nor reachable on the hub; or a tokenizer with ids that the model has no embedding for.
    DataError
        A folder that holds no loadable model of this architecture, or no tokenizer, or lacks some of the weights.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    gguf = _gguf(config)
    what = f"a {'causal' if architecture == 'causal' else 'sequence-to-sequence'} language model"
    family = AutoModelForCausalLM if architecture == "causal" else AutoModelForSeq2SeqLM
    with _loading(config.path, "model.path", what):
        model, report = family.from_pretrained(
            config.path,
            revision=config.revision or "main",
            dtype="float32" if config.gguf and config.dtype == "auto" else config.dtype,  # it is dequantised
            device_map=config.device_map,
            trust_remote_code=config.trust_remote_code,
            output_loading_info=True,
            **gguf,
        )
    # transformers only warns here, and goes on with random weights.
    absent = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if absent:
        raise DataError(
            f"{config.path}: the checkpoint lacks {len(absent)} of the model's weights ({listed(absent)}); "
            f"give a complete checkpoint of {what}."
        )
    tokenizer = load_tokenizer(config)
    source, key = _tokenizer_source(config)
    _check_vocabularies(model, tokenizer, source, key)
    return (model if config.device_map else model.to(device)).eval(), tokenizer


def load_tokenizer(config: Model) -> Any:
    """The tokenizer of a model alone. Raises as `load_model`."""
    from transformers import AutoTokenizer

    source, key = _tokenizer_source(config)
    with _loading(source, key, "a tokenizer"):
        return AutoTokenizer.from_pretrained(
            source,
            revision="main" if config.tokenizer else config.revision or "main",
            trust_remote_code=config.trust_remote_code,
            **({} if config.tokenizer else _gguf(config)),
        )


def _gguf(config: Model) -> dict[str, str]:
    """What loads a GGUF file. Raises ConfigError where it is not in the folder, or the package gguf is absent."""
    if config.gguf is None:
        return {}
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError("model.gguf: needs the package gguf; run pip install 'condvne[gguf]'.")
    if os.path.isdir(config.path) and not os.path.isfile(os.path.join(config.path, config.gguf)):
        raise ConfigError(f"model.gguf: {config.path} holds no file {config.gguf!r}; name one of its .gguf files.")
    return {"gguf_file": config.gguf}


def _tokenizer_source(config: Model) -> tuple[str, str]:
    return (config.tokenizer, "model.tokenizer") if config.tokenizer else (config.path, "model.path")


@contextmanager
def _loading(source: str, key: str, what: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, ImportError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        cause = " ".join(str(error).split())
        if os.path.isdir(source):
            raise DataError(f"{source}: {what} cannot be loaded from this folder ({cause}).") from error
        raise ConfigError(
            f"{key}: {source} is neither a folder here nor {what} that the hub gives ({cause}); "
            "give the path of a folder, or check the name and the connection."
        ) from error


def _check_vocabularies(model: Any, tokenizer: Any, source: str, key: str) -> None:
    vocabulary = tokenizer.get_vocab()
    # Without its files transformers builds a tokenizer of special tokens alone, which turns every text into nothing.
    if vocabulary.keys() <= tokenizer.get_added_vocab().keys():
        raise DataError(
            f"{source}: holds no tokenizer's vocabulary; add its files (tokenizer.json) or name a tokenizer."
        )
    highest = max(vocabulary.values())
    rows = model.get_input_embeddings().weight.shape[0]
    if highest >= rows:
        raise ConfigError(
            f"{key}: the tokenizer of {source} has token ids up to {highest}, but the model embeds only {rows} "
            "tokens; give the tokenizer that the model was trained with."
        )


def context_length(model: Any) -> int | None:
    """The longest sequence of tokens that the model takes; None where its configuration names no limit."""
    config = model.config.get_text_config(decoder=True)
    values = (getattr(config, name, None) for name in _CONTEXT_NAMES)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def check_context(model: Any, prefix_tokens: int, continuation_tokens: int) -> None:
    """Raises ConfigError where prefix and continuation together are longer than the model's context."""
    limit = context_length(model)
    if limit is not None and prefix_tokens + continuation_tokens > limit:
        raise ConfigError(
            f"pairs: prefix_tokens {prefix_tokens} and continuation_tokens {continuation_tokens} exceed the model's "
            f"context of {limit} tokens; shorten either."
        )


def pad_id(model: Any, tokenizer: Any) -> int:
    """An id to pad with; masked, so that its value never matters, but it must have an embedding."""
    rows = model.get_input_embeddings().weight.shape[0]
    end = getattr(tokenizer, "eos_token_id", None)
    candidates = (getattr(tokenizer, "pad_token_id", None), getattr(model.config, "pad_token_id", None), end)
    return next((pad for pad in candidates if isinstance(pad, int) and 0 <= pad < rows), 0)


def input_device(model: Any) -> torch.device:
    device: torch.device = model.get_input_embeddings().weight.device
    return model.device if device.type == "meta" else device  # offloaded weights: hooks move the inputs on
