"""Train the quickstart's language model on the corpus of a configuration: a byte-level BPE and a small GPT-NeoX.
Usage: python scripts/train_quickstart_model.py configs/quickstart.yaml runs/quickstart-model

One paragraph is one sequence, from its first token on, as the prefixes of `condvne gap` begin. Nothing is tuned.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from condvne.data.config import GapConfig, Paragraphs, load_gap_config
from condvne.data.records import clean_text
from condvne.data.text.corpus import documents, valid_paragraphs
from condvne.errors import CondvneError, ConfigError, DataError

END = "<|endoftext|>"
PARAGRAPHS = Paragraphs(min_characters=40, min_sentences=0)
SIZES = {"vocabulary": 4096, "context": 128, "hidden": 256, "layers": 4, "heads": 8}
BATCH, HELD_OUT, PEAK_RATE, BUCKET = 16, 0.01, 2e-3, 64
console = Console()


def read_paragraphs(config: GapConfig) -> tuple[list[str], list[str]]:
    """Distinct paragraphs for training and held out, split by document in a seeded random order."""
    with console.status("reading the corpus"):
        texts = [clean_text(document.text) for document in documents(config.corpus)]
    random.Random(config.seed).shuffle(texts)
    held = max(10, math.ceil(HELD_OUT * len(texts)))
    seen: set[str] = set()
    parts: list[list[str]] = []
    for part in (texts[held:], texts[:held]):  # a paragraph of both, such as a licence, belongs to training
        found = dict.fromkeys(p for text in part for p in valid_paragraphs(text, PARAGRAPHS) if p not in seen)
        seen.update(found)
        parts.append(list(found))
    if not all(parts):
        raise DataError(f"corpus: {len(texts)} documents are too few to train on; widen the corpus.")
    console.print(f"{len(texts):,} documents, {len(parts[0]):,} paragraphs to train on, {len(parts[1]):,} held out")
    return parts[0], parts[1]


def train_tokenizer(paragraphs: Sequence[str]) -> Any:
    """A byte-level BPE: every text has ids, and decoding them gives the text back."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    options: dict[str, Any] = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=SIZES["vocabulary"], special_tokens=[END], **options)
    core.train_from_iterator(paragraphs, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, model_max_length=SIZES["context"])


def make_model(tokenizer: Any) -> Any:
    """A GPT-NeoX, Pythia's architecture, with random weights."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=SIZES["vocabulary"],
        hidden_size=SIZES["hidden"],
        num_hidden_layers=SIZES["layers"],
        num_attention_heads=SIZES["heads"],
        intermediate_size=4 * SIZES["hidden"],
        max_position_embeddings=SIZES["context"],
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return GPTNeoXForCausalLM(config)


def sequences_of(paragraphs: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """The first tokens of each paragraph, as many as the context holds, with the end mark where the paragraph ends."""
    encoded = tokenizer(list(paragraphs), add_special_tokens=False, verbose=False)["input_ids"]
    return [[*ids, tokenizer.eos_token_id][: SIZES["context"]] for ids in encoded]


def batches(sequences: Sequence[list[int]], seed: int) -> Iterator[list[list[int]]]:
    """Endless seeded batches; within a window of batches, sequences of like length go together to spare padding."""
    order = random.Random(seed)
    while True:
        shuffled = order.sample(list(sequences), len(sequences))
        for start in range(0, len(shuffled), BATCH * BUCKET):
            window = sorted(shuffled[start : start + BATCH * BUCKET], key=len)
            starts = range(0, len(window), BATCH)
            yield from (window[first : first + BATCH] for first in order.sample(starts, len(starts)))


def loss_of(model: Any, batch: Sequence[list[int]]) -> torch.Tensor:
    """Mean negative log-likelihood of the next token, in nats; causal attention never looks at the padding behind."""
    width = max(map(len, batch))
    ids = torch.tensor([[*sequence, *[0] * (width - len(sequence))] for sequence in batch])
    labels = ids.masked_fill(torch.arange(width) >= torch.tensor([[len(sequence)] for sequence in batch]), -100)
    loss: torch.Tensor = model(input_ids=ids.to(model.device), labels=labels.to(model.device)).loss
    return loss


def train(model: Any, sequences: Sequence[list[int]], steps: int, seed: int) -> None:
    """AdamW with a short warm-up and a cosine schedule."""
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, math.ceil(steps / 20), steps)
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=steps)
        smooth = math.log(SIZES["vocabulary"])
        for step, batch in zip(range(1, steps + 1), batches(sequences, seed), strict=False):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            smooth += 0.05 * (loss.item() - smooth)
            progress.update(bar, advance=1, description=f"step {step}/{steps}, loss {smooth:.3f}")
            if step % 100 == 0 and not console.is_terminal:  # a log shows no bar
                console.print(f"step {step}/{steps}, loss {smooth:.3f}")
    model.eval()


@torch.inference_mode()
def held_out_loss(model: Any, sequences: Sequence[list[int]]) -> float:
    """Nats a token over all held-out sequences."""
    total, count = 0.0, 0
    for start in range(0, len(sequences), BATCH):
        batch = sequences[start : start + BATCH]
        tokens = sum(len(sequence) - 1 for sequence in batch)
        total, count = total + loss_of(model, batch).item() * tokens, count + tokens
    return total / count


def reusable(out: Path, settings: dict[str, Any]) -> bool:
    """Whether the folder holds a finished model of these settings. Raises ConfigError when it holds anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    record = out / "training.json"
    if record.is_file() and json.loads(record.read_bytes())["settings"] == settings:
        return True
    raise ConfigError(f"{out}: holds another model or other files; remove it or name another folder.")


def build(config: GapConfig, out: Path, steps: int) -> None:
    """Train and save, whole or not at all: the folder appears by a rename."""
    settings = {"corpus": config.corpus.model_dump(mode="json"), "seed": config.seed, "steps": steps} | SIZES
    settings |= {"batch": BATCH, "rate": PEAK_RATE}
    if reusable(out, settings):
        console.print(f"{out} holds the model of these settings already; it is used as it is.")
        return
    paragraphs, held = read_paragraphs(config)
    tokenizer = train_tokenizer(paragraphs)
    sequences, held_sequences = sequences_of(paragraphs, tokenizer), sequences_of(held, tokenizer)
    torch.manual_seed(config.seed)
    model = make_model(tokenizer).to("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    console.print(
        f"{sum(map(len, sequences)):,} tokens, {model.num_parameters():,} parameters, {model.device}; "
        f"{steps} steps see {steps * BATCH / len(sequences):.2f} of the paragraphs"
    )
    train(model, sequences, steps, config.seed)
    loss = held_out_loss(model, held_sequences)
    console.print(f"held-out loss {loss:.3f} nats a token (perplexity {math.exp(loss):.1f})")
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        record = json.dumps({"settings": settings, "held_out_loss": loss, "torch": torch.__version__}, indent=2)
        (partial / "training.json").write_text(record + "\n", encoding="utf-8")
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    console.print(f"saved in {out}")


def main(
    config: Annotated[Path, typer.Argument(help="YAML of condvne gap, of which corpus, seed and device count")],
    out: Annotated[Path, typer.Argument(help="folder for model and tokenizer")],
    steps: Annotated[int, typer.Option(min=1, help="optimizer steps of 16 paragraphs")] = 600,
) -> None:
    """Train the quickstart's language model."""
    try:
        build(load_gap_config(config), out, steps)
    except CondvneError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
