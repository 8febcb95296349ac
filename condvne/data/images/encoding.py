"""Batches of images through a model: worker threads decode ahead of the device."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from condvne.data.config.images import Decoding
from condvne.data.images.decoding import decode
from condvne.data.images.sources import Source
from condvne.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


class ImageModel(Protocol):
    """Turns prepared images into vectors."""

    @property
    def name(self) -> str:
        """Identity, part of the cache's key: kind, path, revision or content, processing, dtype."""

    @property
    def dimension(self) -> int | None:
        """Length d of a vector; None where the first images decide."""

    def prepare(self, image: Image) -> Tensor:
        """The model's own processing of one RGB image: (channels, height, width) or (d,). Runs in worker threads."""

    def encode(self, batch: Tensor) -> Tensor:
        """Vectors (n, d) of n prepared images, on the model's device."""


class ContentEncoder:
    """Vectors of images that are named by their contents' digests: a `TextEncoder` whose texts are digests.

    So the cache of embeddings serves images as it serves texts: an image that comes twice is encoded once, finished
    blocks are on disk, and several processes share the work.
    """

    def __init__(
        self,
        model: ImageModel,
        places: Mapping[str, Source],
        decoding: Decoding,
        *,
        batch_size: int = 64,
        workers: int | None = None,
        prefetch: int = 4,
        normalize: bool = True,
        dimension: int | None = None,
    ) -> None:
        """`places` tells for each digest where such an image lies; `dimension` is for models without one."""
        self.model, self.places, self.decoding = model, places, decoding
        self.batch_size, self.workers, self.prefetch = batch_size, workers or default_workers(), prefetch
        self.normalize = normalize
        self._dimension = model.dimension if dimension is None else dimension

    @property
    def name(self) -> str:
        # What decoding does to odd files decides their vectors, so it is part of the identity.
        odd = f"{self.decoding.background}:{self.decoding.animated}"
        return f"{self.model.name}:{odd}" + (":unit" if self.normalize else "")

    @property
    def dimension(self) -> int:
        if self._dimension is None:
            first = next(iter(self.places))
            self._dimension = int(self._vectors(self._prepared(first)[None]).shape[1])
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Vectors of n digests: (n, d), float32, on the CPU.

        Raises DataError for an image that has changed since its digest was taken, or differs in size where the model
        needs one size.
        """
        if not texts:
            return torch.zeros(0, self.dimension)
        rows = [self._vectors(batch) for batch in self.batches(texts)]
        return torch.cat([row.to("cpu", torch.float32) for row in rows])  # copied once the device has all its work

    def batches(self, digests: Sequence[str]) -> Generator[Tensor, None, None]:
        """Prepared batches in order; `prefetch` batches are decoded ahead of the one that is asked for."""
        spans = [digests[start : start + self.batch_size] for start in range(0, len(digests), self.batch_size)]
        waiting: deque[tuple[Sequence[str], list[Future[Tensor]]]] = deque()
        pool = ThreadPoolExecutor(self.workers, "decode")
        try:
            for span in spans:
                waiting.append((span, [pool.submit(self._prepared, digest) for digest in span]))
                if len(waiting) > self.prefetch:
                    yield self._stacked(*waiting.popleft())
            while waiting:
                yield self._stacked(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _prepared(self, digest: str) -> Tensor:
        source = self.places[digest]
        decoded = decode(source, self.decoding)
        if decoded.digest != digest:
            raise DataError(
                f"{source.name}: has changed since this run was begun; restore it, or use another run folder."
            )
        return self.model.prepare(decoded.image)

    def _stacked(self, digests: Sequence[str], futures: Sequence[Future[Tensor]]) -> Tensor:
        prepared = [future.result() for future in futures]
        shapes = [tuple(tensor.shape) for tensor in prepared]
        odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            first, other = self.places[digests[0]].name, self.places[digests[odd]].name
            raise DataError(
                f"{other}: gives {shapes[odd]} values and {first} {shapes[0]}; the encoder needs images of one size, "
                "so resize them (encoder.side for pixels)."
            )
        return torch.stack(prepared)

    def _vectors(self, batch: Tensor) -> Tensor:
        with torch.inference_mode():
            vectors = self.model.encode(batch).float()
            if self.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return vectors.clone()


def default_workers() -> int:
    """Decoding threads: the cores that this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
