"""The contact sheet of a run with images: rows of small pictures and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condvne.data.listing import counted
from condvne.data.pictures import ContactSheet, GroupLosses, GroupModes, Loss, Picture
from condvne.reports.findings import name
from condvne.reports.formatting import clean, count, number, shortened, signed


@dataclass(frozen=True)
class Tile:
    """One picture: its data URI, and what it shows in words."""

    source: str
    text: str


@dataclass(frozen=True)
class ModeRow:
    share: str
    tiles: list[Tile]


@dataclass(frozen=True)
class ModePanel:
    group: str
    caption: str
    rows: list[ModeRow]


@dataclass(frozen=True)
class LossRow:
    """One condition; `share` of the whole gap is "" where that is no loss."""

    condition: str
    gap: str
    share: str
    count: int
    tiles: list[Tile]
    reference_tiles: list[Tile]


@dataclass(frozen=True)
class LossPanel:
    group: str
    reference: str
    caption: str
    rows: list[LossRow]


def mode_panels(sheet: ContactSheet | None) -> list[ModePanel]:
    """The leading modes of each group; none without pictures."""
    return [_mode_panel(sheet, group) for group in sheet.modes] if sheet else []


def loss_panels(sheet: ContactSheet | None) -> list[LossPanel]:
    """For each group the conditions that lose most; none without pictures."""
    return [_loss_panel(sheet, group) for group in sheet.losses] if sheet else []


def _mode_panel(sheet: ContactSheet, group: GroupModes) -> ModePanel:
    rows = [ModeRow(percent_of(mode.share), _tiles(sheet, mode.pictures)) for mode in group.modes]
    total = percent_of(sum(mode.share for mode in group.modes))
    return ModePanel(
        group.group,
        f"{name(group.group)}: {counted(len(rows), 'mode')} with {total} of the weight (n\xa0=\xa0{count(group.n)}).",
        rows,
    )


def _loss_panel(sheet: ContactSheet, group: GroupLosses) -> LossPanel:
    gap = f"{signed(group.gap)} nats from {name(group.reference)} over {counted(group.n, 'pair')}"
    caption = f"{name(group.group)}: {gap}; {count(group.below)} of {counted(group.conditions, 'condition')} lose."
    return LossPanel(group.group, group.reference, caption, [_loss_row(sheet, group, loss) for loss in group.losses])


def _loss_row(sheet: ContactSheet, group: GroupLosses, loss: Loss) -> LossRow:
    share = f"{percent_of(loss.gap / group.gap)} of the gap" if group.gap < 0 else ""
    return LossRow(
        shortened(clean(loss.condition), 160),
        signed(loss.gap),
        share,
        loss.count,
        _tiles(sheet, loss.pictures),
        _tiles(sheet, loss.reference_pictures),
    )


def _tiles(sheet: ContactSheet, pictures: Sequence[Picture]) -> list[Tile]:
    return [Tile(sheet.thumbnails[p.thumbnail], f"{p.condition} ({p.image})") for p in pictures]


def percent_of(share: float) -> str:
    """A share as a percentage with two significant digits."""
    return f"{number(100 * share, 2)}\N{NO-BREAK SPACE}%"
