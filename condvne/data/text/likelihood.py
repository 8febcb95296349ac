"""How likely a causal language model finds continuations, whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from condvne.data.listing import listed
from condvne.data.text.language_model import input_device, pad_id
from condvne.errors import InputError, RunError


@torch.inference_mode()
def token_nll(
    model: Any,
    tokenizer: Any,
    prefixes: Sequence[str],
    continuations: Sequence[str],
    ids: Sequence[str],
    batch_size: int = 64,
) -> torch.Tensor:
    """Mean negative log-likelihood of each continuation's tokens given its prefix, (n,) float64, nats a token.

    Prefix and continuation are joined and read by the model's own tokenizer, so that models may judge the text of
    others; the tokens that end behind the prefix count, one that straddles the border included.

    Raises:
        InputError: a continuation without a token of its own; a prefix without a token before it (ids named); a
            tokenizer that does not tell where tokens lie in the text.
        RunError: the model's likelihoods are not finite (ids named).
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("the tokenizer does not tell where its tokens lie in the text; give a model with a fast one.")
    encoded = [_encoded(tokenizer, p, c) for p, c in zip(prefixes, continuations, strict=True)]
    empty = [i for i, (tokens, first) in zip(ids, encoded, strict=True) if first == 0 or first >= len(tokens)]
    if empty:
        raise InputError(f"{listed(empty)}: prefix or continuation has no token of its own; leave these out.")
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i][0]))
    result = torch.empty(len(encoded), dtype=torch.float64)
    pad, device = pad_id(model, tokenizer), input_device(model)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        width = max(len(encoded[i][0]) for i in rows)
        inputs = torch.tensor([encoded[i][0] + [pad] * (width - len(encoded[i][0])) for i in rows], device=device)
        mask = torch.tensor([[k < len(encoded[i][0]) for k in range(width)] for i in rows], device=device)
        logits = model(input_ids=inputs, attention_mask=mask.long()).logits[:, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits.mT, inputs[:, 1:], reduction="none").double().cpu()
        for row, i in enumerate(rows):
            tokens, first = encoded[i]
            result[i] = losses[row, first - 1 : len(tokens) - 1].mean()
    faulty = (~torch.isfinite(result)).nonzero().flatten().tolist()
    if faulty:
        raise RunError(f"the judge's likelihoods are NaN or infinite for {listed([ids[i] for i in faulty])}; load it "
                       "with dtype float32.")  # fmt: skip
    return result


def _encoded(tokenizer: Any, prefix: str, continuation: str) -> tuple[list[int], int]:
    """Token ids of the joined text, and the place of the first one that ends behind the prefix."""
    found = tokenizer(prefix + continuation, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
    tokens: list[int] = found["input_ids"]
    ends = [end for _, end in found["offset_mapping"]]
    first = next((k for k, end in enumerate(ends) if end > len(prefix)), len(tokens))
    begin = getattr(tokenizer, "bos_token_id", None)
    if begin is not None:  # a prefix of one token that straddles the border has something before it
        return [begin, *tokens], first + 1
    return tokens, first
