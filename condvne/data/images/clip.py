"""CLIP through open_clip: its image tower for outputs, its text tower for captions and classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from condvne.data.config.images import Clip, ClipText
from condvne.data.encoders import hub_commit
from condvne.data.fingerprints import fingerprint
from condvne.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

_HUB = "hf-hub:"


class ClipImages:
    """CLIP's image features."""

    def __init__(self, config: Clip, device: torch.device | str) -> None:
        self._model, self._transform, _ = _loaded(config.path, config.pretrained, config.dtype, str(device))
        self._device, self._dtype = torch.device(device), getattr(torch, config.dtype)
        self.name = f"clip-image:{_identity(config)}"
        self.dimension = _width(self._model)

    def prepare(self, image: Image) -> Tensor:
        pixels: Tensor = self._transform(image)
        return pixels

    def encode(self, batch: Tensor) -> Tensor:
        vectors: Tensor = self._model.encode_image(batch.to(self._device, self._dtype))
        return vectors


class ClipTexts:
    """CLIP's text features: a `TextEncoder` for captions and class names."""

    def __init__(self, config: ClipText, device: torch.device | str) -> None:
        self._model, _, self._tokenizer = _loaded(config.path, config.pretrained, config.dtype, str(device))
        self._device, self._batch_size, self._normalize = torch.device(device), config.batch_size, config.normalize
        self.name = f"clip-text:{_identity(config)}" + (":unit" if config.normalize else "")
        self.dimension = _width(self._model)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Vectors of n texts: (n, d), float32, on the CPU; texts beyond the context are cut."""
        rows = [torch.zeros(0, self.dimension)]
        for start in range(0, len(texts), self._batch_size):
            tokens = self._tokenizer(list(texts[start : start + self._batch_size])).to(self._device)
            with torch.inference_mode():
                vectors = self._model.encode_text(tokens).float()
                if self._normalize:
                    vectors = torch.nn.functional.normalize(vectors, dim=-1)
            rows.append(vectors.cpu().clone())
        return torch.cat(rows)

    def truncated(self, texts: Sequence[str]) -> int:
        encode, length = getattr(self._tokenizer, "encode", None), getattr(self._tokenizer, "context_length", None)
        if encode is None or length is None:
            return 0
        return sum(len(encode(text)) + 2 > length for text in texts)  # 2: begin and end of text


@lru_cache(maxsize=2)  # images and texts may share one model
def _loaded(path: str, pretrained: str | None, dtype: str, device: str) -> tuple[Any, Any, Any]:
    import open_clip

    source = _source(path, pretrained)
    try:
        model, _, transform = open_clip.create_model_and_transforms(
            source, pretrained=pretrained, device=device, precision=_PRECISIONS[dtype]
        )
        tokenizer = open_clip.get_tokenizer(source)
    except (OSError, ValueError, ImportError, KeyError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"encoder.path: {path} cannot be loaded by open_clip ({' '.join(str(error).split()).rstrip('.')}); "
            "give a folder with open_clip_config.json and weights, hf-hub:NAME, or a model name with pretrained."
        ) from error
    return model.eval(), transform, tokenizer


_PRECISIONS = {"float32": "fp32", "bfloat16": "pure_bf16", "float16": "pure_fp16"}


def _source(path: str, pretrained: str | None) -> str:
    folder = Path(path)
    if folder.is_dir():
        if pretrained is not None:
            raise ConfigError("encoder.pretrained: a folder holds its own weights; leave it out.")
        if not any(file.suffix in (".safetensors", ".bin", ".pth") for file in folder.iterdir()):
            raise ConfigError(f"encoder.path: {folder} holds no weights (open_clip_model.safetensors).")
        return f"local-dir:{folder}"
    if not path.startswith(_HUB) and pretrained is None:
        # open_clip would go on with random weights.
        raise ConfigError(f"encoder.pretrained: {path} is a model name; say which weights, e.g. openai.")
    return path


def _identity(config: Clip | ClipText) -> str:
    folder, weights = Path(config.path), Path(config.pretrained or "")
    if folder.is_dir():
        version = fingerprint(folder)
    elif config.path.startswith(_HUB):
        version = hub_commit(config.path.removeprefix(_HUB), None, "open_clip_config.json")
    else:
        version = f"{weights}@{fingerprint(weights)}" if weights.is_file() else str(config.pretrained)
    return f"{config.path}@{version}:{config.dtype}"


def _width(model: Any) -> int:
    # CLIP's towers keep the width in different places; text and image share it.
    projection = getattr(model, "text_projection", None)
    if projection is None:
        projection = getattr(getattr(model, "text", None), "text_projection", None)
    if isinstance(projection, torch.nn.Linear):
        return int(projection.out_features)
    if projection is not None:
        return int(projection.shape[-1])
    return int(model.visual.output_dim)
