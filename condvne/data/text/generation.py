"""Continuations of prefixes by a causal language model: greedy, nucleus, ancestral or any named strategy."""

from __future__ import annotations

import gc
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from condvne.data.config import Strategy
from condvne.data.listing import listed
from condvne.data.seeding import seeded_key
from condvne.data.text.language_model import context_length, input_device, load_model, pad_id
from condvne.errors import CondvneError, InputError, RunError

__all__ = ["context_length", "generate", "generate_batches", "load_model", "uniforms"]

BatchSize = int | Literal["auto"]
T = TypeVar("T")

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
_LARGEST_BATCH = {"cpu": 256}  # beyond it a CPU gains little
_LARGEST_BATCH_ELSEWHERE = 512
_CPU_BYTES = 2 << 30  # an exhausted CPU kills the process instead of raising, so its share is fixed


def generate(
    model: Any,
    tokenizer: Any,
    prefixes: Sequence[Sequence[int]],
    ids: Sequence[str],
    strategy: Strategy,
    new_tokens: int,
    seed: int,
    batch_size: BatchSize = "auto",
    note: Callable[[str], None] | None = None,
) -> list[list[int]]:
    """All continuations at once: `new_tokens` token ids for each prefix; see `generate_batches`."""
    batches = generate_batches(model, tokenizer, prefixes, ids, strategy, new_tokens, seed, batch_size, note)
    return [continuation for batch in batches for continuation in batch]


def generate_batches(
    model: Any,
    tokenizer: Any,
    prefixes: Sequence[Sequence[int]],
    ids: Sequence[str],
    strategy: Strategy,
    new_tokens: int,
    seed: int,
    batch_size: BatchSize = "auto",
    note: Callable[[str], None] | None = None,
) -> Iterator[list[list[int]]]:
    """Continue each prefix by exactly `new_tokens` tokens; yields finished continuations in the order of `prefixes`.

    End-of-text is a token like any other here: it does not stop a continuation. The settings of the checkpoint
    (its generation config) play no part; temperature, then top-k, then top-p of the strategy apply, in this order.

    A sampled continuation depends on its prefix, the strategy, the seed and the record's id alone: seed, strategy name
    and id give uniform numbers, one a token, and the token is where the distribution function, in token order, passes
    its number. So batches, their size, a resumed run or the number of processes do not change it, up to the rounding of
    logits (a draw within about 1e-7 of an edge may tip in float32; more in half precision), and torch's random state is
    left alone. Greedy continuations are decoded once for each distinct prefix.

    Parameters
    ----------
    prefixes : n lists of token ids, each at least one long; lengths may differ (left padding with a mask).
    ids : n distinct record ids; they seed the draws and name rows in errors.
    batch_size : rows a batch; "auto" starts from the free memory. Either is halved when memory runs out.
    note : called with one sentence when the batch size had to be halved; default: the log of this module.

    Raises
    ------
    InputError
        At the call, before any work: counts that differ, ids twice, an empty prefix, ids outside the vocabulary, or
        prefix and continuation longer than the model's context.
    RunError
        Logits that are NaN or infinite (naming the ids), or no memory even for one row.
    """
    _check_inputs(model, prefixes, ids, new_tokens)
    if isinstance(batch_size, int) and batch_size < 1:
        raise InputError(f"batch_size: expected at least 1 or 'auto', got {batch_size}.")
    # Greedy copies share one job; jobs keep the order of first appearance, so every batch finishes records in order.
    jobs: dict[Any, list[int]] = {}
    for row, prefix in enumerate(prefixes):
        jobs.setdefault(row if strategy.do_sample else tuple(prefix), []).append(row)
    decoder = _Decoder(model, pad_id(model, tokenizer), prefixes, ids, strategy, new_tokens, seed)
    size = first_batch_size(model, prefixes, new_tokens) if batch_size == "auto" else batch_size
    return _in_order(list(jobs.values()), decoder, size, note or logging.getLogger(__name__).warning)


def _check_inputs(model: Any, prefixes: Sequence[Sequence[int]], ids: Sequence[str], new_tokens: int) -> None:
    if len(prefixes) != len(ids):
        raise InputError(f"prefixes and ids: expected equal counts, got {len(prefixes)} and {len(ids)}.")
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise InputError(f"ids: {listed(twice)} occur more than once; draws are seeded by id, so give distinct ones.")
    if new_tokens < 1:
        raise InputError(f"new_tokens: expected at least 1, got {new_tokens}.")
    empty = [i for i, prefix in zip(ids, prefixes, strict=True) if len(prefix) == 0]
    if empty:
        raise InputError(f"prefixes: empty for {listed(empty)}; a continuation needs at least one token before it.")
    rows = model.get_input_embeddings().weight.shape[0]
    outside = [i for i, prefix in zip(ids, prefixes, strict=True) if min(prefix) < 0 or max(prefix) >= rows]
    if outside:
        raise InputError(
            f"prefixes: token ids outside 0 … {rows - 1} for {listed(outside)}; use the model's own tokenizer."
        )
    limit = context_length(model) or math.inf
    over = [i for i, prefix in zip(ids, prefixes, strict=True) if len(prefix) + new_tokens > limit]
    if over:
        longest = max(len(prefix) for prefix in prefixes)
        raise InputError(
            f"prefix of up to {longest} tokens plus continuation of {new_tokens} exceeds the model's context "
            f"of {limit} tokens for {listed(over)}; shorten either."
        )


def _in_order(
    jobs: list[list[int]], decoder: _Decoder, size: int, note: Callable[[str], None]
) -> Iterator[list[list[int]]]:
    done: dict[int, list[int]] = {}
    start, written, halved_from = 0, 0, 0
    while start < len(jobs):
        batch = jobs[start : start + size]
        outcome = decoder.attempt([rows[0] for rows in batch])
        if isinstance(outcome, str):
            if len(batch) == 1:
                raise RunError(
                    f"generation ran out of memory with one sequence a batch ({outcome}); "
                    "shorten the sequences, choose a smaller dtype or model, or a device with more memory."
                )
            halved_from = halved_from or size
            size = len(batch) // 2
            continue
        if halved_from:
            note(f"generation ran out of memory with {halved_from} sequences a batch and went on with {size}.")
            halved_from = 0
        start += len(batch)
        done.update((row, tokens) for rows, tokens in zip(batch, outcome, strict=True) for row in rows)
        ready = []
        while written in done:
            ready.append(list(done.pop(written)))
            written += 1
        yield ready


def attempted(decode: Callable[[], list[T]]) -> list[T] | str:
    """What `decode` gives, or the message of an error for want of memory, with its memory let go."""
    try:
        return decode()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
    # Only after the handler are the frames of the failed batch, and with them its tensors, let go.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return message


class _Decoder:
    """Decodes chosen rows of the prefixes as one batch."""

    def __init__(
        self,
        model: Any,
        pad: int,
        prefixes: Sequence[Sequence[int]],
        ids: Sequence[str],
        strategy: Strategy,
        new_tokens: int,
        seed: int,
    ) -> None:
        self.model, self.pad, self.prefixes, self.ids = model, pad, prefixes, ids
        self.strategy, self.new_tokens, self.seed = strategy, new_tokens, seed

    def attempt(self, rows: list[int]) -> list[list[int]] | str:
        """The continuations of `rows`, or the message of an error for want of memory."""
        return attempted(lambda: self._decode(rows))

    def _decode(self, rows: list[int]) -> list[list[int]]:
        width = max(len(self.prefixes[row]) for row in rows)
        inputs = torch.full((len(rows), width), self.pad)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for place, row in enumerate(rows):
            prefix = self.prefixes[row]
            inputs[place, width - len(prefix) :] = torch.tensor(list(prefix))
            mask[place, width - len(prefix) :] = 1
        device = input_device(self.model)
        with torch.inference_mode(), isolated(self.model):
            output = self.model.generate(
                input_ids=inputs.to(device),
                attention_mask=mask.to(device),
                generation_config=argmax_settings(self.new_tokens, self.pad),
                logits_processor=self._processors(rows, width),
            )
        continuations: list[list[int]] = output[:, width:].tolist()
        return continuations

    def _processors(self, rows: list[int], width: int) -> Any:
        from transformers import LogitsProcessorList

        names = [self.ids[row] for row in rows]
        draws = np.stack([uniforms(self.seed, self.strategy.name, name, self.new_tokens) for name in names])
        return LogitsProcessorList(choosing_processors(self.strategy, names, torch.from_numpy(draws), width))


def choosing_processors(strategy: Strategy, ids: list[str], draws: torch.Tensor, width: int) -> list[Any]:
    """Logits processors after which the largest score is the token that the strategy chooses, for argmax mode.

    `draws` are uniform numbers, (rows, new tokens) float64 on the CPU; `width` is the length of what is continued.
    """
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    processors: list[Any] = [CheckedLogits(ids)]
    if strategy.do_sample:
        if strategy.temperature != 1.0:
            processors.append(TemperatureLogitsWarper(strategy.temperature))
        if strategy.top_k > 0:
            processors.append(TopKLogitsWarper(strategy.top_k))
        if strategy.top_p < 1.0:
            processors.append(TopPLogitsWarper(strategy.top_p))
        processors.append(InverseDistribution(draws, width))
    return processors


def argmax_settings(new_tokens: int, pad: int, **tokens: Any) -> Any:
    """Argmax mode for every strategy, with nothing left to a checkpoint's generation config.

    A sampled token is chosen by the last processor, after the strategy's own temperature, top-k and top-p. transformers
    fills what is left unset here from the model's own config (which `isolated` empties) and then from its defaults. Of
    those top_k 50 stays: argmax mode does not read it. `tokens` are special tokens by their setting's name.
    """
    from transformers import GenerationConfig

    return GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        num_beams=1,
        num_return_sequences=1,
        temperature=1.0,
        top_p=1.0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        pad_token_id=pad,
        use_cache=True,
        return_dict_in_generate=False,
        **tokens,
    )


def uniforms(seed: int, strategy: str, record: str, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The `count` uniform numbers in [0, 1) of one record under one strategy; more of them begin with the same ones."""
    return np.random.Generator(np.random.Philox(key=seeded_key(seed, "draws", strategy, record))).random(count)


class CheckedLogits:
    """Refuses logits without a distribution, and shifts the largest to 0 so that no temperature can overflow."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        largest = scores.amax(-1, keepdim=True)  # NaN wins a maximum; -inf alone is how models rule out a token
        faulty = ~torch.isfinite(largest[:, 0])
        if faulty.any():
            where = [self.ids[row] for row in faulty.nonzero()[:, 0].tolist()]
            raise RunError(
                f"the model's logits are NaN or infinite for {listed(where)}; load it with dtype bfloat16 or float32."
            )
        return scores - largest


class InverseDistribution:
    """Score 0 at the token where the distribution function passes the row's uniform number, -inf elsewhere.

    With generate in argmax mode this is ancestral sampling, without torch's generator, whose stream is shared by all
    rows of a batch and would tie each record to its neighbours.
    """

    def __init__(self, draws: torch.Tensor, width: int) -> None:
        self.draws, self.width = draws, width  # draws: (rows, new tokens) float64, on the CPU

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        device = torch.device("cpu") if scores.device.type == "mps" else scores.device  # MPS has no float64
        draw = self.draws[:, input_ids.shape[1] - self.width, None].to(device)
        cumulative = scores.to(device, torch.float64).softmax(-1).cumsum(-1)
        total = cumulative[:, -1:]
        below = torch.minimum(draw * total, torch.nextafter(total, torch.zeros_like(total)))
        # right=True: the first token whose cumulative probability exceeds the draw, hence never one of probability 0.
        chosen = torch.searchsorted(cumulative, below, right=True).to(scores.device)
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)


@contextmanager
def isolated(model: Any) -> Iterator[None]:
    """Eval mode and an empty generation config for one call; both as before afterwards."""
    from transformers import GenerationConfig

    own, training = model.generation_config, model.training
    model.generation_config = GenerationConfig()
    model.eval()
    try:
        yield
    finally:
        model.generation_config = own
        if training:
            model.train()


def first_batch_size(model: Any, prefixes: Sequence[Sequence[int]], new_tokens: int) -> int:
    """Rows whose keys, values and logits fill at most half of the memory that is free now."""
    config = model.config.get_text_config(decoder=True)
    longest = max((len(prefix) for prefix in prefixes), default=1)
    hidden, layers = getattr(config, "hidden_size", 4096), getattr(config, "num_hidden_layers", 32)
    weight = model.get_input_embeddings().weight
    element = weight.element_size()
    row = 2 * layers * hidden * (longest + new_tokens) * element + 16 * hidden * longest * element
    # float64 copies of the last position's logits, and models that return logits of every position
    row += weight.shape[0] * (8 * 8 + longest * element)
    device = input_device(model)
    free: int = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else _CPU_BYTES
    return max(1, min(int(free // row), _LARGEST_BATCH.get(device.type, _LARGEST_BATCH_ELSEWHERE)))


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, CondvneError):
        return False
    known = isinstance(error, torch.cuda.OutOfMemoryError | MemoryError)
    return known or any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)
