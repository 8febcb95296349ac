"""Configurations: what YAML may hold, and how each fault is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from condvne.data.config import GapConfig, ScoreConfig, load_gap_config, load_yaml, validate
from condvne.data.config.guide import load_guide_config
from condvne.data.config.study import load_study_config
from condvne.data.config.temperature import load_temperature_config
from condvne.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
LEAST: dict[str, Any] = {
    "name": "a",
    "corpus": {"source": "files", "paths": ["b.jsonl"]},
    "pairs": {"count": 8},
    "model": {"path": "c"},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\n", r"a\.yaml:2: is not valid YAML \('name' was already set in line 1\); mend this line"),
        ("pairs:\n  count: 5\n  seed: 1\n  count: 6\n", r"a\.yaml:4: .*'count' was already set in line 2"),
        ("list:\n  - {a: 1, a: 2}\n", r"a\.yaml:2: .*'a' was already set in line 2"),
        ("name: [1\n", r"a\.yaml:2: is not valid YAML \(expected ',' or '\]'"),
        ("name: 2024-13-45\n", r"a\.yaml: is not valid YAML \(month must be in"),
        ("name: a\x00\n", r"a\.yaml: is not valid YAML .*special characters are not allowed"),
        ("- name: a\n", r"a\.yaml: must hold a mapping of settings at the top level"),
        ("", r"a\.yaml: must hold a mapping of settings at the top level"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read \(No such file or directory\); give the path"):
        load_yaml(tmp_path / "none.yaml")
    (tmp_path / "wide.yaml").write_text("name: a", encoding="utf-16")
    with pytest.raises(ConfigError, match=r"wide\.yaml: is not UTF-8 text .*save it as UTF-8"):
        load_yaml(tmp_path / "wide.yaml")


def test_yaml_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: &b {x: 1, y: .inf}\nmore: {<<: *b, x: 2}\n", encoding="utf-8-sig")
    assert load_yaml(tmp_path / "a.yaml") == {"base": {"x": 1, "y": float("inf")}, "more": {"x": 2, "y": float("inf")}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_of_the_repository_hold_no_key_twice(path: Path) -> None:
    assert load_yaml(path)  # refuses a key that comes twice


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_of_the_repository_are_valid(path: Path) -> None:
    settings = load_yaml(path)
    if "pipeline" in settings:
        assert load_guide_config(path).name in (path.stem, f"{path.stem}-guided")
    elif "grid" in settings:
        assert load_study_config(path).name == path.stem
    elif "temperatures" in settings:
        assert load_temperature_config(path).name == path.stem
    elif "pairs" in settings and "arms" not in settings:  # arms: an experiment, which its own script reads
        assert load_gap_config(path).name == path.stem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": {"source": "files", "path": ["b"]}}, r"corpus\.files\.path: no such setting; did you mean paths\?"),
        ({"pairs": {"count": 0}}, r"pairs\.count: must be at least 1, not 0"),
        ({"pairs": {"count": "many"}}, r"pairs\.count: must be a whole number, not 'many'"),
        ({"pairs": {}}, r"pairs\.count: is missing"),
        ({"pairs": 3}, r"pairs: must be a mapping of settings, not 3"),
        ({"corpus": {"source": "web"}}, r"corpus: must be one of 'files', 'hub', 'installed_documentation', not"),
        ({"corpus": {"paths": ["b"]}}, r"corpus: lacks 'source', which says what kind it is"),
        ({"model": {"path": "c", "dtype": "float8"}}, r"model\.dtype: must be 'auto', 'float32', .* not 'float8'"),
        ({"evaluation": {"confidence": 1.0}}, r"evaluation\.confidence: must be below 1, not 1\.0"),
        ({"evaluation": {"tolerance": 0}}, r"evaluation\.tolerance: must be above 0, not 0"),
        ({"evaluation": {"sizes": [9]}}, r"settings: evaluation\.sizes asks for 9 pairs, but pairs\.count is 8"),
        ({"name": "a/b"}, r"name: must match .*, not 'a/b'"),
        ({"kernels": {"output": {"name": "cosine", "multiplier": 2}}}, r"kernels\.output: cosine has no bandwidth"),
        (
            {"kernels": {"output": {"bandwidth": 1, "multiplier": 2}}},
            r"kernels\.output: multiplier scales the median bandwidth",
        ),
        (
            {"kernels": {"condition": {"degree": 2}}},
            r"kernels\.condition: degree, gamma and coef0 belong to polynomial, not to gaussian",
        ),
    ],
)
def test_each_fault_is_one_clause(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: " + message) as caught:
        validate(GapConfig, LEAST | changes, "here")
    assert "Input should" not in str(caught.value)


def test_what_a_key_should_be_called_comes_before_what_is_missing() -> None:
    with pytest.raises(
        ConfigError, match=r"here: pairs\.cuont: no such setting; did you mean count\?; pairs\.count: is"
    ):
        validate(GapConfig, LEAST | {"pairs": {"cuont": 5}}, "here")


def test_faults_are_called_by_the_names_that_the_user_knows() -> None:
    kernel = {"name": "cosine", "multiplier": 2}
    raw = {"file": "a", "condition": "b", "outputs": ["c"], "kernels": {"condition": kernel, "output": kernel}}
    names = {"kernels.condition": "--kernel", "kernels.output": "--kernel"}
    with pytest.raises(ConfigError, match=r"^options: --kernel: cosine has no bandwidth; leave out .* multiplier\.$"):
        validate(ScoreConfig, raw, "options", names)


def test_a_configuration_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "name: a\ncorpus: {source: files, paths: [b]}\npairs: {count: 8}\nmodel: {path: c}\n"
    )
    assert load_gap_config(tmp_path / "a.yaml").pairs.prefix_tokens == 3
