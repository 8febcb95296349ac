from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from condvne.data.config.images import ImagesConfig
from condvne.data.results import Scores
from condvne.tasks.images import measure_images

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_digit_groups", ROOT / "scripts" / "make_digit_groups.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def groups(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    script.main(folder, count=40, pipeline=folder / "absent", steps=1, seed=0)
    return folder


def test_groups_are_folders_of_classes_and_tables_of_captions(groups: Path) -> None:
    from PIL import Image

    assert sorted(path.name for path in groups.iterdir()) == [
        *("collapsed", "collapsed.csv", "digits", "digits.csv", "gaussian", "gaussian.csv")
    ]
    rows = list(csv.DictReader((groups / "gaussian.csv").read_text().splitlines()))
    assert len(rows) == 400
    assert rows[120] == {"file": "3/0000.png", "caption": "a handwritten three"}
    with Image.open(groups / "gaussian" / rows[120]["file"]) as image:
        assert image.size == (8, 8)
    assert len((groups / "digits.csv").read_text().splitlines()) == 1 + 1797


def test_the_gaussian_has_the_moments_of_its_class(script: ModuleType) -> None:
    images = script.digits()[3]
    drawn = script.gaussian(images, 4000, np.random.default_rng(0)).reshape(4000, -1)
    real = images.reshape(len(images), -1)
    assert np.abs(drawn.mean(0) - real.mean(0)).max() < 0.4
    assert np.abs(drawn.std(0) - real.std(0)).max() < 0.4


def test_the_collapsed_sampler_has_three_modes(script: ModuleType) -> None:
    drawn = script.collapsed(script.digits()[3], 60, np.random.default_rng(0)).reshape(60, -1)
    distances = np.linalg.norm(drawn[:, None] - drawn[None], axis=-1)
    far = distances > 10  # the noise gives 0.5 · √128 = 5.7
    assert len({tuple(row) for row in far.tolist()}) == script.ANCHORS


def measured(groups: Path, config: str, run: Path, **changes: Any) -> Scores:
    """A run of the configuration on fewer images."""
    raw = yaml.safe_load((ROOT / "configs" / f"{config}.yaml").read_text().replace("runs/digits", str(groups)))
    raw |= {
        "device": "cpu",
        "matching": {"per_condition": 40},
        "evaluation": {"sizes": [100, 200, 400], "repeats": 3, "robustness_size": 100, "permutations": 99},
        "pictures": {"size": 200, "modes": 2, "conditions": 2, "images": 3},
    }
    scores, sheet = measure_images(
        ImagesConfig.model_validate(raw | changes), run, progress=lambda stage, done, total: None
    )
    assert {group.group for group in sheet.losses} == {"gaussian", "collapsed"}
    return scores


@pytest.mark.parametrize("config", ["digits-images", "digits-captions"])
def test_the_order_of_the_groups_is_right_at_every_n(groups: Path, tmp_path: Path, config: str) -> None:
    scores = measured(groups, config, tmp_path / "run")
    assert scores.groups == ["digits", "gaussian", "collapsed"]
    for n in (100, 200, 400):
        cells = [scores.cell(group, "conditional_vendi", n) for group in scores.groups]
        means = [cell.mean for cell in cells if cell is not None]
        assert means == sorted(means, reverse=True)
        assert len(set(means)) == 3
        collapsed = scores.cell("collapsed", "conditional_vendi", n)
        assert collapsed is not None
        assert collapsed.gap is not None
        assert collapsed.gap.direction == "below"
        rke = scores.cell("collapsed", "conditional_rke", n)
        assert rke is not None
        assert rke.gap is not None
        assert rke.gap.estimate < 0
    assert any("group diffusion is optional and was left out" in note for note in scores.notes)
    assert next(m for m in scores.robustness if m.group == "collapsed").verdict == "below"


def test_images_of_a_pipeline_are_a_group(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    save_pipeline(folder)
    images = script.diffusion(folder, 2, 2, 0)
    assert sorted(images) == list(range(10))
    assert images[0].shape == (2, 16, 16)
    assert 0 <= images[0].min() <= images[0].max() <= 16
    again = script.diffusion(folder, 2, 2, 0)
    assert all(np.array_equal(images[label], again[label]) for label in images)


def save_pipeline(folder: Path) -> None:
    """A text-to-image pipeline with random weights, as diffusers saves it."""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from tests.models import byte_tokenizer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sides: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        text = CLIPTextModel(
            CLIPTextConfig(**sides, vocab_size=320, num_attention_heads=2, bos_token_id=0, eos_token_id=0)
        )
        unet = UNet2DConditionModel(
            sample_size=8,
            in_channels=4,
            out_channels=4,
            block_out_channels=(16, 16),
            layers_per_block=1,
            norm_num_groups=8,
            cross_attention_dim=16,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            attention_head_dim=2,
        )
        vae = AutoencoderKL(
            block_out_channels=(16, 16),
            norm_num_groups=8,
            down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
            up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
            latent_channels=4,
            sample_size=16,
        )
    tokenizer = byte_tokenizer(pad=True)
    tokenizer.model_max_length = 77
    StableDiffusionPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
