"""Pairs of training text and a model's continuations of their prefixes, recorded in a run folder.

`pairs.jsonl` holds prefixes and training continuations; `records.jsonl` the same with the continuation of every
decoder, growing block by block, so that a recording that stops anywhere goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from condvne.data.config import FileCorpus, Recording
from condvne.data.fingerprints import files_fingerprint, fingerprint
from condvne.data.records import PairRecord, dump, read_pair_records
from condvne.data.storage import AppendLog, write_whole
from condvne.data.text.corpus import corpus_files, documents
from condvne.data.text.generation import generate, load_model
from condvne.data.text.language_model import check_context
from condvne.data.text.pairs import make_pairs
from condvne.errors import DataError, RunError
from condvne.ranks import SINGLE, Ranks

BLOCK = 256  # records decoded and written together: a kill loses at most these

Progress = Callable[[str, int, int], None]  # stage, done, total
Loaded = Callable[[], tuple[Any, Any]]  # the model and its tokenizer, loaded when first asked for


def record(
    config: Recording,
    folder: Path,
    device: torch.device,
    *,
    progress: Progress,
    notes: list[str],
    ranks: Ranks = SINGLE,
    loaded: Loaded | None = None,
) -> list[PairRecord]:
    """Make, or go on with, the records of a configuration in `folder`; every rank gets them all.

    What was skipped and counted is added to `notes`. `loaded` gives a model that is already there.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder's records cannot be read or belong to other pairs; disk or memory are full.
    """
    loaded = loaded or cache(lambda: load_model(config.model, device))
    pairs, found = _pairs(config, folder, loaded, progress, ranks)
    notes.extend(found)
    return _generations(config, folder, pairs, loaded, progress, notes, ranks)


def local_inputs(config: Recording) -> dict[str, str | None]:
    """Fingerprints of the local files that the run reads; what lies elsewhere has its name and revision."""
    inputs: dict[str, str | None] = {}
    if isinstance(config.corpus, FileCorpus):
        try:
            inputs["the corpus"] = files_fingerprint(corpus_files(config.corpus.paths))
        except (DataError, OSError):  # reported where it is read; a run that has its pairs can go on without it
            inputs["the corpus"] = None
    if Path(config.model.path).is_dir():
        inputs[f"the model in {config.model.path}"] = fingerprint(Path(config.model.path))
    return inputs


def _pairs(
    config: Recording, folder: Path, loaded: Loaded, progress: Progress, ranks: Ranks
) -> tuple[list[PairRecord], list[str]]:
    made, notes = _pairs_of_folder(config, folder, loaded, progress) if ranks.main else ([], [])
    return _shared(made, ranks), ranks.broadcast(notes)


def _pairs_of_folder(
    config: Recording, folder: Path, loaded: Loaded, progress: Progress
) -> tuple[list[PairRecord], list[str]]:
    path, notes_path = folder / "pairs.jsonl", folder / "pairs.notes.json"
    if not path.exists():
        progress("reading the corpus", 0, 1)
        model, tokenizer = loaded()
        check_context(model, config.pairs.prefix_tokens, config.pairs.continuation_tokens)
        report = make_pairs(documents(config.corpus), tokenizer, config.paragraphs, config.pairs, config.seed)
        write_whole(notes_path, json.dumps(report.counts.notes(), indent=2) + "\n")
        write_whole(path, "".join(dump(record.to_json()) + "\n" for record in report.records))
        progress("reading the corpus", 1, 1)
    notes: list[str] = json.loads(notes_path.read_text(encoding="utf-8"))
    return _stored(path), notes


def _generations(
    config: Recording,
    folder: Path,
    pairs: Sequence[PairRecord],
    loaded: Loaded,
    progress: Progress,
    notes: list[str],
    ranks: Ranks,
) -> list[PairRecord]:
    path, names = folder / "records.jsonl", [strategy.name for strategy in config.generation.strategies]
    log = AppendLog(path) if ranks.main else None
    with log or nullcontext():
        done = ranks.broadcast(len(_finished(path, names, pairs)) if log else None)
        progress("generating", done, len(pairs))
        while done < len(pairs):
            block = pairs[done : done + BLOCK * ranks.size]
            found: list[str] = []
            mine = _continued(config, block[ranks.share(len(block))], loaded, found)
            decoded = ranks.gather([record.to_json() for record in mine])
            notes.extend(ranks.gather(found))
            if log:
                log.append(decoded)
            done += len(block)
            progress("generating", done, len(pairs))
    return _shared(_finished(path, names, pairs) if log else [], ranks)


def _shared(records: list[PairRecord], ranks: Ranks) -> list[PairRecord]:
    """The first rank's records on every rank."""
    if ranks.size == 1:
        return records
    sent = ranks.broadcast([record.to_json() for record in records])
    return records if ranks.main else [PairRecord.from_json(flat, "a record of rank 0") for flat in sent]


def _finished(path: Path, names: Sequence[str], pairs: Sequence[PairRecord]) -> list[PairRecord]:
    records = _stored(path, names)
    if [record.id for record in records] != [pair.id for pair in pairs[: len(records)]]:
        raise RunError(f"{path}: its records are not the first of pairs.jsonl; choose another folder for this run.")
    return records


def _stored(path: Path, groups: Sequence[str] = ()) -> list[PairRecord]:
    try:
        return read_pair_records(path, groups=groups)
    except DataError as error:
        reason = str(error).removesuffix(".")
        raise RunError(f"{reason}; mend it, or remove {path.name} to have it made again.") from error


def _continued(config: Recording, block: Sequence[PairRecord], loaded: Loaded, notes: list[str]) -> list[PairRecord]:
    if not block:  # fewer records left than ranks
        return []
    model, tokenizer = loaded()
    outputs: list[dict[str, str]] = [{} for _ in block]
    output_ids: list[dict[str, list[int]]] = [{} for _ in block]
    for strategy in config.generation.strategies:
        continuations = generate(
            model,
            tokenizer,
            [record.prefix_ids for record in block],
            [record.id for record in block],
            strategy,
            config.pairs.continuation_tokens,
            config.seed,
            config.generation.batch_size,
            notes.append,
        )
        for i, ids in enumerate(continuations):
            output_ids[i][strategy.name] = ids
            outputs[i][strategy.name] = tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
    return [replace(r, outputs=outputs[i], output_ids=output_ids[i]) for i, r in enumerate(block)]
