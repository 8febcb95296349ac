"""Write small real sets for `condvne profile`: sentences of documentation, digits, molecules; no network needed.
Usage: python scripts/make_profile_sets.py runs/profile-sets

texts.jsonl: first sentences of the documentation of NumPy, SciPy and PyTorch, and sentences of one module alone.
digits/: scikit-learn's digits of all classes, and of the class one alone. molecules: well-known drugs, and homologous
series (alkanes, alcohols, acids, amines).
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import random
from pathlib import Path
from typing import Annotated

import typer

from condvne.data.storage import write_whole
from condvne.errors import CondvneError

MODULES = {"library": ("numpy", "scipy.stats", "scipy.signal", "torch"), "one module": ("scipy.special",)}
DRUGS = Path(__file__).resolve().parent.parent / "configs" / "drugs.smi"  # fifty well-known ones
SERIES = {"alkane": "{}", "alcohol": "{}O", "acid": "{}C(=O)O", "amine": "{}N", "ketone": "{}C(C)=O"}
LENGTHS = range(3, 13)


def sentences(modules: tuple[str, ...]) -> list[str]:
    """First sentences of the docstrings of public functions and classes, distinct, in the order of their names."""
    found: dict[str, None] = {}
    for name in modules:
        module = importlib.import_module(name)
        for public in sorted(getattr(module, "__all__", None) or dir(module)):
            value = getattr(module, public, None)
            if public.startswith("_") or not callable(value):
                continue
            text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
            sentence = text.split(". ")[0]
            if 30 <= len(sentence) <= 200 and sentence.isprintable() and "(" not in sentence[:20]:
                found[sentence] = None
    return list(found)


def write_texts(folder: Path) -> None:
    """As many sentences of each set, a line each."""
    sets = {name: sentences(modules) for name, modules in MODULES.items()}
    count = min(len(held) for held in sets.values())
    lines = [
        json.dumps({"set": name, "text": text})
        for name, held in sets.items()
        for text in random.Random(0).sample(held, count)
    ]
    write_whole(folder / "texts.jsonl", "\n".join(lines) + "\n")


def write_digits(folder: Path) -> None:
    """120 images of all classes, and 120 of the class one."""
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits()
    rows = {"all": list(range(120)), "ones": [i for i, label in enumerate(data.target) if label == 1][:120]}
    for name, chosen in rows.items():
        (folder / "digits" / name).mkdir(parents=True, exist_ok=True)
        for i in chosen:
            buffer = io.BytesIO()
            Image.fromarray((data.images[i] * (255 / 16)).round().astype("uint8")).save(buffer, format="PNG")
            write_whole(folder / "digits" / name / f"{i:04d}.png", buffer.getvalue())


def write_molecules(folder: Path) -> None:
    """A SMILES and a name a line."""
    series = [f"{pattern.format('C' * n)} {name}-{n}" for name, pattern in SERIES.items() for n in LENGTHS]
    write_whole(folder / "drugs.smi", DRUGS.read_bytes())
    write_whole(folder / "series.smi", "\n".join(series) + "\n")


def main(out: Annotated[Path, typer.Argument(help="folder for the sets")]) -> None:
    """Write all sets."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_texts(out)
        write_digits(out)
        write_molecules(out)
    except CondvneError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
