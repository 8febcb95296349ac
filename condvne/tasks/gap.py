"""A language model against the text it was trained on: pairs, generations, embeddings, scores (paper A, section 6).

Every stage leaves its result in the run folder before the next begins, so a run that stops anywhere goes on from
there: `pairs.jsonl` (prefixes and training continuations), `records.jsonl` (the same with the continuation of every
decoder, growing block by block), `embeddings/`, `scores.json`.
"""

from __future__ import annotations

from pathlib import Path

from condvne.data.config import GapConfig, plain_settings
from condvne.data.embeddings import load_encoder
from condvne.data.results import Scores
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.text.language_model import load_tokenizer
from condvne.data.text.recording import local_inputs, record
from condvne.data.versions import installed_versions
from condvne.evaluation import Heading, Progress, evaluate, resolved_device
from condvne.evaluation.textpairs import cutter, reachable, repeated_prefixes, text_comparison, without_blanks
from condvne.ranks import SINGLE, Ranks


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
    with run_folder(folder, settings, versions, ranks, local_inputs(config) if ranks.main else None) as run:
        notes: list[str] = []
        records = record(config, run.path, device, progress=progress, notes=notes, ranks=ranks)
        kept = without_blanks(config.evaluation, records, notes)
        evaluation = reachable(config.evaluation, len(kept), notes)
        notes.append(repeated_prefixes(kept))
        names = [strategy.name for strategy in config.generation.strategies]
        cut = cutter(load_tokenizer(config.model), config.chunk_tokens) if config.chunk_tokens else None
        scores = evaluate(
            text_comparison(kept, names, evaluation.distinct, cut),
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
