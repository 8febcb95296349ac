from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from condvne.data.config.images import Dinov2, Pixels, Siglip, Timm
from condvne.data.images.encoding import ImageModel
from condvne.data.images.models import HubTower, PixelValues, load_image_model
from condvne.errors import ConfigError
from tests.images import pixels, save_dinov2, save_siglip, save_timm


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dinov2(tmp_path_factory.mktemp("models") / "dinov2")


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray(pixels(seed, 60, 80))


def encoded(model: ImageModel, *images: Image.Image) -> torch.Tensor:
    with torch.inference_mode():
        return model.encode(torch.stack([model.prepare(image) for image in images])).clone()


def test_dinov2_gives_what_transformers_gives(dinov2: Path) -> None:
    import transformers

    plain = transformers.AutoModel.from_pretrained(dinov2).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(dinov2)
    images = [picture(1), picture(2)]
    with torch.no_grad():
        expected = plain(**processor(images=images, return_tensors="pt"))
    cls = load_image_model(Dinov2(kind="dinov2", path=str(dinov2)), "cpu")
    mean = load_image_model(Dinov2(kind="dinov2", path=str(dinov2), pooling="mean"), "cpu")
    assert cls.dimension == 32
    assert torch.allclose(encoded(cls, *images), expected.pooler_output, atol=1e-6)
    assert torch.allclose(encoded(mean, *images), expected.last_hidden_state[:, 1:].mean(1), atol=1e-6)
    assert cls.name != mean.name


def test_the_mean_of_the_patches_leaves_registers_out(tmp_path: Path) -> None:
    import transformers

    folder = save_dinov2(tmp_path / "registers", registers=3)
    model = load_image_model(Dinov2(kind="dinov2", path=str(folder), pooling="mean"), "cpu")
    plain = transformers.AutoModel.from_pretrained(folder).eval()
    batch = model.prepare(picture())[None]
    with torch.no_grad():
        hidden = plain(pixel_values=batch).last_hidden_state
    assert hidden.shape[1] == 1 + 3 + 4
    assert torch.allclose(encoded(model, picture()), hidden[:, 4:].mean(1), atol=1e-6)


def test_another_resolution_keeps_the_proportion_of_the_processing(dinov2: Path) -> None:
    model = load_image_model(Dinov2(kind="dinov2", path=str(dinov2), resolution=56), "cpu")
    own = load_image_model(Dinov2(kind="dinov2", path=str(dinov2)), "cpu")
    ramp = np.linspace(0, 255, 80 * 60).reshape(60, 80)
    image = Image.fromarray(np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1).astype(np.uint8))
    assert model.prepare(image).shape == (3, 56, 56)
    # Twice the size sees the same part of the image.
    half = torch.nn.functional.avg_pool2d(model.prepare(image), 2)
    assert float((half - own.prepare(image)).abs().max()) < 0.1


def test_sizes_that_are_no_multiple_of_the_patch_are_refused(dinov2: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"30 × 30, no multiple of its patches of 14; set encoder\.resolution to 28"):
        load_image_model(Dinov2(kind="dinov2", path=str(dinov2), resolution=30), "cpu")
    with pytest.raises(ConfigError, match="no multiple of its patches"):
        load_image_model(Dinov2(kind="dinov2", path=str(save_dinov2(tmp_path / "odd", crop=32))), "cpu")


def test_bfloat16_is_close_and_another_encoder(dinov2: Path) -> None:
    half = load_image_model(Dinov2(kind="dinov2", path=str(dinov2), dtype="bfloat16"), "cpu")
    full = load_image_model(Dinov2(kind="dinov2", path=str(dinov2)), "cpu")
    a, b = encoded(half, picture()), encoded(full, picture())
    assert a.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(a.float(), b).item() > 0.999
    assert half.name != full.name


def test_other_weights_are_another_encoder(dinov2: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    copy = tmp_path / "dinov2"
    shutil.copytree(dinov2, copy)
    assert (
        load_image_model(Dinov2(kind="dinov2", path=str(copy)), "cpu").name.split("@")[1]
        == (load_image_model(Dinov2(kind="dinov2", path=str(dinov2)), "cpu").name.split("@")[1])
    )
    weights = load_file(copy / "model.safetensors")
    weights["layernorm.bias"][0] += 1
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert (
        load_image_model(Dinov2(kind="dinov2", path=str(copy)), "cpu").name.split("@")[1]
        != (load_image_model(Dinov2(kind="dinov2", path=str(dinov2)), "cpu").name.split("@")[1])
    )


def test_siglip_gives_its_pooled_image_features(tmp_path: Path) -> None:
    import transformers

    folder = save_siglip(tmp_path / "siglip")
    model = load_image_model(Siglip(kind="siglip", path=str(folder)), "cpu")
    plain = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = plain.vision_model(pixel_values=model.prepare(picture())[None]).pooler_output
    assert torch.allclose(encoded(model, picture()), expected, atol=1e-6)
    assert model.dimension == 32


def test_timm_gives_features_without_the_classifier(tmp_path: Path) -> None:
    import timm

    folder = save_timm(tmp_path / "resnet")
    model = load_image_model(Timm(kind="timm", path=str(folder)), "cpu")
    assert model.dimension == 512
    plain: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    batch = model.prepare(picture())[None]
    with torch.no_grad():
        expected = plain.forward_head(plain.forward_features(batch), pre_logits=True)
    assert torch.allclose(encoded(model, picture()), expected, atol=1e-5)


def test_models_that_are_not_there_or_of_another_kind_are_refused(dinov2: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a model of type dinov2, not siglip"):
        load_image_model(Siglip(kind="siglip", path=str(dinov2)), "cpu")
    (tmp_path / "empty").mkdir()
    for config in (
        Dinov2(kind="dinov2", path=str(tmp_path / "empty")),
        Timm(kind="timm", path=str(tmp_path / "empty")),
    ):
        with pytest.raises(ConfigError, match=r"encoder\.path: .*empty cannot be loaded"):
            load_image_model(config, "cpu")


def test_pixels_are_values_from_0_to_1() -> None:
    image = Image.fromarray(pixels(1, 8, 8))
    rgb = PixelValues(Pixels(kind="pixels"))
    assert torch.equal(rgb.prepare(image), torch.from_numpy(pixels(1, 8, 8).reshape(-1).astype(np.float32) / 255))
    grey = PixelValues(Pixels(kind="pixels", side=4, channels="gray"))
    assert grey.dimension == 16
    assert grey.prepare(image).shape == (16,)
    assert grey.prepare(Image.new("RGB", (9, 7), "white")).tolist() == [1.0] * 16
    with pytest.raises(ConfigError, match=r"65 × 8 is too large for raw pixels; set encoder\.side"):
        rgb.prepare(Image.new("RGB", (65, 8)))
    with pytest.raises(ValidationError):
        Pixels(kind="pixels", side=65)


def test_processing_in_threads_gives_the_same(dinov2: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = HubTower(Dinov2(kind="dinov2", path=str(dinov2)), "cpu")
    images = [picture(seed) for seed in range(40)]
    alone = [model.prepare(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(model.prepare, images))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
