"""Utilities against the definitions in their papers and the libraries' own calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import condvne as cv
from condvne.data.config.mbr import BertScore
from condvne.data.encoders import HashedNgrams
from condvne.data.text.quality import BertScoreF1, EmbeddingCosine, Measure, RougeL
from tests.mbr import save_tiny_bert
from tests.models import SENTENCES

TEXTS = ["The council closed the bridge.", "A storm closed the old bridge", "the council closed the bridge", "Hm."]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def measures(bert: Path) -> dict[str, Measure]:
    return {
        "rouge_l": RougeL(),
        "bertscore": BertScoreF1(BertScore(path=str(bert), layers=2), "cpu"),
        "cosine": EmbeddingCosine(HashedNgrams((2, 4), 64)),
    }


def longest_common_subsequence(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return 1 + longest_common_subsequence(a[:-1], b[:-1])
    return max(longest_common_subsequence(a[:-1], b), longest_common_subsequence(a, b[:-1]))


def test_rouge_l_is_the_f_measure_of_the_longest_common_subsequence() -> None:
    a, b = "the cat sat on the mat", "a cat on a mat sat"
    common = longest_common_subsequence(a.split(), b.split())
    precision, recall = common / len(a.split()), common / len(b.split())
    value = float(RougeL(stemmer=False).pairwise([a, b])[0, 1])
    assert value == pytest.approx(2 * precision * recall / (precision + recall))
    assert float(RougeL(stemmer=True).pairwise(["cats running", "cat runs"])[0, 1]) == 1.0
    assert float(RougeL(stemmer=False).pairwise(["cats running", "cat runs"])[0, 1]) == 0.0


def test_bertscore_is_the_f1_of_greedily_matched_vectors(bert: Path, measures: dict[str, Measure]) -> None:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(bert).eval(), AutoTokenizer.from_pretrained(bert)

    def vectors(text: str) -> torch.Tensor:
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        return torch.nn.functional.normalize(hidden[1:-1], dim=-1)  # the marks at the ends have weight 0

    # The marks take part in the matching, with weight 0 for their own best match.
    def full(text: str) -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.normalize(
                model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0], dim=-1
            )

    a, b = SENTENCES[0], SENTENCES[1]
    precision = (vectors(a) @ full(b).mT).amax(1).mean()
    recall = (vectors(b) @ full(a).mT).amax(1).mean()
    expected = float(2 * precision * recall / (precision + recall))
    assert float(measures["bertscore"].pairwise([a, b])[0, 1]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["rouge_l", "bertscore", "cosine"])
def test_matrices_are_symmetric_one_on_the_diagonal_and_agree_with_references(
    measures: dict[str, Measure], name: str
) -> None:
    measure = measures[name]
    u = measure.pairwise(TEXTS)
    assert u.shape == (4, 4)
    assert u.dtype == torch.float64
    assert torch.equal(u, u.mT)
    assert u.diagonal().tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert float(u.max()) <= 1 + 1e-5
    best = measure.against(TEXTS, TEXTS[:2])
    assert best.tolist() == pytest.approx(u[:, :2].amax(1).tolist(), abs=1e-5)


def test_both_directions_of_the_libraries_agree(measures: dict[str, Measure]) -> None:
    for name in ("rouge_l", "bertscore"):
        there = measures[name].against(TEXTS[:1], [TEXTS[1]])
        back = measures[name].against([TEXTS[1]], TEXTS[:1])
        assert there.tolist() == pytest.approx(back.tolist(), abs=1e-6)


def test_texts_of_other_scripts_have_rouge_l_zero() -> None:
    assert RougeL().pairwise(["桥", "桥"]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_lone_surrogates_are_measured(measures: dict[str, Measure]) -> None:
    for measure in measures.values():
        assert bool(torch.isfinite(measure.pairwise(["the \ud800 bridge", "the bridge"])).all())


def test_texts_beyond_the_models_positions_are_cut(measures: dict[str, Measure]) -> None:
    long = " ".join(SENTENCES * 6)
    u = measures["bertscore"].pairwise([long, f"{long} more words behind the cut", SENTENCES[1]])
    assert float(u[0, 1]) == pytest.approx(1.0, abs=1e-5)
    assert float(u[0, 2]) < 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda bert: BertScore(path=str(bert)), "bertscore.layers: bert-score recommends no layer"),
        (lambda bert: BertScore(path=str(bert), layers=9), "bertscore.path: .* with layer 9"),
        (lambda bert: BertScore(path=str(bert / "nowhere"), layers=1), "bertscore.path: .*nowhere cannot be loaded"),
    ],
)
def test_models_that_bertscore_cannot_use_are_refused(
    bert: Path, config: Callable[[Path], BertScore], message: str
) -> None:
    with pytest.raises(cv.ConfigError, match=message):
        BertScoreF1(config(bert), "cpu")


def test_other_weights_have_another_name(bert: Path, tmp_path: Path, measures: dict[str, Measure]) -> None:
    from transformers import AutoModel

    other = save_tiny_bert(tmp_path / "other")
    model = AutoModel.from_pretrained(other)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    model.save_pretrained(other)
    config = BertScore(path=str(other), layers=2)
    assert BertScoreF1(config, "cpu").name.split("@")[1] != measures["bertscore"].name.split("@")[1]
