"""Plans: they need no network, say what is there, and cost what the routes cost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from condvne.cli import app
from condvne.data.config import Evaluation, GapConfig, load_gap_config, load_yaml
from condvne.evaluation.plan import Rates, scoring_costs
from condvne.tasks.plan import UNKNOWN, gap_plan
from tests.corpora import gap_settings

CONFIGS = [
    path
    for path in sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
    if {"corpus", "pairs"} <= load_yaml(path).keys() and "temperatures" not in load_yaml(path)
]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_has_a_plan_offline(path: Path, tmp_path: Path) -> None:
    plan = gap_plan(load_gap_config(path), tmp_path / "run")
    assert [cost.n for cost in plan.costs] == load_gap_config(path).evaluation.sizes
    assert plan.scoring_seconds > 0
    assert not (tmp_path / "run").exists()
    said = dict(plan.lines)
    assert (UNKNOWN in said["model"]) == (not Path(load_gap_config(path).model.path).is_dir())


def test_what_is_there_is_measured(tmp_path: Path) -> None:
    config = GapConfig.model_validate(gap_settings(tmp_path))
    said = dict(gap_plan(config, tmp_path / "run").lines)
    assert said["corpus"].startswith("1 files, ")
    assert "of weights; decoding takes at least" in said["model"]
    assert said["decoders"] == "greedy, nucleus, ancestral: at most 480 tokens to generate"
    (tmp_path / "corpus.jsonl").unlink()
    assert "no such file or folder" in dict(gap_plan(config, tmp_path / "run").lines)["corpus"]


def test_costs_grow_as_the_routes_do() -> None:
    device, rates = torch.device("cpu"), Rates(1e10, 1e11)
    settings = Evaluation(method="exact", repeats=5)
    small, large = scoring_costs(settings, [20_000, 40_000], 100_000, 4, device, rates)
    assert (small.route, small.subsamples) == ("eigenvalues", 5)
    assert large.seconds / small.seconds == pytest.approx(8, rel=0.05)
    assert large.gigabytes / small.gigabytes == pytest.approx(4)
    free = Evaluation(method="lanczos", repeats=5)
    small, large = scoring_costs(free, [20_000, 40_000], 40_000, 4, device, rates)
    assert (small.subsamples, large.subsamples) == (5, 1)
    assert 5 * large.seconds / small.seconds == pytest.approx(4)
    assert large.gigabytes / small.gigabytes == pytest.approx(2)


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path("configs/pythia-1b.yaml").resolve()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["gap", str(config), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "30,000 of 3 prefix and 2 continuation tokens" in result.output
    assert list(tmp_path.iterdir()) == []
