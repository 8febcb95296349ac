"""Small real corpora and configurations for end-to-end tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from tests.models import save_tiny

SUBJECTS = ("The parser", "A function", "This module", "Every tensor", "The model", "An array", "Each process")
VERBS = ("returns", "holds", "reads", "copies", "checks", "reduces", "prints")
OBJECTS = ("the sum of all rows", "a list of names", "no value at all", "one row of the table", "its own arguments")


def write_corpus(path: Path, documents: int = 120, paragraphs: int = 1) -> Path:
    """JSONL documents whose paragraphs pass the default thresholds of 500 characters and three sentences."""
    draw = random.Random(0)

    def paragraph() -> str:
        return " ".join(f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}." for _ in range(16))

    lines = [
        json.dumps({"id": f"doc{i}", "text": "\n\n".join(paragraph() for _ in range(paragraphs))})
        for i in range(documents)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def gap_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """Settings of a small gap run: corpus and a random GPT-NeoX are made in `folder`."""
    corpus = folder / "corpus.jsonl"
    model = folder / "model"
    if not corpus.exists():
        write_corpus(corpus)
    if not model.exists():
        save_tiny(model)
    settings: dict[str, Any] = {
        "name": "tiny",
        "seed": 6,  # whose 80 records have no continuation of control characters alone
        "device": "cpu",
        "corpus": {"source": "files", "paths": [str(corpus)]},
        "pairs": {"count": 80},
        "model": {"path": str(model)},
        "encoder": {"kind": "hashed_ngrams", "dimension": 64},
        "evaluation": {"sizes": [20, 40, 80], "repeats": 3, "empty_texts": "drop", "robustness_size": 40},
    }
    return settings | changes


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path
