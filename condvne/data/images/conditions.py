"""What turns conditions of images into vectors: unit vectors of classes, CLIP's text tower, sentence encoders."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from condvne.data.config.images import ClipText, ConditionEncoderChoice, OneHot
from condvne.data.encoders import TextEncoder, load_encoder
from condvne.data.images.clip import ClipTexts
from condvne.errors import DataError


class OneHotLabels:
    """A unit vector for each of the texts of a vocabulary."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._places = {text: place for place, text in enumerate(sorted(set(vocabulary)))}
        self.dimension = len(self._places)
        digest = hashlib.blake2b("\0".join(self._places).encode("utf-8", "surrogatepass"), digest_size=6)
        self.name = f"one_hot:{self.dimension}@{digest.hexdigest()}"

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """(n, classes). Raises DataError for a text that is none of the vocabulary."""
        unknown = next((text for text in texts if text not in self._places), None)
        if unknown is not None:
            raise DataError(f"condition {unknown!r} is none of the {self.dimension} classes.")
        vectors = torch.zeros(len(texts), self.dimension)
        vectors[torch.arange(len(texts)), torch.tensor([self._places[text] for text in texts], dtype=torch.long)] = 1
        return vectors


def load_condition_encoder(
    config: ConditionEncoderChoice, vocabulary: Sequence[str], device: torch.device | str
) -> TextEncoder:
    """The encoder of conditions that a configuration names. Raises ConfigError as the encoders do."""
    if isinstance(config, OneHot):
        return OneHotLabels(vocabulary)
    if isinstance(config, ClipText):
        return ClipTexts(config, device)
    return load_encoder(config, device)
