"""Candidates drawn from tiny real models: their probabilities, their independence of batches, their marks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.data.config import Model
from condvne.data.config.mbr import GeneratedCandidates
from condvne.data.text.language_model import load_model
from condvne.data.text.sampling import CandidateSampler, Drawn, build_prompt
from tests.mbr import generating

TEXT = "The parser returns the sum of all rows."
CHAT = "{% for m in messages %}<|endoftext|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"
Loaded = tuple[Any, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def settings(folder: Path, architecture: str, **changes: Any) -> GeneratedCandidates:
    return GeneratedCandidates.model_validate(generating(folder, architecture, **changes))


@pytest.fixture(scope="module", params=["seq2seq", "causal"])
def loaded(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Loaded]:
    config = settings(folder, request.param)
    return request.param, load_model(config.model, "cpu", config.architecture)


def draw(folder: Path, architecture: str, model: Loaded, record: str = "r", **changes: Any) -> list[Drawn]:
    config = settings(folder, architecture, **changes)
    sampler = CandidateSampler(*model, config, 0, lambda note: None)
    return sampler.draw(record, build_prompt(model[1], TEXT, config))


def forced_logprob(architecture: str, model: Any, prompt: list[int], tokens: list[int], start: int) -> float:
    """log p(tokens | prompt) of the model itself, in one pass over the whole."""
    with torch.inference_mode():
        if architecture == "seq2seq":
            inputs = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[start, *tokens]])}
            logits = model(**inputs).logits[0, :-1]
        else:
            logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return float(logits.double().log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)].sum())


class Keeping(CandidateSampler):
    """Keeps the token ids, which a candidate does not tell."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tokens: list[list[int]] = []

    def _drawn(self, ids: Any, logprobs: Any) -> Drawn:
        drawn = super()._drawn(ids, logprobs)
        self.tokens.append(list(ids[: drawn.length]))
        return drawn


def test_log_probabilities_are_the_models_own_before_the_nucleus_cuts(folder: Path, loaded: tuple[str, Loaded]) -> None:
    architecture, (model, tokenizer) = loaded
    config = settings(folder, architecture, number=12, max_new_tokens=12)
    sampler = Keeping(model, tokenizer, config, 0, lambda note: None)
    prompt = build_prompt(tokenizer, TEXT, config)
    drawn = sampler.draw("r", prompt)
    assert len({d.text for d in drawn}) > 6
    for d, tokens in zip(drawn, sampler.tokens, strict=True):
        assert len(tokens) == d.length <= 12
        assert d.ended == (tokens[-1] == 0)
        assert d.text == tokenizer.decode(tokens, skip_special_tokens=True).strip()
        assert d.logprob == pytest.approx(forced_logprob(architecture, model, prompt.ids, tokens, 0), abs=1e-4)
    assert any(d.ended for d in drawn)


def test_a_candidate_depends_neither_on_batches_nor_on_the_number_drawn(
    folder: Path, loaded: tuple[str, Loaded]
) -> None:
    architecture, model = loaded
    whole = draw(folder, architecture, model, number=6)
    split = draw(folder, architecture, model, number=6, batch_size=4)
    fewer = draw(folder, architecture, model, number=3, batch_size=1)
    assert [d.text for d in split] == [d.text for d in whole]
    assert [d.text for d in fewer] == [d.text for d in whole[:3]]
    assert [d.logprob for d in split] == pytest.approx([d.logprob for d in whole], abs=1e-4)
    assert [d.text for d in draw(folder, architecture, model, "other", number=6)] != [d.text for d in whole]


def test_first_tokens_come_as_often_as_the_nucleus_says(folder: Path, loaded: tuple[str, Loaded]) -> None:
    architecture, (model, tokenizer) = loaded
    config = settings(folder, architecture, number=600, max_new_tokens=1)
    sampler = Keeping(model, tokenizer, config, 0, lambda note: None)
    prompt = build_prompt(tokenizer, TEXT, config)
    sampler.draw("r", prompt)
    with torch.inference_mode():
        if architecture == "seq2seq":
            whole = {"input_ids": torch.tensor([prompt.ids]), "decoder_input_ids": torch.tensor([[0]])}
            logits = model(**whole).logits[0, -1]
        else:
            logits = model(input_ids=torch.tensor([prompt.ids])).logits[0, -1]
    p, order = logits.double().softmax(-1).sort(descending=True)
    kept = p.cumsum(0) - p < 0.9
    expected = dict(zip(order[kept].tolist(), (p[kept] / p[kept].sum()).tolist(), strict=True))
    found = Counter(tokens[0] for tokens in sampler.tokens)
    assert found.keys() <= expected.keys()
    for token, share in expected.items():
        assert abs(found[token] / 600 - share) < 5 * (share * (1 - share) / 600) ** 0.5 + 1e-3


def test_a_forced_first_token_is_neither_counted_nor_weighed(folder: Path) -> None:
    config = settings(folder, "seq2seq", number=6, max_new_tokens=8)
    model, tokenizer = load_model(Model(path=str(folder / "seq2seq")), "cpu", "seq2seq")
    model.generation_config.forced_bos_token_id = 40
    sampler = CandidateSampler(model, tokenizer, config, 0, lambda note: None)
    prompt = build_prompt(tokenizer, TEXT, config)
    first = tokenizer.decode([40]).strip()
    for d in sampler.draw("r", prompt):
        assert d.text.startswith(first)
        assert 1 <= d.length <= 7
        assert d.logprob < 0
    # The checkpoint's own settings are as they were.
    assert model.generation_config.forced_bos_token_id == 40


def test_nothing_of_the_checkpoints_decoding_leaks_in(folder: Path) -> None:
    before = load_model(Model(path=str(folder / "seq2seq")), "cpu", "seq2seq")
    plain = draw(folder, "seq2seq", before, number=6)
    after = load_model(Model(path=str(folder / "seq2seq")), "cpu", "seq2seq")
    own = after[0].generation_config
    own.num_beams, own.no_repeat_ngram_size, own.min_length, own.length_penalty = 4, 1, 8, 2.0
    assert draw(folder, "seq2seq", after, number=6) == plain


def test_long_inputs_are_cut_and_prompts_and_chat_templates_are_put_around(folder: Path) -> None:
    config = settings(folder, "causal", max_input_tokens=5, prompt="Read: {condition} Now:")
    _, tokenizer = load_model(config.model, "cpu")
    prompt = build_prompt(tokenizer, TEXT, config)
    ids = tokenizer(TEXT)["input_ids"]
    assert prompt.cut
    assert tokenizer.decode(prompt.ids) == f"Read: {tokenizer.decode(ids[:5])} Now:"
    whole = settings(folder, "causal", max_input_tokens=len(ids))
    assert not build_prompt(tokenizer, TEXT, whole).cut
    chat = settings(folder, "causal", chat=True, prompt="Read: {condition}")
    with pytest.raises(cv.ConfigError, match="has no chat template"):
        build_prompt(tokenizer, TEXT, chat)
    tokenizer.chat_template = CHAT
    assert tokenizer.decode(build_prompt(tokenizer, TEXT, chat).ids) == f"<|endoftext|>Read: {TEXT}!"


def test_more_tokens_than_the_context_are_refused_by_id(folder: Path, loaded: tuple[str, Loaded]) -> None:
    architecture, model = loaded
    with pytest.raises(cv.ConfigError, match=r"long-one: .*beyond the model's context of 128"):
        draw(folder, architecture, model, "long-one", max_new_tokens=128)


def test_logits_without_a_distribution_are_refused_by_id(folder: Path) -> None:
    model, tokenizer = load_model(Model(path=str(folder / "causal")), "cpu")
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(float("nan"))
    with pytest.raises(cv.RunError, match="NaN or infinite for r#0"):
        draw(folder, "causal", (model, tokenizer))


def test_batches_are_halved_when_memory_runs_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = load_model(Model(path=str(folder / "causal")), "cpu")
    expected = draw(folder, "causal", (model, tokenizer), number=6)
    own = model.forward

    def forward(*arguments: Any, **options: Any) -> Any:
        if options["input_ids"].shape[0] > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return own(*arguments, **options)

    monkeypatch.setattr(model, "forward", forward)
    notes: list[str] = []
    config = settings(folder, "causal", number=6, batch_size=6)
    sampler = CandidateSampler(model, tokenizer, config, 0, notes.append)
    drawn = sampler.draw("r", build_prompt(tokenizer, TEXT, config))
    assert [d.text for d in drawn] == [d.text for d in expected]
    assert [note.split("memory ")[1] for note in notes] == [
        "with 6 candidates a batch and went on with 3",
        "with 3 candidates a batch and went on with 1",
    ]


def test_a_model_of_the_other_architecture_is_refused(folder: Path) -> None:
    with pytest.raises(cv.DataError, match="a sequence-to-sequence language model cannot be loaded"):
        load_model(Model(path=str(folder / "causal")), "cpu", "seq2seq")
