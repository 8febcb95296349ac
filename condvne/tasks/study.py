"""A gap over a grid of prefix and continuation lengths, chunks, encoders and kernels (paper A, E.5 and E.6).

Cells share what they can: one recording for each prefix length, made with the longest continuation (a shorter one is
its beginning: draws are keyed by token position); one embedding of a text for each encoder. A finished cell is kept in
`cells/NAME/`, so that an interrupted study goes on with the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from condvne.data.config import Pairs, Recording, Strategy, plain_settings
from condvne.data.config.study import StudyConfig
from condvne.data.embeddings import TextEncoder, load_encoder
from condvne.data.memo import MemoEncoder
from condvne.data.records import PairRecord
from condvne.data.results import Scores
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.text.generation import load_model
from condvne.data.text.language_model import load_tokenizer
from condvne.data.text.recording import local_inputs, record
from condvne.data.versions import installed_versions
from condvne.errors import RunError
from condvne.evaluation import Heading, Progress, evaluate, resolved_device
from condvne.evaluation.textpairs import cutter, reachable, repeated_prefixes, text_comparison, without_blanks
from condvne.ranks import SINGLE, Ranks


@dataclass(frozen=True)
class Cell:
    """One combination of the grid; its name counts the tokens of prefix (p) and continuation (c)."""

    prefix_tokens: int
    continuation_tokens: int
    chunk_tokens: int | None
    encoder: str
    kernels: str

    @property
    def name(self) -> str:
        chunks = f"-chunks{self.chunk_tokens}" if self.chunk_tokens else ""
        return f"p{self.prefix_tokens}-c{self.continuation_tokens}{chunks}-{self.encoder}-{self.kernels}"


def cells(config: StudyConfig) -> list[Cell]:
    """Every combination, those of one encoder together, so that each is loaded once."""
    grid = config.grid
    combinations = product(grid.encoders, grid.prefix_tokens, grid.continuation_tokens, grid.chunk_tokens, grid.kernels)
    return [Cell(p, c, chunk, encoder, kernels) for encoder, p, c, chunk, kernels in combinations]


def run_study(config: StudyConfig, folder: Path, *, progress: Progress, ranks: Ranks = SINGLE) -> dict[Cell, Scores]:
    """Run, or go on with, every cell of the grid; each one's scores are also in `cells/NAME/scores.json`.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or disk or memory are full; finished cells
            stay, and the same command goes on with the next.
    """
    device = resolved_device(config.device, ranks.local)
    settings, versions = plain_settings(config), installed_versions()
    ranks.agree({"settings": settings, "versions": versions}, "settings")
    recordings = {p: _recording(config, p) for p in config.grid.prefix_tokens}
    inputs = local_inputs(next(iter(recordings.values()))) if ranks.main else None
    with run_folder(folder, settings, versions, ranks, inputs) as run:
        study = _Study(config, run.path, device, versions, run.notes, ranks)
        loaded = cache(lambda: load_model(config.model, device))
        for p, recording in recordings.items():
            study.notes[p] = []
            place = run.path / "records" / f"prefix{p}"
            study.records[p] = record(
                recording, place, device, progress=progress, notes=study.notes[p], ranks=ranks, loaded=loaded
            )
        found: dict[Cell, Scores] = {}
        for done, cell in enumerate(cells(config), start=1):
            found[cell] = study.scores(cell)
            progress("cells", done, len(cells(config)))
        return found


def _recording(config: StudyConfig, prefix_tokens: int) -> Recording:
    pairs = Pairs(
        count=config.count,
        prefix_tokens=prefix_tokens,
        continuation_tokens=max(config.grid.continuation_tokens),
    )
    return Recording(
        seed=config.seed,
        device=config.device,
        corpus=config.corpus,
        paragraphs=config.paragraphs,
        pairs=pairs,
        model=config.model,
        generation=config.generation,
    )


class _Study:
    """What the cells share: recordings, the encoder in use, and the tokenizer that decodes shorter continuations."""

    def __init__(
        self,
        config: StudyConfig,
        folder: Path,
        device: torch.device,
        versions: dict[str, str],
        run_notes: Sequence[str],
        ranks: Ranks,
    ) -> None:
        self.config, self.folder, self.device, self.versions = config, folder, device, versions
        self.run_notes, self.ranks = list(run_notes), ranks
        self.records: dict[int, list[PairRecord]] = {}
        self.notes: dict[int, list[str]] = {}
        self.tokenizer: Any = load_tokenizer(config.model)
        self._encoder: tuple[str, TextEncoder] | None = None

    def scores(self, cell: Cell) -> Scores:
        path = self.folder / "cells" / cell.name / "scores.json"
        stored = self._stored(path) if self.ranks.main else None
        if self.ranks.broadcast(stored is not None):
            return Scores.model_validate_json(self.ranks.broadcast(stored.model_dump_json() if stored else None))
        scores = self._evaluated(cell)
        if self.ranks.main:
            write_whole(path, scores.model_dump_json(indent=2) + "\n")
        return scores

    def _stored(self, path: Path) -> Scores | None:
        if not path.exists():
            return None
        try:
            return Scores.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise RunError(f"{path}: cannot be read as scores; remove it to have its cell made again.") from error

    def _evaluated(self, cell: Cell) -> Scores:
        config, notes = self.config, list(self.notes[cell.prefix_tokens])
        records = list(self._shortened(self.records[cell.prefix_tokens], cell.continuation_tokens))
        kept = without_blanks(config.evaluation, records, notes)
        evaluation = reachable(config.evaluation, len(kept), notes)
        notes.append(repeated_prefixes(kept))
        cut = cutter(self.tokenizer, cell.chunk_tokens) if cell.chunk_tokens else None
        strategies = config.generation.strategies
        return evaluate(
            text_comparison(kept, [s.name for s in strategies], evaluation.distinct, cut),
            Heading(
                f"{config.name}, {cell.name}",
                "gap",
                config.seed,
                self._settings(cell, strategies),
                self.versions,
                [*self.run_notes, *notes],
            ),
            encoder=self._encoder_of(cell),
            kernels=config.grid.kernels[cell.kernels],
            settings=evaluation,
            cache=self.folder / "embeddings",
            device=self.device,
            progress=lambda stage, done, total: None,
            ranks=self.ranks,
        )

    def _shortened(self, records: Sequence[PairRecord], length: int) -> Iterator[PairRecord]:
        def text(ids: list[int]) -> str:
            return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

        for r in records:
            if length == len(r.training_ids):
                yield r
                continue
            ids = {name: whole[:length] for name, whole in r.output_ids.items()}
            yield replace(
                r,
                training_ids=r.training_ids[:length],
                training=text(r.training_ids[:length]),
                output_ids=ids,
                outputs={name: text(short) for name, short in ids.items()},
            )

    def _encoder_of(self, cell: Cell) -> TextEncoder:
        if self._encoder is None or self._encoder[0] != cell.encoder:
            self._encoder = None  # two encoders at once may be too much for the memory
            encoder = load_encoder(self.config.grid.encoders[cell.encoder], self.device)
            self._encoder = (cell.encoder, MemoEncoder(encoder))
        return self._encoder[1]

    def _settings(self, cell: Cell, strategies: Sequence[Strategy]) -> dict[str, object]:
        whole = plain_settings(self.config)
        grid = whole.pop("grid")
        return whole | {
            "prefix_tokens": cell.prefix_tokens,
            "continuation_tokens": cell.continuation_tokens,
            "chunk_tokens": cell.chunk_tokens,
            "encoder": grid["encoders"][cell.encoder],
            "kernels": grid["kernels"][cell.kernels],
        }
