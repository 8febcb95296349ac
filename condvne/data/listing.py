"""How messages name many things: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[object], shown: int = 5) -> str:
    """The first `shown` names, comma-separated, and the count of the rest, e.g. "a, b and 3 more"."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(str(name) for name in names[:shown]) + more
