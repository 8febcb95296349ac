"""Terms are found whole, in any case, longest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from condvne.data.text.lexicons import LEXICONS, Lexicon, load_lexicon
from condvne.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Niger, not Nigeria; NIGER.", {"Niger": 2, "Nigeria": 1}),
        ("South\n Sudan and Sudan", {"South Sudan": 1, "Sudan": 1}),
        ("Guinea-Bissau borders Guinea", {"Guinea-Bissau": 1, "Guinea": 1}),
        ("Chadwick, Omani, Perus", {}),
        ("(Chad)—Peru's", {"Chad": 1, "Peru": 1}),
        ("", {}),
    ],
)
def test_countries(text: str, found: dict[str, int]) -> None:
    assert load_lexicon("countries").counts(text) == found


def test_only_what_ends_behind_the_beginning_counts() -> None:
    lexicon = load_lexicon("countries")
    text = "Peru and South" + " Korea"
    assert lexicon.counts(text, len("Peru and South")) == {"South Korea": 1}
    assert lexicon.counts(text) == {"Peru": 1, "South Korea": 1}


@pytest.mark.parametrize("name", LEXICONS)
def test_lists_are_clean(name: str) -> None:
    lexicon = load_lexicon(name)
    assert len(lexicon.terms) == len(LEXICONS[name]) >= 60
    for term in lexicon.terms:
        assert lexicon.counts(f"a {term}.") == {term: 1}


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "tools.txt"
    path.write_text("# tools\nclaw  hammer\nhammer # plain\n\nC++\n", encoding="utf-8-sig")
    lexicon = load_lexicon(str(path))
    assert (lexicon.name, lexicon.terms) == ("tools", ("claw hammer", "hammer", "C++"))
    assert lexicon.counts("a Claw Hammer, a hammer, c++") == {"claw hammer": 1, "hammer": 1, "C++": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [("# nothing\n", "holds no terms"), ("owl\nOwl\n", "differ in case only"), (None, "neither one of countries")],
)
def test_lexicons_that_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "mine.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_lexicon(str(path))


def test_equal_terms_count_once() -> None:
    assert Lexicon("a", ["owl", "owl"]).terms == ("owl",)
