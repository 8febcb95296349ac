"""Pairs of texts to conditional Vendi scores, with an encoder of the caller's: what the evaluation front ends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from condvne.core.checks import NAMED_ROWS
from condvne.core.entropy import conditional_vendi
from condvne.core.kernels import Kernel
from condvne.errors import InputError


@runtime_checkable
class Encoding(Protocol):
    """An object with `encode`, such as a sentence-transformers model."""

    def encode(self, texts: list[str]) -> Any: ...


Encoder = Encoding | Callable[[list[str]], Any]


def encoded(encoder: Encoder, texts: Sequence[str]) -> Tensor:
    """Vectors (n, d) of texts, float64, on the CPU. Raises InputError where the encoder gives anything else."""
    function = encoder.encode if isinstance(encoder, Encoding) else encoder
    # Cloned: some encoders answer in inference mode, whose tensors take no part in autograd.
    vectors = torch.as_tensor(function(list(texts))).detach().to("cpu", torch.float64).clone()
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise InputError(
            f"the encoder gave shape {tuple(vectors.shape)} for {len(texts)} texts; it must give one row a text."
        )
    return vectors


@dataclass(frozen=True)
class TextScore:
    """exp H_α(Y|X) of texts.

    Args:
        encoder: an object with `encode(texts)`, or a function, that gives (n, d) vectors.
        kernel_x, kernel_y: of conditions and outputs. An open bandwidth is the median of the texts that are scored; to
            compare models, give kernels fitted once on reference texts.
        order: α in [0, ∞].

    >>> score = TextScore(lambda texts: [[float(len(t)), 1.0] for t in texts], "delta", "delta")
    >>> round(score(["a", "a", "bb", "bb"], ["x", "xx", "x", "xx"]), 4)
    2.0
    """

    encoder: Encoder
    kernel_x: Kernel | str = "gaussian"
    kernel_y: Kernel | str = "gaussian"
    order: float = 1.0

    def __call__(self, conditions: Sequence[str], outputs: Sequence[str]) -> float:
        """The score of pairs. Raises InputError for unlike numbers, none, or what is no text (rows named)."""
        if len(conditions) != len(outputs):
            raise InputError(f"{len(conditions)} conditions for {len(outputs)} outputs; give one for each.")
        if not conditions:
            raise InputError("there are no pairs to score.")
        for name, texts in (("conditions", conditions), ("outputs", outputs)):
            wrong = [i for i, text in enumerate(texts) if not isinstance(text, str)]
            if wrong:
                raise InputError(f"{name} must be texts, but rows {', '.join(map(str, wrong[:NAMED_ROWS]))} are not.")
        x, y = encoded(self.encoder, conditions), encoded(self.encoder, outputs)
        return float(conditional_vendi(x, y, kernel_x=self.kernel_x, kernel_y=self.kernel_y, order=self.order))
