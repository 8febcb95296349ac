"""Candidates drawn from a sequence-to-sequence or causal model, each with its log-probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from condvne.data.config.mbr import GeneratedCandidates
from condvne.data.text.generation import (
    argmax_settings,
    attempted,
    choosing_processors,
    first_batch_size,
    isolated,
    uniforms,
)
from condvne.data.text.language_model import context_length, input_device, pad_id
from condvne.errors import ConfigError, RunError


@dataclass(frozen=True)
class Prompt:
    """An input as the model reads it, and whether its text was cut to fit."""

    ids: list[int]
    cut: bool


@dataclass(frozen=True)
class Drawn:
    """One candidate: its text, log-probability, number of tokens, and whether the model ended it."""

    text: str
    logprob: float
    length: int
    ended: bool


def build_prompt(tokenizer: Any, condition: str, config: GeneratedCandidates) -> Prompt:
    """The token ids of an input: its text cut to `max_input_tokens`, put into the prompt and the chat template.

    Raises ConfigError where a chat template is asked for that the tokenizer does not have.
    """
    ids = tokenizer(condition, add_special_tokens=False, verbose=False)["input_ids"]
    cut = len(ids) > config.max_input_tokens
    if cut:
        condition = tokenizer.decode(ids[: config.max_input_tokens], skip_special_tokens=False)
    text = config.prompt.replace("{condition}", condition)
    if not config.chat:
        encoded: list[int] = tokenizer(text, verbose=False)["input_ids"]
        if config.architecture == "causal" and tokenizer.eos_token_id in encoded[-1:]:
            encoded = encoded[:-1]  # an end before the continuation
        return Prompt(encoded, cut)
    if not tokenizer.chat_template:
        raise ConfigError(
            f"candidates.chat: the tokenizer of {config.model.path} has no chat template; set it to false, "
            "or give the tokenizer of an instruction-tuned model."
        )
    message = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    return Prompt(tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"], cut)


class CandidateSampler:
    """Draws the candidates of one input at a time.

    A candidate depends on the input, the strategy, the seed, the input's id and its own number alone, up to the
    rounding of logits: not on batches, so that a resumed run goes on as it would have. Its log-probability is that of
    its tokens under the model itself, at temperature 1 and before top-k and top-p cut the distribution, the token
    that ends it included. The checkpoint's generation config plays no part but for its marks: the tokens that begin
    and end a text. A first token that the checkpoint forces is neither counted nor weighed.

    Args:
        note: called with one sentence when the batch size had to be halved.
    """

    def __init__(
        self, model: Any, tokenizer: Any, config: GeneratedCandidates, seed: int, note: Callable[[str], None]
    ) -> None:
        self.model, self.tokenizer, self.config, self.seed, self.note = model, tokenizer, config, seed, note
        self.seq2seq = config.architecture == "seq2seq"
        own = model.generation_config
        self.start = own.decoder_start_token_id if self.seq2seq else None
        if self.seq2seq and self.start is None:
            self.start = model.config.decoder_start_token_id
        self.forced = getattr(own, "forced_bos_token_id", None) if self.seq2seq else None
        ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
        self.ends: list[int] = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        self.pad = pad_id(model, tokenizer)
        self._size: int | None = None if config.batch_size == "auto" else config.batch_size

    def draw(self, record_id: str, prompt: Prompt) -> list[Drawn]:
        """The candidates of one input.

        Raises:
            ConfigError: the input (and, for causal models, the candidate) is longer than the model's context.
            RunError: logits that are NaN or infinite, or no memory even for one candidate.
        """
        self._check_context(record_id, len(prompt.ids))
        size = self._size or first_batch_size(self.model, [prompt.ids], self.config.max_new_tokens)
        drawn: list[Drawn] = []
        while len(drawn) < self.config.number:
            numbers = range(len(drawn), min(len(drawn) + size, self.config.number))
            outcome = attempted(partial(self._decode, record_id, prompt.ids, numbers))
            if not isinstance(outcome, str):
                drawn.extend(outcome)
            elif len(numbers) == 1:
                raise RunError(
                    f"generation ran out of memory with one candidate a batch ({outcome}); shorten inputs or "
                    "candidates, choose a smaller dtype or model, or a device with more memory."
                )
            else:
                self._size = size = len(numbers) // 2
                self.note(
                    f"generation ran out of memory with {len(numbers)} candidates a batch and went on with {size}"
                )
        return drawn

    def _check_context(self, record_id: str, tokens: int) -> None:
        limit = context_length(self.model)
        new = self.config.max_new_tokens
        needed = max(tokens, new + 1) if self.seq2seq else tokens + new
        if limit is not None and needed > limit:
            both = "input or candidate" if self.seq2seq else "prompt and candidate together"
            raise ConfigError(
                f"{record_id}: {both} may take {needed} tokens ({tokens} + {new}), beyond the model's context of "
                f"{limit}; lower candidates.max_input_tokens or max_new_tokens."
            )

    def _decode(self, record_id: str, prompt: list[int], numbers: range) -> list[Drawn]:
        from transformers import LogitsProcessorList

        width = 1 if self.seq2seq else len(prompt)
        names = [f"{record_id}#{number}" for number in numbers]
        new = self.config.max_new_tokens
        draws = np.stack([uniforms(self.seed, self.config.strategy.name, name, new) for name in names])
        recorder = _Recorder()
        chosen = choosing_processors(self.config.strategy, names, torch.from_numpy(draws), width)
        with torch.inference_mode(), isolated(self.model):
            output = self.model.generate(
                **self._inputs(prompt, len(names)),
                generation_config=self._settings(),
                logits_processor=LogitsProcessorList([recorder.before, *chosen, recorder.after]),
            )
        logprobs = torch.stack(recorder.logprobs, dim=1).cpu()
        rows = output[:, width:].tolist()
        return [self._drawn(ids, values) for ids, values in zip(rows, logprobs.tolist(), strict=True)]

    def _inputs(self, prompt: list[int], rows: int) -> dict[str, Any]:
        device = input_device(self.model)
        ids = torch.tensor([prompt], device=device)
        if not self.seq2seq:
            return {"input_ids": ids.expand(rows, -1), "attention_mask": torch.ones_like(ids).expand(rows, -1)}
        from transformers.modeling_outputs import BaseModelOutput

        mask = torch.ones_like(ids)
        hidden = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state  # once for all rows
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=hidden.expand(rows, -1, -1)),
            "attention_mask": mask.expand(rows, -1),
        }

    def _settings(self) -> Any:
        tokens = {"eos_token_id": self.ends or None, "decoder_start_token_id": self.start}
        return argmax_settings(self.config.max_new_tokens, self.pad, **tokens, forced_bos_token_id=self.forced)

    def _drawn(self, ids: Sequence[int], logprobs: Sequence[float]) -> Drawn:
        end = next((place for place, token in enumerate(ids) if token in self.ends and place >= self._first), None)
        length = len(ids) if end is None else end + 1
        text = self.tokenizer.decode(ids[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        counted = max(length - self._first, 1)
        return Drawn(text.strip(), float(sum(logprobs[self._first : length])), counted, end is not None)

    @property
    def _first(self) -> int:
        """Tokens that the checkpoint forces at the beginning."""
        return 0 if self.forced is None else 1


class _Recorder:
    """Keeps the log-probability of every chosen token under the scores that the model gave."""

    def __init__(self) -> None:
        self.logprobs: list[torch.Tensor] = []
        self._scores: torch.Tensor | None = None

    def before(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._scores = scores.float().log_softmax(-1)
        return scores

    def after(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert self._scores is not None
        self.logprobs.append(self._scores.gather(-1, scores.argmax(-1, keepdim=True))[:, 0])
        return scores
