"""Utility matrices and quality against references: computed once for an input, kept on disk, shared by all methods."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from condvne.data.config.mbr import AGAINST_REFERENCES, MbrConfig, MeasureName
from condvne.data.embeddings import TextEncoder
from condvne.data.storage import load_tensors, save_tensors
from condvne.data.text.candidates import CandidateSet
from condvne.data.text.quality import LABELS, BertScoreF1, EmbeddingCosine, Measure, RougeL
from condvne.errors import DataError
from condvne.evaluation import Progress


@dataclass(frozen=True)
class Measured:
    """All measures of all inputs.

    Attributes:
        utilities: for each utility and input the matrix u(h, y) of its distinct candidates, (k, k).
        quality: for each measure among the metrics and input, its candidates against the references, (k,).
    """

    utilities: dict[MeasureName, list[Tensor]]
    quality: dict[MeasureName, list[Tensor]]


def measured(
    config: MbrConfig,
    sets: Sequence[CandidateSet],
    encoder: Callable[[], TextEncoder],
    device: torch.device,
    folder: Path,
    progress: Progress,
    notes: list[str],
) -> Measured:
    """Every utility matrix and quality that the configuration asks for, read from `folder` where they are there.

    Raises:
        DataError: values that are not finite (ids named).
        ConfigError: a measure's package or model is not there.
        RunError: the disk is full; the matrices of finished inputs stay.
    """
    in_metrics = [m for m in AGAINST_REFERENCES if m in config.metrics]
    result = Measured({}, {})
    for name in dict.fromkeys([*config.utilities, *in_metrics]):
        shelf = _Shelf(folder, notes, cache(lambda name=name: _measure(name, config, encoder, device)))
        stage = f"{LABELS[name]} of candidates"
        jobs = [("pairwise", result.utilities)] if name in config.utilities else []
        jobs += [("references", result.quality)] if name in in_metrics else []
        for k, candidates in enumerate(sets):
            for kind, place in jobs:
                place.setdefault(name, []).append(shelf.values(name, kind, candidates))
            progress(stage, k + 1, len(sets))
    return result


def _measure(name: MeasureName, config: MbrConfig, encoder: Callable[[], TextEncoder], device: torch.device) -> Measure:
    if name == "rouge_l":
        return RougeL(stemmer=config.rouge_stemmer)
    if name == "bertscore":
        return BertScoreF1(config.bertscore, device)
    return EmbeddingCosine(encoder())


class _Shelf:
    """One measure's values on disk, a file an input; what is not there, or damaged, is computed."""

    def __init__(self, folder: Path, notes: list[str], measure: Callable[[], Measure]) -> None:
        self.folder, self.notes, self.measure = folder, notes, measure

    def values(self, name: MeasureName, kind: str, candidates: CandidateSet) -> Tensor:
        shape = (len(candidates.texts),) * (2 if kind == "pairwise" else 1)
        file = self.folder / name / f"{kind}-{self._key(kind, candidates)}.safetensors"
        stored = self._read(file, shape)
        if stored is not None:
            return stored
        if kind == "pairwise":
            values = self.measure().pairwise(candidates.texts)
        else:
            values = self.measure().against(candidates.texts, candidates.references)
        faulty = int((~torch.isfinite(values)).sum())
        if faulty:
            what = "between candidates" if kind == "pairwise" else "of candidates and references"
            raise DataError(
                f"{LABELS[name]} {what} is NaN or infinite for {faulty} of {values.numel()} pairs of {candidates.id}; "
                "load its model with dtype float32, or take another measure."
            )
        facts = {"measure": self.measure().name, "id": candidates.id, "digest": _digest(values)}
        save_tensors(file, {"values": values}, facts)
        return values

    def _key(self, kind: str, candidates: CandidateSet) -> str:
        digest = hashlib.blake2b(digest_size=16)
        texts = [*candidates.texts, *(candidates.references if kind == "references" else [])]
        for part in (self.measure().name, str(len(candidates.texts)), *texts):
            encoded = part.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)  # with lengths, no two lists share bytes
        return digest.hexdigest()

    def _read(self, file: Path, shape: tuple[int, ...]) -> Tensor | None:
        if not file.exists():
            return None
        try:
            tensors, facts = load_tensors(file)
            values = tensors["values"]
            if values.shape == shape and facts["digest"] == _digest(values):
                return values
        except (DataError, KeyError):
            pass
        self.notes.append(f"{file}: is damaged and was computed anew")
        return None


def _digest(values: Tensor) -> str:
    return hashlib.blake2b(values.contiguous().numpy().tobytes(), digest_size=16).hexdigest()
