"""An encoder that remembers the vectors of texts, for many embeddings of overlapping texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from condvne.data.encoders import TextEncoder, TruncatingEncoder


class MemoEncoder:
    """Encodes each text once in its life; holds one vector for every text it was given."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder
        self.name, self.dimension = encoder.name, encoder.dimension
        self._known: dict[str, torch.Tensor] = {}

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Vectors of n texts: (n, d), float32, on the CPU."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self.encoder.encode(new), strict=True))
        return torch.stack([self._known[text] for text in texts])

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of the texts are longer than what the encoder reads."""
        return self.encoder.truncated(texts) if isinstance(self.encoder, TruncatingEncoder) else 0
