"""WebDataset tars: members of one stem belong together; images are read in place, nothing is unpacked."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from condvne.data.images.sources import SUFFIXES, ListedImage, Listing, Source
from condvne.data.listing import listed
from condvne.data.records import parse_object, require_field
from condvne.errors import DataError

_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst")


def list_shards(shards: Sequence[Path], condition: str, field: str | None) -> Listing:
    """The images of tars, each under the text of its member `condition` (cls, txt, caption, json with `field`, …).

    Raises DataError naming tar and stem for compressed or torn tars, images without a condition and two images of one
    stem.
    """
    if condition == "json" and field is None:
        raise DataError("a json member holds many values; name the field of the condition (field).")
    listing = Listing()
    without = []
    for shard in shards:
        for stem, members in _samples(shard):
            images = [m for suffix, m in members.items() if f".{suffix.lower()}" in SUFFIXES]
            if not images:
                without.append(f"{shard.name}::{stem}")
                continue
            if len(images) > 1:
                raise DataError(f"{shard}::{stem}: has {len(images)} images; a sample must have one.")
            if condition not in members:
                raise DataError(
                    f"{shard}::{stem}: has no member .{condition} with the condition, "
                    f"only {', '.join(sorted(members))}."
                )
            text = _condition(shard, stem, members[condition], condition, field)
            image = images[0]
            source = Source(str(shard), offset=image.offset_data, size=image.size, member=image.name)
            listing.images.append(ListedImage(text, source))
    if without:
        listing.notes.append(f"{len(without)} samples without an image were passed over ({listed(without)})")
    if not listing.images:
        raise DataError(f"{listed([str(shard) for shard in shards])}: hold no images.")
    return listing


def _samples(shard: Path) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Stems and, by what follows their first dot, their members."""
    if shard.suffix.lower() in _COMPRESSED:
        raise DataError(f"{shard}: is compressed, so its images cannot be read in place; unpack it to a plain .tar.")
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                if not member.isfile() or name.startswith("."):
                    continue
                first, _, suffix = name.partition(".")
                held = samples.setdefault(f"{folder}/{first}" if folder else first, {})
                if suffix in held:
                    raise DataError(f"{shard}::{member.name}: comes twice in the tar; names of samples must differ.")
                held[suffix] = member
        _check_length(shard, samples)
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{shard}: cannot be read as a tar ({error}); copy or download it again.") from error
    yield from samples.items()


def _check_length(shard: Path, samples: dict[str, dict[str, tarfile.TarInfo]]) -> None:
    length = shard.stat().st_size
    for members in samples.values():
        for member in members.values():
            if member.offset_data + member.size > length:
                raise DataError(f"{shard}::{member.name}: the tar ends inside it; copy or download the tar again.")


def _condition(shard: Path, stem: str, member: tarfile.TarInfo, suffix: str, field: str | None) -> str:
    with shard.open("rb") as file:
        file.seek(member.offset_data)
        data = file.read(member.size)
    where = f"{shard}::{member.name}"
    try:
        text = data.decode("utf-8").removeprefix("\ufeff").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: is not valid UTF-8 ({error.reason}).") from error
    if suffix != "json":
        return text
    assert field is not None
    value = require_field(parse_object(text, where), field, where)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise DataError(f"{where}: field {field!r} must be a text or a class index, not {type(value).__name__}.")
    return str(value).strip()
