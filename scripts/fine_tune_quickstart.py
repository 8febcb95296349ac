"""The quickstart's language model fine-tuned with and without the token entropy as a part of its loss.
Usage: python scripts/fine_tune_quickstart.py configs/fine-tune-quickstart.yaml runs/fine-tune-quickstart

Every arm goes on from the same checkpoint on the corpus that it was trained on, by the Trainer, and differs from the
others in the weight of the entropy term alone. Its nucleus samples under the prefixes of a measured run are scored by
kernels fitted on the training text, in embeddings that no arm sees. Results are kept as they come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from experiments import Results, show
from pydantic import Field
from torch import Tensor
from train_quickstart_model import BATCH, batches, held_out_loss, read_paragraphs, sequences_of

import condvne as cv
from condvne.data.config import NUCLEUS, Encoder, Model, load_gap_config
from condvne.data.config.settings import Settings, load_yaml, validate
from condvne.data.encoders import load_encoder
from condvne.data.records import has_visible, read_pair_records
from condvne.data.text.generation import generate, load_model
from condvne.data.text.lexical import distinct_n, ngrams_of_pair
from condvne.integrations.trainer import TokenEntropyObjective
from condvne.tasks.training import TokenEntropyLoss

COLUMNS = {
    "held_out_loss": "held-out loss, nats a token",
    "cond_vendi": "cond. VNE of nucleus samples",
    "cond_rke": "cond. RKE",
    "distinct_2": "Distinct-2",
}


class Arm(Settings):
    """One way of training."""

    steps: int | None = Field(default=None, ge=0)  # default: those of the experiment
    weight: float = Field(default=0.0, ge=0)  # of the token entropy, nats of likelihood a nat of entropy
    conditional: bool = False  # given the token before
    candidates: int | None = Field(default=None, ge=2)  # of each position; None for expected embeddings


class Experiment(Settings):
    """The whole of configs/fine-tune-quickstart.yaml."""

    quickstart: str  # the configuration whose corpus, model and run these are
    run: str  # folder of that run: its records are the prefixes and the training text
    encoder: Encoder
    pairs: int = Field(ge=100)
    steps: int = Field(ge=1)
    rate: float = Field(gt=0)
    seeds: list[int] = Field(min_length=1)
    arms: dict[str, Arm] = Field(min_length=1)


class Scores:
    """The training text's continuations under some prefixes, and what samples score beside them."""

    def __init__(self, setting: Experiment) -> None:
        path = Path(setting.run) / "records.jsonl"
        records = [r for r in islice(read_pair_records(path), setting.pairs) if has_visible(r.training)]
        self.prefixes, self.ids = [r.prefix_ids for r in records], [r.id for r in records]
        self.encoder = load_encoder(setting.encoder, "cpu")
        self.x = self._vectors([r.prefix for r in records])
        training = self._vectors([r.training for r in records])
        self.kernels = cv.Gaussian().fit(self.x), cv.Gaussian().fit(training)
        self.training = self._scores(training, [r.training_ids for r in records])

    def of(self, model: Any, tokenizer: Any, seed: int) -> dict[str, float]:
        """Scores of two-token nucleus samples, one a prefix; those without a visible character stay in."""
        found = generate(model, tokenizer, self.prefixes, self.ids, NUCLEUS, 2, seed)
        return self._scores(self._vectors([tokenizer.decode(ids) for ids in found]), found)

    def _vectors(self, texts: list[str]) -> Tensor:
        distinct = list(dict.fromkeys(texts))
        places = {text: place for place, text in enumerate(distinct)}
        return self.encoder.encode(distinct).double()[[places[text] for text in texts]]

    def _scores(self, y: Tensor, ids: list[list[int]]) -> dict[str, float]:
        kernel_x, kernel_y = self.kernels
        ngrams = (ngrams_of_pair(prefix, row, 2) for prefix, row in zip(self.prefixes, ids, strict=True))
        return {
            "cond_vendi": float(cv.conditional_vendi(self.x, y, kernel_x=kernel_x, kernel_y=kernel_y)),
            "cond_rke": float(cv.conditional_rke(self.x, y, kernel_x=kernel_x, kernel_y=kernel_y)),
            "distinct_2": distinct_n(ngrams) or math.nan,
        }


class Sequences(torch.utils.data.IterableDataset[dict[str, list[int]]]):
    """Paragraphs in the order in which they were learnt first, with a seed of its own."""

    def __init__(self, sequences: list[list[int]], seed: int) -> None:
        self.sequences, self.seed = sequences, seed

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        for batch in batches(self.sequences, self.seed):
            yield from ({"ids": sequence} for sequence in batch)


def collated(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Padded on the right; what is padding has no label."""
    width = max(len(row["ids"]) for row in rows)
    ids = torch.tensor([[*row["ids"], *[0] * (width - len(row["ids"]))] for row in rows])
    kept = torch.arange(width) < torch.tensor([[len(row["ids"])] for row in rows])
    return {"input_ids": ids, "attention_mask": kept.long(), "labels": ids.masked_fill(~kept, -100)}


def fine_tuned(model: Any, sequences: list[list[int]], setting: Experiment, arm: Arm, seed: int, out: Path) -> None:
    """Train in place."""
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(seed)
    steps = setting.steps if arm.steps is None else arm.steps
    arguments = TrainingArguments(
        output_dir=str(out / "trainer"), max_steps=steps, per_device_train_batch_size=BATCH,
        learning_rate=setting.rate, lr_scheduler_type="cosine", warmup_steps=steps // 20, weight_decay=0.1,
        adam_beta2=0.95, seed=seed, save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=100,
        remove_unused_columns=False, dataloader_pin_memory=False, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    loss = TokenEntropyLoss("gaussian", "gaussian" if arm.conditional else None, candidates=arm.candidates)
    objective = TokenEntropyObjective(model, loss, weight=arm.weight) if arm.weight else None
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Sequences(sequences, seed), data_collator=collated,
        compute_loss_func=objective,
    )  # fmt: skip
    trainer.train()
    model.eval()


def run(setting: Experiment, out: Path) -> Results:
    """Scores by arm and seed; those that the folder holds are kept."""
    results = Results(out, setting.model_dump(mode="json"))
    missing = results.missing(setting.seeds)
    if not missing:
        return results
    quickstart = load_gap_config(setting.quickstart)
    scores = Scores(setting)
    results.beside("training text", [scores.training])
    paragraphs, held = read_paragraphs(quickstart)
    for seed, name in missing:
        model, tokenizer = load_model(Model(path=quickstart.model.path), torch.device("cpu"))
        arm = setting.arms[name]
        if arm.steps != 0:
            fine_tuned(model, sequences_of(paragraphs, tokenizer), setting, arm, seed, out)
        loss = held_out_loss(model, sequences_of(held, tokenizer))
        results.keep(seed, name, scores.of(model, tokenizer, seed) | {"held_out_loss": loss})
    return results


def main(
    config: Annotated[Path, typer.Argument(help="e.g. configs/fine-tune-quickstart.yaml")],
    out: Annotated[Path, typer.Argument(help="folder for results")],
) -> None:
    """Fine-tune every arm with every seed, and print and write the table."""
    show(lambda: run(validate(Experiment, load_yaml(config), str(config)), out), COLUMNS)


if __name__ == "__main__":
    typer.run(main)
