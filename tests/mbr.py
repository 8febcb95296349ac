"""Small real models, inputs and candidates for minimum-Bayes-risk decoding."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch

from tests.models import SENTENCES, byte_tokenizer, save_tiny

SUBJECTS = ("the council", "a storm", "the team", "her new film", "the museum", "a court", "the airline")
VERBS = ("closed", "won", "delayed", "opened", "lost", "praised")
OBJECTS = ("the old bridge", "three matches", "the final vote", "an early flight", "its doors on Monday")


def save_tiny_bart(folder: Path) -> Path:
    """A BART of 50 thousand parameters with a byte-level tokenizer; 0 begins and ends a text, as its marks say."""
    from transformers import BartConfig, BartForConditionalGeneration

    heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    config = BartConfig(
        vocab_size=320,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        decoder_start_token_id=0,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        init_std=0.3,
        **heads,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BartForConditionalGeneration(config).eval().save_pretrained(folder)
    byte_tokenizer(320, pad=True).save_pretrained(folder)
    return folder


def save_tiny_bert(folder: Path) -> Path:
    """A BERT with a word-piece tokenizer that marks both ends of a text, as BERTScore expects."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    texts = [*SENTENCES, *SUBJECTS, *VERBS, *OBJECTS]
    core.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=core, **marks).save_pretrained(folder)
    config = BertConfig(
        vocab_size=core.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).eval().save_pretrained(folder)
    return folder


def candidate_lines(inputs: int = 8, number: int = 6) -> list[dict[str, Any]]:
    """Records whose candidates share words with each other and with the reference; likelier ones come more often."""
    draw = random.Random(0)
    lines: list[dict[str, Any]] = []
    for i in range(inputs):
        subject = SUBJECTS[i % len(SUBJECTS)]
        texts = [f"{subject} {draw.choice(VERBS)} {draw.choice(OBJECTS)}" for _ in range(number)]
        lines.append(
            {
                "id": f"news-{i}",
                "condition": f"Report {i}: {subject} was in the news again this week.",
                "outputs": texts,
                "logprobs": [round(-2.0 - 6 * draw.random(), 4) for _ in texts],
                "lengths": [len(text.split()) for text in texts],
                "references": [f"{subject} {draw.choice(VERBS)} {draw.choice(OBJECTS)}"],
            }
        )
    # Equal texts are one sequence of tokens, so they have one log-probability.
    for line in lines:
        of_text = dict(zip(line["outputs"], line["logprobs"], strict=True))
        line["logprobs"] = [of_text[text] for text in line["outputs"]]
    return lines


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def mbr_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """Settings of a run on candidates that exist, without BERTScore unless the changes ask for it."""
    path = folder / "candidates.jsonl"
    if not path.exists():
        write_lines(path, candidate_lines())
    settings: dict[str, Any] = {
        "name": "tiny",
        "device": "cpu",
        "candidates": {"source": "file", "path": str(path)},
        "utilities": ["rouge_l", "cosine"],
        "metrics": ["rouge_l", "distinct_2", "self_bleu_2", "conditional_vendi"],
        "projection": {"num_features": 128, "lam": 0.3},
        "encoder": {"kind": "hashed_ngrams", "dimension": 64},
        "resamples": 200,
    }
    return settings | changes


def generating(folder: Path, architecture: str, **changes: Any) -> dict[str, Any]:
    """Settings of the candidates drawn from a tiny BART or GPT-NeoX."""
    model = folder / architecture
    if not model.exists():
        save_tiny_bart(model) if architecture == "seq2seq" else save_tiny(model, context=128)
    inputs = folder / "inputs.jsonl"
    if not inputs.exists():
        write_lines(inputs, [{k: v for k, v in line.items() if k != "outputs"} for line in candidate_lines()])
    settings = {
        "source": "generate",
        "inputs": {"source": "file", "path": str(inputs)},
        "count": 6,
        "architecture": architecture,
        "model": {"path": str(model)},
        "number": 5,
        "max_new_tokens": 10,
        "max_input_tokens": 40,
    }
    return settings | changes
