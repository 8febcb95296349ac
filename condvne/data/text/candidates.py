"""Candidates: several outputs for each input, with log-probabilities where a model gave them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from condvne.data.config.mbr import AGAINST_REFERENCES
from condvne.data.listing import listed
from condvne.data.records import has_visible, read_jsonl, require_field
from condvne.errors import DataError


@dataclass(frozen=True)
class CandidateRecord:
    """An input and its m candidates as they came, equal ones included.

    Attributes:
        logprobs: natural logarithms of the candidates' probabilities under the model, (m,).
        lengths: their numbers of tokens, (m,).
        references: what people wrote for this input.
    """

    id: str
    condition: str
    outputs: list[str]
    logprobs: list[float] | None = None
    lengths: list[int] | None = None
    references: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The form of a line; what is absent is left out."""
        flat: dict[str, Any] = {"id": self.id, "condition": self.condition, "outputs": self.outputs}
        if self.logprobs is not None:
            flat["logprobs"] = self.logprobs
        if self.lengths is not None:
            flat["lengths"] = self.lengths
        return flat | ({"references": self.references} if self.references else {})

    @classmethod
    def from_json(cls, flat: Mapping[str, Any], where: str) -> CandidateRecord:
        """Read a line's object; other fields are ignored. Raises DataError, beginning with `where`, for what is wrong.

        An id may be an integer, references one text; null stands for what is absent.
        """
        name = require_field(flat, "id", where)
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise DataError(f"{where}: field 'id' must be a string or integer, not {type(name).__name__}.")
        condition = require_field(flat, "condition", where)
        if not isinstance(condition, str) or not has_visible(condition):
            raise DataError(f"{where}: field 'condition' must be a text with a visible character.")
        outputs = texts_of(require_field(flat, "outputs", where), "outputs", where)
        return cls(
            id=str(name),
            condition=condition,
            outputs=outputs,
            logprobs=_numbers(flat, "logprobs", len(outputs), where),
            lengths=_lengths(flat, len(outputs), where),
            references=texts_of(flat.get("references"), "references", where),
        )


def read_candidates(path: str | Path) -> list[CandidateRecord]:
    """All candidate records of a JSONL file, in its order. Raises DataError as `CandidateRecord.from_json`.

    An id that comes twice is refused, and so is a file without records.
    """
    records = [CandidateRecord.from_json(flat, f"{path}:{number}") for number, flat in read_jsonl(path)]
    if not records:
        raise DataError(f"{path}: holds no records; give one JSON object a line with id, condition and outputs.")
    refuse_repeated_ids((record.id for record in records), str(path))
    return records


def refuse_repeated_ids(ids: Iterable[str], where: str) -> None:
    """Raises DataError naming the ids that come more than once."""
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise DataError(f"{where}: ids must differ, but {listed(twice)} came more than once; rename or merge them.")


def texts_of(value: Any, name: str, where: str) -> list[str]:
    """A text, a list of texts, or nothing, as a list. Raises DataError for other values."""
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: field {name!r} must be a list of texts, not {type(value).__name__}.")
    return texts


def _numbers(flat: Mapping[str, Any], name: str, count: int, where: str) -> list[float] | None:
    values = flat.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(v) in (int, float) for v in values):
        raise DataError(f"{where}: field {name!r} must be a list of numbers, one an output.")
    if len(values) != count:
        raise DataError(f"{where}: field {name!r} has {len(values)} entries for {count} outputs; give one an output.")
    return [float(v) for v in values]


def _lengths(flat: Mapping[str, Any], count: int, where: str) -> list[int] | None:
    values = _numbers(flat, "lengths", count, where)
    if values is None:
        return None
    if any(v < 1 or not v.is_integer() for v in values):
        raise DataError(f"{where}: field 'lengths' must hold numbers of tokens, whole and at least 1.")
    return [int(v) for v in values]


@dataclass(frozen=True)
class CandidateSet:
    """The distinct candidates of an input: equal texts are one candidate that counts as often as it came.

    Attributes:
        texts: k distinct texts, in the order in which they first came.
        counts: how often each came, (k,).
        logprobs: of each, (k,); the highest where one text came by several sequences of tokens.
        lengths: tokens of the sequence with that log-probability, (k,).
    """

    id: str
    condition: str
    texts: list[str]
    counts: list[int]
    logprobs: list[float] | None
    lengths: list[int] | None
    references: list[str]

    @classmethod
    def of(cls, record: CandidateRecord) -> CandidateSet:
        """Merge the equal outputs of a record."""
        places: dict[str, list[int]] = {}
        for index, text in enumerate(record.outputs):
            places.setdefault(text, []).append(index)
        best = [max(rows, key=lambda i: record.logprobs[i] if record.logprobs else -i) for rows in places.values()]
        return cls(
            id=record.id,
            condition=record.condition,
            texts=list(places),
            counts=[len(rows) for rows in places.values()],
            logprobs=None if record.logprobs is None else [record.logprobs[i] for i in best],
            lengths=None if record.lengths is None else [record.lengths[i] for i in best],
            references=record.references,
        )


Choice = Literal["refuse", "drop"]


def candidate_sets(
    records: Sequence[CandidateRecord], empty: Choice, few: Choice, notes: list[str]
) -> list[CandidateSet]:
    """The distinct candidates of every input; what is dropped or odd is added to `notes`.

    Raises DataError, naming ids, for empty or white-space candidates and for inputs that are left with one candidate or
    none, unless these are to be dropped; and where no input is left.
    """
    blank = {r.id: [i for i, text in enumerate(r.outputs) if not has_visible(text)] for r in records}
    found = [name for name, rows in blank.items() if rows]
    total = sum(len(rows) for rows in blank.values())
    if found and empty == "refuse":
        raise DataError(
            f"{total} candidates of {listed(found)} have no visible character, so nothing can be compared with them; "
            "set empty_candidates: drop to leave them out."
        )
    if found:
        notes.append(f"{total} candidates without a visible character were left out ({listed(found)})")
    kept = [_without(record, set(blank[record.id])) for record in records]
    lonely = [f"{r.id} ({len(r.outputs)})" for r in kept if len(r.outputs) < 2]
    if lonely and (few == "refuse" or len(lonely) == len(kept)):
        raise DataError(
            f"one candidate or none for {listed(lonely)}, but minimum Bayes risk chooses among at least two; "
            "give more candidates, or set few_candidates: drop to leave such inputs out."
        )
    if lonely:
        notes.append(f"{len(lonely)} inputs with one candidate or none were left out ({listed(lonely)})")
    sets = [CandidateSet.of(record) for record in kept if len(record.outputs) > 1]
    same = [s.id for s in sets if len(s.texts) == 1]
    if same:
        notes.append(f"all candidates are equal for {listed(same)}: every method chooses the same text there")
    return sets


def _without(record: CandidateRecord, dropped: set[int]) -> CandidateRecord:
    kept = [i for i in range(len(record.outputs)) if i not in dropped]
    return CandidateRecord(
        id=record.id,
        condition=record.condition,
        outputs=[record.outputs[i] for i in kept],
        logprobs=None if record.logprobs is None else [record.logprobs[i] for i in kept],
        lengths=None if record.lengths is None else [record.lengths[i] for i in kept],
        references=[text for text in record.references if has_visible(text)],
    )


def check_logprobs(sets: Sequence[CandidateSet], methods: Sequence[str], lengths: bool) -> None:
    """Raises DataError, naming ids, where methods that weigh by the model's probabilities cannot.

    Log-probabilities must be there, finite and at most zero; with `lengths`, numbers of tokens must be there too.
    """
    if not methods:
        return
    wanted = " and ".join(m.replace("_", "-").upper() for m in methods)
    absent = [s.id for s in sets if s.logprobs is None]
    if absent:
        raise DataError(
            f"{wanted} need log-probabilities, which are missing for {listed(absent)}; add logprobs to these records, "
            "or leave the methods out (methods: [mc, cvs], reference: mc)."
        )
    for fault, test in (
        ("positive", lambda v: v > 0),
        ("-inf: of probability zero, so the model cannot have drawn them,", lambda v: v == -math.inf),
        ("NaN", math.isnan),
    ):
        faulty = [s.id for s in sets if any(test(v) for v in s.logprobs or [])]
        if faulty:
            raise DataError(
                f"{wanted} need the natural logarithms of probabilities, but logprobs are {fault} for "
                f"{listed(faulty)}; give the sum over the tokens of log p(token | before)."
            )
    unmeasured = [s.id for s in sets if s.lengths is None] if lengths else []
    if unmeasured:
        raise DataError(
            f"MBMBR-L divides log-probabilities by lengths, which are missing for {listed(unmeasured)}; "
            "add lengths (numbers of tokens) to these records, or leave the method out."
        )


def check_references(records: Sequence[CandidateRecord | CandidateSet], metrics: Sequence[str]) -> None:
    """Raises DataError, naming ids, where references are missing that metrics compare outputs with."""
    wanted = [name for name in metrics if name in AGAINST_REFERENCES]
    absent = [record.id for record in records if not any(text.strip() for text in record.references)]
    if wanted and absent:
        raise DataError(
            f"the metrics {', '.join(wanted)} compare outputs with references, which are missing for {listed(absent)}; "
            "add references to these records, or leave the metrics out (metrics: [distinct_2, self_bleu_2, "
            "conditional_vendi])."
        )
