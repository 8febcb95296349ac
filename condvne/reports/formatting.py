"""Numbers and names as people read them.

About four significant digits, more where a difference would otherwise look like zero; a true minus sign;
names free of control characters, so that none can move a terminal's cursor or turn a line's direction.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from condvne.data.results import Gap

UNDEFINED = "–"
MARKS = {"below": "▼", "above": "▲", "undecided": "·"}
_SMALLEST_DECIMALS = 6  # a value that needs more is written in scientific notation


def number(value: float, significant: int = 4) -> str:
    """`value` with about `significant` digits: 41.72, 0.9123, 12,346, 1.2e−09."""
    return _fixed(value, min(_decimals(value, significant), _SMALLEST_DECIMALS))


def spread(mean: float, std: float | None) -> str:
    """Mean ± standard deviation with common decimals ("41.72 ± 0.31"); the mean alone when there is no std."""
    if std is None:
        return number(mean)
    decimals = min(max(_decimals(mean, 4), _decimals(std, 2)), _SMALLEST_DECIMALS)
    return f"{_fixed(mean, decimals)} ± {_fixed(std, decimals)}"


def difference(gap: Gap) -> tuple[str, tuple[str, str] | None]:
    """Δ with its sign, and the ends of its interval ("−18.6", ("−19.4", "−17.8")); None without an interval.

    Estimate and ends share their decimals, and none of them is rounded to zero, nor the interval to a point.
    """
    values = [v for v in (gap.estimate, gap.low, gap.high) if v is not None]
    decimals = max(_decimals(max(values, key=abs), 3), *(_decimals(v, 1) for v in values))
    if gap.low is None or gap.high is None:
        return _signed(gap.estimate, min(decimals, _SMALLEST_DECIMALS)), None
    decimals = min(max(decimals, _decimals(gap.high - gap.low, 2)), _SMALLEST_DECIMALS)
    return _signed(gap.estimate, decimals), (_signed(gap.low, decimals), _signed(gap.high, decimals))


def bounded(value: float, low: float, high: float) -> tuple[str, tuple[str, str]]:
    """An estimate and the ends of its interval with common decimals: ("6.812", ("6.701", "6.925"))."""
    decimals = min(max(_decimals(value, 4), _decimals(high - low, 2)), _SMALLEST_DECIMALS)
    return _fixed(value, decimals), (_fixed(low, decimals), _fixed(high, decimals))


def signed(value: float, significant: int = 2) -> str:
    """A difference with its sign: −0.42, +1.3, 0."""
    return _signed(value, min(_decimals(value, significant), _SMALLEST_DECIMALS))


def percent(share: float) -> str:
    """0.95 as "95 %"."""
    return f"{100 * share:.6g}\N{NO-BREAK SPACE}%"


def count(value: int) -> str:
    """A whole number with thousands set apart: 4,000."""
    return f"{value:,}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def clean(text: str) -> str:
    """Text on one line, with control, direction-turning and lone surrogate characters written out as \\uXXXX."""
    return "".join(_visible(c) for c in " ".join(text.split()))


def shortened(text: str, width: int) -> str:
    """At most `width` characters, the middle replaced by an ellipsis."""
    text = clean(text)
    if len(text) <= width:
        return text
    head = (width - 1) * 3 // 5
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def distinct(names: Iterable[str]) -> bool:
    """Whether no two names are the same."""
    names = list(names)
    return len(set(names)) == len(names)


def _visible(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cs") or unicodedata.bidirectional(character) in _TURNING:
        return f"\\u{ord(character):04x}"
    return character


_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def _decimals(value: float, significant: int) -> int:
    """Decimals that show `significant` digits of value; 0 for zero."""
    if value == 0:
        return 0
    exponent = int(f"{value:.{significant - 1}e}".partition("e")[2])  # after rounding: 0.0997 counts as 0.10
    return max(0, significant - 1 - exponent)


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if value == 0:
        text = "0"
    elif float(text.replace(",", "")) == 0 or (decimals == _SMALLEST_DECIMALS and abs(value) < 10 ** (1 - decimals)):
        text = f"{value:.1e}"
    return text.replace("-", "\N{MINUS SIGN}")


def _signed(value: float, decimals: int) -> str:
    return ("+" if value > 0 else "") + _fixed(value, decimals)
