"""Documents from files and data sets, and the paragraphs that count."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pydantic import TypeAdapter

from condvne.data.config import CorpusSource, Paragraphs
from condvne.data.text.corpus import Document, candidates, documents, valid_paragraphs
from condvne.errors import ConfigError, DataError


def source(**settings: Any) -> CorpusSource:
    adapter: TypeAdapter[CorpusSource] = TypeAdapter(CorpusSource)
    return adapter.validate_python(settings)


def read(*paths: Path | str, **settings: Any) -> list[tuple[str, str]]:
    found = documents(source(source="files", paths=[str(p) for p in paths], **settings))
    return [(document.id, document.text) for document in found]


def thresholds(**settings: Any) -> Paragraphs:
    return Paragraphs.model_validate({"min_characters": 5, "min_sentences": 1} | settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "hidden.txt").write_text("hidden")
    (root / "b.txt").write_bytes(b"\xef\xbb\xbfplain \xc3\xa9\r\n")
    (root / "a.md.gz").write_bytes(gzip.compress(b"packed"))
    (root / "deep" / "er" / "c.rst.zst").write_bytes(zstandard.ZstdCompressor().compress(b"zst"))
    (root / "deep" / "d.jsonl").write_text(
        '{"text": "one", "n": 1}\n\n{"text": "two\u2028", "n": "x"}\n', encoding="utf-8"
    )
    (root / "table.csv").write_text("text\nno\n")
    return root


def test_folder_is_read_in_sorted_order_with_ids_inside_it(folder: Path) -> None:
    expected = [
        ("a.md.gz", "packed"),
        ("b.txt", "plain é\r\n"),
        ("deep/d.jsonl:1", "one"),
        ("deep/d.jsonl:3", "two\u2028"),
        ("deep/er/c.rst.zst", "zst"),
    ]
    assert read(folder) == expected
    moved = folder.rename(folder.with_name("elsewhere"))
    assert read(moved) == expected
    assert read(moved / "b.txt", moved) == [expected[1], expected[0], *expected[2:]]


def test_patterns_and_single_files(folder: Path) -> None:
    assert [name for name, _ in read(folder / "**" / "*.gz")] == ["a.md.gz"]
    assert [name for name, _ in read(folder / "*", folder / "deep" / "*.jsonl")] == [
        *("a.md.gz", "b.txt", "deep/d.jsonl:1", "deep/d.jsonl:3")
    ]
    assert read(folder / "deep" / "d.jsonl")[0] == ("d.jsonl:1", "one")


def test_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    everything = read(folder)
    assert read(".") == everything
    assert read("../corpus") == everything
    assert [name for name, _ in read("*.txt", "deep/*.jsonl")] == ["b.txt", "deep/d.jsonl:1", "deep/d.jsonl:3"]


def test_json_files_hold_arrays_or_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\n [{"text": "one"},\n {"text": "two"}]')
    (tmp_path / "b.json").write_text('{"text": "three"}\n')
    assert read(tmp_path) == [("a.json:1", "one"), ("a.json:2", "two"), ("b.json:1", "three")]


def test_other_fields_for_text_and_id(folder: Path) -> None:
    path = folder / "deep" / "d.jsonl"
    path.write_text('{"body": "one", "n": 1}\n{"body": "two", "n": "x"}\n{"body": "three", "n": true}\n')
    found = documents(source(source="files", paths=[str(path)], text_field="body", id_field="n"))
    assert [next(found), next(found)] == [Document("1", "one"), Document("x", "two")]
    with pytest.raises(DataError, match=r"d\.jsonl:3: field 'n' must be a string or integer, not bool"):
        next(found)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"body": "x"}', "has no field 'text'; its fields are body"),
        ('{"text": null}', "field 'text' must be a string, not NoneType"),
        ('{"text": ["a"]}', "field 'text' must be a string, not list"),
        ('{"text": "a"', "is not valid JSON"),
        ('{"text": "a", "loss": NaN}', "NaN is not a JSON value"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    found = documents(source(source="files", paths=[str(tmp_path)]))
    assert next(found).text == "fine"  # streamed: what comes before is there
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{complaint}"):
        next(found)


def test_bad_paths_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n")
    (tmp_path / "b.txt").write_bytes(b"fine\n\xff")
    (tmp_path / "empty").mkdir()
    for path, complaint in {
        "a.csv": r"a\.csv: suffix '\.csv' is not that of a text; use \.txt",
        "none": "none: no such file or folder",
        "empty": "empty: holds no file to read",
        "*.parquet": r"\*\.parquet: holds no file to read",
        "b.txt": r"b\.txt:2: is not valid UTF-8",
    }.items():
        with pytest.raises(DataError, match=complaint):
            read(tmp_path / path)


def test_compressed_lines_that_break_off(tmp_path: Path) -> None:
    lines = b"".join(b'{"text": "document %d"}\n' % i for i in range(5000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines)[:-100])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz: ends in the middle of its compressed data; .* lines read"):
        read(tmp_path)


def test_local_data_sets(tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_list([{"text": "one", "key": 7}, {"text": "two", "key": 8}])
    rows.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"valid": rows}).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "train.jsonl").write_text('{"text": "one"}\n{"text": null}\n')

    def found(name: str, **settings: Any) -> list[Document]:
        return list(documents(source(source="hub", name=str(tmp_path / name), **settings)))

    assert found("saved") == [Document("train:0", "one"), Document("train:1", "two")]
    assert found("splits", split="valid", id_field="key") == [Document("7", "one"), Document("8", "two")]
    with pytest.raises(DataError, match=r"plain, train row 1: field 'text' must be a string, not NoneType"):
        found("plain")
    with pytest.raises(DataError, match=r"saved, train row 0: has no field 'body'; its fields are text, key"):
        found("saved", text_field="body")
    with pytest.raises(ConfigError, match=r"corpus\.name: .*split 'train'\) cannot be opened"):
        found("splits")
    with pytest.raises(ConfigError, match=r"corpus\.name: .*split 'test'\) cannot be opened \(Bad split: test"):
        found("plain", split="test")


def test_data_set_that_breaks_off_or_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "one"}\n{"text": "tw')
    with pytest.raises(DataError, match="reading broke off after 0 rows"):
        list(documents(source(source="hub", name=str(tmp_path / "data"))))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"data set 'nobody/nothing' .* cannot be opened .*connect to the hub"):
        next(documents(source(source="hub", name="nobody/nothing")))


def test_installed_documentation_as_documents() -> None:
    found = documents(source(source="installed_documentation", packages=["json"], standard_library=False))
    assert any(document.id == "json.dumps" and "Serialize" in document.text for document in found)


def test_paragraphs_are_split_on_blank_lines_and_white_space_is_one_space() -> None:
    text = "One.\ttwo\nthree \u00a0 four.\n \t\n\n\nFive\r\n\r\nsix seven.\r\rEight nine. \n\x0c\n  Ten.  "
    assert valid_paragraphs(text, thresholds(min_characters=1)) == [
        *("One. two three four.", "six seven.", "Eight nine.", "Ten.")
    ]


@pytest.mark.parametrize(
    ("characters", "sentences", "valid"), [(11, 3, True), (12, 3, False), (11, 4, False), (1, 0, True)]
)
def test_thresholds_count_characters_and_marks(characters: int, sentences: int, valid: bool) -> None:
    text = "One. two!\n  ?"  # 11 characters, three marks
    settings = thresholds(min_characters=characters, min_sentences=sentences)
    assert bool(valid_paragraphs(text, settings)) is valid


def test_other_sentence_marks() -> None:
    text = "一。二。三。四五"
    assert not valid_paragraphs(text, thresholds(min_sentences=3))
    assert valid_paragraphs(text, thresholds(min_sentences=3, sentence_marks="。。!"))


def test_white_space_of_any_kind_is_no_paragraph_and_no_long_wait() -> None:
    assert valid_paragraphs("\n \u2028\x0b\n" * 200_000, thresholds(min_sentences=0, min_characters=1)) == []
    assert valid_paragraphs("\n" + " " * 1_000_000 + "x", thresholds(min_sentences=0, min_characters=1)) == ["x"]


def test_candidates_depend_on_seed_and_id_only() -> None:
    text = "\n\n".join(f"Paragraph {i}." for i in range(20))
    settings = thresholds(candidates_per_document=5)
    chosen = candidates(Document("a", text), settings, seed=0)
    assert len(set(chosen)) == 5
    assert set(chosen) <= {f"Paragraph {i}." for i in range(20)}
    assert candidates(Document("a", text), settings, seed=0) == chosen
    assert candidates(Document("b", text), settings, seed=0) != chosen
    assert candidates(Document("a", text), settings, seed=1) != chosen
    assert len(candidates(Document("a", text), thresholds(candidates_per_document=50), seed=0)) == 20
    assert candidates(Document("a", ""), settings, seed=0) == []


def test_first_candidates_are_uniform_over_paragraphs() -> None:
    text = "\n\n".join(f"Paragraph {i}." for i in range(4))
    first = Counter(candidates(Document(f"doc {k}", text), thresholds(), seed=0)[0] for k in range(2000))
    assert sum((count - 500) ** 2 / 500 for count in first.values()) < 16.3  # chi-square, 3 degrees, 0.1 % point


def test_links_to_one_file_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("once")
    os.symlink(tmp_path / "a.txt", tmp_path / "b.txt")
    assert read(tmp_path) == [("a.txt", "once")]
