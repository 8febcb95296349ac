from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from condvne.data.config import ANCESTRAL, GREEDY, NUCLEUS, Model, Strategy
from condvne.data.text.generation import InverseDistribution, generate, generate_batches, load_model, uniforms
from condvne.errors import InputError, RunError
from tests.models import FAMILIES, byte_tokenizer, save_tiny, tiny_model

PREFIXES = [[5], [7, 8, 9, 10, 11], [30, 31], [7, 8, 9, 10, 11], [40, 41, 42, 43, 44, 45, 46], [12, 13, 14]]
IDS = [f"doc-{i}" for i in range(len(PREFIXES))]
VOCABULARY, DRAWS = 40, 4000


def _argmax_continuation(model: Any, prefix: list[int], count: int) -> list[int]:
    """Greedy by hand: no padding, no cache, no generate."""
    ids = list(prefix)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prefix) :]


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_in_batches_equals_one_by_one_on_ragged_prefixes(tmp_path: Path, family: str, pad: bool) -> None:
    save_tiny(tmp_path, family, pad=pad)
    model, tokenizer = load_model(Model(path=str(tmp_path), dtype="float32"), "cpu")
    expected = [_argmax_continuation(model, prefix, 8) for prefix in PREFIXES]
    for batch_size in (1, 4, 64):
        assert generate(model, tokenizer, PREFIXES, IDS, GREEDY, 8, 0, batch_size) == expected
    assert len({tuple(tokens) for tokens in expected}) == 5  # the prefixes matter


def _draws(strategy: Strategy, prefix: list[int]) -> tuple[np.ndarray[Any, Any], torch.Tensor]:
    model = tiny_model("gpt_neox", VOCABULARY)
    ids = [f"r{i}" for i in range(DRAWS)]
    tokens = generate(model, byte_tokenizer(), [prefix] * DRAWS, ids, strategy, 1, seed=3, batch_size=500)
    probabilities = model(torch.tensor([prefix])).logits[0, -1].double().softmax(-1)
    return np.bincount([t for (t,) in tokens], minlength=VOCABULARY), probabilities.detach()


def _p_value(counts: np.ndarray[Any, Any], probabilities: torch.Tensor) -> float:
    """Chi-square against the probabilities, with cells expected below 5 pooled."""
    expected = probabilities.numpy() * DRAWS
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum())
    pooled = np.append(expected[~small], expected[small].sum())
    return float(stats.chisquare(observed[pooled > 0], pooled[pooled > 0]).pvalue)


def test_ancestral_frequencies_match_the_softmax() -> None:
    counts, probabilities = _draws(ANCESTRAL, [3, 4, 5])
    assert _p_value(counts, probabilities) > 0.01
    assert _p_value(counts, (probabilities.log() / 1.2).softmax(-1)) < 1e-6  # the test can tell distributions apart


def test_second_token_follows_the_first_ones_conditional_distribution() -> None:
    model = tiny_model("gpt_neo", VOCABULARY)
    prefix, ids = [3, 4], [f"r{i}" for i in range(DRAWS)]
    tokens = generate(model, byte_tokenizer(), [prefix] * DRAWS, ids, ANCESTRAL, 2, seed=1, batch_size=1000)
    first = model(torch.tensor([prefix])).logits[0, -1].double().softmax(-1)
    seconds = model(torch.tensor([[*prefix, t] for t in range(VOCABULARY)])).logits[:, -1].double().softmax(-1)
    counts = np.bincount([t for _, t in tokens], minlength=VOCABULARY)
    assert _p_value(counts, (first @ seconds).detach()) > 0.01


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        (Strategy(name="nucleus", do_sample=True, top_p=0.6), lambda p: _nucleus(p, 0.6)),
        (Strategy(name="top5", do_sample=True, top_k=5), lambda p: p >= p.sort(descending=True).values[4]),
    ],
)
def test_truncated_sampling_stays_inside_and_is_renormalised(
    strategy: Strategy, kept: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    counts, probabilities = _draws(strategy, [3, 4, 5])
    inside = kept(probabilities)
    assert counts[~inside.numpy()].sum() == 0
    assert 1 < int(inside.sum()) < VOCABULARY
    kept_mass = torch.where(inside, probabilities, 0.0)
    assert _p_value(counts, kept_mass / kept_mass.sum()) > 0.01


def _nucleus(probabilities: torch.Tensor, mass: float) -> torch.Tensor:
    """The smallest set of most probable tokens that holds at least `mass`."""
    order = probabilities.argsort(descending=True)
    before = probabilities[order].cumsum(0) - probabilities[order]
    return torch.zeros_like(probabilities, dtype=torch.bool).scatter(0, order, before < mass)


def test_temperature_sharpens_and_a_tiny_one_is_greedy_without_overflow() -> None:
    counts, probabilities = _draws(Strategy(name="cool", do_sample=True, temperature=0.5), [3, 4, 5])
    assert _p_value(counts, (probabilities.log() / 0.5).softmax(-1)) > 0.01
    model, frozen = tiny_model(), Strategy(name="frozen", do_sample=True, temperature=1e-38)
    greedy = generate(model, byte_tokenizer(), PREFIXES, IDS, GREEDY, 4, 0)
    assert generate(model, byte_tokenizer(), PREFIXES, IDS, frozen, 4, 0) == greedy


@pytest.mark.parametrize("strategy", [ANCESTRAL, NUCLEUS])
def test_samples_do_not_depend_on_batches_order_or_resume_point(strategy: Strategy) -> None:
    model, tokenizer = tiny_model(), byte_tokenizer()
    whole = generate(model, tokenizer, PREFIXES, IDS, strategy, 6, seed=5, batch_size=64)
    for batch_size in (1, 2, 5):
        assert generate(model, tokenizer, PREFIXES, IDS, strategy, 6, 5, batch_size) == whole
    assert generate(model, tokenizer, PREFIXES[3:], IDS[3:], strategy, 6, 5, 2) == whole[3:]
    assert generate(model, tokenizer, PREFIXES[::-1], IDS[::-1], strategy, 6, 5, 4) == whole[::-1]
    assert generate(model, tokenizer, PREFIXES, IDS, strategy, 3, 5) == [tokens[:3] for tokens in whole]


def test_seed_strategy_name_and_id_each_change_the_draws() -> None:
    model, tokenizer = tiny_model(), byte_tokenizer()
    base = generate(model, tokenizer, PREFIXES, IDS, ANCESTRAL, 6, seed=5)
    other_name = Strategy(name="again", do_sample=True)
    assert base[1] != base[3]  # the same prefix under two ids
    assert generate(model, tokenizer, PREFIXES, IDS, ANCESTRAL, 6, seed=6) != base
    assert generate(model, tokenizer, PREFIXES, IDS, other_name, 6, seed=5) != base
    assert generate(model, tokenizer, PREFIXES, [f"x{i}" for i in IDS], ANCESTRAL, 6, seed=5) != base


def test_uniforms_are_uniform_and_unambiguous_in_their_key() -> None:
    values = np.concatenate([uniforms(0, "ancestral", f"id {i}", 4) for i in range(2000)])
    assert stats.kstest(values, "uniform").pvalue > 0.01
    assert uniforms(1, "a", "2 b", 1) != uniforms(1, "a 2", "b", 1)
    assert (uniforms(1, "a", "\ud800", 3)[:2] == uniforms(1, "a", "\ud800", 2)).all()


def test_batches_come_finished_and_in_order_and_distinct_prefixes_run_once() -> None:
    model, tokenizer = tiny_model(), byte_tokenizer()
    seen: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(lambda _m, args, _o: seen.append(len(args[0])))
    prefixes = [[5], [6], [5], [5], [7], [6]]
    ids = list("abcdef")
    batches = list(generate_batches(model, tokenizer, prefixes, ids, GREEDY, 2, 0, batch_size=2))
    handle.remove()
    assert [len(batch) for batch in batches] == [4, 2]
    assert seen == [2, 2, 1, 1]  # (rows) of two steps of two batches
    rows = [row for batch in batches for row in batch]
    assert rows[0] == rows[2] == rows[3]
    assert rows[1] == rows[5]
    rows[2].append(-1)
    assert rows[0] != rows[2]  # copies, not one list


@pytest.mark.parametrize("strategy", [GREEDY, ANCESTRAL])
def test_the_checkpoints_generation_config_does_not_leak_in(tmp_path: Path, strategy: Strategy) -> None:
    save_tiny(tmp_path)
    model, tokenizer = load_model(Model(path=str(tmp_path)), "cpu")
    clean = generate(model, tokenizer, PREFIXES, IDS, strategy, 12, seed=2)
    first = clean[0][0]
    (tmp_path / "generation_config.json").write_text(
        f"""{{"do_sample": true, "temperature": 3.0, "top_k": 2, "top_p": 0.1, "min_p": 0.9, "repetition_penalty": 50.0,
        "no_repeat_ngram_size": 1, "max_length": 3, "min_length": 40, "max_new_tokens": 1, "suppress_tokens": [{first}],
        "begin_suppress_tokens": [{first}], "forced_eos_token_id": 9, "eos_token_id": [{first}], "num_beams": 3,
        "num_return_sequences": 2, "guidance_scale": 2.0, "bad_words_ids": [[{first}]], "typical_p": 0.2}}"""
    )
    model, tokenizer = load_model(Model(path=str(tmp_path)), "cpu")
    own = model.generation_config
    assert own.repetition_penalty == 50.0
    assert generate(model, tokenizer, PREFIXES, IDS, strategy, 12, seed=2) == clean
    assert model.generation_config is own
    assert own.temperature == 3.0


def test_end_of_text_is_a_token_and_does_not_stop() -> None:
    model = tiny_model()
    expected = _argmax_continuation(model, PREFIXES[0], 10)
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(expected[2])
    model.config.eos_token_id = model.generation_config.eos_token_id = expected[2]
    assert generate(model, tokenizer, PREFIXES[:1], IDS[:1], GREEDY, 10, 0) == [expected]


def test_context_is_checked_before_any_work() -> None:
    model, tokenizer = tiny_model(context=16), byte_tokenizer()
    assert len(generate(model, tokenizer, [[1, 2, 3, 4]], ["fits"], GREEDY, 12, 0)[0]) == 12
    model.get_input_embeddings().register_forward_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(InputError, match=r"up to 5 tokens plus continuation of 12 exceeds .* 16 tokens for long;"):
        generate_batches(model, tokenizer, [[1, 2, 3, 4], [1, 2, 3, 4, 5]], ["fits", "long"], GREEDY, 12, 0)


@pytest.mark.parametrize(
    ("prefixes", "ids", "new_tokens", "batch_size", "message"),
    [
        ([[1], [2]], ["a"], 1, 1, "expected equal counts, got 2 and 1"),
        ([[1], [2]], ["a", "a"], 1, 1, "ids: a occur more than once"),
        ([[1], []], ["a", "b"], 1, 1, "prefixes: empty for b"),
        ([[1], [320]], ["a", "b"], 1, 1, r"outside 0 … 319 for b"),
        ([[1]], ["a"], 0, 1, "new_tokens: expected at least 1"),
        ([[1]], ["a"], 1, 0, "batch_size: expected at least 1"),
    ],
)
def test_bad_arguments_are_refused(
    prefixes: list[list[int]], ids: list[str], new_tokens: int, batch_size: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        generate_batches(tiny_model(), byte_tokenizer(), prefixes, ids, GREEDY, new_tokens, 0, batch_size)


def test_nothing_to_do_gives_nothing() -> None:
    assert generate(tiny_model(), byte_tokenizer(), [], [], ANCESTRAL, 3, 0) == []


def test_torchs_random_state_and_the_models_mode_stay_as_they_were() -> None:
    model, tokenizer = tiny_model().train(), byte_tokenizer()
    state = torch.get_rng_state()
    first = generate(model, tokenizer, PREFIXES, IDS, ANCESTRAL, 4, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    torch.rand(7)
    assert generate(model, tokenizer, PREFIXES, IDS, ANCESTRAL, 4, seed=0) == first


def _limit_rows(model: Any, limit: int, error: Exception) -> list[int]:
    """A real model on a device that holds `limit` rows: larger batches raise as an allocator does."""
    tried: list[int] = []

    def check(_module: Any, args: tuple[torch.Tensor, ...]) -> None:
        tried.append(len(args[0]))
        if len(args[0]) > limit:
            raise error

    model.get_input_embeddings().register_forward_pre_hook(check)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("batch_size", ["auto", 6])
def test_batches_are_halved_when_memory_runs_out(error: Exception, batch_size: Any) -> None:
    tokenizer = byte_tokenizer()
    notes: list[str] = []
    expected = generate(tiny_model(), tokenizer, PREFIXES, IDS, ANCESTRAL, 3, seed=0)
    model = tiny_model()
    tried = _limit_rows(model, 1, error)
    assert generate(model, tokenizer, PREFIXES, IDS, ANCESTRAL, 3, 0, batch_size, notes.append) == expected
    assert tried[:3] == [6, 3, 1]
    assert max(tried[3:]) == 1  # it stays at the size that worked
    (note,) = notes
    assert note.endswith("sequences a batch and went on with 1.")


def test_no_memory_for_one_row_ends_the_run_and_other_errors_pass_through() -> None:
    model = tiny_model()
    _limit_rows(model, 0, torch.cuda.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(RunError, match=r"one sequence a batch \(CUDA out of memory\.\); shorten"):
        generate(model, byte_tokenizer(), PREFIXES, IDS, GREEDY, 3, 0)
    model = tiny_model()
    _limit_rows(model, 0, RuntimeError("device-side assert"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        generate(model, byte_tokenizer(), PREFIXES, IDS, GREEDY, 3, 0)


@pytest.mark.parametrize("strategy", [GREEDY, ANCESTRAL])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_without_a_distribution_name_the_records(strategy: Strategy, value: float) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[44] = value
    own = model.generation_config
    with pytest.raises(RunError, match=r"NaN or infinite for doc-4; load it with dtype bfloat16 or float32"):
        generate(model, byte_tokenizer(), PREFIXES, IDS, strategy, 3, 0)
    assert model.generation_config is own


def test_tokens_ruled_out_by_the_model_are_never_drawn() -> None:
    model = tiny_model("gpt_neox", VOCABULARY)
    model.get_output_embeddings().register_forward_hook(
        lambda _m, _a, logits: logits.index_fill(-1, torch.arange(10, VOCABULARY), -torch.inf)
    )
    tokens = generate(model, byte_tokenizer(), [[3]] * 50, [str(i) for i in range(50)], ANCESTRAL, 4, 0)
    assert {t for row in tokens for t in row} == set(range(10))


def test_a_draw_at_an_edge_takes_the_next_token_that_can_be_drawn() -> None:
    scores = torch.tensor([0.0, 0.25, 0.25, 0.0, 0.5, 0.0]).log().expand(5, 6)
    draws = torch.tensor([[0.0], [0.25], [0.5], [0.75], [1 - 2**-53]], dtype=torch.float64)
    chosen = InverseDistribution(draws, width=3)(torch.zeros(5, 3, dtype=torch.long), scores)
    assert chosen.argmax(-1).tolist() == [1, 2, 4, 4, 4]
    assert torch.isneginf(chosen).sum(-1).tolist() == [5] * 5


def test_generating_says_nothing_in_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import logging

    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    logging.warning_once.cache_clear()
    for strategy in (GREEDY, NUCLEUS):
        generate(tiny_model(), byte_tokenizer(), PREFIXES, IDS, strategy, 3, 0)
    assert caplog.messages == []
