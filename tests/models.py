"""Tiny real language models and tokenizers, built from configuration: no weights are downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

FAMILIES = ("olmo", "olmo3", "gpt_neox", "gpt_neo")

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A tensor holds numbers, and a matrix is a tensor with two axes.",
    "Return the sum of all elements of the array; raise ValueError when it is empty.",
    "Every function has a name, arguments, and a value that it returns.",
)


def byte_tokenizer(vocab_size: int = 320, pad: bool = False) -> Any:
    """A byte-level BPE tokenizer trained on a few sentences; every text round-trips through it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|pad|>"] if pad else ["<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    marks = {"eos_token": "<|endoftext|>"} | ({"pad_token": "<|pad|>"} if pad else {})
    return PreTrainedTokenizerFast(tokenizer_object=core, **marks)


def _config(family: str, vocab_size: int, context: int, spread: float) -> Any:
    import transformers

    size: dict[str, Any] = {"vocab_size": vocab_size, "hidden_size": 32, "max_position_embeddings": context}
    size |= {"initializer_range": spread, "bos_token_id": 0, "eos_token_id": 0}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family == "olmo":
        return transformers.OlmoConfig(**size, **heads, pad_token_id=1)
    if family == "olmo3":
        return transformers.Olmo3Config(**size, **heads, num_key_value_heads=4, pad_token_id=1)
    if family == "gpt_neox":
        return transformers.GPTNeoXConfig(**size, **heads)
    neo = {"num_layers": 2, "num_heads": 4, "intermediate_size": 64, "window_size": 8}
    return transformers.GPTNeoConfig(**size, **neo, attention_types=[[["global", "local"], 1]])


def tiny_model(
    family: str = "gpt_neox", vocab_size: int = 320, context: int = 64, seed: int = 0, spread: float = 0.3
) -> Any:
    """A random causal language model in eval mode; a `spread` of weights well over 0.02 gives peaked softmaxes."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(_config(family, vocab_size, context, spread)).eval()


def save_tiny(
    folder: Path, family: str = "gpt_neox", vocab_size: int = 320, context: int = 64, pad: bool = False
) -> Path:
    """A model folder as published ones look: config.json, model.safetensors, tokenizer files."""
    tiny_model(family, vocab_size, context).save_pretrained(folder)
    byte_tokenizer(vocab_size, pad).save_pretrained(folder)
    return folder


def save_gguf(folder: Path, name: str = "tiny.gguf") -> Any:
    """A tiny random Qwen2 and its tokenizer in one GGUF file; returns the model."""
    import gguf
    import transformers

    tokenizer = byte_tokenizer(320)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = transformers.Qwen2Config(
        vocab_size=len(tokens), **size, **heads, tie_word_embeddings=False, initializer_range=0.3
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.Qwen2ForCausalLM(config).eval()
    writer = gguf.GGUFWriter(str(folder / name), "qwen2")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_token_types([3] + [1] * (len(tokens) - 1))  # the first is a control token
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    for key, tensor in model.state_dict().items():
        writer.add_tensor(names.get_name(key, (".weight", ".bias")), tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
