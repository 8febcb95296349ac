"""Guided and unguided images side by side: a row a caption, the same seeds in the same columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from condvne.data.storage import write_whole

GAP = 12  # pixels between the groups


def write_grid(path: Path, rows: Mapping[str, Sequence[Sequence[Path]]], titles: Sequence[str], side: int) -> None:
    """A PNG of one block a title, left to right; `rows` holds for each caption the images of each block.

    Images are scaled to `side` × `side` pixels, small ones without smoothing.
    """
    from PIL import Image, ImageDraw

    count = max((len(block) for blocks in rows.values() for block in blocks), default=0)
    top, label = 16, 14
    width = len(titles) * (count * side + GAP) - GAP
    sheet = Image.new("RGB", (max(width, 1), top + len(rows) * (side + label)), "white")
    draw = ImageDraw.Draw(sheet)
    for k, title in enumerate(titles):
        draw.text((k * (count * side + GAP), 2), title, fill="black")
    for i, (caption, blocks) in enumerate(rows.items()):
        y = top + i * (side + label)
        draw.text((0, y), _latin(caption), fill="black")
        for k, block in enumerate(blocks):
            for j, file in enumerate(block):
                with Image.open(file) as image:
                    smooth = Image.Resampling.LANCZOS if image.width > side else Image.Resampling.NEAREST
                    tile = image.convert("RGB").resize((side, side), smooth)
                sheet.paste(tile, (k * (count * side + GAP) + j * side, y + label))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    write_whole(path, buffer.getvalue())


def _latin(text: str) -> str:
    """What the built-in font can draw."""
    return text.encode("latin-1", "replace").decode("latin-1")[:120]
