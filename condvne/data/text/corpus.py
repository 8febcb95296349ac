"""Documents from files, data sets or installed documentation, and the paragraphs of them that count."""

from __future__ import annotations

import glob
import heapq
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condvne.data.compressed import COMPRESSED_SUFFIXES, content_suffix, read_text
from condvne.data.config import CorpusSource, FileCorpus, HubCorpus, Paragraphs
from condvne.data.records import require_field
from condvne.data.rows import read_rows
from condvne.data.seeding import seeded_key
from condvne.data.text.documentation import installed_documentation
from condvne.errors import ConfigError, DataError

PLAIN_SUFFIXES = (".txt", ".text", ".md", ".rst")
LINE_SUFFIXES = (".jsonl", ".json")
_BLANK_LINES = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the id under which records made from it are kept."""

    id: str
    text: str


def documents(source: CorpusSource) -> Iterator[Document]:
    """The documents of a corpus, streamed, in an order that is the same in every run.

    Raises DataError, naming file and line or data set and row, for what cannot be read and for texts that are missing
    or no strings; ConfigError for a data set or package that is not there.
    """
    if isinstance(source, FileCorpus):
        return _file_documents(source)
    if isinstance(source, HubCorpus):
        return _hub_documents(source)
    texts = installed_documentation(source.packages, standard_library=source.standard_library)
    return (Document(name, text) for name, text in texts)


def valid_paragraphs(text: str, paragraphs: Paragraphs) -> list[str]:
    """The paragraphs that count, in order (paper A, appendix D.1).

    The text is split on blank lines, runs of white space become one space, and a paragraph counts with at least
    `min_characters` characters and `min_sentences` sentence-ending marks.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    normal = (" ".join(part.split()) for part in _BLANK_LINES.split(lines))
    return [part for part in normal if len(part) >= paragraphs.min_characters and _enough_sentences(part, paragraphs)]


def candidates(document: Document, paragraphs: Paragraphs, seed: int) -> list[str]:
    """At most `candidates_per_document` valid paragraphs in a random order that depends on seed and id only."""
    valid = valid_paragraphs(document.text, paragraphs)
    chosen = heapq.nsmallest(
        paragraphs.candidates_per_document,
        range(len(valid)),
        key=lambda index: seeded_key(seed, "paragraph", document.id, index),
    )
    return [valid[index] for index in chosen]


def _enough_sentences(paragraph: str, paragraphs: Paragraphs) -> bool:
    return sum(paragraph.count(mark) for mark in set(paragraphs.sentence_marks)) >= paragraphs.min_sentences


def _file_documents(source: FileCorpus) -> Iterator[Document]:
    files = corpus_files(source.paths)
    base = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files])
    for file in files:
        # relative to the corpus, so that ids and all that is drawn by them survive a move of the folder
        name = Path(os.path.relpath(file, base)).as_posix()
        if content_suffix(file) in PLAIN_SUFFIXES:
            yield Document(name, read_text(file))
            continue
        for row in read_rows(file):
            yield _row_document(row.fields, source, row.where, f"{name}:{row.number}")


def corpus_files(paths: Sequence[str]) -> list[Path]:
    """The files that paths, folders and glob patterns name, each once, in sorted order within each of them.

    Folders are searched to any depth; of folders and patterns only files with a known suffix are taken, hidden ones
    not. Raises DataError for a path that does not exist, a file of unknown suffix, and a folder or pattern without any
    file to read.
    """
    found: dict[str, Path] = {}
    for given in paths:
        path = Path(given).expanduser()
        if path.is_file():
            if content_suffix(path) not in PLAIN_SUFFIXES + LINE_SUFFIXES:
                raise DataError(
                    f"{given}: suffix {path.suffix or 'none'!r} is not that of a text; {_known_suffixes()}."
                )
            files = [path]
        elif path.is_dir():
            files = _readable(p for p in path.rglob("*") if not _hidden(p.relative_to(path)))
        elif glob.has_magic(given):
            files = _readable(map(Path, glob.iglob(str(path), recursive=True)))
        else:
            raise DataError(f"{given}: no such file or folder; mend the path in corpus.paths.")
        if not files:
            raise DataError(f"{given}: holds no file to read; {_known_suffixes()}.")
        for file in files:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _readable(paths: Iterable[Path]) -> list[Path]:
    known = PLAIN_SUFFIXES + LINE_SUFFIXES
    return sorted(p for p in paths if content_suffix(p) in known and p.is_file())


def _known_suffixes() -> str:
    return f"use {', '.join(PLAIN_SUFFIXES + LINE_SUFFIXES)}, each also with {' or '.join(COMPRESSED_SUFFIXES)}"


def _row_document(row: Mapping[str, Any], source: FileCorpus | HubCorpus, where: str, default_id: str) -> Document:
    text = require_field(row, source.text_field, where)
    if not isinstance(text, str):
        raise DataError(f"{where}: field {source.text_field!r} must be a string, not {type(text).__name__}.")
    if source.id_field is None:
        return Document(default_id, text)
    name = require_field(row, source.id_field, where)
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise DataError(f"{where}: field {source.id_field!r} must be a string or integer, not {type(name).__name__}.")
    return Document(str(name), text)


def _hub_documents(source: HubCorpus) -> Iterator[Document]:
    for number, where, row in hub_rows(source):
        yield _row_document(row, source, where, f"{source.split}:{number}")


def hub_rows(source: HubCorpus, key: str = "corpus.name") -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """The rows of a data set, streamed: number, where it stands (for messages), and fields.

    Raises DataError where reading breaks off; ConfigError, naming the setting `key`, for a data set that is not there.
    """
    rows = iter(_open_data_set(source, key))
    number = 0
    while True:
        try:
            row = next(rows, None)
        except Exception as error:  # whatever the readers and network clients below raise
            raise DataError(
                f"data set {source.name}: reading broke off after {number} rows ({_brief(error)})."
            ) from error
        if row is None:
            return
        yield number, f"data set {source.name}, {source.split} row {number}", row
        number += 1


def _open_data_set(source: HubCorpus, key: str) -> Any:
    import datasets

    try:
        if Path(source.name, "dataset_dict.json").is_file():
            return datasets.load_from_disk(source.name)[source.split]
        if Path(source.name, "state.json").is_file():
            return datasets.load_from_disk(source.name)
        return datasets.load_dataset(
            source.name,
            source.subset,
            split=source.split,
            revision=source.revision,
            streaming=source.streaming,
        )
    except (OSError, ValueError, KeyError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"{key}: data set {source.name!r} (subset {source.subset}, split {source.split!r}) cannot be opened "
            f"({_brief(error)}); mend name, subset or split, or connect to the hub."
        ) from error


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
