"""Diversity profiles of sets of items: which is more diverse, at which parameters, and how sure that is (paper B)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.comparison import Comparison, compare, told
from condvne.core.contrast import DistanceContrast, distance_contrast, saturated_share, saturation_warning
from condvne.core.diversity import average_distance, richness
from condvne.core.families import Energy, Family, as_family, default_grid
from condvne.core.items import ItemSet, item_sets
from condvne.core.profiles import Profile, profile
from condvne.data.config import plain_settings
from condvne.data.config.profile import FamilyName, ProfileConfig
from condvne.data.curves import (
    Curve,
    CurveComparison,
    CurveCrossing,
    DistanceHistogram,
    FamilyCurves,
    Parameter,
    ProfileStudy,
    SingleScores,
)
from condvne.data.encoders import load_encoder
from condvne.data.fingerprints import files_fingerprint, fingerprint
from condvne.data.images.encoding import ContentEncoder
from condvne.data.images.folders import image_files
from condvne.data.images.models import load_image_model
from condvne.data.images.sources import Source, content_digest
from condvne.data.items import Item, drawn, read_items
from condvne.data.listing import counted, listed
from condvne.data.molecules import fingerprints
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.versions import installed_versions
from condvne.errors import DataError
from condvne.evaluation import Embedder, Progress, resolved_device
from condvne.ranks import SINGLE

LEAST_FOR_BANDS = 4  # items: halves of fewer have no distances


def measure_profiles(config: ProfileConfig, folder: str | Path, *, progress: Progress) -> ProfileStudy:
    """Curves of every set and family, and comparisons of every pair; written to `folder/profile.json`.

    Raises:
        DataError: sets that cannot be read, hold fewer than two items, or something that is no text, image or SMILES.
        InputError: representations without a distance.
        ConfigError: encoders that are not there.
        RunError: the folder is of another configuration or state of the files.
    """
    inputs = {source.path: _fingerprint(Path(source.path)) for source in config.sets.values()}
    with run_folder(folder, plain_settings(config), installed_versions(), SINGLE, inputs) as run:
        notes, warnings = list(run.notes), list[str]()
        features = _features(config, run.path / "embeddings", progress, notes, warnings)
        study = profiled(config, features, progress, notes, warnings)
        write_whole(run.path / "profile.json", study.model_dump_json(indent=1) + "\n")
    return study


def profiled(
    config: ProfileConfig, features: Mapping[str, Tensor], progress: Progress, notes: list[str], warnings: list[str]
) -> ProfileStudy:
    """The study of sets whose features (n, d) are known."""
    sets = list(item_sets(features, config.metric).values())
    sizes = {items.n for items in sets}
    if len(sizes) > 1:
        numbers = ", ".join(f"{items.name} {items.n}" for items in sets)
        warnings.append(f"The sets have different numbers of items ({numbers}), and scores grow with that number.")
    families, by_pair = [], dict[tuple[str, str], list[Comparison]]()
    for k, key in enumerate(config.families):
        progress("families", k, len(config.families))
        family = _usable(key, config, sets, warnings)
        if family is None:
            continue
        curves = _curves(family, config, sets)
        warnings += [text for text in map(saturation_warning, curves) if text]
        comparisons = [compare(a, b) for a, b in itertools.combinations(curves, 2)]
        for comparison in comparisons:
            by_pair.setdefault(comparison.names, []).append(comparison)
        families.append(_family(key, family, curves, comparisons))
    progress("families", len(config.families), len(config.families))
    return ProfileStudy(
        title=config.name,
        kind=config.kind,
        representation=sets[0].representation,
        singles=[_single(items) for items in sets],
        families=families,
        histograms=[_histogram(items.name, distance_contrast(items.distances)) for items in sets],
        sentences=[told(comparisons, config.confidence) for comparisons in by_pair.values()],
        warnings=warnings,
        notes=notes,
        confidence=config.confidence,
        resamples=_resamples(config, sets),
        settings=plain_settings(config),
        seed=config.seed,
    )


def _features(
    config: ProfileConfig, cache: Path, progress: Progress, notes: list[str], warnings: list[str]
) -> dict[str, Tensor]:
    """Features (n, d) of the items drawn from each set."""
    if config.kind == "images":
        return _image_features(config, cache, progress, notes)
    whole = {name: read_items(name, source, warnings) for name, source in config.sets.items()}
    rows = _rows({name: len(items) for name, items in whole.items()}, config, notes)
    found = {name: [items[k] for k in rows[name]] for name, items in whole.items()}
    if config.kind == "smiles":
        return {name: fingerprints(items, config.fingerprint) for name, items in found.items()}
    assert config.encoder is not None  # checked by the configuration
    device = resolved_device(config.device)
    embedder = Embedder(load_encoder(config.encoder, device), cache, device, progress, notes, warnings)
    return {name: _vectors(embedder, name, items) for name, items in found.items()}


def _vectors(embedder: Embedder, name: str, items: Sequence[Item]) -> Tensor:
    return embedder.vectors(name, [item.text for item in items], [item.where for item in items]).double()


def _image_features(config: ProfileConfig, cache: Path, progress: Progress, notes: list[str]) -> dict[str, Tensor]:
    whole: dict[str, list[str]] = {}
    for name, source in config.sets.items():
        found, others = image_files(Path(source.path))
        if len(found) < 2:
            has = counted(len(found), "image")
            raise DataError(f"{source.path}: set {name!r} has {has}; a profile needs at least two.")
        if others:
            notes.append(f"{name}: {len(others)} other files were passed over ({listed(others)})")
        whole[name] = found
    rows = _rows({name: len(found) for name, found in whole.items()}, config, notes)
    files = {name: [found[k] for k in rows[name]] for name, found in whole.items()}
    places: dict[str, Source] = {}
    digests: dict[str, list[str]] = {}
    for name, paths in files.items():
        held = [(content_digest(Source(path).content()), Source(path)) for path in paths]
        digests[name] = [digest for digest, _ in held]
        places |= dict(held)
    chosen, device = config.image_encoder, resolved_device(config.device)
    assert chosen is not None  # checked by the configuration
    encoder = ContentEncoder(
        load_image_model(chosen, device), places, config.decoding, batch_size=chosen.batch_size,
        workers=chosen.workers, prefetch=chosen.prefetch, normalize=chosen.normalize,
    )  # fmt: skip
    embedder = Embedder(encoder, cache, device, progress, notes)
    return {name: embedder.vectors(name, held, files[name], noun="images").double() for name, held in digests.items()}


def _rows(counts: Mapping[str, int], config: ProfileConfig, notes: list[str]) -> dict[str, list[int]]:
    """Which items of each set are taken: as many of each as asked for or, at equal sizes, as the smallest set has."""
    least = min(counts.values())
    wanted = config.items if not config.equal_sizes else min(config.items or least, least)
    rows = {name: drawn(count, wanted, config.seed, name) for name, count in counts.items()}
    smallest = config.equal_sizes and wanted == least and len(set(counts.values())) > 1
    for name, count in counts.items():
        reason = ", as many as the smallest set has" if smallest and count > least else ""
        notes.append(f"{name}: {len(rows[name])} of {counted(count, 'item')}{reason}")
    return rows


def _fingerprint(path: Path) -> str | None:
    if not path.exists():
        raise DataError(f"{path}: is not there; name a file or a folder that is.")
    return fingerprint(path) if path.is_dir() else files_fingerprint([path])


def _usable(key: FamilyName, config: ProfileConfig, sets: Sequence[ItemSet], warnings: list[str]) -> Family | None:
    """The family, or None (with a warning) for energies of sets with copies and no least distance.

    Raises DataError where it is the only one.
    """
    family = as_family(key)
    if not isinstance(family, Energy):
        return family
    copies = [items.name for items in sets if bool((items.checked.pairs <= 0).any())]
    if copies and config.epsilon is None:
        if len(config.families) == 1:
            raise DataError(
                f"energy has no value where items are at distance zero, as in {listed(copies)} (copies, or equal to "
                "the encoder); give epsilon, a least distance, or another family."
            )
        warnings.append(
            f"Energy was left out, since items of {listed(copies)} are at distance zero, copies or equal to the "
            "encoder; give epsilon, a least distance, to keep it."
        )
        return None
    return replace(family, epsilon=config.epsilon)


def _resamples(config: ProfileConfig, sets: Sequence[ItemSet]) -> int:
    return config.resamples if min(items.n for items in sets) >= LEAST_FOR_BANDS else 0


def _curves(family: Family, config: ProfileConfig, sets: Sequence[ItemSet]) -> list[Profile]:
    grid = default_grid(family, *sets, points=config.points)
    resamples = _resamples(config, sets)
    size = min(items.n for items in sets) // 2 if resamples else None
    return [
        profile(
            items, family, grid, resamples=resamples, resample_size=size, confidence=config.confidence,
            generator=torch.Generator().manual_seed(config.seed + k),
        )
        for k, items in enumerate(sets)
    ]  # fmt: skip


def _family(key: str, family: Family, curves: Sequence[Profile], comparisons: Sequence[Comparison]) -> FamilyCurves:
    grid = curves[0].grid
    return FamilyCurves(
        key=key,
        title=family.title,
        parameter=family.parameter,
        symbol=family.symbol,
        grid=[_parameter(p) for p in grid],
        # Grids of all but thresholds are geometric: their places are even on a logarithmic axis, and infinity has one.
        positions=[p if family.from_zero else float(k) for k, p in enumerate(grid)],
        curves=[_curve(curve) for curve in curves],
        comparisons=[_comparison(comparison) for comparison in comparisons],
    )


def _curve(found: Profile) -> Curve:
    full, single = saturated_share(found)
    return Curve(
        group=found.name,
        n=found.n,
        values=found.values.tolist(),
        ceilings=found.ceilings.tolist(),
        lower=None if found.lower is None else found.lower.tolist(),
        upper=None if found.upper is None else found.upper.tolist(),
        full=full,
        single=single,
    )


def _comparison(found: Comparison) -> CurveComparison:
    return CurveComparison(
        first=found.names[0],
        second=found.names[1],
        verdict=found.verdict,
        crossings=[
            CurveCrossing(lower=_parameter(c.lower), upper=_parameter(c.upper), at=_parameter(c.at), before=c.before)
            for c in found.crossings
        ],
        above=found.share_above,
        below=found.share_below,
        undecided=found.share_undecided,
        lead_above=found.lead_above,
        lead_below=found.lead_below,
        confidence=found.confidence,
        support=None if found.support is None else dict(found.support),
    )


def _parameter(value: float) -> Parameter:
    return "inf" if math.isinf(value) else value


def _histogram(name: str, found: DistanceContrast) -> DistanceHistogram:
    return DistanceHistogram(
        group=name,
        edges=found.edges.tolist(),
        shares=(found.counts / found.counts.sum()).tolist(),
        mean=found.mean,
        std=found.std,
        relative_contrast=found.relative_contrast if math.isfinite(found.relative_contrast) else None,
    )


def _single(items: ItemSet) -> SingleScores:
    return SingleScores(
        group=items.name,
        n=items.n,
        richness=float(richness(items.distances)),
        average_distance=float(average_distance(items.distances)),
    )
