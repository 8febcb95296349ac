"""`condvne profile` on texts, images and molecules: what it says, what it keeps, what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

import condvne as cv
from condvne.cli import app
from condvne.data.config.profile import ProfileConfig, load_profile_config
from condvne.data.curves import ProfileStudy
from condvne.reports.profiles import matrix_rows, profile_caption
from condvne.tasks.profiles import profiled
from tests.images import save_image

CONFIGS = Path(__file__).parents[2] / "configs"
ROW = torch.arange(12, dtype=torch.float64)


def settings(**changes: Any) -> ProfileConfig:
    raw: dict[str, Any] = {
        "name": "small",
        "kind": "texts",
        "sets": {"a": {"path": "a.txt"}, "b": {"path": "b.txt"}},
        "encoder": {"kind": "hashed_ngrams"},
        "distance": "euclidean",
        "resamples": 20,
    }
    return ProfileConfig.model_validate(raw | changes)


def study(features: dict[str, torch.Tensor], **changes: Any) -> ProfileStudy:
    return profiled(settings(**changes), features, lambda stage, done, total: None, [], [])


def run(tmp_path: Path, *arguments: str) -> tuple[ProfileStudy, str]:
    result = CliRunner().invoke(app, ["profile", *arguments, "--folder", str(tmp_path / "run")])
    assert result.exit_code == 0, result.exception
    return ProfileStudy.model_validate_json((tmp_path / "run" / "profile.json").read_text()), result.output


def lines(path: Path, texts: list[str]) -> Path:
    path.write_text("\n".join(texts) + "\n")
    return path


def test_a_set_spread_wider_is_above_by_every_family() -> None:
    found = study({"wide": 3 * ROW[:, None], "narrow": ROW[:, None]})
    assert found.sentences == [
        "wide above narrow for every order in Vendi, every scale in magnitude, every threshold in Circles "
        "(level at 5 %) and every exponent in energy."
    ]
    assert [family.comparisons[0].verdict for family in found.families] == ["above"] * 4
    assert all(family.comparisons[0].confidence is not None for family in found.families)
    circles = next(family for family in found.families if family.key == "circles")
    narrow = circles.curves[1]
    for threshold, value in zip(circles.grid, narrow.values, strict=True):  # items of 0 … 11 that lie farther apart
        assert value == 1 + 11 // (int(threshold) + 1)
    assert [single.average_distance for single in found.singles] == [pytest.approx(13.0), pytest.approx(13 / 3)]
    vendi = next(family for family in found.families if family.key == "vendi")
    items = cv.item_sets({"wide": 3 * ROW[:, None], "narrow": ROW[:, None]}, "euclidean")["narrow"]
    assert items.similarities is not None
    expected = cv.entropy_from_gram(items.similarities, order=2.0).exp()
    nearest = min(range(len(vendi.grid)), key=lambda k: abs(float(vendi.grid[k]) - 2.0))
    order = float(vendi.grid[nearest])
    expected = cv.entropy_from_gram(items.similarities, order=order).exp()
    assert vendi.curves[1].values[nearest] == pytest.approx(float(expected))


def test_crossing_curves_are_said_with_their_parameters() -> None:
    two, ends = torch.tensor([0.0, 0.1, 0.2, 10.0]), torch.tensor([0.0, 2.0, 4.0, 6.0])
    found = study({"clustered": two[:, None], "even": ends[:, None]}, families=["circles"])
    (comparison,) = found.families[0].comparisons
    assert comparison.verdict == "crosses"
    assert comparison.crossings[-1].before == "even"
    assert comparison.crossings[-1].lower == pytest.approx(0.2)
    assert comparison.crossings[-1].upper == 6.0
    assert found.sentences[0].startswith("clustered and even: Circles crosses at τ = ")
    assert found.sentences[0].endswith("Of half-samples for Circles, even above in 55 % and clustered above in 45 %.")


def test_copies_leave_energy_out_unless_a_least_distance_is_given() -> None:
    features = {"copies": ROW[[0, 0, 1, 2], None], "others": ROW[:4, None]}
    found = study(features)
    assert [family.key for family in found.families] == ["vendi", "magnitude", "circles"]
    assert any("Energy was left out, since items of copies are at distance zero" in text for text in found.warnings)
    assert "energy" in [family.key for family in study(features, epsilon=0.01).families]
    assert found.singles[0].richness == 3
    with pytest.raises(cv.DataError, match="energy has no value where items are at distance zero, as in copies"):
        study(features, families=["energy"])


def test_sets_of_different_size_and_tiny_ones_are_said() -> None:
    found = study({"many": ROW[:, None], "few": ROW[:3, None]})
    assert found.warnings[0].startswith("The sets have different numbers of items (many 12, few 3)")
    assert found.resamples == 0  # halves of three items have no distances
    assert found.families[0].curves[0].lower is None


def test_columns_of_one_table_become_sets_and_a_page_says_which_is_above(tmp_path: Path) -> None:
    rows = [{"id": str(i), "varied": f"{'abcdefghij'[i % 10] * 5} {i}", "same": f"a text {i % 3}"} for i in range(30)]
    table = lines(tmp_path / "answers.jsonl", [json.dumps(row) for row in rows])
    options = ["--columns", "varied", "same", "--encoder", "hashed_ngrams", "--items", "20", "--resamples", "10"]
    found, output = run(tmp_path, str(table), *options)
    assert [single.group for single in found.singles] == ["varied", "same"]
    assert [single.n for single in found.singles] == [20, 20]
    assert "varied: 20 of 30 items" in found.notes
    assert "varied above same for every order in Vendi" in " ".join(output.split())
    folder = tmp_path / "run"
    page = (folder / "report.html").read_text()
    assert "varied above same" in page
    assert page.count("<svg") == len(found.families) + 1
    assert "<script" not in page
    with (folder / "profile.csv").open() as file:
        kept = list(csv.DictReader(file))
    assert len(kept) == sum(len(family.grid) * 2 for family in found.families)
    assert kept[0]["family"] == "vendi"
    assert {"profile.md", "profile.png", "distances.png", "config.json"} <= {p.name for p in folder.iterdir()}
    again, _ = run(tmp_path, str(table), *options)
    assert again == found
    table.write_text(table.read_text() + json.dumps(rows[0]) + "\n")
    changed = CliRunner().invoke(app, ["profile", str(table), *options, "--folder", str(folder)])
    assert isinstance(changed.exception, cv.RunError)


def test_images_of_folders(tmp_path: Path) -> None:
    for number in range(8):
        save_image(tmp_path / "varied" / f"{number}.png", number)
        save_image(tmp_path / "same" / "below" / f"{number}.png", number % 2)
    (tmp_path / "same" / "notes.txt").write_text("no image")
    sources = [str(tmp_path / "varied"), str(tmp_path / "same")]
    found, _ = run(tmp_path, *sources, "--encoder", "pixels", "--items", "0", "--resamples", "0")
    assert [(single.group, single.n, single.richness) for single in found.singles] == [("varied", 8, 8), ("same", 8, 2)]
    assert "same: 1 other files were passed over (notes.txt)" in found.notes
    assert found.families[0].comparisons[0].verdict == "above"


def test_molecules_by_fingerprints(tmp_path: Path) -> None:
    drugs = (CONFIGS / "drugs.smi").read_text().splitlines()[:12]
    (tmp_path / "drugs.smi").write_text("\n".join(drugs) + "\n")
    lines(tmp_path / "alkanes.smi", ["C" * n + f" alkane-{n}" for n in range(3, 15)])
    found, output = run(tmp_path, str(tmp_path / "drugs.smi"), str(tmp_path / "alkanes.smi"), "--resamples", "10")
    assert found.representation == "tanimoto distance"
    assert "drugs above alkanes for every order in Vendi" in " ".join(output.split())
    lines(tmp_path / "alkanes.smi", ["CCC", "not a molecule", "C1CC"])
    sources = [str(tmp_path / name) for name in ("drugs.smi", "alkanes.smi")]
    refused = CliRunner().invoke(app, ["profile", *sources, "--folder", str(tmp_path / "other")])
    assert isinstance(refused.exception, cv.DataError)
    assert "(2 in all); mend or remove them" in str(refused.exception)
    assert "alkanes.smi:2 (not), " in str(refused.exception)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ('{"a": "x"}\n{"a": "y"}\n', [], "is a table of a; name the column that holds the items"),
        ('{"a": "x"}\n{"a": "y"}\n', ["--columns", "b"], "b"),
        ('{"a": "x"}\n{"a": 3}\n', ["--columns", "a"], "field 'a' must be a text or a list of texts, but holds int"),
        ('{"a": "x"}\n{"a": " "}\n', ["--columns", "a"], "set 'table' has 1 item; a profile needs at least two"),
        ('{"a": "x"}\n{"a": "x"}\n', ["--columns", "a"], "all items are equal"),
        ('{"a": "x"}\n{"a": "y"}\n', ["--columns", "a", "--distance", "tanimoto"], "tanimoto is the distance of"),
        ('{"a": ["x", "z"]}\n{"a": "y"}\n', ["--columns", "a", "a"], "two sets would be named a"),
    ],
)
def test_files_that_cannot_be_profiled_are_refused(
    content: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    table = tmp_path / "table.jsonl"
    table.write_text(content)
    options = ["--encoder", "hashed_ngrams", "--folder", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["profile", str(table), *arguments, *options])
    assert isinstance(result.exception, cv.CondvneError), result.exception
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.txt"], "absent.txt: is not there"),
        (["c.yaml", "--columns", "a"], "a configuration stands alone"),
        (["c.yaml", "d.txt"], "a configuration stands alone"),
        ([".", "d.txt"], "folders of images and files cannot be compared"),
        (["d.smi", "--encoder", "pixels"], "molecules have fingerprints"),
        (["d.txt", "--columns", "a"], "is a file of lines, without columns"),
    ],
)
def test_commands_that_cannot_be_are_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "d.txt", ["one", "two"])
    lines(tmp_path / "d.smi", ["C", "CC"])
    (tmp_path / "c.yaml").write_text("name: c\n")
    result = CliRunner().invoke(app, ["profile", *arguments])
    assert isinstance(result.exception, cv.CondvneError), result.exception
    assert message in str(result.exception)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("profile-*.yaml")), ids=lambda path: path.stem)
def test_the_named_configurations_are_valid(path: Path) -> None:
    config = load_profile_config(path)
    assert config.name == path.stem
    assert config.items == 50
    assert config.points > 100
    (first, *_) = yaml.safe_load(path.read_text())["sets"].values()
    assert "path" in first


def test_axioms_are_printed_with_their_violations() -> None:
    result = CliRunner().invoke(app, ["axioms", "--trials", "60", "--examples"])
    assert result.exit_code == 0, result.exception
    text = " ".join(result.output.split())
    assert "Every score breaks at least one of them." in text
    (richness,) = [line for line in result.output.splitlines() if line.startswith("  richness ")]
    assert richness.split()[-1] == "broken"  # it is not continuous
    assert "average distance, twin:" in text


def test_where_a_set_is_only_level_is_said() -> None:
    clustered, even = torch.tensor([0.0, 0.0, 9.0, 9.1]), torch.tensor([0.0, 3.0, 6.0, 9.1])
    features = {"clustered": clustered[:, None], "even": even[:, None]}
    found = study(features, families=["circles"], resamples=0)
    (comparison,) = found.families[0].comparisons
    level = 1 - comparison.above - comparison.below
    assert comparison.verdict == "below"
    assert level > 0.1
    assert found.sentences == [
        f"even above clustered for every threshold in Circles (level at {100 * level:.0f} %). How sure that is was not "
        "examined: there are no half-samples of equal size."
    ]


def test_molecules_and_texts_are_not_mixed_up(tmp_path: Path) -> None:
    molecules, texts = lines(tmp_path / "a.smi", ["CC", "CCO", "CCC"]), lines(tmp_path / "b.txt", ["one", "two"])
    failed = CliRunner().invoke(app, ["profile", str(molecules), str(texts)])
    assert isinstance(failed.exception, cv.ConfigError)
    assert str(failed.exception).startswith("molecules (.smi) and texts cannot be compared")


def test_what_pandas_writes_for_nothing_and_empty_cells_are_warned_of(tmp_path: Path) -> None:
    table = lines(tmp_path / "t.csv", ["text,other", "one,x", "nan,y", ",z", "two,w"])
    found, output = run(tmp_path, str(table), "--columns", "text", "--encoder", "hashed_ngrams", "--resamples", "0")
    assert (
        f"t: counted as texts though they read nan: 1 item ({table}:3); empty them where nothing is meant."
        in found.warnings
    )
    assert f"t: left out, without a visible character: 1 item ({table}:4)." in found.warnings
    assert "Read with care: t: counted as texts" in output


def test_a_verdict_that_half_samples_turn_is_said_to_be_unsure() -> None:
    draw = torch.Generator().manual_seed(0)
    features = {name: torch.randn(12, 2, generator=draw, dtype=torch.float64) for name in ("a", "b")}
    found = study(features, families=["vendi"])
    (comparison,) = found.families[0].comparisons
    assert comparison.confidence is not None
    assert comparison.confidence < 0.95
    assert comparison.support is not None
    assert comparison.support[comparison.verdict] == comparison.confidence
    assert sum(comparison.support.values()) == pytest.approx(1)
    share = f"{100 * comparison.confidence:.0f} %"
    assert found.sentences[0].startswith("Vendi does not decide: a above on all items, but of half-samples a above in ")
    assert f"a above in {share}" in found.sentences[0]


def test_larger_sets_are_drawn_down_to_the_smallest_unless_told_otherwise(tmp_path: Path) -> None:
    many = lines(tmp_path / "many.txt", [f"line {i} of many" for i in range(30)])
    few = lines(tmp_path / "few.txt", [f"text {i}" for i in range(8)])
    options = ["--encoder", "hashed_ngrams", "--resamples", "0", "--items", "0"]
    found, _ = run(tmp_path, str(many), str(few), *options)
    assert [single.n for single in found.singles] == [8, 8]
    assert "many: 8 of 30 items, as many as the smallest set has" in found.notes
    assert "few: 8 of 8 items" in found.notes
    assert not any("different numbers" in text for text in found.warnings)
    found, _ = run(tmp_path / "unequal", str(many), str(few), *options, "--unequal")
    assert [single.n for single in found.singles] == [30, 8]
    assert any("different numbers of items (many 30, few 8)" in text for text in found.warnings)


def test_groups_of_a_long_table_become_sets(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "model": "ab"[i % 2]} for i in range(12)]
    table = lines(tmp_path / "long.jsonl", [json.dumps(row) for row in rows])
    options = ["--encoder", "hashed_ngrams", "--resamples", "0", "--columns", "text"]
    found, _ = run(tmp_path, str(table), *options, "--group", "model")
    assert [(single.group, single.n) for single in found.singles] == [("a", 6), ("b", 6)]
    alone, output = run(tmp_path / "one", str(table), *options)
    assert [single.group for single in alone.singles] == ["long"]
    assert "One set alone: there is nothing to compare." in " ".join(output.split())


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        lines(tmp_path / folder / "out.txt", [f"{folder} {i}" for i in range(5)])
    sources = [str(tmp_path / folder / "out.txt") for folder in "xy"]
    found, _ = run(tmp_path, *sources, "--encoder", "hashed_ngrams", "--resamples", "0")
    assert [single.group for single in found.singles] == ["x/out", "y/out"]


def test_who_is_above_whom_of_several_sets(tmp_path: Path) -> None:
    found = study({"wide": 3 * ROW[:, None], "narrow": ROW[:, None], "copy": ROW[:, None]})
    heads, rows = matrix_rows(found)
    assert heads == ["set", "above wide", "above narrow", "above copy"]
    assert rows == [
        ["wide", "–", "all 4", "all 4"],
        ["narrow", "–", "–", "–"],
        ["copy", "–", "–", "–"],
    ]
    assert "in at least 95\xa0% of half-samples" in profile_caption(found)
