"""Reweighting the candidates of a user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.data.config.reweight import ReweightConfig
from condvne.data.encoders import HashedNgrams
from condvne.data.results import Scores
from condvne.data.reweighting import Reweighting
from condvne.reports.reweighting import inequality_line, reweighting_lines, reweighting_markdown, write_reweighting
from condvne.tasks.reweighting import AFTER, BEFORE, reweight_table

FIXED = {side: {"bandwidth": 1.0} for side in ("condition", "output")}
BIRDS = ("an owl", "a hen", "a crow", "a jay", "a swan", "a rook")


def silent(stage: str, done: int, total: int) -> None: ...


def write(path: Path, rows: int = 12, **extra: Any) -> Path:
    """Four candidates a prompt, three of them the same owl, the fourth another bird."""
    lines = [
        {
            "id": f"q{i}",
            "prompt": f"Bird number {i}?",
            "answers": ["an owl"] * 3 + [BIRDS[i % 6]],
            "human": BIRDS[i % 6],
        }
        for i in range(rows)
    ]
    path.write_text("\n".join(json.dumps(line | extra) for line in lines) + "\n")
    return path


def run(file: Path, folder: Path, **changes: Any) -> tuple[Reweighting, Scores]:
    settings: dict[str, Any] = {
        "file": str(file),
        "condition": "prompt",
        "outputs": "answers",
        "device": "cpu",
        "num_features": 256,
        "encoder": {"kind": "hashed_ngrams", "dimension": 64},
        "evaluation": {
            "sizes": [12],
            "repeats": 2,
            "distinct": {"orders": [1], "unit": "words"},
            "robustness_size": 12,
        },
    }
    return reweight_table(ReweightConfig.model_validate(settings | changes), folder, progress=silent)


def stored(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "reweighted.jsonl").read_text().splitlines()]


def test_weight_moves_to_what_is_rare_and_the_exact_score_rises(tmp_path: Path) -> None:
    found, scores = run(write(tmp_path / "a.jsonl"), tmp_path / "run", lam=5.0)
    assert found.converged
    assert found.relative_certificate <= 1e-5
    assert found.after > found.before
    rows = stored(tmp_path / "run")
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(12)]
    for row in rows:
        assert sum(row["weights"]) == pytest.approx(1, abs=1e-12)
        if row["answers"][3] != "an owl":
            assert row["weights"][3] > 0.25
    before, after = (scores.cell(group, "conditional_vendi", 12) for group in (BEFORE, AFTER))
    assert before is not None
    assert after is not None
    assert after.mean > before.mean


def test_scores_are_those_of_the_public_functions_with_weights(tmp_path: Path) -> None:
    _, scores = run(write(tmp_path / "a.jsonl"), tmp_path / "run", lam=1.0)
    rows, encoder = stored(tmp_path / "run"), HashedNgrams((2, 4), 64)
    x = encoder.encode([row["prompt"] for row in rows])
    y = encoder.encode([text for row in rows for text in row["answers"]])
    kernels = cv.Gaussian().fit(x), cv.Gaussian().fit(y)
    long = x.repeat_interleave(4, 0)
    for group, weights in (
        (BEFORE, torch.full((48,), 1 / 48, dtype=torch.float64)),
        (AFTER, torch.tensor([w for row in rows for w in row["weights"]], dtype=torch.float64) / 12),
    ):
        for metric, order in (("conditional_vendi", 1.0), ("conditional_rke", 2.0)):
            expected = cv.conditional_vendi(
                long, y, kernel_x=kernels[0], kernel_y=kernels[1], order=order, weights=weights
            )
            cell = scores.cell(group, metric, 12)
            assert cell is not None
            assert cell.mean == pytest.approx(float(expected), rel=1e-5)


def test_price_zero_and_a_low_target_leave_the_weights(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl")
    for name, aim in (("zero", {"lam": 0.0}), ("low", {"target": 0.0})):
        found, _ = run(file, tmp_path / name, **aim)
        assert found.after == pytest.approx(found.before)
        assert found.divergence == pytest.approx(0, abs=1e-12)
        assert all(row["weights"] == pytest.approx([0.25] * 4) for row in stored(tmp_path / name))


def test_the_references_entropy_is_a_target(tmp_path: Path) -> None:
    found, scores = run(write(tmp_path / "a.jsonl"), tmp_path / "run", target="reference", reference="human")
    assert scores.groups == ["human", BEFORE, AFTER]
    assert scores.outputs_per_condition == 1  # one candidate a prompt is drawn: as many as the reference has
    assert any("as a target the reference's is somewhat too low" in note for note in scores.notes)
    assert found.target is not None
    assert found.target > found.before
    if found.reached:
        assert found.after == pytest.approx(found.target, abs=1e-3)
    else:
        assert found.largest is not None
        assert found.largest < found.target
    assert any("target" in note for note in scores.notes)


def test_a_target_out_of_reach_names_the_largest(tmp_path: Path) -> None:
    found, scores = run(write(tmp_path / "a.jsonl"), tmp_path / "run", target=5.0)
    assert not found.reached
    assert any("is out of reach: the largest is" in note for note in scores.notes)
    assert "out of reach" in reweighting_lines(found)[0]


def test_a_prior_is_kept_where_nothing_is_paid(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", p=[0.1, 0.2, 0.3, 0.4])
    run(file, tmp_path / "run", lam=0.0, prior="p")
    assert all(row["weights"] == pytest.approx([0.1, 0.2, 0.3, 0.4]) for row in stored(tmp_path / "run"))


def test_ragged_sets_and_one_candidate(tmp_path: Path) -> None:
    rows = [{"prompt": f"Bird {i}?", "answers": list(BIRDS[: 1 + i % 4])} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found, _ = run(tmp_path / "a.jsonl", tmp_path / "run", lam=1.0)
    assert [len(row["weights"]) for row in stored(tmp_path / "run")] == [1 + i % 4 for i in range(12)]
    assert stored(tmp_path / "run")[0]["weights"] == [1.0]
    assert found.candidates_before == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("extra", "changes", "error", "message"),
    [
        ({"p": [0.5, 0.5]}, {"prior": "p"}, cv.DataError, r"a\.jsonl:1: field 'p' must hold 4 weights"),
        ({"p": [0.5, 0.5, 0.5, 0.5]}, {"prior": "p"}, cv.DataError, r"sum to 2 instead of 1"),
        ({"p": [True, False, False, False]}, {"prior": "p"}, cv.DataError, r"must hold 4 weights"),
        ({"p": [-0.5, 0.5, 0.5, 0.5]}, {"prior": "p"}, cv.DataError, r"none negative"),
        ({"answers": []}, {}, cv.DataError, r"without a visible character: line 1 \(id 'q0'\), field 'answers'"),
        ({"human": ["a", "b"]}, {"reference": "human"}, cv.DataError, r"q0 has 2 outputs in 'human'; give it one"),
    ],
)
def test_rows_that_are_refused(
    tmp_path: Path, extra: dict[str, Any], changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(write(tmp_path / "a.jsonl", **extra), tmp_path / "run", lam=1.0, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "give one of lam"),
        ({"lam": 1.0, "target": 1.0}, "give one of lam"),
        ({"lam": -1.0}, "greater than or equal to 0"),
        ({"target": "reference"}, "needs the field of the reference outputs"),
        ({"target": -1.0}, "target must be at least 0"),
    ],
)
def test_aims_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReweightConfig.model_validate({"file": "a", "condition": "b", "outputs": "c"} | changes)


def test_all_candidates_are_scored_beside_the_draws(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl")
    alone, scores = run(file, tmp_path / "alone", lam=5.0)
    beside, drawn = run(file, tmp_path / "beside", lam=5.0, reference="human", kernels=FIXED)
    assert [c for c in scores.cells if c.metric.startswith("cond")] == alone.cells  # those of the report already
    assert {(c.group, c.metric) for c in beside.cells} == {
        (g, m) for g in (BEFORE, AFTER) for m in ("conditional_vendi", "conditional_rke")
    }
    after = next(c for c in beside.cells if (c.group, c.metric) == (AFTER, "conditional_vendi"))
    assert after.gap is not None
    assert after.gap.estimate > 0
    one = drawn.cell(AFTER, "conditional_vendi", 12)
    assert one is not None
    assert after.mean > one.mean  # entropies grow with the number of outputs
    assert any("one candidate a prompt here, drawn by the weights" in note for note in drawn.notes)
    text = reweighting_markdown(beside, "a")
    assert text.count("| Cond. VNE | 12 |") == 1
    assert "All candidates with their weights, exact kernel" in text


def test_theorem_one_holds_where_the_references_are_candidates_and_the_target_is_met(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", p=[0.3, 0.3, 0.3, 0.1])  # the human's bird is the rare candidate
    found, _ = run(file, tmp_path / "run", target="reference", reference="human", prior="p", kernels=FIXED)
    assert found.reached
    inequality = found.inequality
    assert inequality is not None
    assert inequality.among_candidates == inequality.conditions == 12
    assert inequality.to_after + inequality.moved <= inequality.to_before
    assert inequality.holds
    assert "it holds" in inequality_line(inequality)


def test_theorem_one_need_not_hold_beside_a_poorer_reference(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", human="an emu")
    found, _ = run(file, tmp_path / "run", lam=20.0, reference="human", kernels=FIXED)
    assert found.inequality is not None
    assert not found.inequality.promised
    line = inequality_line(found.inequality)
    assert "and need not, since the reference's conditional entropy" in line
    assert "its output is among the candidates for 0 of 12 prompts" in line


def test_outputs_are_drawn_by_the_weights_and_other_fields_stay(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", p=[0.0, 0.0, 0.0, 1.0], source="zoo")
    run(file, tmp_path / "run", lam=0.0, prior="p", resample=3)
    lines = (tmp_path / "run" / "resampled.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["answers"] for row in rows] == [[BIRDS[i % 6]] * 3 for i in range(12)]
    original = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row | {"answers": 0} for row in rows] == [row | {"answers": 0} for row in original]
    run(file, tmp_path / "without", lam=0.0, prior="p")
    assert not (tmp_path / "without" / "resampled.jsonl").exists()


def test_probes_show_where_the_mass_went(tmp_path: Path) -> None:
    found, scores = run(write(tmp_path / "a.jsonl"), tmp_path / "run", lam=5.0, probe=["q1", "q6"])
    assert [probe.id for probe in found.probes] == ["q1", "q6"]
    moved, still = found.probes
    assert [(o.text, o.copies, o.before) for o in moved.outputs] == [("an owl", 3, 0.75), ("a hen", 1, 0.25)]
    assert moved.outputs[1].after == pytest.approx(stored(tmp_path / "run")[1]["weights"][3])
    assert [o.text for o in still.outputs] == ["an owl"]  # all four are the same
    most, _ = run(write(tmp_path / "a.jsonl"), tmp_path / "most", lam=5.0, probe=3)
    divergences = [probe.divergence for probe in most.probes]
    assert divergences == sorted(divergences, reverse=True)
    assert len(divergences) == 3
    write_reweighting(found, scores, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"reweighting.md", "reweighting.png", "probes.md", "probes.csv", "probes.png"} <= names
    assert len((tmp_path / "run" / "probes.csv").read_text().splitlines()) == 1 + 3
    assert "effective number 1.000 → 1.000" in (tmp_path / "run" / "probes.md").read_text()


def test_a_probe_of_a_prompt_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(cv.InputError, match="there is no prompt with id q99"):
        run(write(tmp_path / "a.jsonl"), tmp_path / "run", lam=1.0, probe=["q99"])


def test_effective_candidates_are_counted_by_prompt(tmp_path: Path) -> None:
    found, _ = run(write(tmp_path / "a.jsonl"), tmp_path / "run", lam=5.0)
    assert found.effective is not None
    assert found.effective.edges[0] == 1
    assert found.effective.edges[-1] == 4
    assert sum(found.effective.before) == sum(found.effective.after) == 12
    assert found.effective.before[-1] == 12  # four equal weights everywhere


def test_features_beyond_the_memory_share_lie_in_a_file_and_give_the_same(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", rows=80)  # more candidates than features
    held, _ = run(file, tmp_path / "held", lam=1.0)
    mapped, scores = run(file, tmp_path / "mapped", lam=1.0, memory_share=0.0)
    assert (held.mapped, mapped.mapped) == (False, True)
    assert any("were read from a file" in note for note in scores.notes)
    for a, b in zip(stored(tmp_path / "held"), stored(tmp_path / "mapped"), strict=True):
        assert a["weights"] == pytest.approx(b["weights"], abs=1e-10)
    assert not list((tmp_path / "mapped").glob("*.bin*"))


def test_prompts_with_one_distinct_candidate_are_counted_and_unchanged(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", answers=["an owl"] * 3)
    found, scores = run(file, tmp_path / "run", lam=1.0)
    assert any("12 of 12 prompts have one distinct candidate only" in note for note in scores.notes)
    assert all(row["weights"] == pytest.approx([1 / 3] * 3) for row in stored(tmp_path / "run"))
    assert found.converged


def test_equal_prompts_are_rows_of_their_own(tmp_path: Path) -> None:
    found, _ = run(write(tmp_path / "a.jsonl", prompt="A bird?"), tmp_path / "run", lam=1.0)
    assert found.after > found.before
    assert all(sum(row["weights"]) == pytest.approx(1, abs=1e-12) for row in stored(tmp_path / "run"))


def test_unchanged_weights_are_said_to_be(tmp_path: Path) -> None:
    low, _ = run(write(tmp_path / "a.jsonl"), tmp_path / "low", target=0.0)
    assert "not above what there is: weights unchanged" in reweighting_lines(low)[0]


def test_weights_that_underflow_stay_finite(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", p=[1.0, 0.0, 0.0, 1e-300])
    found, _ = run(file, tmp_path / "run", lam=100.0, prior="p", probe=1)
    assert found.after > found.before
    assert found.probes[0].divergence > 100
