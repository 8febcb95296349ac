"""Vectors of texts, each distinct text encoded once, cached on disk by content and resumed by blocks."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from condvne.data.encoders import TextEncoder, TruncatingEncoder, load_encoder
from condvne.data.listing import listed
from condvne.data.records import clean_text, has_visible
from condvne.data.storage import load_tensors, save_tensors
from condvne.errors import DataError, InputError
from condvne.ranks import SINGLE, Ranks

__all__ = ["Embedded", "TextEncoder", "embed", "load_encoder"]


@dataclass(frozen=True)
class Embedded:
    """Vectors of n texts in their order, (n, d) float32, from how many distinct texts, and how many of those were cut.

    A text is cut where the encoder reads no further: what stands behind does not change its vector.
    """

    tensor: torch.Tensor
    distinct: int
    cut: int = 0


def embed(
    texts: Sequence[str],
    encoder: TextEncoder,
    cache_folder: str | Path,
    ids: Sequence[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    block: int = 1024,
    blank: bool = False,
    ranks: Ranks = SINGLE,
) -> Embedded:
    """Vectors of n texts, (n, d) float32 on the CPU; each distinct text is encoded once.

    Several ranks, which must all have the same texts, encode a block each in turn; the first keeps the cache.

    The vectors of the distinct texts, in their order, are kept as one safetensors file whose name is a hash of the
    encoder's name and these texts; a file that is damaged is made again. While they are computed, each finished `block`
    of texts is on disk, so that a run killed on the way goes on from there. Lone surrogates count as U+FFFD.

    `progress(done, total)` is called with counts of distinct texts after each block; `note` with one sentence for each
    thing to know (surrogates, damaged files), by default the log of this module. `blank` lets texts without a
    visible character pass, for parts of texts.

    Raises
    ------
    InputError
        No texts, ids of another count, or an encoder whose result is not (n, d).
    DataError
        Values that are no text, empty or white-space texts, or vectors that are not finite; the ids are named.
    RunError
        The disk is full; finished blocks stay.
    """
    note = note or logging.getLogger(__name__).warning
    if ids is not None and len(ids) != len(texts):
        raise InputError(f"ids: expected one for each of the {len(texts)} texts, got {len(ids)}.")
    if len(texts) == 0:
        raise InputError("texts: none given; there is nothing to embed.")
    names = [str(name) for name in ids] if ids is not None else [f"row {row}" for row in range(len(texts))]
    cleaned = _cleaned(texts, names, note, blank)
    distinct = list(dict.fromkeys(cleaned))
    place = {text: row for row, text in enumerate(distinct)}
    rows = torch.tensor([place[text] for text in cleaned])
    owners = dict(zip(reversed(cleaned), reversed(names), strict=True))  # the first id of each text
    table = _Table(encoder, Path(cache_folder), distinct, owners, note, ranks)
    vectors, cut = table.vectors(progress or (lambda done, total: None), block)
    return Embedded(vectors[rows], len(distinct), cut)


def _cleaned(texts: Sequence[str], names: Sequence[str], note: Callable[[str], None], blank: bool) -> list[str]:
    foreign = [name for name, text in zip(names, texts, strict=True) if not isinstance(text, str)]
    if foreign:
        raise DataError(f"texts of {listed(foreign)} are no strings; give a text for each.")
    empty = [] if blank else [name for name, text in zip(names, texts, strict=True) if not has_visible(text)]
    if empty:
        raise DataError(
            f"texts of {listed(empty)} are empty or white space, which no encoder can place; "
            "drop them (evaluation.empty_texts: drop) or fill them in."
        )
    cleaned = [clean_text(text) for text in texts]
    changed = sum(a != b for a, b in zip(texts, cleaned, strict=True))
    if changed:
        note(f"{changed} texts hold lone surrogates, which were embedded as U+FFFD.")
    return cleaned


class _Table:
    """The vectors of distinct texts, read from the cache or computed into it."""

    def __init__(
        self,
        encoder: TextEncoder,
        folder: Path,
        texts: list[str],
        owners: dict[str, str],
        note: Callable[[str], None],
        ranks: Ranks,
    ) -> None:
        self.encoder, self.folder, self.texts, self.owners, self.note = encoder, folder, texts, owners, note
        self.ranks = ranks
        digest = hashlib.blake2b(digest_size=16)
        for part in (encoder.name, *texts):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little") + encoded)  # with lengths, no two lists share bytes
        self.key = digest.hexdigest()

    def vectors(self, progress: Callable[[int, int], None], block: int) -> tuple[torch.Tensor, int]:
        """The vectors, and how many texts were cut."""
        total = len(self.texts)
        whole = self.folder / f"{self.key}.safetensors"
        stored = self._read(whole, total) if self.ranks.main else None
        if self.ranks.broadcast(stored is not None):
            vectors, cut = self._shared(stored)
            progress(total, total)
        else:
            vectors, cut = self._computed(progress, block)
            if self.ranks.main:
                self._write(whole, vectors, cut)
                for start in range(0, total, block):
                    self._part(start, min(start + block, total)).unlink(missing_ok=True)
        return vectors, cut

    def _computed(self, progress: Callable[[int, int], None], block: int) -> tuple[torch.Tensor, int]:
        """Block by block, a block a rank at a time; what rank 0 finds in the folder is not computed again."""
        total, size = len(self.texts), self.ranks.size
        spans = [(start, min(start + block, total)) for start in range(0, total, block)]
        parts: list[tuple[torch.Tensor, int]] = []
        for first in range(0, len(spans), size):
            turn = spans[first : first + size]
            kept = [self._read(self._part(*span), span[1] - span[0]) if self.ranks.main else None for span in turn]
            known = self.ranks.broadcast([part is not None for part in kept])
            mine = self.ranks.rank
            fresh = self._encoded(*turn[mine]) if mine < len(turn) and not known[mine] else self._nothing()
            lengths = [0 if k else stop - start for k, (start, stop) in zip(known, turn, strict=True)]
            rows = torch.split(self.ranks.gather_rows(fresh[0]), lengths)
            cuts = self.ranks.gather([fresh[1]])
            if self.ranks.main:
                for span, part, new, cut in zip(turn, kept, rows, cuts, strict=False):  # of the last turn, less
                    if part is None and total > block:
                        self._write(self._part(*span), new, cut)
                    parts.append(part or (new, cut))
            progress(turn[-1][1], total)
        if not self.ranks.main:
            return self._shared(None)
        return self._shared((torch.cat([vectors for vectors, _ in parts]), sum(cut for _, cut in parts)))

    def _shared(self, stored: tuple[torch.Tensor, int] | None) -> tuple[torch.Tensor, int]:
        """Rank 0's vectors, on every rank."""
        vectors, cut = stored or self._nothing()
        return self.ranks.broadcast_rows(vectors), self.ranks.broadcast(cut)

    def _nothing(self) -> tuple[torch.Tensor, int]:
        return torch.zeros(0, self.encoder.dimension), 0

    def _part(self, start: int, stop: int) -> Path:
        return self.folder / f"{self.key}.{start}-{stop}.part.safetensors"

    def _encoded(self, start: int, stop: int) -> tuple[torch.Tensor, int]:
        texts = self.texts[start:stop]
        vectors = self.encoder.encode(texts).detach().to("cpu", torch.float32)
        if vectors.shape != (len(texts), self.encoder.dimension):
            raise InputError(
                f"encoder {self.encoder.name}: expected vectors of shape {(len(texts), self.encoder.dimension)}, "
                f"got {tuple(vectors.shape)}."
            )
        faulty = (~torch.isfinite(vectors).all(1)).nonzero()[:, 0].tolist()
        if faulty:
            raise DataError(
                f"the embeddings of {listed([self.owners[texts[row]] for row in faulty])} are NaN or infinite; "
                "load the encoder with dtype float32."
            )
        return vectors, self.encoder.truncated(texts) if isinstance(self.encoder, TruncatingEncoder) else 0

    def _write(self, file: Path, vectors: torch.Tensor, cut: int) -> None:
        facts = {"encoder": self.encoder.name, "truncated": str(cut), "digest": _digest(vectors)}
        save_tensors(file, {"embeddings": vectors}, facts)

    def _read(self, file: Path, rows: int) -> tuple[torch.Tensor, int] | None:
        if not file.exists():
            return None
        try:
            tensors, facts = load_tensors(file)
            vectors = tensors["embeddings"]
            whole = vectors.shape == (rows, self.encoder.dimension) and facts["digest"] == _digest(vectors)
            if whole:
                return vectors, int(facts["truncated"])
        except (DataError, KeyError, TypeError, ValueError):
            pass
        self.note(f"{file}: is damaged and was computed anew.")
        return None


def _digest(vectors: torch.Tensor) -> str:
    return hashlib.blake2b(vectors.contiguous().numpy().tobytes(), digest_size=16).hexdigest()
