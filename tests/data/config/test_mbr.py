"""Configurations of `condvne mbr`: those that are published, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import condvne as cv
from condvne.data.config import validate
from condvne.data.config.mbr import CorpusInputs, GeneratedCandidates, HubInputs, MbrConfig, load_mbr_config
from tests.mbr import generating, mbr_settings

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize(
    ("name", "architecture", "model"),
    [
        ("mbr-xsum-bart", "seq2seq", "facebook/bart-large-xsum"),
        ("mbr-cnn-bart", "seq2seq", "facebook/bart-large-cnn"),
        ("mbr-cnn-mistral", "causal", "mistralai/Mistral-7B-Instruct-v0.1"),
    ],
)
def test_the_published_configurations_hold_the_protocol(name: str, architecture: str, model: str) -> None:
    config = load_mbr_config(CONFIGS / f"{name}.yaml")
    drawn = config.candidates
    assert config.name == name
    assert isinstance(drawn, GeneratedCandidates)
    assert isinstance(drawn.inputs, HubInputs)
    assert (drawn.architecture, drawn.model.path) == (architecture, model)
    assert (drawn.count, drawn.strategy.top_p, drawn.strategy.top_k, drawn.strategy.temperature) == (50, 0.9, 0, 1.0)
    assert config.methods == ["mc", "mbmbr", "mbmbr_l", "cvs"]
    assert (config.reference, config.resamples, config.confidence) == ("mbmbr_l", 2000, 0.95)
    assert drawn.max_input_tokens + (0 if architecture == "causal" else 2) <= 1024


def test_the_configuration_of_the_quickstarts_model_needs_no_hub() -> None:
    config = load_mbr_config(CONFIGS / "mbr-quickstart.yaml")
    assert isinstance(config.candidates, GeneratedCandidates)
    assert isinstance(config.candidates.inputs, CorpusInputs)
    assert "bertscore" not in {*config.utilities, *config.metrics}


def test_one_price_may_stand_without_a_list_and_the_default_is_one(tmp_path: Path) -> None:
    assert MbrConfig.model_validate(mbr_settings(tmp_path)).projection.lam == [0.3]
    assert MbrConfig.model_validate(mbr_settings(tmp_path, projection={})).projection.lam == [0.1]
    assert MbrConfig.model_validate(mbr_settings(tmp_path, projection={"targets": 2})).projection.targets == [2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["mc", "cvs"]}, "reference: mbmbr_l is not among the methods, mc, cvs"),
        ({"methods": ["mc", "mc", "mbmbr_l"]}, "mc is listed twice"),
        ({"methods": ["mc", "beam"]}, "methods.1"),
        ({"projection": {"lam": [0.1], "targets": [1.0]}}, "either lam or targets"),
        ({"projection": {"lam": [-0.1]}}, "non-negative"),
        ({"projection": {"num_features": 130}}, "multiple of 4"),
        ({"reference": "cvs", "projection": {"lam": [0.1, 1.0]}}, "several variants"),
        ({"utilitys": []}, "did you mean utilities?"),
        ({"candidates": {"source": "file"}}, "candidates.file.path"),
    ],
)
def test_what_cannot_be_run_is_refused_by_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(cv.ConfigError) as refusal:
        validate(MbrConfig, mbr_settings(tmp_path, **changes), "mbr.yaml")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("mbr.yaml: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "greedy"}, "does not sample"),
        ({"strategy": "beam"}, "no strategy is named 'beam'"),
        ({"prompt": "Summarize."}, "must hold {condition} once"),
        ({"number": 1}, "must be at least 2"),
        ({"batch_size": 0}, "at least 1, or auto"),
    ],
)
def test_candidates_that_cannot_be_drawn_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    settings = mbr_settings(tmp_path, candidates=generating(tmp_path, "causal", **changes))
    with pytest.raises(cv.ConfigError) as refusal:
        validate(MbrConfig, settings, "mbr.yaml")
    assert message in str(refusal.value)
