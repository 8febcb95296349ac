"""How messages name and count many things."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[object], shown: int = 5) -> str:
    """The first `shown` names, comma-separated, and the count of the rest, e.g. "a, b and 3 more"."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(str(name) for name in names[:shown]) + more


def counted(value: int, noun: str) -> str:
    """A whole number with its noun: "1 group", "4,000 conditions"."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
