"""A language model against the text it was trained on: pairs, generations, embeddings, scores (paper A, section 6).

Every stage leaves its result in the run folder before the next begins, so a run that stops anywhere goes on from
there: `pairs.jsonl` (prefixes and training continuations), `records.jsonl` (the same with the continuation of every
decoder, growing block by block), `embeddings/`, `scores.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from condvne.data.config import Evaluation, FileCorpus, GapConfig, plain_settings
from condvne.data.embeddings import load_encoder
from condvne.data.fingerprints import files_fingerprint, fingerprint
from condvne.data.listing import listed
from condvne.data.records import PairRecord, dump, has_visible, read_pair_records
from condvne.data.results import Scores
from condvne.data.runfolders import run_folder
from condvne.data.storage import AppendLog, write_whole
from condvne.data.text.corpus import corpus_files, documents
from condvne.data.text.generation import generate, load_model
from condvne.data.text.language_model import check_context
from condvne.data.text.lexical import DistinctCounter, Ngram, text_ngrams, token_ngrams
from condvne.data.text.pairs import make_pairs
from condvne.data.versions import installed_versions
from condvne.errors import DataError, RunError
from condvne.evaluation import Comparison, Heading, Progress, evaluate, resolved_device
from condvne.ranks import SINGLE, Ranks

TRAINING = "training"
BLOCK = 256  # records decoded and written together: a kill loses at most these

Loaded = Callable[[], tuple[Any, Any]]  # the model and its tokenizer, loaded when first asked for


def measure_gap(config: GapConfig, folder: Path, *, progress: Progress, ranks: Ranks = SINGLE) -> Scores:
    """Run, or go on with, the whole measurement in `folder`; its scores are also written to `scores.json`.

    Several ranks share decoding, embedding and scoring; only the first knows the folder. All return the same scores.

    Raises:
        ConfigError, DataError, InputError: what was given cannot be used; the message says what to change.
        RunError: the folder belongs to another configuration or process, or disk or memory are full; what is
            finished stays, and the same command goes on from there.
    """
    device = resolved_device(config.device, ranks.local)
    settings, versions = plain_settings(config), installed_versions()
    ranks.agree({"settings": settings, "versions": versions}, "settings")
    with run_folder(folder, settings, versions, ranks, _inputs(config) if ranks.main else None) as run:
        loaded = cache(lambda: load_model(config.model, device))
        pairs, notes = _pairs(config, run.path, loaded, progress, ranks)
        records = _generations(config, run.path, pairs, loaded, progress, notes, ranks)
        kept = _without_blanks(config, records, notes)
        evaluation = _reachable(config.evaluation, len(kept), notes)
        scores = evaluate(
            _comparison(config, kept),
            Heading(config.name, "gap", config.seed, settings, versions, [*run.notes, *notes]),
            encoder=load_encoder(config.encoder, device),
            kernels=config.kernels,
            settings=evaluation,
            cache=run.path / "embeddings",
            device=device,
            progress=progress,
            ranks=ranks,
        )
        if ranks.main:
            write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        return scores


def _inputs(config: GapConfig) -> dict[str, str | None]:
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
    config: GapConfig, folder: Path, loaded: Loaded, progress: Progress, ranks: Ranks
) -> tuple[list[PairRecord], list[str]]:
    made, notes = _pairs_of_folder(config, folder, loaded, progress) if ranks.main else ([], [])
    return _shared(made, ranks), ranks.broadcast(notes)


def _pairs_of_folder(
    config: GapConfig, folder: Path, loaded: Loaded, progress: Progress
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
    config: GapConfig,
    folder: Path,
    pairs: Sequence[PairRecord],
    loaded: Loaded,
    progress: Progress,
    notes: list[str],
    ranks: Ranks,
) -> list[PairRecord]:
    path, names = folder / "records.jsonl", _strategies(config)
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


def _continued(config: GapConfig, block: Sequence[PairRecord], loaded: Loaded, notes: list[str]) -> list[PairRecord]:
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


def _without_blanks(config: GapConfig, records: Sequence[PairRecord], notes: list[str]) -> list[PairRecord]:
    """Records in which every text has a visible character; the others are refused, or dropped from all groups."""
    blank = [r.id for r in records if not all(map(has_visible, (r.prefix, r.training, *r.outputs.values())))]
    if not blank:
        return list(records)
    if config.evaluation.empty_texts == "refuse":
        raise DataError(
            f"{len(blank)} records have an empty or white-space continuation ({listed(blank)}); "
            "set evaluation.empty_texts: drop in a new run folder to leave them out of all groups."
        )
    notes.append(f"{len(blank)} pairs with an empty or white-space continuation were left out of all groups")
    dropped = set(blank)
    kept = [r for r in records if r.id not in dropped]
    if not kept:
        raise DataError("every record has an empty or white-space continuation; nothing is left to score.")
    return kept


def _reachable(evaluation: Evaluation, available: int, notes: list[str]) -> Evaluation:
    """Sizes beyond the pairs that are left come down to them: what was generated is not lost for want of a few."""
    beyond = [n for n in evaluation.sizes if n > available]
    if not beyond:
        return evaluation
    notes.append(f"sizes {listed(beyond)} were lowered to the {available} pairs that are left")
    return evaluation.model_copy(update={"sizes": sorted({min(n, available) for n in evaluation.sizes})})


def _comparison(config: GapConfig, records: Sequence[PairRecord]) -> Comparison:
    groups = [TRAINING, *_strategies(config)]
    texts = {g: [[r.training if g == TRAINING else r.outputs[g]] for r in records] for g in groups}
    distinct = config.evaluation.distinct

    def ngrams(group: str, n: int) -> list[list[Ngram]]:
        if distinct.unit != "tokens":
            return text_ngrams(texts[group], n, distinct.unit)
        ids = [[r.training_ids if group == TRAINING else r.output_ids[group]] for r in records]
        return token_ngrams([r.prefix_ids for r in records], ids, n)

    return Comparison(
        ids=[r.id for r in records],
        conditions=[r.prefix for r in records],
        outputs=texts,
        distinct={n: {g: DistinctCounter(ngrams(g, n)) for g in groups} for n in distinct.orders},
        distinct_unit=distinct.unit,
        reference=TRAINING,
    )


def _strategies(config: GapConfig) -> list[str]:
    return [strategy.name for strategy in config.generation.strategies]
