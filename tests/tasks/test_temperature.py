"""Temperature studies: the search on known functions, and a whole study on a small real model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from condvne.data.config.temperature import REWEIGHTED, Search, TemperatureConfig
from condvne.data.results import TemperatureStudy
from condvne.evaluation.textpairs import TRAINING
from condvne.reports.temperature import temperature_caption, temperature_csv, temperature_markdown, terminal_temperature
from condvne.tasks.temperature import _search, measure_temperatures
from tests.corpora import gap_settings


def silent(stage: str, done: int, total: int) -> None: ...


@pytest.mark.parametrize("root", [0.55, 0.8, 1.0, 1.7])
def test_the_search_finds_where_a_smooth_entropy_meets_the_text(root: float) -> None:
    asked: list[float] = []

    def difference(t: float) -> float:
        asked.append(t)
        return 3 * math.tanh(2 * math.log(t / root))

    found = _search(Search(tolerance=0.01, generations=12), difference, [0.7, 1.0])
    assert found.reached
    assert abs(found.difference) <= 0.01
    assert found.temperature == pytest.approx(root, rel=0.01)
    assert len(asked) == len(set(asked)) == 2 + found.generations <= 14


def test_generations_are_bounded_and_the_nearest_is_kept() -> None:
    found = _search(Search(tolerance=1e-12, generations=2), lambda t: math.atan(40 * (t - 0.813)), [0.5, 2.0])
    assert (found.generations, found.reached) == (2, False)
    assert found.bracket is not None
    assert found.bracket[0] < 0.813 < found.bracket[1]


@pytest.mark.parametrize(("sign", "nearest"), [(1, 0.5), (-1, 2.0)])
def test_a_text_out_of_reach_is_told(sign: int, nearest: float) -> None:
    found = _search(Search(), lambda t: sign * 2 + math.log(t), [0.9, 1.0])
    assert (found.bracket, found.reached, found.temperature) == (None, False, nearest)
    assert found.generations == 1


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    base = gap_settings(folder)
    evaluation = {"sizes": [40, 60], "repeats": 3, "robustness_size": 20, "permutations": 0, "empty_texts": "drop"}
    whole = base | {"pairs": {"count": 80}, "generation": {"strategies": ["greedy"]}, "evaluation": evaluation}
    search = {"lower": 0.05, "upper": 3.0, "generations": 3, "tolerance": 0.05}
    return whole | {"temperatures": [0.3, 1.0], "search": search, "judge": base["model"]} | changes


def test_a_whole_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    config = TemperatureConfig.model_validate(settings(tmp_path))
    study, scores = measure_temperatures(config, tmp_path / "run", progress=silent)
    groups = [row.group for row in study.rows]
    assert groups[:2] == [TRAINING, "greedy"]
    assert {"t0.3", "t1"} <= set(groups)
    assert groups == [TRAINING, *scores.groups[1:]]
    assert study.match is not None
    by_name = {row.group: row for row in study.rows}
    assert by_name[f"t{study.match.temperature:.4g}"].matched
    assert by_name["t0.3"].conditional_vendi < by_name["t1"].conditional_vendi
    assert by_name["t0.3"].nll is not None
    assert by_name["t1"].nll is not None
    assert by_name["t0.3"].nll < by_name["t1"].nll  # the judge is the model itself
    assert by_name[TRAINING].precision is None
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").glob("temperatures/*/records.jsonl")}
    assert len(files) == 2 + study.match.generations
    again, _ = measure_temperatures(config, tmp_path / "run", progress=silent)
    assert again == study
    assert {p: p.stat().st_mtime_ns for p in files} == files
    stored = TemperatureStudy.model_validate(json.loads((tmp_path / "run" / "temperature.json").read_text()))
    assert stored == study
    check_tables(study)


def check_tables(study: TemperatureStudy) -> None:
    text = temperature_markdown(study)
    assert text.count("(matched)") == 1
    assert len(temperature_csv(study).splitlines()) == 1 + len(study.rows)
    assert "NLL: nats a token under" in temperature_caption(study)
    assert terminal_temperature(study).row_count == len(study.rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperatures": [0.5, 0.0]}, "temperatures must be above 0"),
        ({"temperatures": []}, "temperatures"),
        ({"search": {"lower": 2.0, "upper": 1.0}}, "lower, 2, must be below upper, 1"),
        ({"reweight": {"candidates": 1}}, "candidates"),
        (
            {"reweight": {}, "generation": {"strategies": [{"name": "reweighted", "do_sample": True}]}},
            "a strategy is named reweighted",
        ),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TemperatureConfig.model_validate(settings(tmp_path) | change)


def test_reweighted_candidates_stand_beside_the_temperatures(tmp_path: Path) -> None:
    few = {"candidates": 4, "temperature": 0.01, "num_features": 128, "tolerance": 0.005}
    config = TemperatureConfig.model_validate(settings(tmp_path, reweight=few, search=None))
    study, scores = measure_temperatures(config, tmp_path / "run", progress=silent)
    found = study.reweighting
    assert found is not None
    rows = {row.group: row for row in study.rows}
    assert scores.groups[-1] == study.rows[-1].group == REWEIGHTED
    assert rows[REWEIGHTED].precision is not None
    assert rows[REWEIGHTED].nll is not None
    assert rows[REWEIGHTED].temperature is None
    assert found.before < -0.005  # cold candidates
    assert abs(found.difference) < abs(found.before)
    assert rows["greedy"].conditional_vendi < rows[REWEIGHTED].conditional_vendi
    assert 1 <= found.effective_candidates <= 4
    assert "Reweighted: one of 4 candidates a prefix at temperature 0.01000" in temperature_caption(study)
    again, _ = measure_temperatures(config, tmp_path / "run", progress=silent)
    assert again == study


def test_candidates_above_the_text_keep_their_weights(tmp_path: Path) -> None:
    hot = {"candidates": 2, "temperature": 3.0, "num_features": 128, "tolerance": 1e-6}
    config = TemperatureConfig.model_validate(settings(tmp_path, reweight=hot, search=None, judge=None))
    study, _ = measure_temperatures(config, tmp_path / "run", progress=silent)
    found = study.reweighting
    assert found is not None
    assert found.above
    assert found.lam == 0
    assert found.effective_candidates == pytest.approx(2)
    assert "above the text already, so the weights were left" in temperature_caption(study)
