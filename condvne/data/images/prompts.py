"""Captions to make images for, from a configuration, a text file, or MS-COCO's JSON."""

from __future__ import annotations

from pathlib import Path

from condvne.data.compressed import read_text
from condvne.data.config.guide import CaptionSource, ListedCaptions, TextCaptions
from condvne.data.images.captions import read_coco_captions
from condvne.errors import DataError


def read_prompts(source: CaptionSource) -> list[str]:
    """Distinct captions in their order; of a caption that comes twice the first counts.

    Raises DataError where a line is empty, where there are fewer captions than asked for, or none.
    """
    if isinstance(source, ListedCaptions):
        where, texts = "captions.texts", list(source.texts)
    elif isinstance(source, TextCaptions):
        where, texts = source.path, read_text(source.path).splitlines()
    else:
        where, texts = source.path, read_coco_captions(Path(source.path))
    empty = next((number for number, text in enumerate(texts, start=1) if not text.strip()), None)
    if empty is not None:
        raise DataError(f"{where}:{empty}: is an empty caption; remove the line.")
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    count = getattr(source, "count", None)
    if not distinct or (count is not None and len(distinct) < count):
        raise DataError(f"{where}: holds {len(distinct)} distinct captions; {count or 1} are needed.")
    return distinct[:count]
