"""Installed documentation, read without importing what is documented."""

from __future__ import annotations

import logging
import sys
from itertools import islice
from pathlib import Path

import pytest

from condvne.data.text.documentation import installed_documentation
from condvne.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site" / "toy_documented"
    (folder / "inner").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_a.py").write_text('"""A test."""')
    (folder / "__init__.py").write_text('"""The package."""\nraise RuntimeError("imported")\n')
    (folder / "inner" / "__init__.py").write_text('"""Inner."""')
    (folder / "broken.py").write_text("def (:\n")
    (folder / "_private.py").write_text(
        'x = "\\d"\n'  # an invalid escape, of which the parser warns
        "class A:\n"
        '    """Class A.\n\n    Indented."""\n'
        "    def method(self):\n"
        '        """Method."""\n'
        "        def hidden(): 'Not public.'\n"
        "    class B:\n"
        "        async def run(self): 'Runs.'\n"
        "if x:\n"
        "    def f(): 'First f.'\n"
        "else:\n"
        "    def f(): 'Second f.'\n"
        "try:\n"
        "    pass\n"
        "except ValueError:\n"
        "    def g(): 'The package.'\n"  # a text that came before
        "def h(): '   '\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_docstrings_of_a_package(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        texts = dict(installed_documentation(["toy_documented"], standard_library=False))
    assert texts == {
        "toy_documented": "The package.",
        "toy_documented._private.A": "Class A.\n\nIndented.",
        "toy_documented._private.A.method": "Method.",
        "toy_documented._private.A.B.run": "Runs.",
        "toy_documented._private.f": "First f.",
        "toy_documented._private.f@2": "Second f.",
        "toy_documented.inner": "Inner.",
    }
    assert "toy_documented" not in sys.modules
    assert f"{package / 'broken.py'} is not valid Python" in caplog.text


def test_part_of_a_package_and_single_modules(package: Path) -> None:
    (package.parent / "toy_module.py").write_text('"""One module."""')
    names = ["toy_documented.inner", "toy_documented._private", "toy_module"]
    texts = list(installed_documentation(names, standard_library=False))
    assert texts[0] == ("toy_documented.inner", "Inner.")
    assert texts[1][0] == "toy_documented._private.A"
    assert texts[-1] == ("toy_module", "One module.")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("not_there_at_all", "'not_there_at_all' is not installed"),
        ("", "'' is not installed"),
        ("../x", "'../x' is not installed"),
        ("sys", "'sys' has no Python source"),
        ("json.nothing", "'json.nothing' has no Python source"),
    ],
)
def test_packages_that_cannot_be_read(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"corpus.packages: {complaint}"):
        next(installed_documentation([name], standard_library=False))


def test_standard_library_begins_with_the_topics() -> None:
    texts = list(islice(installed_documentation([], standard_library=True), 300))
    topics = [name for name, _ in texts if name.startswith("topics:")]
    assert "topics:assert" in topics
    assert [name for name, _ in texts[: len(topics)]] == topics
    assert {name.partition(".")[0] for name, _ in texts[len(topics) :]} <= sys.stdlib_module_names
    assert len({name for name, _ in texts}) == len({text for _, text in texts}) == 300
    assert list(islice(installed_documentation([], standard_library=True), 300)) == texts


def test_distinct_names_and_texts_of_a_real_package() -> None:
    texts = list(installed_documentation(["numpy.linalg", "json"], standard_library=False))
    assert "json.dumps" in dict(texts)
    assert len({name for name, _ in texts}) == len({text for _, text in texts}) == len(texts)
