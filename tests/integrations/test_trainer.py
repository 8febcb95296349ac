"""Entropy terms in the Trainer: the scale of the step under accumulation and across processes, and the callback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

import condvne as cv
from condvne.errors import InputError
from condvne.integrations.trainer import ConditionalVendiCallback, EntropyLossMixin, TokenEntropyObjective
from condvne.tasks.training import RepresentationEntropyLoss, TokenEntropyLoss
from tests.models import byte_tokenizer, tiny_model
from tests.processes import found_by

ROWS = 8
KERNELS = (cv.Gaussian(0.3), cv.Gaussian(0.4))
PROMPTS = ["A function", "The tensor", "Every", "The sum of all", "Return", "An array of"]


def rows() -> list[dict[str, Tensor]]:
    """Sequences of one width with labels of unlike number."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(320, (ROWS, 12), generator=generator)
    kept = torch.arange(12) < torch.tensor([12, 5, 9, 7, 12, 3, 8, 10])[:, None]
    return [{"input_ids": i, "labels": torch.where(k, i, -100)} for i, k in zip(ids, kept, strict=True)]


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "max_steps": 1,
        "optim": "sgd",
        "learning_rate": 0.5,
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**(settings | options))


def entropy_term(kind: str) -> TokenEntropyLoss:
    kernel, kernel_x = KERNELS
    if kind == "conditional":
        return TokenEntropyLoss(kernel, kernel_x)
    return TokenEntropyLoss(kernel, num_features=64 if kind == "sketch" else None)


def weights(model: Any) -> list[float]:
    return [float(v) for v in torch.cat([p.detach().flatten() for p in model.parameters()])[::97]]


class HiddenTrainer(EntropyLossMixin, Trainer):  # type: ignore[misc]
    """An entropy term on hidden states."""

    entropy_weight = 0.3
    term = RepresentationEntropyLoss("cosine")

    def entropy_loss(self, model: torch.nn.Module, inputs: Any, outputs: Any) -> Tensor:
        value: Tensor = self.term(outputs.logits.mean(1))
        return value


def test_a_trainer_without_an_entropy_term_is_refused_before_it_trains(tmp_path: Path) -> None:
    class Forgotten(EntropyLossMixin, Trainer):  # type: ignore[misc]
        pass

    with pytest.raises(TypeError, match=r"abstract method '?entropy_loss"):
        Forgotten(tiny_model(), arguments(tmp_path), train_dataset=rows())


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "a", None])
def test_weights_that_cannot_be_are_refused(tmp_path: Path, weight: Any) -> None:
    with pytest.raises(InputError, match=r"^weight must be a finite number of at least 0, but is "):
        TokenEntropyObjective(tiny_model(), TokenEntropyLoss(), weight=weight)
    trainer = HiddenTrainer(tiny_model().double(), arguments(tmp_path), train_dataset=rows())
    trainer.entropy_weight = weight
    with pytest.raises(InputError, match=r"^entropy_weight must be a finite number of at least 0, but is "):
        trainer.train()


def test_another_loss_is_no_token_entropy() -> None:
    with pytest.raises(InputError, match="a TokenEntropyLoss, not RepresentationEntropyLoss"):
        TokenEntropyObjective(tiny_model(), RepresentationEntropyLoss())  # type: ignore[arg-type]


def test_a_mixin_behind_the_trainer_is_refused() -> None:
    with pytest.raises(InputError, match=r"write class Swapped\(EntropyLossMixin, Trainer\)"):
        type("Swapped", (Trainer, EntropyLossMixin), {})


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (None, "as a tensor of one number, but returned None"),
        (torch.ones(2), r"returned a tensor of shape \(2,\)"),
        (torch.tensor(float("nan")), "entropy_loss returned nan; the step was not taken"),
    ],
)
def test_terms_that_cannot_be_leave_the_model_as_it_was(tmp_path: Path, term: Any, message: str) -> None:
    class Odd(HiddenTrainer):
        def entropy_loss(self, model: torch.nn.Module, inputs: Any, outputs: Any) -> Tensor:
            value: Tensor = term
            return value

    model = tiny_model().double()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InputError, match=message):
        Odd(model, arguments(tmp_path), train_dataset=rows()).train()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def trained(kind: str, folder: Path, **options: Any) -> Any:
    model = tiny_model().double()
    if kind == "hidden":
        trainer: Trainer = HiddenTrainer(model, arguments(folder, **options), train_dataset=rows())
    else:
        objective = TokenEntropyObjective(model, entropy_term(kind), weight=0.3)
        trainer = Trainer(
            model, arguments(folder, **options), train_dataset=rows(), compute_loss_func=objective, callbacks=[]
        )
    trainer.train()
    return model


def by_hand(kind: str, size: int) -> Any:
    """One step of plain PyTorch over all rows in batches of `size`: mean likelihood, weighted entropy terms."""
    model = tiny_model().double().train()
    ids, labels = (torch.stack([row[name] for row in rows()]) for name in ("input_ids", "labels"))
    labelled = (labels[:, 1:] != -100).sum()
    total = torch.zeros((), dtype=torch.float64)
    term = entropy_term(kind) if kind != "hidden" else None
    for start in range(0, ROWS, size):
        part = slice(start, start + size)
        logits = model(input_ids=ids[part]).logits
        after, before = labels[part, 1:], labels[part, :-1]
        likelihood = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), after.flatten(), ignore_index=-100, reduction="sum"
        )
        total = total + likelihood / labelled
        if term is None:
            total = total + 0.3 * HiddenTrainer.term(logits.mean(1)) * size / ROWS
            continue
        x = model.get_input_embeddings().weight.detach()[before.clamp(min=0)] if term.conditional else None
        share = (after != -100).sum() / labelled
        value = term(logits[:, :-1], model.get_output_embeddings().weight, after != -100, x)
        total = total + 0.3 * share * value
    total.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.5 * parameter.grad
    return model


@pytest.mark.parametrize("kind", ["token", "conditional", "sketch", "hidden"])
@pytest.mark.parametrize("size", [8, 4, 2])
def test_accumulated_steps_are_those_of_a_plain_loop(kind: str, size: int, tmp_path: Path) -> None:
    found = trained(kind, tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=ROWS // size)
    assert weights(found) == pytest.approx(weights(by_hand(kind, size)), abs=2e-8)


PROGRAM = """
import json, os, sys, warnings
from pathlib import Path
from tests.integrations.test_trainer import PROMPTS, rows, trained, weights
from tests.models import byte_tokenizer, tiny_model

warnings.simplefilter("ignore")
size = int(os.environ["WORLD_SIZE"])
found = {}
for kind, average in (("conditional", True), ("sketch", True), ("hidden", True), ("token", False)):
    folder = Path(os.environ["FOUND"]).parent / "out"
    model = trained(
        kind, folder, per_device_train_batch_size=4 // size, gradient_accumulation_steps=2,
        average_tokens_across_devices=average, ddp_find_unused_parameters=False,
    )
    found[f"{kind} {average}"] = weights(model)
from condvne.integrations.trainer import ConditionalVendiCallback
encode = lambda texts: [[len(t), t.count("a"), t.count("e"), t.count("t"), 1.0] for t in texts]
callback = ConditionalVendiCallback(PROMPTS[:5], byte_tokenizer(), encode, max_new_tokens=8)
found["callback"] = callback.measure(tiny_model())
open(os.environ["FOUND"] + "." + os.environ["RANK"], "w").write(json.dumps(found))
"""


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (alone,) = found_by(1, script)
    first, second = found_by(2, script)
    assert first == second
    for kind in ("conditional", "sketch", "hidden"):
        assert first[f"{kind} True"] == pytest.approx(alone[f"{kind} True"], abs=2e-8), kind
    assert first["callback"]["eval_conditional_vendi"] > 1
    # Without averaging over devices the likelihood itself is weighted otherwise, but nothing grows with the processes.
    before = torch.tensor(weights(tiny_model().double()))
    one, two = (torch.tensor(found["token False"]) - before for found in (alone, first))
    assert float((one - two).norm() / one.norm()) < 0.3


def test_the_term_changes_the_step_and_evaluation_is_the_models_own(tmp_path: Path) -> None:
    model = tiny_model()
    objective = TokenEntropyObjective(model, entropy_term("token"), weight=0.3)
    own = Trainer(tiny_model(), arguments(tmp_path), eval_dataset=rows()).evaluate()["eval_loss"]
    trainer = Trainer(model, arguments(tmp_path), eval_dataset=rows(), compute_loss_func=objective)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(own, rel=1e-6)
    batch = {name: torch.stack([row[name] for row in rows()]) for name in ("input_ids", "labels")}
    outputs = model(input_ids=batch["input_ids"])
    value = objective(outputs, batch["labels"])
    assert value.item() < own - 0.1
    with pytest.raises(InputError, match="holds no labels"):
        objective(outputs, None)


@pytest.mark.parametrize("precision", [{"bf16": True}, {}])
def test_a_run_logs_the_conditional_vendi_score(precision: dict[str, bool], tmp_path: Path) -> None:
    tokenizer, model = byte_tokenizer(), tiny_model()

    def encode(texts: Any) -> Tensor:
        return torch.tensor([[len(t), t.count("a"), t.count("e"), t.count("t")] for t in texts], dtype=torch.float32)

    callback = ConditionalVendiCallback(PROMPTS, tokenizer, encode, references=PROMPTS[::-1], samples=2)
    objective = TokenEntropyObjective(model, TokenEntropyLoss(num_features=64, decay=0.5))
    settings = arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, **precision)
    trainer = Trainer(
        model,
        settings,
        train_dataset=rows(),
        eval_dataset=rows(),
        compute_loss_func=objective,
        callbacks=[callback],
    )
    state = torch.random.get_rng_state()
    scores = callback.measure(model)
    assert torch.equal(state, torch.random.get_rng_state())
    assert scores == callback.measure(model)  # seeded
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_conditional_vendi" in entry]
    assert [entry["step"] for entry in logged] == [1, 2]
    assert all(1 <= entry["eval_conditional_vendi"] <= len(PROMPTS) * 2 for entry in logged)
    assert logged[0]["eval_conditional_vendi_reference"] == callback.reference_score
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert "eval_conditional_vendi" in trainer.evaluate()
    seen: list[dict[str, float]] = []
    trainer.log = lambda logs, *_: seen.append(logs)
    callback.attach(trainer)
    callback.on_evaluate(settings, trainer.state, trainer.control, model=model)
    assert seen[0]["eval_conditional_vendi"] > 1
    assert not model.training or trainer.model is model
    json.dumps(trainer.state.log_history)


@pytest.mark.parametrize(
    ("prompts", "options", "said"),
    [
        ([], {}, "at least two prompts"),
        (["a", "b"], {"references": ["c"]}, "1 references for 2 prompts"),
    ],
)
def test_prompts_that_cannot_be_scored_are_refused(prompts: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ConditionalVendiCallback(prompts, byte_tokenizer(), lambda texts: [[1.0]] * len(texts), **options)


def test_prompts_without_tokens_and_models_without_a_head_are_refused() -> None:
    callback = ConditionalVendiCallback(["a", ""], byte_tokenizer(), lambda texts: [[float(len(t))] for t in texts])
    with pytest.raises(InputError, match="prompt '' has no tokens"):
        callback.measure(tiny_model())
    with pytest.raises(InputError, match="has no output embeddings"):
        TokenEntropyObjective(tiny_model().gpt_neox, TokenEntropyLoss())
