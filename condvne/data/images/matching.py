"""Images of all groups under the same conditions: what is unbalanced is refused or trimmed, and always reported."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from condvne.data.config.images import Matching
from condvne.data.images.checking import Checked, Checker
from condvne.data.images.sources import ListedImage, Listing, Source
from condvne.data.listing import listed
from condvne.data.seeding import seeded_key
from condvne.errors import DataError

_Images = dict[str, list[Checked]]  # by condition


@dataclass(frozen=True)
class Matched:
    """N pairs for each group under the same conditions in the same order.

    Attributes:
        conditions: (N,), repeated for each image of a condition.
        images: for each group N images.
        notes: what was left out, trimmed or converted.
    """

    conditions: list[str]
    images: dict[str, list[Checked]]
    notes: list[str]


def match(
    groups: Mapping[str, Listing],
    settings: Matching,
    checker: Checker,
    seed: int,
    *,
    faulty: str,
    progress: Callable[[str, int, int], None],
) -> Matched:
    """Choose the same number of good images of every condition in every group, at random by the seed.

    Where a condition has more images than are used, an image that does not decode is replaced by another of its
    condition and group. Only images that may be used are decoded.

    Raises DataError: groups whose conditions or numbers of images differ (`unbalanced: refuse`), images that do not
    decode (`faulty: refuse`), and nothing left.
    """
    notes = [note for listing in groups.values() for note in listing.notes]
    listed_by = {name: _by_condition(listing.images, name, seed) for name, listing in groups.items()}
    wanted = balanced_counts(groups, settings, notes)
    wanted = _drawn_rows(wanted, settings.rows, seed, notes)
    good: dict[str, _Images] = {}
    faults: dict[str, list[str]] = {}
    for name, by_condition in listed_by.items():
        good[name], faults[name] = _good_images(name, by_condition, wanted, checker, progress)
    _report_faults(faults, checker, faulty, notes)
    kept = _enough(good, wanted, notes)
    conditions = [condition for condition, count in kept.items() for _ in range(count)]
    images = {name: [image for c, count in kept.items() for image in held[c][:count]] for name, held in good.items()}
    if not conditions:
        raise DataError(f"no condition has an image in every group ({'; '.join(notes)}).")
    notes += [note for name, chosen in images.items() for note in _conversion_notes(name, chosen)]
    notes += _balance_note(kept)
    return Matched(conditions, images, notes)


def _by_condition(images: Sequence[ListedImage], group: str, seed: int) -> dict[str, list[Source]]:
    """Sources of each condition in seeded order."""
    found: dict[str, list[Source]] = {}
    for image in images:
        found.setdefault(image.condition, []).append(image.source)
    keys = {source: seeded_key(seed, "image", group, source.name) for held in found.values() for source in held}
    return {condition: sorted(held, key=keys.__getitem__) for condition, held in found.items()}


def balanced_counts(groups: Mapping[str, Listing], settings: Matching, notes: list[str]) -> dict[str, int]:
    """How many images of each condition all groups give, in the order of the first group's conditions.

    What is trimmed is added to `notes`. Raises DataError where counts differ and are not to be trimmed.
    """
    held = {name: Counter(image.condition for image in listing.images) for name, listing in groups.items()}
    everywhere = dict.fromkeys(condition for by in held.values() for condition in by)
    counts = {c: {name: by[c] for name, by in held.items()} for c in everywhere}
    limit = settings.per_condition
    capped = {c: {name: n if limit is None else min(n, limit) for name, n in by.items()} for c, by in counts.items()}
    wanted = {c: min(by.values()) for c, by in capped.items()}
    uneven = [c for c, by in capped.items() if len(set(by.values())) > 1 or (limit is not None and wanted[c] < limit)]
    if uneven:
        described = _described(uneven, counts)
        if settings.unbalanced == "refuse":
            remedy = "matching.unbalanced: trim keeps what all groups have"
            if limit is None and (shared := min(wanted.values())) > 0:
                remedy += f", matching.per_condition: {shared} draws equally many of each"
            raise DataError(
                f"{len(uneven)} of {len(everywhere)} conditions are unbalanced across groups: {described}; {remedy}."
            )
        absent = sum(wanted[c] == 0 for c in uneven)
        notes.append(
            f"{len(uneven)} of {len(everywhere)} conditions are unbalanced across groups and were trimmed to what all "
            f"groups have, {absent} of them left out: {described}"
        )
    unused = {name: sum(by[name] for by in counts.values()) - sum(wanted.values()) for name in groups}
    if any(unused.values()) and not uneven:
        parts = [f"{count} of {name}" for name, count in unused.items() if count]
        notes.append(f"images beyond {limit} of a condition were not drawn: {listed(parts)}")
    return {condition: count for condition, count in wanted.items() if count}


def _described(conditions: Sequence[str], counts: Mapping[str, Mapping[str, int]]) -> str:
    shown = [f"{_short(c)} has {listed([f'{n} in {name}' for name, n in counts[c].items()], 8)}" for c in conditions]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return "; ".join(shown[:5]) + more


def _drawn_rows(wanted: dict[str, int], rows: int | None, seed: int, notes: list[str]) -> dict[str, int]:
    total = sum(wanted.values())
    if rows is None or rows >= total:
        if rows is not None and rows > total:
            notes.append(f"matching.rows asks for {rows} pairs, but there are {total}")
        return wanted
    pairs = [(condition, place) for condition, count in wanted.items() for place in range(count)]
    drawn = Counter(c for c, _ in heapq.nsmallest(rows, pairs, key=lambda pair: seeded_key(seed, "row", *pair)))
    notes.append(f"{rows} of {total} pairs were drawn at random")
    return {condition: drawn[condition] for condition in wanted if drawn[condition]}


def _good_images(
    name: str,
    by_condition: Mapping[str, Sequence[Source]],
    wanted: Mapping[str, int],
    checker: Checker,
    progress: Callable[[str, int, int], None],
) -> tuple[_Images, list[str]]:
    """Good images of each condition, as many as wanted where there are, and names of those that failed."""
    good: _Images = {condition: [] for condition in wanted}
    failed: list[str] = []
    tried = dict.fromkeys(wanted, 0)
    while True:
        pending = {
            c: by_condition[c][tried[c] : tried[c] + count - len(good[c])]
            for c, count in wanted.items()
            if len(good[c]) < count and tried[c] < len(by_condition[c])
        }
        if not pending:
            return good, failed
        sources = [source for held in pending.values() for source in held]
        found = checker.check(sources, lambda done, total: progress(f"checking {name}", done, total))
        for condition, held in pending.items():
            tried[condition] += len(held)
            good[condition] += [found[source] for source in held if source in found]
            failed += [source.name for source in held if source not in found]


def _report_faults(faults: Mapping[str, list[str]], checker: Checker, faulty: str, notes: list[str]) -> None:
    for name, failed in faults.items():
        if not failed:
            continue
        reasons = "; ".join(checker.faults[image].rstrip(".") for image in failed[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        if faulty == "refuse":
            raise DataError(
                f"group {name!r}: {len(failed)} images cannot be used: {reasons}{more}; decoding.faulty: drop leaves "
                "such images out."
            )
        notes.append(f"group {name}: {len(failed)} images cannot be used and were left out: {reasons}{more}")


def _enough(good: Mapping[str, _Images], wanted: Mapping[str, int], notes: list[str]) -> dict[str, int]:
    """Images of each condition after faulty ones are gone, the same number in every group."""
    kept = {c: min(len(held[c]) for held in good.values()) for c in wanted}
    short = [c for c in wanted if kept[c] < wanted[c]]
    if short:
        lost = sum(wanted[c] - kept[c] for c in short)
        notes.append(
            f"images that cannot be used have no replacement under {len(short)} conditions "
            f"({listed([_short(c) for c in short])}): {lost} pairs were left out of all groups"
        )
    return {c: count for c, count in kept.items() if count}


def _conversion_notes(name: str, images: Sequence[Checked]) -> list[str]:
    counts = Counter(conversion for image in images for conversion in image.conversions)
    if not counts:
        return []
    return [f"group {name}: converted to RGB, {listed([f'{n} images ({what})' for what, n in counts.most_common()])}"]


def _balance_note(kept: Mapping[str, int]) -> list[str]:
    """Conditions of different weight, equal in all groups, are no fault but change what the score means."""
    fewest, most = min(kept.values()), max(kept.values())
    if fewest == most:
        return []
    return [
        f"conditions weigh differently, the same in every group: {fewest} to {most} images over {len(kept)} conditions"
    ]


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
