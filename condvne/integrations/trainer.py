"""Entropy terms and conditional Vendi scores in Hugging Face's `Trainer`.

    Trainer(..., compute_loss_func=TokenEntropyObjective(model, TokenEntropyLoss(), weight=0.1),
                 callbacks=[ConditionalVendiCallback(prompts, tokenizer, encoder)])

How a loss has to be scaled there (transformers 5): what `compute_loss_func` returns is not divided by the number of
accumulated batches, and is multiplied by the number of processes where `average_tokens_across_devices` is on; what a
subclass returns is divided unless the model has normalised it. Both ways here give the mean of the entropy term over
the accumulated batches, and over processes the gradient that one process with all rows would have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import TrainerCallback

from condvne.core.collectives import agreed_rows, in_company
from condvne.core.entropy import conditional_vendi
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.spectral import as_number
from condvne.errors import InputError
from condvne.integrations.texts import Encoder, encoded
from condvne.tasks.training import TokenEntropyLoss

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

IGNORED = -100  # a label that takes no part in the loss


class TokenEntropyObjective:
    """`compute_loss_func` of a causal language model: its own loss plus weight × `TokenEntropyLoss`.

    Each batch's entropy term counts by its share of the labels in the accumulated batch, as its likelihood does; the
    shares of all batches and processes add up to one. In evaluation only the model's own loss is returned.

    Args:
        model: whose loss, output embeddings and, for a conditional loss, input embeddings are used. With a conditional
            loss (`kernel_x` given) the condition of a position is the embedding of the token before.
        loss: the entropy term.
        weight: of the entropy term, in nats of likelihood a token for a nat of entropy; not negative.

    Raises InputError for a model without output embeddings, another loss, or a weight that cannot be.
    """

    def __init__(self, model: PreTrainedModel, loss: TokenEntropyLoss, weight: float = 0.1) -> None:
        if model.get_output_embeddings() is None:
            raise InputError(
                f"{type(model).__name__} has no output embeddings: use a model with a language-model head."
            )
        if not isinstance(loss, TokenEntropyLoss):
            raise InputError(f"loss must be a TokenEntropyLoss, not {type(loss).__name__}; EntropyLossMixin takes any.")
        self.model, self.loss, self.weight = model, loss, _checked_weight("weight", weight)

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of a batch. Raises InputError where it holds no labels."""
        if labels is None:
            raise InputError("the batch holds no labels; use a data collator that gives them.")
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        config = self.model.config.get_text_config()
        own: Tensor = self.model.loss_function(
            logits=logits, labels=labels, vocab_size=config.vocab_size, num_items_in_batch=num_items_in_batch
        )
        if not torch.is_grad_enabled():
            return own
        before, after = labels[:, :-1], labels[:, 1:]
        mask = after != IGNORED
        share: Tensor | float = 1.0 if num_items_in_batch is None else mask.sum() / num_items_in_batch
        embeddings = self.model.get_output_embeddings().weight
        conditions = None
        if self.loss.conditional:
            mask = mask & (before != IGNORED)
            conditions = self.model.get_input_embeddings().weight.detach()[before.clamp(min=0)]
        term: Tensor = self.loss(logits[:, :-1], embeddings, mask, conditions)
        return own + self.weight * share * term


class EntropyLossMixin(ABC):
    """A `Trainer` with an entropy term of any kind: `class DiversityTrainer(EntropyLossMixin, Trainer)`.

    Override `entropy_loss`, and set `entropy_weight`. The term counts in training alone. A class that lacks
    `entropy_loss` cannot be made (TypeError): it is told before the training begins.

    Raises InputError where the mixin stands behind the Trainer, which would leave the term out; in training, where
    `entropy_weight` is negative or not finite, or the term is no finite number.
    """

    entropy_weight: float = 0.1

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        first = next(base for base in cls.__mro__ if "compute_loss" in vars(base))
        if not issubclass(first, EntropyLossMixin):
            raise InputError(
                f"{cls.__name__}: {first.__name__} would compute the loss without the entropy term; write "
                f"class {cls.__name__}(EntropyLossMixin, {first.__name__})."
            )

    @abstractmethod
    def entropy_loss(self, model: torch.nn.Module, inputs: Mapping[str, Any], outputs: Any) -> Tensor:
        """The entropy term of one batch, a mean: call a loss of `condvne.tasks.training` on some of the outputs."""

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The Trainer's own loss plus the entropy term."""
        given = dict(inputs)  # the Trainer may take the labels out
        trainer: Any = super()
        loss, outputs = trainer.compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if torch.is_grad_enabled():
            share = 1.0 if self._divided_later(num_items_in_batch) else 1.0 / self._accumulated()
            weight = _checked_weight("entropy_weight", self.entropy_weight)
            loss = loss + weight * share * _checked_term(self.entropy_loss(model, given, outputs))
        return (loss, outputs) if return_outputs else loss

    def _divided_later(self, num_items_in_batch: Tensor | int | None) -> bool:
        """The Trainer's own rule for whether `training_step` divides by the number of accumulated batches."""
        trainer: Any = self
        if trainer.loss_is_scaled_for_ga is not None:
            return not trainer.loss_is_scaled_for_ga
        normalised = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
        return not (normalised or trainer.compute_loss_func is not None)

    def _accumulated(self) -> int:
        trainer: Any = self  # the last batches of an epoch may be fewer than the arguments say
        steps: int = getattr(trainer, "current_gradient_accumulation_steps", trainer.args.gradient_accumulation_steps)
        return steps


def _checked_weight(name: str, weight: object) -> float:
    found = as_number(weight)
    if found is None or not 0 <= found < math.inf:
        raise InputError(f"{name} must be a finite number of at least 0, but is {weight!r}.")
    return found


def _checked_term(term: object) -> Tensor:
    if not isinstance(term, Tensor) or term.numel() != 1:
        got = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, Tensor) else repr(term)
        raise InputError(f"entropy_loss must return the loss as a tensor of one number, but returned {got}.")
    if not bool(torch.isfinite(term.detach()).all()):
        raise InputError(f"entropy_loss returned {term.item()}; the step was not taken. Check the outputs it is of.")
    return term


class ConditionalVendiCallback(TrainerCallback):  # type: ignore[misc]
    """Logs the conditional Vendi score of samples for held-out prompts at every evaluation.

    The score goes to the evaluation's metrics as `eval_conditional_vendi` (so that `metric_for_best_model` may name it)
    and to the log; with `attach(trainer)` also to the trackers. Processes share the prompts.

    Args:
        prompts: texts, one condition each.
        tokenizer: of the model.
        encoder: an object with `encode(texts)`, or a function, that gives (n, d) vectors.
        references: a text for each prompt, of which bandwidths are taken and whose own score is logged once as
            `eval_conditional_vendi_reference`; without them bandwidths are those of the first samples.
        kernel_x, kernel_y, order: of the score.
        samples: continuations of each prompt.
        max_new_tokens, top_p, temperature: of sampling.
        batch_size: prompts at a time.
        seed: of sampling; the global generators are left as they were.

    Raises InputError where there are no prompts, or as many references are not given.
    """

    def __init__(
        self,
        prompts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        encoder: Encoder,
        *,
        references: Sequence[str] | None = None,
        kernel_x: Kernel | str = "gaussian",
        kernel_y: Kernel | str = "gaussian",
        order: float = 1.0,
        samples: int = 1,
        max_new_tokens: int = 16,
        top_p: float = 0.9,
        temperature: float = 1.0,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        if len(prompts) < 2:
            raise InputError(f"a conditional Vendi score needs at least two prompts, but got {len(prompts)}.")
        if references is not None and len(references) != len(prompts):
            raise InputError(f"{len(references)} references for {len(prompts)} prompts; give one for each.")
        self.prompts, self.tokenizer, self.references = list(prompts), tokenizer, references
        self.encoder = encoder
        self.kernels = (as_kernel(kernel_x), as_kernel(kernel_y))
        self.order, self.samples, self.batch_size, self.seed = order, samples, batch_size, seed
        self.generation = {"max_new_tokens": max_new_tokens, "top_p": top_p, "temperature": temperature}
        self.generation |= {"do_sample": True, "top_k": 0, "num_return_sequences": samples}
        self.trainer: Any = None
        self.conditions: Tensor | None = None
        self.reference_score: float | None = None

    def attach(self, trainer: Any) -> ConditionalVendiCallback:
        """Log through this trainer, and so to its trackers."""
        self.trainer = trainer
        return self

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Score the model's samples, add the score to the metrics and log it."""
        scores = self.measure(kwargs["model"])
        metrics = kwargs.get("metrics")
        if metrics is not None:
            metrics.update(scores)
        if self.trainer is not None:
            self.trainer.log(scores)
        else:
            state.log_history.append({**scores, "epoch": state.epoch, "step": state.global_step})

    def measure(self, model: PreTrainedModel) -> dict[str, float]:
        """The score of samples of the model as it is now, by name. Raises InputError for fewer prompts than ranks."""
        company = in_company()
        rank, size = (dist.get_rank(), dist.get_world_size()) if company else (0, 1)
        if len(self.prompts) < size:
            raise InputError(f"{len(self.prompts)} prompts are too few for {size} processes; give more of them.")
        mine = slice(rank * len(self.prompts) // size, (rank + 1) * len(self.prompts) // size)
        if self.conditions is None:
            self.conditions = encoded(self.encoder, self.prompts)
            if self.references is not None:
                references = encoded(self.encoder, self.references)
                self.kernels = (self.kernels[0].fit(self.conditions), self.kernels[1].fit(references))
                self.reference_score = self._score(self.conditions, references)
        y = encoded(self.encoder, self._samples(model, self.prompts[mine], self.seed + rank))
        x = self.conditions[mine].repeat_interleave(self.samples, 0)
        if company:
            device = model.device if dist.get_backend() == "nccl" else torch.device("cpu")
            parts = [x.to(device), y.to(device)]
            x, y = agreed_rows(parts, None, 0).gather(parts, graph=False)
        self.kernels = (self.kernels[0].fit_each(x), self.kernels[1].fit_each(y))
        scores = {"eval_conditional_vendi": self._score(x, y)}
        if self.reference_score is not None:
            scores["eval_conditional_vendi_reference"] = self.reference_score
        return scores

    def _score(self, x: Tensor, y: Tensor) -> float:
        return float(conditional_vendi(x, y, kernel_x=self.kernels[0], kernel_y=self.kernels[1], order=self.order))

    @torch.no_grad()
    def _samples(self, model: PreTrainedModel, prompts: Sequence[str], seed: int) -> list[str]:
        """Continuations, those of a prompt next to each other. The model's mode and the global generators are kept."""
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.tokenizer.eos_token_id
        training, device = model.training, model.device
        texts: list[str] = []
        model.eval()
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                for start in range(0, len(prompts), self.batch_size):
                    ids, mask = _padded_left(self._ids(prompts[start : start + self.batch_size]), pad or 0)
                    found = model.generate(
                        input_ids=ids.to(device), attention_mask=mask.to(device), pad_token_id=pad, **self.generation
                    )
                    texts += self.tokenizer.batch_decode(found[:, ids.shape[1] :], skip_special_tokens=True)
        finally:
            model.train(training)
        return texts

    def _ids(self, prompts: Sequence[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(list(prompts), return_attention_mask=False)["input_ids"]
        empty = [prompt for prompt, ids in zip(prompts, encoded, strict=True) if not ids]
        if empty:
            raise InputError(f"prompt {empty[0]!r} has no tokens; leave it out.")
        return encoded


def _padded_left(sequences: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, sequences))
    ids = torch.tensor([[pad] * (width - len(s)) + list(s) for s in sequences])
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences])
    return ids, mask
