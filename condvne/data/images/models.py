"""Models that turn images into vectors, each with its checkpoint's own processing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from condvne.data.config.images import Clip, Dinov2, ImageEncoderChoice, Pixels, Siglip, Timm
from condvne.data.encoders import hub_commit
from condvne.data.fingerprints import fingerprint
from condvne.data.images.clip import ClipImages
from condvne.data.images.encoding import ImageModel
from condvne.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

_LOAD_ERRORS = (OSError, ValueError, ImportError, KeyError, TypeError, RuntimeError, AttributeError)


def load_image_model(config: ImageEncoderChoice, device: torch.device | str) -> ImageModel:
    """The model that a configuration names: a folder on disk, or a name on the hub.

    Raises ConfigError when it cannot be loaded, or its images are no multiple of its patches.
    """
    if isinstance(config, Pixels):
        return PixelValues(config)
    if isinstance(config, Clip):
        return ClipImages(config, device)
    if isinstance(config, Timm):
        return TimmFeatures(config, device)
    return HubTower(config, device)


class PixelValues:
    """Raw pixels in [0, 1], rows of an image one after the other."""

    dimension: int | None

    def __init__(self, config: Pixels) -> None:
        self._side, self._channels = config.side, config.channels
        self.name = f"pixels:{config.channels}:{config.side or 'as they are'}"
        self.dimension = None if config.side is None else config.side**2 * (3 if config.channels == "rgb" else 1)

    def prepare(self, image: Image) -> Tensor:
        import numpy
        from PIL.Image import Resampling

        if self._channels == "gray":
            image = image.convert("L")
        if self._side is not None and image.size != (self._side, self._side):
            image = image.resize((self._side, self._side), Resampling.BOX)
        elif self._side is None and max(image.size) > 64:
            raise ConfigError(
                f"encoder: an image of {image.width} × {image.height} is too large for raw pixels; set encoder.side, "
                "or choose dinov2."
            )
        return torch.from_numpy(numpy.asarray(image, dtype=numpy.float32).reshape(-1) / 255)

    def encode(self, batch: Tensor) -> Tensor:
        return batch


class HubTower:
    """The image tower of DINOv2 or SigLIP, through transformers."""

    def __init__(self, config: Dinov2 | Siglip, device: torch.device | str) -> None:
        from transformers import AutoConfig, AutoImageProcessor, AutoModel

        folder = Path(config.path)
        revision: dict[str, Any] = {} if folder.is_dir() else {"revision": config.revision}
        dtype = getattr(torch, config.dtype)
        try:
            found = AutoConfig.from_pretrained(config.path, **revision)
            wanted = ("dinov2", "dinov2_with_registers") if isinstance(config, Dinov2) else ("siglip", "siglip2")
            if found.model_type.removesuffix("_vision_model") not in wanted:
                raise ConfigError(
                    f"encoder.path: {config.path} holds a model of type {found.model_type}, not {config.kind}."
                )
            self._processor: Any = AutoImageProcessor.from_pretrained(config.path, **revision)
            model: Any = AutoModel.from_pretrained(config.path, dtype=dtype, **revision)
        except _LOAD_ERRORS as error:
            if isinstance(error, ConfigError):
                raise
            raise _not_loaded(config.path, f"as {config.kind}", error) from error
        self._model: Any = getattr(model, "vision_model", model).to(device).eval()
        self._device, self._dtype = torch.device(device), dtype
        self._pooling = config.pooling if isinstance(config, Dinov2) else None
        self._registers = int(getattr(self._model.config, "num_register_tokens", 0))
        self._sizes = _processor_sizes(self._processor, getattr(config, "resolution", None))
        if isinstance(config, Dinov2):
            self._check_patches(config.path)
        version = fingerprint(folder) if folder.is_dir() else hub_commit(config.path, config.revision)
        parts = [
            config.kind,
            f"{config.path}@{version}",
            config.dtype,
            self._pooling,
            getattr(config, "resolution", None),
        ]
        self.name = ":".join(str(part) for part in parts if part is not None)
        self.dimension = int(self._model.config.hidden_size)

    def prepare(self, image: Image) -> Tensor:
        pixels: Tensor = self._processor(images=image, return_tensors="pt", **self._sizes)["pixel_values"][0]
        return pixels

    def encode(self, batch: Tensor) -> Tensor:
        output = self._model(pixel_values=batch.to(self._device, self._dtype))
        if self._pooling is None:
            pooled: Tensor = output.pooler_output
            return pooled
        tokens: Tensor = output.last_hidden_state
        return tokens[:, 0] if self._pooling == "cls" else tokens[:, 1 + self._registers :].float().mean(1)

    def _check_patches(self, path: str) -> None:
        from PIL import Image

        patch = int(self._model.config.patch_size)
        height, width = self.prepare(Image.new("RGB", (64, 48))).shape[-2:]
        if height % patch or width % patch:
            # The patch embedding would leave out the last rows and columns without a word.
            raise ConfigError(
                f"encoder: {path} sees images of {height} × {width}, no multiple of its patches of {patch}; set "
                f"encoder.resolution to {max(patch, round(height / patch) * patch)}."
            )


class TimmFeatures:
    """The last features of a model of timm, pooled, without its classifier."""

    def __init__(self, config: Timm, device: torch.device | str) -> None:
        import timm
        from timm.data import create_transform, resolve_data_config  # type: ignore[attr-defined]

        folder = Path(config.path)
        source = f"local-dir:{folder}" if folder.is_dir() else f"hf-hub:{config.path}"
        if not folder.is_dir() and config.revision is not None:
            source += f"@{config.revision}"
        try:
            model: Any = timm.create_model(source, pretrained=True, num_classes=0)
        except _LOAD_ERRORS as error:
            raise _not_loaded(config.path, "by timm", error) from error
        self._device, self._dtype = torch.device(device), getattr(torch, config.dtype)
        self._model: Any = model.to(self._device, self._dtype).eval()
        seen = resolve_data_config(pretrained_cfg=model.pretrained_cfg, model=model)  # type: ignore[no-untyped-call]
        self._transform: Any = create_transform(**seen, is_training=False)
        version = fingerprint(folder) if folder.is_dir() else hub_commit(config.path, config.revision)
        self.name = f"timm:{config.path}@{version}:{config.dtype}"
        self.dimension = self._width()

    def _width(self) -> int:
        from PIL import Image

        with torch.inference_mode():
            return int(self.encode(self.prepare(Image.new("RGB", (64, 64)))[None]).shape[1])

    def prepare(self, image: Image) -> Tensor:
        pixels: Tensor = self._transform(image)
        return pixels

    def encode(self, batch: Tensor) -> Tensor:
        vectors: Tensor = self._model(batch.to(self._device, self._dtype))
        return vectors


def _processor_sizes(processor: Any, resolution: int | None) -> dict[str, Any]:
    """Arguments that make a processor give images of `resolution` instead of its own size, in the same proportion."""
    if resolution is None:
        return {}
    crop, size = getattr(processor, "crop_size", None), processor.size
    if not crop or not size.get("shortest_edge"):
        return {"size": {"height": resolution, "width": resolution}}
    edge = round(resolution * size["shortest_edge"] / crop["height"])
    return {"size": {"shortest_edge": edge}, "crop_size": {"height": resolution, "width": resolution}}


def _not_loaded(path: str, how: str, error: Exception) -> ConfigError:
    reason = " ".join(str(error).split()).rstrip(".")
    return ConfigError(f"encoder.path: {path} cannot be loaded {how} ({reason}); give a folder, or a name on the hub.")
