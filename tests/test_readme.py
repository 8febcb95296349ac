"""What the README shows runs, and its list of settings is whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from condvne.data.config import GapConfig, validate
from tests import pipelines

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")  # of diffusers' own schedulers
def test_python_examples_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipelines.sdxl().save_pretrained(tmp_path / "runs" / "tiny-sdxl")  # in place of the trained one
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert float(names["result"].weights.sum(-1).sub(1).abs().max()) < 1e-12
    assert names["stream"].count == 200
    assert names["guide"].history.images == 4
    assert names["outputs"].grad is not None


def settings_block() -> str:
    return README.split("Every key, with its default")[1].split("```yaml\n")[1].split("```")[0]


def test_the_list_of_settings_is_valid_and_names_every_key() -> None:
    listed = settings_block()
    config = validate(GapConfig, yaml.safe_load(listed), "README.md")
    shown = set(re.findall(r"\b([a-z_0-9]+)\b", listed))
    assert keys(config) - shown == set()


def keys(settings: BaseModel) -> set[str]:
    inner = [value for name in type(settings).model_fields if isinstance(value := getattr(settings, name), BaseModel)]
    return set(type(settings).model_fields).union(*map(keys, inner))


def test_the_defaults_it_lists_are_the_defaults() -> None:
    listed = settings_block()
    given = yaml.safe_load(listed)
    least = {key: given[key] for key in ("name", "corpus")} | {
        "pairs": {"count": given["pairs"]["count"]},
        "model": {"path": given["model"]["path"]},
        "kernels": {"output": {"name": "polynomial"}},  # the list shows what belongs to it
    }
    assert validate(GapConfig, given, "README.md") == validate(GapConfig, least, "README.md")
