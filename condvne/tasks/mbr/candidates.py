"""The candidates of a run: drawn from a model, input by input, or read from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from condvne.data.config.mbr import GeneratedCandidates, MbrConfig
from condvne.data.listing import listed
from condvne.data.records import dump
from condvne.data.storage import AppendLog, write_whole
from condvne.data.text.candidates import CandidateRecord, check_references, read_candidates
from condvne.data.text.inputs import read_inputs
from condvne.data.text.language_model import load_model
from condvne.data.text.sampling import CandidateSampler, build_prompt
from condvne.errors import DataError, RunError
from condvne.evaluation import Progress


def candidate_records(
    config: MbrConfig, folder: Path, device: torch.device, progress: Progress, notes: list[str]
) -> list[CandidateRecord]:
    """All inputs with their candidates. Drawn ones are in `candidates.jsonl` as soon as an input has all of its own.

    Raises:
        ConfigError, DataError: inputs, model or file cannot be used; the message says what to change.
        RunError: the folder holds candidates of other inputs, or disk or memory are full; finished inputs stay.
    """
    if isinstance(config.candidates, GeneratedCandidates):
        return _drawn(config, config.candidates, folder, device, progress, notes)
    progress("reading candidates", 0, 1)
    records = read_candidates(config.candidates.path)
    progress("reading candidates", 1, 1)
    return records


def _drawn(
    whole: MbrConfig,
    config: GeneratedCandidates,
    folder: Path,
    device: torch.device,
    progress: Progress,
    notes: list[str],
) -> list[CandidateRecord]:
    loaded = cache(lambda: load_model(config.model, device, config.architecture))
    inputs = _inputs(config, whole.seed, folder, lambda: loaded()[1], progress, notes)
    check_references(inputs, whole.metrics)  # before the candidates, which may take hours
    path = folder / "candidates.jsonl"
    facts = _Facts(folder / "candidates.notes.json")
    with AppendLog(path) as log:
        done = _finished(path, inputs)
        progress("drawing candidates", done, len(inputs))
        if done < len(inputs):
            model, tokenizer = loaded()
            sampler = CandidateSampler(model, tokenizer, config, whole.seed, notes.append)
            for record in inputs[done:]:
                prompt = build_prompt(tokenizer, record.condition, config)
                drawn = sampler.draw(record.id, prompt)
                facts.add(record.id, prompt.cut, sum(not d.ended for d in drawn))
                complete = replace(
                    record,
                    outputs=[d.text for d in drawn],
                    logprobs=[d.logprob for d in drawn],
                    lengths=[d.length for d in drawn],
                )
                log.append([complete.to_json()])
                done += 1
                progress("drawing candidates", done, len(inputs))
    notes.extend(facts.notes(config, len(inputs)))
    return read_candidates(path)


def _inputs(
    config: GeneratedCandidates,
    seed: int,
    folder: Path,
    tokenizer: Callable[[], Any],
    progress: Progress,
    notes: list[str],
) -> list[CandidateRecord]:
    path, notes_path = folder / "inputs.jsonl", folder / "inputs.notes.json"
    if not path.exists():
        progress("reading inputs", 0, 1)
        chosen = read_inputs(config.inputs, config.count, seed, tokenizer)
        write_whole(notes_path, json.dumps(chosen.notes, indent=2) + "\n")
        write_whole(path, "".join(dump(record.to_json()) + "\n" for record in chosen.records))
        progress("reading inputs", 1, 1)
    notes.extend(json.loads(notes_path.read_text(encoding="utf-8")))
    return read_candidates(path)


def _finished(path: Path, inputs: Sequence[CandidateRecord]) -> int:
    """How many inputs have their candidates."""
    if path.stat().st_size == 0:
        return 0
    ids = [record.id for record in read_candidates(path)]
    if ids != [record.id for record in inputs[: len(ids)]]:
        raise RunError(f"{path}: its records are not the first of inputs.jsonl; choose another folder for this run.")
    return len(ids)


class _Facts:
    """What the candidates do not tell of themselves: inputs that were cut, candidates that were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut: list[str] = []
        self.endless: dict[str, int] = {}
        if path.exists():
            try:
                stored = json.loads(path.read_text(encoding="utf-8"))
                self.cut, self.endless = list(stored["cut"]), dict(stored["endless"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}: cannot be read ({error}); remove it, and its counts are lost.") from error

    def add(self, record_id: str, cut: bool, endless: int) -> None:
        # Kept by id and written before the candidates, so that an input drawn again after a kill counts once.
        self.cut = [name for name in self.cut if name != record_id] + [record_id] * cut
        self.endless[record_id] = endless
        write_whole(self.path, json.dumps({"cut": self.cut, "endless": self.endless}, indent=2) + "\n")

    def notes(self, config: GeneratedCandidates, inputs: int) -> list[str]:
        found = []
        if self.cut:
            found.append(
                f"{len(self.cut)} of {inputs} inputs are longer than {config.max_input_tokens} tokens and were cut "
                f"there ({listed(self.cut)})"
            )
        endless = sum(self.endless.values())
        if endless:
            total = config.number * inputs
            found.append(f"{endless} of {total} candidates reached {config.max_new_tokens} tokens without an end")
        return found
