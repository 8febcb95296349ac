"""The training experiments run from their configurations, at a small size, keep what they have and go on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from condvne.data.records import PairRecord, dump
from tests.corpora import gap_settings
from tests.processes import launched

ROOT = Path(__file__).parents[2]


def run(script: str, config: dict[str, Any], folder: Path) -> tuple[int, str]:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    done = launched([sys.executable, str(ROOT / "scripts" / script), str(path), str(folder / "out")])
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_the_generator_of_digits(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "configs" / "train-digits.yaml").read_text())
    assert len(config["seeds"]) >= 3
    arms = {name: config["arms"][name] for name in ("plain", "entropy loss")}
    small = config | {"steps": 200, "seeds": [0], "arms": arms}
    status, _ = run("train_digits.py", small, tmp_path)
    assert status == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    plain, entropy = (found["arms"][name]["seeds"]["0"] for name in ("plain", "entropy loss"))
    assert entropy["diversity"] > 1.2 * plain["diversity"]  # after so few steps, already
    assert "| real digits |" in (tmp_path / "out" / "table.md").read_text()
    status, told = run("train_digits.py", small, tmp_path)
    assert (status, "seed 0" in told) == (0, False)  # nothing is trained again
    status, told = run("train_digits.py", small | {"steps": 201}, tmp_path)
    assert status == 1
    assert "holds results of other settings" in told


def test_fine_tuning_with_the_token_entropy(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    quickstart = gap_settings(tmp_path)
    (tmp_path / "gap.yaml").write_text(yaml.safe_dump(quickstart))
    tokenizer = AutoTokenizer.from_pretrained(quickstart["model"]["path"])
    lines = []
    for i, line in enumerate((tmp_path / "corpus.jsonl").read_text().splitlines()[:110]):
        ids = tokenizer(json.loads(line)["text"])["input_ids"]
        prefix, training = ids[:3], ids[3:5]
        record = PairRecord(f"{i}", tokenizer.decode(prefix), prefix, tokenizer.decode(training), training)
        lines.append(dump(record.to_json()))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records.jsonl").write_text("\n".join(lines) + "\n")
    config = yaml.safe_load((ROOT / "configs" / "fine-tune-quickstart.yaml").read_text())
    assert len(config["seeds"]) >= 3
    arms: dict[str, Any] = {
        "before": {"steps": 0},
        "alone": {},
        "entropy": {"weight": 5.0},
        "conditional": {"weight": 5.0, "conditional": True, "candidates": 4},
    }
    config |= {"quickstart": str(tmp_path / "gap.yaml"), "run": str(tmp_path / "run"), "pairs": 100, "steps": 4}
    config |= {"encoder": {"kind": "hashed_ngrams"}, "seeds": [0], "arms": arms, "rate": 0.01}
    status, told = run("fine_tune_quickstart.py", config, tmp_path)
    assert status == 0, told
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {name: arm["seeds"]["0"] for name, arm in found["arms"].items()}
    assert list(scores) == list(arms)
    assert scores["alone"]["held_out_loss"] < scores["before"]["held_out_loss"]
    losses = {round(row["held_out_loss"], 6) for row in scores.values()}
    assert len(losses) == 4  # every arm trained, and differently
    assert "| training text |" in (tmp_path / "out" / "table.md").read_text()
