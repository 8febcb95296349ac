"""Minimum-Bayes-risk decoding from end to end, and what happens when it is disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import condvne as cv
from condvne.cli import app
from condvne.data.config.mbr import MbrConfig
from condvne.data.decoding import Decoding
from condvne.data.storage import load_tensors
from condvne.data.text.candidates import read_candidates
from condvne.data.text.quality import RougeL
from condvne.evaluation import Progress
from condvne.tasks.mbr import decode
from tests.corpora import write_config
from tests.mbr import candidate_lines, generating, mbr_settings, save_tiny_bert, write_lines

METRICS = ["rouge_l", "bertscore", "distinct_2", "self_bleu_2", "conditional_vendi"]


def silent(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def run(settings: dict[str, Any], folder: Path, progress: Progress = silent) -> Decoding:
    return decode(MbrConfig.model_validate(settings), folder, progress=progress)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    save_tiny_bert(folder / "bert")
    return folder


@pytest.fixture(scope="module")
def finished(material: Path) -> tuple[Path, Decoding]:
    folder = material / "finished"
    return folder, run(mbr_settings(material), folder)


def complete(material: Path, architecture: str, **changes: Any) -> dict[str, Any]:
    """Every measure and metric, on candidates drawn from a model."""
    return mbr_settings(
        material,
        candidates=generating(material, architecture),
        empty_candidates="drop",
        few_candidates="drop",
        utilities=["rouge_l", "bertscore", "cosine"],
        metrics=METRICS,
        bertscore={"path": str(material / "bert"), "layers": 2},
        **changes,
    )


@pytest.mark.parametrize("architecture", ["seq2seq", "causal"])
def test_candidates_are_drawn_compared_weighed_and_judged(material: Path, architecture: str) -> None:
    folder = material / f"drawn-{architecture}"
    found = run(complete(material, architecture), folder)
    assert [m.key for m in found.methods] == ["mc", "mbmbr", "mbmbr_l", "cvs"]
    assert found.inputs == 6
    assert Decoding.model_validate_json((folder / "decoding.json").read_text()) == found
    for utility in ("rouge_l", "bertscore", "cosine"):
        for method in found.methods:
            for metric in METRICS:
                cell = found.cell(utility, method.key, metric)
                assert cell is not None
                assert cell.low is not None
                assert cell.high is not None
                assert cell.low <= cell.value <= cell.high
                assert (cell.gap is None) == (method.key == "mbmbr_l")
    records = read_candidates(folder / "candidates.jsonl")
    assert all(len(r.outputs) == len(r.logprobs or []) == len(r.lengths or []) == 5 for r in records)
    assert all(logprob < 0 for r in records for logprob in r.logprobs or [])
    chosen = lines_of(folder / "selections.jsonl")
    assert len(chosen) == 6 * 3 * 4
    by_id = {r.id: r.outputs for r in records}
    assert all(line["output"] in by_id[line["id"]] for line in chosen)
    (facts,) = found.projections
    assert facts.entropy >= facts.entropy_before
    assert any("reached 10 tokens without an end" in note for note in found.notes)


def test_choices_are_those_of_the_definition(material: Path, finished: tuple[Path, Decoding]) -> None:
    folder, _ = finished
    rouge = RougeL()
    chosen = {
        (line["id"], line["method"]): line
        for line in lines_of(folder / "selections.jsonl")
        if line["utility"] == "rouge_l"
    }
    for line in candidate_lines():
        outputs = line["outputs"]
        u = rouge.pairwise(outputs)
        distinct = [outputs.index(text) for text in dict.fromkeys(outputs)]
        p = torch.tensor([line["logprobs"][i] for i in distinct], dtype=torch.float64)
        lengths = torch.tensor([line["lengths"][i] for i in distinct], dtype=torch.float64)
        expected = {
            "mc": (u.mean(1), range(len(outputs))),
            "mbmbr": (u[:, distinct] @ torch.softmax(p, 0), distinct),
            "mbmbr_l": (u[:, distinct] @ torch.softmax(p / lengths, 0), distinct),
        }
        for method, (values, _) in expected.items():
            found = chosen[line["id"], method]
            assert found["expected_utility"] == pytest.approx(float(values.max()))
            assert float(values[outputs.index(found["output"])]) == pytest.approx(float(values.max()))


def test_weights_stand_beside_the_candidates(finished: tuple[Path, Decoding]) -> None:
    folder, found = finished
    for line, given in zip(lines_of(folder / "weights.jsonl"), candidate_lines(), strict=True):
        assert line["outputs"] == list(dict.fromkeys(given["outputs"]))
        assert line["counts"] == [given["outputs"].count(text) for text in line["outputs"]]
        assert line["weights"].keys() == {m.key for m in found.methods}
        assert all(sum(w) == pytest.approx(1.0) for w in line["weights"].values())


def test_every_matrix_is_computed_once_and_serves_all_methods(material: Path, finished: tuple[Path, Decoding]) -> None:
    folder, found = finished
    files = sorted((folder / "utilities").rglob("*.safetensors"))
    assert len(files) == 8 + 8 + 8  # ROUGE-L and cosine of candidates, ROUGE-L against references
    before = {file: file.stat().st_mtime_ns for file in files}
    assert run(mbr_settings(material), folder).cells == found.cells
    assert {file: file.stat().st_mtime_ns for file in sorted((folder / "utilities").rglob("*.safetensors"))} == before


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_matrix_is_made_again_and_said(material: Path, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    cells = run(mbr_settings(material), folder).cells
    file = next((folder / "utilities" / "rouge_l").glob("pairwise-*.safetensors"))
    whole, values = file.read_bytes(), load_tensors(file)[0]["values"].clone()  # it is mapped from the file
    file.write_bytes(whole[: len(whole) // 2] if how == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    found = run(mbr_settings(material), folder)
    assert found.cells == cells
    assert [note for note in found.notes if "damaged" in note] == [f"{file}: is damaged and was computed anew"]
    assert torch.equal(load_tensors(file)[0]["values"], values)


def test_another_configuration_is_refused_in_the_same_folder(material: Path, finished: tuple[Path, Decoding]) -> None:
    with pytest.raises(cv.RunError, match="resamples"):
        run(mbr_settings(material, resamples=10), finished[0])


def test_a_run_killed_while_drawing_goes_on_to_the_same_candidates(tmp_path: Path) -> None:
    candidates = generating(tmp_path, "causal", count=8, number=8, max_new_tokens=60)
    settings = mbr_settings(tmp_path, candidates=candidates, empty_candidates="drop", utilities=["cosine"])
    config = write_config(tmp_path / "config.yaml", settings)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    expected = run(settings, undisturbed)
    command = [sys.executable, "-m", "condvne", "mbr", str(config), "--folder", str(killed)]
    log = killed / "candidates.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    whole, partly = (undisturbed / "candidates.jsonl").read_bytes(), log.read_bytes()
    assert whole.startswith(partly)
    assert len(partly) < len(whole)
    again = run(settings, killed)
    assert log.read_bytes() == whole
    assert again.cells == expected.cells
    assert [n for n in again.notes if "without an end" in n] == [n for n in expected.notes if "without an end" in n]


def test_candidates_of_other_inputs_are_refused(material: Path, tmp_path: Path) -> None:
    settings = mbr_settings(material, candidates=generating(material, "causal"), utilities=["cosine"])
    run(settings | {"empty_candidates": "drop"}, tmp_path / "run")
    log = tmp_path / "run" / "candidates.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    with pytest.raises(cv.RunError, match=r"inputs\.jsonl"):
        run(settings | {"empty_candidates": "drop"}, tmp_path / "run")


def changed(tmp_path: Path, change: dict[str, Any] | None, drop: str | None = None, **settings: Any) -> dict[str, Any]:
    """Settings on candidates of which the second record is changed or lacks a field."""
    lines = candidate_lines()
    lines[1] |= change or {}
    lines[1] = {key: value for key, value in lines[1].items() if key != drop}
    path = write_lines(tmp_path / "changed.jsonl", lines)
    return mbr_settings(tmp_path, candidates={"source": "file", "path": str(path)}, **settings)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        ({"outputs": ["one"], "logprobs": [-1.0], "lengths": [1]}, None, r"one candidate or none for news-1 \(1\)"),
        ({"outputs": [], "logprobs": [], "lengths": []}, None, r"one candidate or none for news-1 \(0\)"),
        ({"outputs": ["a", " "] * 3}, None, "3 candidates of news-1 have no visible character"),
        (None, "logprobs", "MBMBR and MBMBR-L need log-probabilities, which are missing for news-1"),
        ({"logprobs": [0.25] * 6}, None, "logprobs are positive for news-1"),
        (None, "lengths", "lengths, which are missing for news-1"),
        (None, "references", "the metrics rouge_l compare outputs with references, which are missing for news-1"),
    ],
)
def test_bad_input_is_one_sentence_with_ids(
    tmp_path: Path, change: dict[str, Any] | None, drop: str | None, message: str
) -> None:
    with pytest.raises(cv.DataError, match=message) as refusal:
        run(changed(tmp_path, change, drop), tmp_path / "run")
    assert "news-2" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_references_are_refused_before_candidates_are_drawn(tmp_path: Path) -> None:
    candidates = generating(tmp_path, "causal")
    candidates["inputs"] = candidates["inputs"] | {"references_field": None}
    with pytest.raises(cv.DataError, match="which are missing for news-"):
        run(mbr_settings(tmp_path, candidates=candidates), tmp_path / "run")
    assert not (tmp_path / "run" / "candidates.jsonl").exists()


def test_missing_packages_are_refused_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(
        cv.ConfigError, match=r"rouge_score and sacrebleu not installed, .* pip install 'condvne\[mbr\]'"
    ):
        run(mbr_settings(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_methods_and_metrics_that_need_nothing_run_without_it(tmp_path: Path) -> None:
    lines = [{key: line[key] for key in ("id", "condition", "outputs")} for line in candidate_lines()]
    path = write_lines(tmp_path / "bare.jsonl", lines)
    settings = mbr_settings(
        tmp_path,
        candidates={"source": "file", "path": str(path)},
        methods=["mc", "cvs"],
        reference="mc",
        metrics=["distinct_2", "self_bleu_2", "conditional_vendi"],
    )
    found = run(settings, tmp_path / "run")
    assert {cell.method for cell in found.cells} == {"mc", "cvs"}
    assert all((cell.gap is None) == (cell.method == "mc") for cell in found.cells)


def test_only_lexical_measures_need_no_encoder(tmp_path: Path) -> None:
    settings = mbr_settings(
        tmp_path,
        methods=["mc", "mbmbr_l"],
        utilities=["rouge_l"],
        metrics=["rouge_l", "distinct_2"],
        encoder={"path": str(tmp_path / "nowhere")},
    )
    found = run(settings, tmp_path / "run")
    assert found.condition is None
    assert len(found.cells) == 4


def test_identical_candidates_are_chosen_by_all_methods(tmp_path: Path) -> None:
    same = {"outputs": ["the only one"] * 6, "logprobs": [-1.0] * 6, "lengths": [3] * 6}
    found = run(changed(tmp_path, same), tmp_path / "run")
    assert "all candidates are equal for news-1: every method chooses the same text there" in found.notes
    chosen = [line for line in lines_of(tmp_path / "run" / "selections.jsonl") if line["id"] == "news-1"]
    assert {line["output"] for line in chosen} == {"the only one"}


def test_inputs_whose_candidates_are_all_equal_give_equal_methods(tmp_path: Path) -> None:
    lines = [line | {"outputs": ["the same"] * 6, "logprobs": [-1.0] * 6} for line in candidate_lines()]
    path = write_lines(tmp_path / "same.jsonl", lines)
    found = run(mbr_settings(tmp_path, candidates={"source": "file", "path": str(path)}), tmp_path / "run")
    assert all(cell.gap is None or cell.gap.estimate == 0 for cell in found.cells)
    cell = found.cell("rouge_l", "cvs", "conditional_vendi")
    assert cell is not None
    assert cell.value == pytest.approx(1.0, abs=1e-9)


def test_utilities_that_are_nan_are_refused_by_id_and_kept_nowhere(tmp_path: Path) -> None:
    from transformers import AutoModel

    bert = save_tiny_bert(tmp_path / "bert")
    model = AutoModel.from_pretrained(bert)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight.fill_(float("nan"))
    model.save_pretrained(bert)
    settings = mbr_settings(tmp_path, utilities=["bertscore"], bertscore={"path": str(bert), "layers": 2})
    with pytest.raises(cv.DataError, match=r"BERTScore between candidates is NaN or infinite for \d+ of \d+ .* news-0"):
        run(settings, tmp_path / "run")
    assert not list((tmp_path / "run" / "utilities").rglob("*.safetensors"))


def test_one_input_has_values_without_intervals(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "one.jsonl", candidate_lines(1))
    found = run(mbr_settings(tmp_path, candidates={"source": "file", "path": str(path)}), tmp_path / "run")
    assert found.inputs == 1
    assert found.cell("rouge_l", "mc", "self_bleu_2") is None
    cell = found.cell("rouge_l", "mc", "rouge_l")
    assert cell is not None
    assert (cell.low, cell.high) == (None, None)


def test_the_command_shows_the_tables_and_leaves_the_report(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", mbr_settings(tmp_path))
    result = CliRunner().invoke(app, ["mbr", str(config), "--folder", str(tmp_path / "run")], env={"COLUMNS": "180"})
    assert result.exit_code == 0, result.output
    for text in ("MC-MBR", "MBMBR-L", "CVS-MBR", "Self-BLEU-2", "of its minimum after"):
        assert text in result.output
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {"decoding.json", "decoding.png", "table.md", "table.csv", "selections.jsonl", "weights.jsonl"}


def test_a_refusal_of_the_command_is_one_sentence_in_a_real_process(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", changed(tmp_path, None, "references"))
    command = [sys.executable, "-m", "condvne", "mbr", str(config), "--folder", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    refusals = [line for line in result.stderr.splitlines() if line.startswith("condvne: ")]
    assert len(refusals) == 1
    assert "missing for news-1" in refusals[0]
    assert "Traceback" not in result.stderr
