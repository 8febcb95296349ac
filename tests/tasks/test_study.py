"""A study: its cells are those of single runs, share what they can, and stay when they are finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.data.config import GapConfig
from condvne.data.config.study import StudyConfig
from condvne.data.encoders import HashedNgrams
from condvne.data.memo import MemoEncoder
from condvne.data.results import Scores
from condvne.evaluation.textpairs import TRAINING
from condvne.tasks.gap import measure_gap
from condvne.tasks.study import Cell, cells, run_study
from tests.corpora import gap_settings

EVALUATION = {"sizes": [20, 40], "repeats": 2, "robustness_size": 20, "permutations": 0, "empty_texts": "drop"}
COSINE = {"condition": {"name": "cosine"}, "output": {"name": "cosine"}}


def silent(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def study_settings(material: Path, **grid: Any) -> dict[str, Any]:
    gap = gap_settings(material)
    encoders = {"hashed": gap["encoder"]}
    shared = {key: gap[key] for key in ("seed", "device", "corpus", "model")}
    return shared | {"name": "tiny-study", "count": 60, "grid": {"encoders": encoders} | grid, "evaluation": EVALUATION}


def run(settings: dict[str, Any], folder: Path) -> dict[Cell, Scores]:
    return run_study(StudyConfig.model_validate(settings), folder, progress=silent)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("material")


@pytest.fixture(scope="module")
def finished(material: Path) -> tuple[Path, dict[Cell, Scores]]:
    folder = material / "study"
    grid = {"prefix_tokens": [3, 4], "continuation_tokens": [2, 3], "kernels": {"gaussian": {}, "cosine": COSINE}}
    return folder, run(study_settings(material, **grid), folder)


def test_every_combination_is_a_cell(finished: tuple[Path, dict[Cell, Scores]]) -> None:
    folder, found = finished
    assert len(found) == len({cell.name for cell in found}) == 8
    for cell, scores in found.items():
        stored = (folder / "cells" / cell.name / "scores.json").read_text()
        assert Scores.model_validate_json(stored) == scores
        assert scores.settings["continuation_tokens"] == cell.continuation_tokens
        assert scores.output.kernel == {"gaussian": "Gaussian", "cosine": "Cosine"}[cell.kernels]


@pytest.mark.parametrize("kernels", ["gaussian", "cosine"])
def test_a_cell_of_the_longest_continuation_is_a_run_of_its_own(
    material: Path, finished: tuple[Path, dict[Cell, Scores]], tmp_path: Path, kernels: str
) -> None:
    gap = gap_settings(material, evaluation=EVALUATION, kernels=COSINE if kernels == "cosine" else {})
    gap["pairs"] = {"count": 60, "prefix_tokens": 4, "continuation_tokens": 3}
    alone = measure_gap(GapConfig.model_validate(gap), tmp_path / "alone", progress=silent)
    assert finished[1][Cell(4, 3, None, "hashed", kernels)].cells == alone.cells


def test_a_shorter_continuation_is_the_beginning_of_the_longer(
    material: Path, finished: tuple[Path, dict[Cell, Scores]], tmp_path: Path
) -> None:
    gap = gap_settings(material, evaluation=EVALUATION, pairs={"count": 60})
    alone = measure_gap(GapConfig.model_validate(gap), tmp_path / "alone", progress=silent)
    assert finished[1][Cell(3, 2, None, "hashed", "gaussian")].cells == alone.cells


def test_finished_cells_stay_and_a_removed_one_is_made_again(
    material: Path, finished: tuple[Path, dict[Cell, Scores]]
) -> None:
    folder, found = finished
    config = json.loads((folder / "config.json").read_text())
    files = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/scores.json")}
    removed = folder / "cells" / "p3-c2-hashed-cosine" / "scores.json"
    removed.unlink()
    again = run_study(StudyConfig.model_validate(config), folder, progress=silent)
    assert again == found
    assert {p for p, time in files.items() if p.stat().st_mtime_ns != time} == {removed}
    removed.write_text("{")
    with pytest.raises(cv.RunError, match=r"scores\.json: cannot be read as scores; remove it"):
        run_study(StudyConfig.model_validate(config), folder, progress=silent)
    removed.write_text(found[Cell(3, 2, None, "hashed", "cosine")].model_dump_json())


def test_chunks_of_long_sequences(material: Path, tmp_path: Path) -> None:
    grid = {"prefix_tokens": [8], "continuation_tokens": [16], "chunk_tokens": [1, 4]}
    found = run(study_settings(material, **grid), tmp_path / "study")
    dimensions = {cell.chunk_tokens: scores.output.dimension for cell, scores in found.items()}
    assert dimensions == {1: 16 * 64, 4: 4 * 64}
    for scores in found.values():
        cell = scores.cell(TRAINING, "conditional_vendi", 40)
        assert cell is not None
        assert cell.mean > 1


def test_cells_of_one_encoder_stand_together() -> None:
    settings = study_settings_of_names(["a", "b"])
    assert [cell.encoder for cell in cells(StudyConfig.model_validate(settings))] == ["a"] * 4 + ["b"] * 4


def study_settings_of_names(names: list[str]) -> dict[str, Any]:
    grid = {"prefix_tokens": [3, 4], "continuation_tokens": [2, 3], "encoders": {name: {} for name in names}}
    corpus = {"source": "files", "paths": ["a.jsonl"]}
    return {"name": "s", "count": 10, "corpus": corpus, "model": {"path": "m"}, "grid": grid}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": {"prefix_tokens": [0]}}, "at least 1 token"),
        ({"grid": {"prefix_tokens": [3, 3]}}, "differ from each other"),
        ({"grid": {"prefix_tokens": []}}, "prefix_tokens"),
        ({"grid": {"kernels": {"a/b": {}}}}, "'a/b' is no name for a folder"),
        ({"evaluation": {"sizes": [11]}}, "asks for 11 pairs, but count is 10"),
    ],
)
def test_grids_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StudyConfig.model_validate(study_settings_of_names(["a"]) | change)


def test_an_encoder_that_remembers_encodes_each_text_once() -> None:
    seen: list[str] = []

    class Counted(HashedNgrams):
        def encode(self, texts: Sequence[str]) -> torch.Tensor:
            seen.extend(texts)
            return super().encode(texts)

    encoder = Counted((2, 4), 64)
    memo = MemoEncoder(encoder)
    first = memo.encode(["one", "two", "one"])
    assert torch.equal(first, HashedNgrams((2, 4), 64).encode(["one", "two", "one"]))
    assert torch.equal(memo.encode(["two", "three"])[0], first[1])
    assert seen == ["one", "two", "three"]
    assert memo.name == encoder.name
