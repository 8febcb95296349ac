from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from condvne.data.config.images import Clip, ClipText, OneHot
from condvne.data.images.clip import ClipImages, ClipTexts
from condvne.data.images.conditions import load_condition_encoder
from condvne.errors import ConfigError, DataError
from tests.images import CLIP_CONFIG, pixels, save_open_clip

TEXTS = ["a photo of a cat", "a photo of a dog", "word " * 30]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_open_clip(tmp_path_factory.mktemp("models") / "clip")


def plain(folder: Path) -> Any:
    import open_clip
    from safetensors.torch import load_file

    model = open_clip.CLIP(**CLIP_CONFIG["model_cfg"])
    model.load_state_dict(load_file(folder / "open_clip_model.safetensors"))
    return model.eval()


def test_text_features_are_open_clips_of_unit_norm(folder: Path) -> None:
    import open_clip

    encoder = load_condition_encoder(ClipText(kind="clip", path=str(folder), batch_size=2), [], "cpu")
    tokens = open_clip.SimpleTokenizer(context_length=16)(TEXTS)
    with torch.no_grad():
        expected = torch.nn.functional.normalize(plain(folder).encode_text(tokens), dim=-1)
    assert torch.allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert encoder.dimension == 24
    assert encoder.encode([]).shape == (0, 24)


def test_texts_beyond_the_context_are_counted(folder: Path) -> None:
    assert ClipTexts(ClipText(kind="clip", path=str(folder)), "cpu").truncated(TEXTS) == 1


def test_image_features_are_open_clips(folder: Path) -> None:
    model = ClipImages(Clip(kind="clip", path=str(folder)), "cpu")
    image = Image.fromarray(pixels(1, 40, 50))
    batch = model.prepare(image)[None]
    assert batch.shape == (1, 3, 32, 32)
    with torch.inference_mode():
        expected = plain(folder).encode_image(batch)
        assert torch.allclose(model.encode(batch), expected, atol=1e-5)


def test_bfloat16_is_close(folder: Path) -> None:
    full, half = (ClipTexts(ClipText(kind="clip", path=str(folder), dtype=d), "cpu") for d in ("float32", "bfloat16"))
    similarity = torch.nn.functional.cosine_similarity(full.encode(TEXTS), half.encode(TEXTS))
    assert float(similarity.min()) > 0.99
    assert full.name != half.name


def test_models_without_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text((folder / "open_clip_config.json").read_text())
    with pytest.raises(ConfigError, match="holds no weights"):
        ClipTexts(ClipText(kind="clip", path=str(tmp_path)), "cpu")
    with pytest.raises(ConfigError, match="is a model name; say which weights"):
        ClipTexts(ClipText(kind="clip", path="ViT-B-32"), "cpu")
    with pytest.raises(ConfigError, match="a folder holds its own weights"):
        ClipTexts(ClipText(kind="clip", path=str(folder), pretrained="openai"), "cpu")
    with pytest.raises(ConfigError, match="Nonsense cannot be loaded by open_clip"):
        ClipTexts(ClipText(kind="clip", path="Nonsense", pretrained="openai"), "cpu")


def test_one_hot_labels_are_unit_vectors_of_a_vocabulary() -> None:
    encoder = load_condition_encoder(OneHot(kind="one_hot"), ["dog", "cat", "dog"], "cpu")
    assert encoder.dimension == 2
    assert encoder.encode(["cat", "dog", "cat"]).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert encoder.name != load_condition_encoder(OneHot(kind="one_hot"), ["dog", "owl"], "cpu").name
    with pytest.raises(DataError, match="'owl' is none of the 2 classes"):
        encoder.encode(["owl"])
