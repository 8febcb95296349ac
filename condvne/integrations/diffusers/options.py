"""Options of guidance, checked before a pipeline runs."""

from __future__ import annotations

import math
from dataclasses import replace

from condvne.core.spectral import as_number
from condvne.errors import InputError
from condvne.tasks.guidance import History, HistorySettings


def check_reachable(target: float | None, num_features: int) -> None:
    """Raises InputError for a target above the largest entropy of a sketch."""
    if target is not None and target > math.log(num_features):
        raise InputError(
            f"target {target:g} nats is out of reach: {num_features} features have an entropy of at most "
            f"{math.log(num_features):.3g}; give less, or more num_features in HistorySettings."
        )


def checked_window(start: float, stop: float, every: int) -> tuple[float, float, int]:
    """The steps at which latents move. Raises InputError where a value is out of range."""
    first, last = as_number(start), as_number(stop)
    if first is None or last is None or not 0 <= first <= last <= 1:
        raise InputError(
            f"start and stop must be shares of the steps, 0 <= start <= stop <= 1, but are {start}, {stop}."
        )
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every must be an integer of at least 1, but is {every!r}.")
    return first, last, every


def opened(history: History | HistorySettings | None, features: tuple[str, str]) -> History:
    """The history to go on with, or a new one. Raises InputError for one of other features."""
    if history is not None and not isinstance(history, History | HistorySettings):
        raise InputError(f"history must be a History or HistorySettings, but is {history!r}.")
    if not isinstance(history, History):
        return History(replace(history or HistorySettings(), features=features))
    if history.settings.features != features:
        raise InputError(
            f"the history is of the features {', '.join(history.settings.features)}, but this guide uses "
            f"{', '.join(features)}; use the same, or a new history."
        )
    return history
