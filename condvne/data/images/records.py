"""Image pair records: one JSON object a line, an image of a group under a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condvne.data.images.checking import Checked
from condvne.data.images.sources import Source
from condvne.data.records import note_id, read_jsonl, require_field
from condvne.errors import DataError


@dataclass(frozen=True)
class ImageRecord:
    """One pair.

    Attributes:
        id: "GROUP/ROW"; rows of all groups with one number stand under one condition.
        condition: caption or class as it is matched.
        text: the condition in words.
        group: name of the group.
        image: where it lies, with its digest, size and what decoding changed.
    """

    id: str
    condition: str
    text: str
    group: str
    image: Checked

    def to_json(self) -> dict[str, Any]:
        """The flat form of a line."""
        return {
            "id": self.id,
            "condition": self.condition,
            "text": self.text,
            "group": self.group,
            "image": self.image.source.name,
            "source": self.image.source.to_json(),
            "digest": self.image.digest,
            "width": self.image.width,
            "height": self.image.height,
            "conversions": list(self.image.conversions),
        }

    @classmethod
    def from_json(cls, flat: Mapping[str, Any], where: str) -> ImageRecord:
        """Read the flat form. Raises DataError, beginning with `where`, for missing or unusable fields."""
        fields = ("id", "condition", "text", "group", "source", "digest", "width", "height", "conversions")
        values = {name: require_field(flat, name, where) for name in fields}
        try:
            source = Source(**values["source"])
        except TypeError as error:
            raise DataError(f"{where}: field 'source' names no image ({error}).") from error
        image = Checked(source, values["digest"], values["width"], values["height"], tuple(values["conversions"]))
        return cls(values["id"], values["condition"], values["text"], values["group"], image)


def read_image_records(path: str | Path) -> list[ImageRecord]:
    """All image records of a JSONL file, in its order.

    Raises DataError as `read_jsonl`, and for ids that come twice.
    """
    records = []
    lines: dict[str, str] = {}
    for number, flat in read_jsonl(path):
        record = ImageRecord.from_json(flat, f"{path}:{number}")
        note_id(lines, record.id, f"line {number}", f"{path}:{number}")
        records.append(record)
    return records


def grouped(records: Sequence[ImageRecord]) -> dict[str, list[ImageRecord]]:
    """Records by group, in their order."""
    found: dict[str, list[ImageRecord]] = {}
    for record in records:
        found.setdefault(record.group, []).append(record)
    return found
