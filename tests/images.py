"""Small real images in the published layouts, and small real models of images, built from configuration."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLASSES = ("cat", "dog", "owl")


def pixels(seed: int, height: int = 12, width: int = 16) -> np.ndarray[Any, Any]:
    """Random pixels (height, width, 3), uint8, of which no two seeds give the same."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_image(path: Path, seed: int = 0, **options: Any) -> Path:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed)).save(path, **options)
    return path


def encoded(seed: int, kind: str = "PNG") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels(seed)).save(buffer, kind)
    return buffer.getvalue()


def write_class_folders(root: Path, counts: Mapping[str, int], *, seed: int = 0) -> Path:
    """A folder a class, with PNG files."""
    for place, (name, count) in enumerate(counts.items()):
        for number in range(count):
            save_image(root / name / f"{number:06d}.png", seed * 10_000 + place * 100 + number)
    return root


def write_coco(folder: Path, captions: Mapping[str, Sequence[str]]) -> Path:
    """A captions file as COCO's: images by file name with their captions; annotation ids are out of order."""
    images, annotations = [], []
    for place, (name, texts) in enumerate(captions.items()):
        image_id = int("".join(c for c in name.split("_")[-1] if c.isdigit()))
        images.append({"id": image_id, "file_name": name, "height": 12, "width": 16, "license": 1})
        for number, text in enumerate(texts):
            annotations.append({"image_id": image_id, "id": 100 * place + number, "caption": text})
    content = {"info": {"year": 2014}, "licenses": [], "images": images, "annotations": annotations[::-1]}
    path = folder / "captions_val2014.json"
    path.write_text(json.dumps(content))
    return path


def write_tar(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def save_dinov2(folder: Path, *, crop: int = 28, registers: int = 0) -> Path:
    """A DINOv2 as published: config.json, model.safetensors, preprocessor_config.json."""
    import transformers

    size: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if registers:
            config = transformers.Dinov2WithRegistersConfig(**size, image_size=56, num_register_tokens=registers)
            model = transformers.Dinov2WithRegistersModel(config)
        else:
            model = transformers.Dinov2Model(transformers.Dinov2Config(**size, image_size=56))
    model.save_pretrained(folder)
    transformers.BitImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": crop, "width": crop}, do_convert_rgb=True
    ).save_pretrained(folder)
    return folder


def save_siglip(folder: Path) -> Path:
    import transformers

    side: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = transformers.SiglipConfig(
        text_config={**side, "vocab_size": 100}, vision_config={**side, "image_size": 32, "patch_size": 8}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.SiglipModel(config)
    model.save_pretrained(folder)
    transformers.SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


CLIP_CONFIG: dict[str, Any] = {
    "model_cfg": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic"},
}


def save_open_clip(folder: Path) -> Path:
    """An open_clip model as published: open_clip_config.json and open_clip_model.safetensors."""
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(CLIP_CONFIG))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.CLIP(**CLIP_CONFIG["model_cfg"])
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    return folder


def save_timm(folder: Path) -> Path:
    """A small ResNet of timm as published on the hub: config.json and model.safetensors."""
    import timm
    from timm.models import save_for_hf

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model("resnet10t", pretrained=False)
    save_for_hf(model, str(folder))
    return folder
