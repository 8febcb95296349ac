"""Likelihoods of continuations against the model's own logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from condvne.data.config import Model
from condvne.data.text.language_model import load_model
from condvne.data.text.likelihood import token_nll
from condvne.errors import InputError, RunError
from tests.models import save_tiny

PREFIXES = ["The parser", "A function", "This module returns", "X"]
CONTINUATIONS = [" returns the sum", " holds", " a list of names and no value at all", "YZ"]
IDS = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judge")
    save_tiny(path)
    return path


def test_likelihoods_are_the_models_in_any_batch(folder: Path) -> None:
    model, tokenizer = load_model(Model(path=str(folder)), "cpu")
    found = token_nll(model, tokenizer, PREFIXES, CONTINUATIONS, IDS, batch_size=3)
    for value, prefix, continuation in zip(found, PREFIXES, CONTINUATIONS, strict=True):
        encoded = tokenizer(prefix + continuation, return_offsets_mapping=True)
        ids, begin = encoded["input_ids"], tokenizer.bos_token_id
        own = [k for k, (_, end) in enumerate(encoded["offset_mapping"]) if end > len(prefix)]
        if begin is not None:
            ids, own = [begin, *ids], [k + 1 for k in own]
        with torch.inference_mode():
            logs = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
        expected = -sum(logs[k - 1, ids[k]] for k in own) / len(own)
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
    one_by_one = [
        token_nll(model, tokenizer, [p], [c], [i]) for p, c, i in zip(PREFIXES, CONTINUATIONS, IDS, strict=True)
    ]
    torch.testing.assert_close(torch.cat(one_by_one), found, rtol=1e-6, atol=1e-6)


def test_what_has_no_token_is_named(folder: Path) -> None:
    model, tokenizer = load_model(Model(path=str(folder)), "cpu")
    with pytest.raises(InputError, match="b: prefix or continuation has no token of its own"):
        token_nll(model, tokenizer, PREFIXES[:2], [" returns", ""], IDS[:2])


def test_a_broken_judge_is_told_by_ids(folder: Path) -> None:
    model, tokenizer = load_model(Model(path=str(folder)), "cpu")
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(float("nan"))
    with pytest.raises(RunError, match="likelihoods are NaN or infinite for a, b; load it with dtype float32"):
        token_nll(model, tokenizer, PREFIXES[:2], CONTINUATIONS[:2], IDS[:2])
