"""`condvne guide` from its configuration to grid, scores and quality, on a random pipeline of the real classes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import condvne as cv
from condvne.cli import app
from condvne.data.config.guide import load_guide_config
from condvne.data.results import Scores
from tests import pipelines
from tests.images import save_image
from tests.processes import launched

pytestmark = pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")  # of diffusers' own schedulers
CAPTIONS = ["a one", "a two"]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline") / "sdxl"
    pipelines.sdxl().save_pretrained(folder)
    return folder


def settings(folder: Path, pipeline: Path, **changes: Any) -> dict[str, Any]:
    """Twelve images of two captions, with as many real ones."""
    lines = ["file,caption"]
    for number in range(12):
        save_image(folder / "photos" / f"{number}.png", number)
        lines.append(f"{number}.png,{CAPTIONS[number % 2]}")
    (folder / "photos.csv").write_text("\n".join(lines))
    return {
        "name": "small",
        "device": "cpu",
        "pipeline": {"path": str(pipeline)},
        "captions": {"source": "list", "texts": CAPTIONS},
        "images_per_caption": 6,
        "sampling": {"steps": 4, "batch": 4, "height": pipelines.SIDE, "width": pipelines.SIDE},
        "history": {"num_features": 64, "fit_after": 4},
        "save_every": 1,
        "real": {"layout": "table", "path": str(folder / "photos"), "table": str(folder / "photos.csv")},
        "agreement": True,
        "neighbours": 2,
        "encoder": {"kind": "pixels", "side": 8, "channels": "gray"},
        "condition_encoder": {"kind": "one_hot"},
        "evaluation": {"sizes": [6, 12], "repeats": 2},
    } | changes


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "guide.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_one_command_makes_guided_and_plain_images_and_scores_them(pipeline: Path, tmp_path: Path) -> None:
    config = write(tmp_path, settings(tmp_path, pipeline))
    command = [sys.executable, "-m", "condvne", "guide", str(config), "--folder", str(tmp_path / "run")]
    done = launched(command)
    assert done.returncode == 0, done.stderr
    assert "Quality against real images" in done.stdout
    run = tmp_path / "run"
    scores = Scores.model_validate_json((run / "scores" / "scores.json").read_text())
    assert sorted(scores.groups) == ["guided", "real", "unguided"]
    assert None not in [scores.cell(name, "conditional_vendi", 12) for name in ("guided", "unguided")]
    quality = json.loads((run / "quality.json").read_text())
    assert set(quality) == {"guided", "unguided"}
    assert quality["guided"]["images"] == 12
    told = json.loads((run / "guidance.json").read_text())
    assert told["steps"]["moved"] > 0
    assert told["latent_entropy"] > 0
    with Image.open(run / "grid.png") as grid:
        assert min(grid.size) > 100
    files = {name: sorted((run / "images" / name).glob("*.png")) for name in ("guided", "unguided")}
    assert all(len(found) == 12 for found in files.values())
    pairs = [(a.read_bytes(), b.read_bytes()) for a, b in zip(*files.values(), strict=True)]
    assert all(a != b for a, b in pairs)
    written = {path: path.stat().st_mtime_ns for found in files.values() for path in found}
    again = launched(command)  # everything is there: no pipeline is loaded
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in written} == written
    config.write_text(config.read_text().replace("steps: 4", "steps: 5"))
    refused = launched(command)
    assert refused.returncode == 1
    assert "sampling.steps" in " ".join(refused.stderr.split())


def test_without_guidance_both_groups_are_the_same(pipeline: Path, tmp_path: Path) -> None:
    content = settings(tmp_path, pipeline, guidance={"scale": 0.0}, real=None, agreement=False)
    result = CliRunner().invoke(app, ["guide", str(write(tmp_path, content)), "--folder", str(tmp_path / "run")])
    assert result.exit_code == 0, result.exception
    for plain in (tmp_path / "run" / "images" / "unguided").glob("*.png"):
        assert plain.read_bytes() == (tmp_path / "run" / "images" / "guided" / plain.name).read_bytes()
    scores = Scores.model_validate_json((tmp_path / "run" / "scores" / "scores.json").read_text())
    cell = scores.cell("guided", "conditional_vendi", 12)
    assert cell is not None
    assert cell.gap is not None
    assert cell.gap.estimate == 0.0
    assert json.loads((tmp_path / "run" / "quality.json").read_text()) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipeline": {"path": "nowhere/at/all"}}, "pipeline.path: nowhere/at/all cannot be loaded by diffusers"),
        ({"guidance": {"start": 0.9, "stop": 0.1}}, "guidance.start must not be above guidance.stop"),
        ({"guidance": {"scale": -0.1}}, "guidance.scale"),
        ({"guidance": {"scale": 0.5}}, "scale 0.5 moves each latent by more than max_norm"),
        ({"guidance": {"order": 7.0}}, "order 7 cannot be guided by a sketch"),
        ({"real": None}, "agreement is with real images; give real, or leave agreement out"),
        ({"captions": {"source": "text", "path": "absent.txt"}}, "absent.txt"),
        ({"captions": {"source": "list", "texts": ["a one", " "]}}, "captions.texts:2: is an empty caption"),
        ({"history": {"num_features": 63}}, "history.num_features"),
        ({"history": {"capacity": 3, "fit_after": 2}}, "history.capacity 3 is less than sampling.batch, 4 images"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write(tmp_path, settings(tmp_path, pipeline) | changes)
    result = CliRunner().invoke(app, ["guide", str(config)])
    assert isinstance(result.exception, cv.CondvneError), result.exception
    assert message in str(result.exception)


@pytest.mark.parametrize("name", ["sdxl-coco", "tiny-sdxl"])
def test_the_named_configurations_are_valid(name: str) -> None:
    found = load_guide_config(Path(__file__).parents[3] / "configs" / f"{name}.yaml")
    assert found.name.startswith(name)
    assert found.guidance.normalize == ("raw" if name == "sdxl-coco" else "relative")
