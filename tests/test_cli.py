"""The command line, in real processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from condvne.cli import app, main
from tests.corpora import gap_settings, write_config
from tests.models import save_gguf
from tests.tasks.test_score import write_wide

REPORTS = {"scores.json", "table.md", "table.csv", "gap.png", "report.html", "config.json", "versions.json"}


def condvne(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "160"}
    command = [sys.executable, "-m", "condvne", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_score_takes_several_outputs_in_a_row_and_leaves_a_report(tmp_path: Path) -> None:
    write_wide(tmp_path / "mine.jsonl")
    arguments = ["score", "mine.jsonl", "--condition", "prompt", "--outputs", "varied", "same"]
    result = condvne(*arguments, "--reference", "varied", "--encoder", "hashed_ngrams", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "▼" in result.stdout
    folder = tmp_path / "runs" / "score-mine"
    assert {path.name for path in folder.iterdir()} >= REPORTS
    settings = json.loads((folder / "config.json").read_text())
    assert settings["outputs"] == ["varied", "same"]


def test_reweight_writes_weights_draws_and_probes(tmp_path: Path) -> None:
    rows = [{"id": f"q{i}", "prompt": f"Bird {i}?", "answers": ["an owl", "an owl", f"bird {i}"]} for i in range(12)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["reweight", "mine.jsonl", "--condition", "prompt", "--outputs", "answers", "--lam", "1"]
    more = ["--resample", "2", "--probe", "q1", "q2", "--encoder", "hashed_ngrams", "--features", "64"]
    result = condvne(*arguments, *more, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "certified within" in result.stdout
    folder = tmp_path / "runs" / "reweight-mine"
    names = {"reweighted.jsonl", "resampled.jsonl", "reweighting.md", "reweighting.png", "probes.md", "probes.png"}
    assert {path.name for path in folder.iterdir()} >= REPORTS | names
    lines = (folder / "resampled.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["answers"]) for line in lines] == [2] * 12
    assert (folder / "probes.md").read_text().count("## q") == 2


def test_gap_runs_a_configuration_and_leaves_a_report(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", gap_settings(tmp_path, pairs={"count": 80}))
    result = condvne("gap", str(config), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for group in ("training", "greedy", "nucleus", "ancestral"):
        assert group in result.stdout
    folder = tmp_path / "runs" / "tiny"
    assert {path.name for path in folder.iterdir()} >= REPORTS | {"records.jsonl", "pairs.jsonl", "embeddings"}


def test_options_with_several_values_may_also_be_repeated() -> None:
    runner = CliRunner()
    arguments = ["score", "absent.jsonl", "--outputs", "a", "--outputs", "b", "--sizes", "1", "2"]
    result = runner.invoke(app, [*arguments, "--condition", "c", "--encoder", "hashed_ngrams"])
    # The file does not exist: the refusal shows that the arguments themselves were understood.
    assert "absent.jsonl" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gap", "absent.yaml"], "absent.yaml"),
        (["gap", "broken.yaml"], "broken.yaml"),
        (["gap", "unknown.yaml"], "did you mean prefix_tokens?"),
        (["score", "absent.jsonl", "--condition", "a", "--outputs", "b"], "absent.jsonl"),
        (["score", "mine.jsonl", "--condition", "a", "--outputs", "varied"], "mine.jsonl"),
        (["score", "mine.jsonl", "--condition", "prompt", "--outputs", "varied", "--multiplier", "0"], "multiplier"),
        (["score", "mine.jsonl", "--condition", "prompt", "--outputs", "varied", "--sizes", "99"], "99"),
        (
            ["reweight", "mine.jsonl", "--condition", "prompt", "--outputs", "varied", "--target", "nan"],
            "--target: must",
        ),
        (["reweight", "mine.jsonl", "--condition", "prompt", "--outputs", "varied", "--probe", "0"], "--probe: must"),
    ],
)
def test_a_refusal_is_one_sentence_on_standard_error(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_wide(tmp_path / "mine.jsonl")
    (tmp_path / "broken.yaml").write_text("a: [1")
    settings = gap_settings(tmp_path)
    write_config(tmp_path / "unknown.yaml", settings | {"pairs": {"count": 5, "prefix_token": 3}})
    encoder = ["--encoder", "hashed_ngrams"] if arguments[0] == "score" else []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["condvne", *arguments, *encoder])
    assert main() == 1
    refusal = [line for line in capsys.readouterr().err.splitlines() if line.startswith("condvne: ")]
    assert len(refusal) == 1
    assert message in refusal[0]


def test_a_refusal_ends_a_real_process_with_status_one_and_no_traceback(tmp_path: Path) -> None:
    result = condvne("gap", "absent.yaml", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("condvne: absent.yaml")
    assert "Traceback" not in result.stderr


def test_gap_takes_another_model_and_a_gguf_file(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", gap_settings(tmp_path, pairs={"count": 80}))
    (tmp_path / "quantised").mkdir()
    save_gguf(tmp_path / "quantised", "q.gguf")
    result = condvne("gap", str(config), "--model", "quantised", "--gguf", "q.gguf", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    settings = json.loads((tmp_path / "runs" / "tiny" / "config.json").read_text())
    assert settings["model"]["gguf"] == "q.gguf"
    assert (tmp_path / "runs" / "tiny" / "report.html").exists()
