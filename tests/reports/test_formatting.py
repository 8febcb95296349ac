from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condvne.data.listing import counted
from condvne.data.results import Direction, Gap
from condvne.reports.formatting import clean, difference, distinct, listed, number, shortened, signed, spread


def gap(estimate: float, low: float | None, high: float | None) -> Gap:
    direction: Direction = "undecided"
    return Gap(estimate=estimate, low=low, high=high, confidence=0.95, direction=direction)


def value_of(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (41.7234, "41.72"),
        (0.91234, "0.9123"),
        (12345.6, "12,346"),
        (0.0, "0"),
        (-3.14159, "−3.142"),
        (9.99996, "10.00"),
        (1.234e-9, "1.2e−09"),
    ],
)
def test_number_has_about_four_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (41.7234, 0.3111, "41.72 ± 0.31"),
        (41.7234, 3.2, "41.72 ± 3.20"),
        (0.91234, 0.00012, "0.91234 ± 0.00012"),
        (41.7234, None, "41.72"),
        (41.7234, 0.0, "41.72 ± 0"),
        (41.7234, 1.2e-15, "41.723400 ± 1.2e−15"),
    ],
)
def test_spread_shares_decimals_and_shows_the_deviation(mean: float, std: float | None, text: str) -> None:
    assert spread(mean, std) == text


def test_difference_shares_decimals() -> None:
    assert difference(gap(-18.604, -19.402, -17.801)) == ("−18.6", ("−19.4", "−17.8"))
    assert difference(gap(0.4, None, None)) == ("+0.400", None)
    assert difference(gap(0.0, 0.0, 0.0)) == ("0", ("0", "0"))


def test_a_small_end_is_not_rounded_to_zero_nor_an_interval_to_a_point() -> None:
    assert difference(gap(-5.0, -10.0, -0.0004)) == ("−5.0000", ("−10.0000", "−0.0004"))
    delta, ends = difference(gap(18.6, 18.5999, 18.6001))
    assert ends is not None
    assert len({delta, *ends}) == 3
    assert difference(gap(0.0, 0.0, 1.383e-6)) == ("0", ("0", "+1.4e−06"))


FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@settings(deadline=None)
@given(FINITE, FINITE, FINITE)
def test_signs_survive_formatting(low: float, estimate: float, high: float) -> None:
    low, estimate, high = sorted((low, estimate, high))
    delta, ends = difference(gap(estimate, low, high))
    assert ends is not None
    for text, value in zip((delta, *ends), (estimate, low, high), strict=True):
        shown = value_of(text)
        assert (shown > 0, shown < 0) == (value > 0, value < 0)
        assert text.startswith("+") == (value > 0)
        assert abs(shown - value) <= max(0.05 * abs(value), 5e-4 * max(abs(low), abs(high)))


@settings(deadline=None)
@given(FINITE)
def test_signed_numbers_keep_their_sign(value: float) -> None:
    shown = value_of(signed(value))
    assert (shown > 0, shown < 0) == (value > 0, value < 0)
    assert shown == pytest.approx(value, rel=0.06)


def test_control_and_turning_characters_become_visible() -> None:
    assert clean("a\r\n\tb") == "a b"
    assert clean("\x1b[31mred\x07") == "\\u001b[31mred\\u0007"
    assert clean("\u202eabc\u2069\u2066") == "\\u202eabc\\u2069\\u2066"
    assert clean("a\ud800") == "a\\ud800"
    assert clean("مجموعة 日本 é") == "مجموعة 日本 é"


def test_words() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert [counted(1, "group"), counted(4000, "condition")] == ["1 group", "4,000 conditions"]


@settings(deadline=None)
@given(st.text(alphabet="abc-", max_size=60), st.integers(5, 30))
def test_shortened_names_fit_and_keep_their_ends(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) <= width
    if len(text) <= width:
        assert short == text
    else:
        head, tail = short.split("…")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert tail


def test_distinct() -> None:
    assert distinct(["a", "b"])
    assert not distinct(["a", "a"])
