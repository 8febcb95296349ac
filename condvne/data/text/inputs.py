"""Inputs to which a model is to answer: a text, an id, and what people answered."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from condvne.data.config import Pairs
from condvne.data.config.mbr import CorpusInputs, FileInputs, HubInputs
from condvne.data.records import has_visible, require_field
from condvne.data.rows import read_rows
from condvne.data.seeding import seeded_key
from condvne.data.text.candidates import CandidateRecord, refuse_repeated_ids, texts_of
from condvne.data.text.corpus import documents, hub_rows
from condvne.data.text.pairs import make_pairs
from condvne.errors import DataError


@dataclass(frozen=True)
class Inputs:
    """Chosen inputs, without outputs yet, and what was skipped on the way to them."""

    records: list[CandidateRecord]
    notes: list[str]


def read_inputs(
    source: FileInputs | HubInputs | CorpusInputs, count: int, seed: int, tokenizer: Callable[[], Any]
) -> Inputs:
    """`count` inputs, a random choice that depends on seed and ids alone; those of files and data sets in their order.

    `tokenizer` gives the model's own, which cuts the paragraphs of a corpus.

    Raises DataError for missing or mistyped fields (file and line or data set and row named), empty texts, ids that
    come twice, or fewer inputs than `count`; ConfigError for a data set or package that is not there.
    """
    if isinstance(source, CorpusInputs):
        return _beginnings(source, count, seed, tokenizer())
    records = list(_inputs(source))
    where = source.path if isinstance(source, FileInputs) else source.name
    refuse_repeated_ids((record.id for record in records), where)
    if len(records) < count:
        raise DataError(f"{where}: holds {len(records)} inputs, fewer than the {count} asked for; lower count.")
    keys = {record.id: seeded_key(seed, "input", record.id) for record in records}
    chosen = set(heapq.nsmallest(count, keys, key=keys.__getitem__))
    return Inputs([record for record in records if record.id in chosen], [])


def _beginnings(source: CorpusInputs, count: int, seed: int, tokenizer: Any) -> Inputs:
    pairs = Pairs(count=count, prefix_tokens=source.prefix_tokens, continuation_tokens=source.continuation_tokens)
    report = make_pairs(documents(source.corpus), tokenizer, source.paragraphs, pairs, seed)
    records = [CandidateRecord(r.id, r.prefix, [], references=[r.training]) for r in report.records]
    return Inputs(records, report.counts.notes())


def _inputs(source: FileInputs | HubInputs) -> Iterator[CandidateRecord]:
    if isinstance(source, FileInputs):
        for row in read_rows(source.path):
            yield _input(row.fields, source, source.condition_field, str(row.number), row.where)
        return
    for number, where, fields in hub_rows(source, "candidates.inputs.name"):
        yield _input(fields, source, source.text_field, f"{source.split}:{number}", where)


def _input(
    row: Mapping[str, Any], source: FileInputs | HubInputs, condition_field: str, default_id: str, where: str
) -> CandidateRecord:
    name = default_id if source.id_field is None else require_field(row, source.id_field, where)
    condition = require_field(row, condition_field, where)
    if not isinstance(condition, str) or not has_visible(condition):
        raise DataError(f"{where}: field {condition_field!r} must be a text with a visible character.")
    flat: dict[str, Any] = {"id": name, "condition": condition, "outputs": []}
    if source.references_field is not None:
        given = row.get(source.references_field)  # whether references are needed depends on the metrics
        flat["references"] = texts_of(given, source.references_field, where)
    return CandidateRecord.from_json(flat, where)
