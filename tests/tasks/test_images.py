"""Groups of images under the same conditions, from folders to report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

import condvne as cv
from condvne.cli import app
from condvne.cli.images import folder_settings
from condvne.data.config.images import ImagesConfig, load_images_config
from condvne.data.pictures import ContactSheet
from condvne.data.results import Scores
from condvne.tasks.images import measure_images, plan_images
from tests.images import save_dinov2, save_image, save_open_clip, write_class_folders, write_coco
from tests.processes import launched

ROOT = Path(__file__).parents[2]


def silent(stage: str, done: int, total: int) -> None: ...


def write_groups(folder: Path, classes: int = 3, count: int = 12) -> Path:
    """`varied` and `real` have another image in each row of a class, `same` three of them over and over."""
    for name, distinct in (("real", count), ("varied", count), ("same", 3)):
        for label in range(classes):
            for number in range(count):
                seed = {"real": 0, "varied": 5000, "same": 0}[name] + 100 * label + number % distinct
                save_image(folder / name / str(label) / f"{number:03d}.png", seed)
    return folder


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    groups = {name: {"layout": "dgm_eval", "path": str(folder / name)} for name in ("real", "varied", "same")}
    return {
        "name": "small",
        "device": "cpu",
        "reference": "real",
        "groups": groups,
        "encoder": {"kind": "pixels", "workers": 2},
        "condition_encoder": {"kind": "one_hot"},
        "kernels": {"condition": {"name": "cosine"}},
        "evaluation": {"sizes": [12, 24, 36], "repeats": 3, "robustness_size": 24, "permutations": 99},
        "pictures": {"modes": 2, "conditions": 2, "images": 3},
    } | changes


def measure(folder: Path, run: str = "run", **changes: Any) -> tuple[Scores, ContactSheet]:
    config = ImagesConfig.model_validate(settings(folder, **changes))
    return measure_images(config, folder / run, progress=silent)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_groups(tmp_path_factory.mktemp("groups"))


@pytest.fixture(scope="module")
def result(data: Path) -> tuple[Scores, ContactSheet]:
    return measure(data)


def test_the_group_that_repeats_itself_comes_out_below_at_every_n(result: tuple[Scores, ContactSheet]) -> None:
    scores, _ = result
    assert scores.groups == ["real", "varied", "same"]
    for metric in ("conditional_vendi", "conditional_rke"):
        for n in (12, 24, 36):
            means = {}
            for group in scores.groups:
                cell = scores.cell(group, metric, n)
                assert cell is not None
                means[group] = cell.mean
            assert means["same"] < 0.9 * min(means["real"], means["varied"])
        last = scores.cell("same", metric, 36)
        assert last is not None
        assert last.gap is not None
        assert last.gap.direction == "below"
    assert scores.robustness[1].verdict == "below"
    assert {(p.group, p.metric) for p in scores.populations} >= {("same", "conditional_vendi")}
    assert any(note == "embeddings of group same: 9 distinct images of 36" for note in scores.notes)


def test_values_are_those_of_the_public_functions(data: Path, result: tuple[Scores, ContactSheet]) -> None:
    from PIL import Image

    scores, _ = result
    records = [json.loads(line) for line in (data / "run" / "images.jsonl").read_text().splitlines()]
    features: dict[str, list[torch.Tensor]] = {}
    for record in records:
        values = np.asarray(Image.open(record["image"]).convert("RGB"), dtype=np.float32).reshape(-1) / 255
        features.setdefault(record["group"], []).append(torch.from_numpy(values))
    labels = torch.tensor([int(record["condition"]) for record in records if record["group"] == "real"])
    x = torch.eye(3)[labels]
    kernel = cv.Gaussian().fit(torch.stack(features["real"]))
    for group, rows in features.items():
        cell = scores.cell(group, "conditional_vendi", 36)
        assert cell is not None
        expected = cv.conditional_vendi(x, torch.stack(rows), kernel_x="cosine", kernel_y=kernel)
        assert cell.mean == pytest.approx(float(expected), rel=1e-5)


def test_the_sheet_shows_modes_and_losses_that_add_up(result: tuple[Scores, ContactSheet]) -> None:
    scores, sheet = result
    assert [group.group for group in sheet.modes] == ["real", "varied", "same"]
    assert all(len(group.modes) == 2 for group in sheet.modes)
    losses = {group.group: group for group in sheet.losses}
    plug_in = {p.group: p.plug_in for p in scores.populations if p.metric == "conditional_vendi"}
    assert losses["same"].gap == pytest.approx(np.log(plug_in["same"] / plug_in["real"]), rel=1e-6)
    assert losses["same"].below == 3
    assert [loss.gap for loss in losses["same"].losses] == sorted(loss.gap for loss in losses["same"].losses)
    shown = [p for g in sheet.modes for m in g.modes for p in m.pictures]
    assert {p.thumbnail for p in shown} <= set(sheet.thumbnails)
    assert all(uri.startswith("data:image/png;base64,") for uri in sheet.thumbnails.values())


def test_the_condition_that_collapses_alone_loses_most(tmp_path: Path) -> None:
    write_groups(tmp_path)
    for number in range(12):  # class 1 of the varied group becomes one image
        save_image(tmp_path / "varied" / "1" / f"{number:03d}.png", 7)
    _, sheet = measure(tmp_path, pictures={"conditions": 3, "images": 2})
    losses = next(group for group in sheet.losses if group.group == "varied")
    assert losses.losses[0].condition == "1"
    assert losses.losses[0].gap < 0.8 * losses.gap
    assert losses.losses[0].pictures[0].image.split("/")[-3:-1] == ["varied", "1"]
    assert losses.losses[0].reference_pictures[0].image.split("/")[-3:-1] == ["real", "1"]


def test_a_second_run_gives_the_same_without_looking_at_images_again(tmp_path: Path) -> None:
    write_groups(tmp_path, count=6)
    changes: dict[str, Any] = {
        "evaluation": {"sizes": [18], "repeats": 2, "permutations": 9},
        "pictures": {"modes": 0, "conditions": 0},
    }
    first, sheet = measure(tmp_path, **changes)
    assert sheet == ContactSheet()
    for group in ("real", "varied", "same"):
        os.rename(tmp_path / group, tmp_path / f"moved-{group}")
    again, _ = measure(tmp_path, **changes)
    assert again.cells == first.cells


def test_names_that_are_no_unicode_are_read_and_shown(tmp_path: Path) -> None:
    write_groups(tmp_path, count=6)
    folder = os.fsencode(tmp_path / "same" / "1")
    for number in range(6):
        os.rename(folder + b"/%03d.png" % number, folder + b"/\xff%d.png" % number)
    os.rename(os.fsencode(tmp_path / "same" / "2" / "000.png"), folder + b"/../2/\xfe.txt")
    changes: dict[str, Any] = {"matching": {"unbalanced": "trim"}, "evaluation": {"sizes": [12], "repeats": 2}}
    scores, sheet = measure(tmp_path, **changes)
    assert any("\ufffd.txt" in note for note in scores.notes)
    assert any("\ufffd" in p.image for group in sheet.losses for loss in group.losses for p in loss.pictures)


def test_unbalanced_groups_are_refused_or_reported(tmp_path: Path) -> None:
    write_groups(tmp_path, count=6)
    (tmp_path / "same" / "2" / "000.png").unlink()
    with pytest.raises(
        cv.DataError, match="1 of 3 conditions are unbalanced across groups: '2' has 6 in real, 6 in varied"
    ):
        measure(tmp_path, evaluation={"sizes": [12], "repeats": 2})
    scores, _ = measure(
        tmp_path, matching={"unbalanced": "trim"}, run="trimmed", evaluation={"sizes": [12], "repeats": 2}
    )
    assert scores.available == 17
    assert any("'2' has 6 in real, 6 in varied, 5 in same" in note for note in scores.notes)
    assert any("conditions weigh differently" in note for note in scores.notes)


def test_captions_by_clip_and_images_by_dinov2(tmp_path: Path) -> None:
    captions = {f"COCO_val2014_{number:012d}.jpg": [f"a photo of {number % 5} cats", "cats"] for number in range(1, 21)}
    for number, name in enumerate(captions):
        save_image(tmp_path / "val2014" / name, number)
        save_image(tmp_path / "sdxl" / f"{number + 1}.png", 500 + number)
        save_image(tmp_path / "one" / f"{number + 1}.png", 3)
    annotations = str(write_coco(tmp_path, captions))
    groups = {
        name: {"layout": "coco", "path": str(tmp_path / folder), "annotations": annotations}
        for name, folder in (("coco", "val2014"), ("sdxl", "sdxl"), ("collapsed", "one"))
    }
    scores, sheet = measure(
        tmp_path,
        reference="coco",
        groups=groups,
        encoder={"kind": "dinov2", "path": str(save_dinov2(tmp_path / "dinov2")), "batch_size": 8, "workers": 2},
        condition_encoder={"kind": "clip", "path": str(save_open_clip(tmp_path / "clip"))},
        kernels={},
        evaluation={"sizes": [10, 20], "repeats": 2, "permutations": 9},
    )
    assert scores.condition.encoder.startswith("clip-text:")
    assert scores.output.encoder.startswith("dinov2:")
    assert scores.output.dimension == 32
    for n in (10, 20):
        cell = scores.cell("collapsed", "conditional_vendi", n)
        assert cell is not None
        assert cell.mean == pytest.approx(1.0, abs=1e-6)  # one image whatever the caption
    assert sheet.losses[1].losses


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"evaluation": {"sizes": [37]}}, cv.InputError, "size 37 exceeds the 36 conditions"),
        ({"matching": {"per_condition": 13}}, cv.DataError, "3 of 3 conditions are unbalanced"),
        ({"encoder": {"kind": "dinov2", "path": "/nowhere/at/all"}}, cv.ConfigError, "cannot be loaded as dinov2"),
        ({"device": "abacus"}, cv.ConfigError, "abacus"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    data: Path, tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    config = ImagesConfig.model_validate(settings(data, **changes))
    with pytest.raises(error, match=message):
        measure_images(config, tmp_path / "run", progress=silent)


def test_raw_pixels_of_several_sizes_are_refused_by_name(tmp_path: Path) -> None:
    from PIL import Image

    write_groups(tmp_path)
    Image.new("RGB", (9, 9)).save(tmp_path / "same" / "1" / "000.png")
    with pytest.raises(cv.DataError, match=r"same/1/000\.png has 9 × 9 pixels and .*set encoder\.side"):
        measure(tmp_path)


def test_one_class_and_a_gaussian_kernel_of_labels_are_refused(tmp_path: Path) -> None:
    write_groups(tmp_path, classes=1)
    with pytest.raises(cv.ConfigError, match="one class gives no bandwidth for gaussian"):
        measure(tmp_path, kernels={}, evaluation={"sizes": [12]})


@pytest.mark.parametrize("name", ["imagenet", "coco", "digits-images", "digits-captions"])
def test_configurations_validate_and_dry_run_offline(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_images_config(ROOT / "configs" / f"{name}.yaml")
    assert config.name == name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, ["images", str(ROOT / "configs" / f"{name}.yaml"), "--dry-run"])
    assert done.exit_code == 0, done.output
    for group, source in config.groups.items():
        assert f"{group}: not there: {source.path}" in done.output
    assert list(tmp_path.iterdir()) == []  # nothing is written


def test_a_plan_tells_what_would_be_scored(data: Path) -> None:
    plan = plan_images(ImagesConfig.model_validate(settings(data)))
    assert [(g.name, g.images, g.conditions, g.missing) for g in plan.groups] == [
        ("real", 36, 3, ()),
        ("varied", 36, 3, ()),
        ("same", 36, 3, ()),
    ]
    assert plan.pairs == 36
    too_large = settings(data) | {"evaluation": {"sizes": [100]}}
    assert "there are 36: the run would be refused" in plan_images(ImagesConfig.model_validate(too_large)).notes[0]


def test_a_plan_tells_faults(data: Path, tmp_path: Path) -> None:
    write_class_folders(tmp_path / "named", {"cat": 1})
    raw = settings(data)
    raw["groups"] |= {"named": {"layout": "dgm_eval", "path": str(tmp_path / "named")}}
    plan = plan_images(ImagesConfig.model_validate(raw | {"classes": str(tmp_path / "absent.txt")}))
    assert plan.pairs is None
    assert plan.groups[-1].fault is not None
    assert "are no class indices" in plan.groups[-1].fault
    assert plan.notes == [f"classes: not there: {tmp_path / 'absent.txt'}"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "nobody"}, "reference 'nobody' is none of the groups"),
        ({"encoder": {"kind": "dinov3"}}, "encoder"),
        ({"evaluation": {"distinct": {"unit": "words"}}}, "images have none, so leave it out"),
        ({"template": "a photo"}, "must hold {} once"),
        ({"matching": {"rows": 5}, "evaluation": {"sizes": [6]}}, "asks for 6 pairs, but matching.rows is 5"),
        ({"decodings": {}}, "decodings: no such setting; did you mean decoding"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings(tmp_path, **changes)))
    with pytest.raises(cv.ConfigError) as error:
        load_images_config(tmp_path / "c.yaml")
    assert message in str(error.value)


def test_two_folders_and_a_file_of_captions_give_a_report_by_one_command(tmp_path: Path) -> None:
    lines = ["file,caption"]
    for number in range(24):
        save_image(tmp_path / "photos" / f"{number}.png", number)
        save_image(tmp_path / "made" / f"{number}.png", 900 + number % 4)
        lines.append(f'{number}.png,"a photo of {number % 6} cats"')
    (tmp_path / "captions.csv").write_text("\n".join(lines))
    command = [sys.executable, "-m", "condvne", "images", "--reference", "photos", "--generated", "made"]
    done = launched([*command, "--captions", "captions.csv", "--encoder", "pixels"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "images-photos"
    scores = Scores.model_validate_json((folder / "scores.json").read_text())
    assert scores.groups == ["photos", "made"]
    cell = scores.cell("made", "conditional_vendi", 24)
    assert cell is not None
    assert cell.gap is not None
    assert cell.gap.estimate < 0
    assert "<img" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either a configuration, or --reference and --generated"),
        (["c.yaml", "--reference", "a"], "either a configuration"),
        (["c.yaml", "--generated", "a", "--trim"], "leave --generated, --trim, --device out"),
        (["--reference", "a"], "groups"),
        (["--reference", "a", "--generated", "b", "c", "--encoder", "pixels"], "group 'a': not there: a"),
    ],
)
def test_commands_that_cannot_be_are_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["images", *arguments, "--device", "cpu"])
    assert isinstance(result.exception, cv.ConfigError | cv.DataError)
    assert message in str(result.exception)


def test_folders_of_one_name_are_told_apart_and_encoders_by_prefix() -> None:
    raw = folder_settings(Path("a/images"), [Path("b/images")], None, "clip:models/clip")
    config = ImagesConfig.model_validate(raw)
    assert list(config.groups) == ["a-images", "b-images"]
    assert config.encoder.kind == "clip"
    assert config.kernels.condition.name == "cosine"
