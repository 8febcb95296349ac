"""Texts to vectors on the device of a run, saying how many are distinct and what the encoder cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from condvne.data.embeddings import TextEncoder, embed
from condvne.evaluation.comparison import Progress
from condvne.ranks import SINGLE, Ranks

CUT_SHARE = 0.1  # of the distinct texts; where more are cut, the reader is warned
BLOCK = 1024  # texts encoded between two writes


@dataclass(frozen=True)
class Embedder:
    """Embeds the texts of one run.

    Attributes:
        cache: folder that keeps the vectors.
        notes: gets a sentence for each set of texts, and for what was odd about it.
        warnings: gets a sentence where many texts are longer than the encoder reads.
    """

    encoder: TextEncoder
    cache: Path
    device: torch.device
    progress: Progress
    notes: list[str]
    warnings: list[str] = field(default_factory=list)
    ranks: Ranks = SINGLE

    def vectors(
        self,
        name: str,
        texts: Sequence[str],
        ids: Sequence[str],
        *,
        noun: str = "texts",
        blank: bool = False,
        block: int = BLOCK,
    ) -> Tensor:
        """Vectors (n, d) of the texts of `name`, each distinct one encoded once.

        Args:
            noun: what the texts are called.
            blank: let texts without a visible character pass, for parts of texts.

        Raises:
            DataError: a text is empty or its vector is not finite (ids named).
        """
        found = embed(
            texts,
            self.encoder,
            self.cache,
            ids,
            progress=lambda done, total: self.progress(f"embedding {name}", done, total),
            note=self.notes.append,
            block=block,
            blank=blank,
            ranks=self.ranks,
        )
        self.notes.append(f"embeddings of {name}: {found.distinct} distinct {noun} of {len(texts)}")
        if found.cut:
            sentence = (
                f"{found.cut} of {found.distinct} distinct {noun} of {name} are longer than the encoder reads and were "
                "cut there: what differs only behind the cut counts as equal."
            )
            (self.warnings if found.cut >= CUT_SHARE * found.distinct else self.notes).append(sentence)
        return found.tensor.to(self.device)
