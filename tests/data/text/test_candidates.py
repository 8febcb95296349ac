"""Candidate records: reading, merging of equal outputs, and every bad input in one sentence with ids."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import condvne as cv
from condvne.data.text.candidates import (
    CandidateRecord,
    CandidateSet,
    candidate_sets,
    check_logprobs,
    read_candidates,
)
from tests.mbr import candidate_lines, write_lines

RECORD = CandidateRecord("a", "Who?", ["me", "you", "me"], [-1.0, -2.0, -0.5], [3, 4, 2], ["me"])


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", candidate_lines())
    records = read_candidates(path)
    assert [record.to_json() for record in records] == candidate_lines()


def test_absent_parts_stay_absent_and_one_reference_may_stand_alone(tmp_path: Path) -> None:
    lines = [{"id": 7, "condition": "Who?", "outputs": ["me"], "references": "you", "logprobs": None, "score": 3}]
    (record,) = read_candidates(write_lines(tmp_path / "c.jsonl", lines))
    assert record == CandidateRecord("7", "Who?", ["me"], None, None, ["you"])
    assert record.to_json() == {"id": "7", "condition": "Who?", "outputs": ["me"], "references": ["you"]}


def test_equal_outputs_become_one_candidate_with_its_likeliest_sequence() -> None:
    merged = CandidateSet.of(RECORD)
    assert merged.texts == ["me", "you"]
    assert merged.counts == [2, 1]
    assert merged.logprobs == [-0.5, -2.0]
    assert merged.lengths == [2, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "field 'id' must be a string or integer"),
        ({"condition": " "}, "field 'condition' must be a text"),
        ({"outputs": [1, 2]}, "field 'outputs' must be a list of texts"),
        ({"references": {"text": "me"}}, "field 'references' must be a list of texts"),
        ({"logprobs": [-1.0]}, "field 'logprobs' has 1 entries for 6 outputs"),
        ({"logprobs": ["-1"] * 6}, "field 'logprobs' must be a list of numbers"),
        ({"logprobs": [True] * 6}, "field 'logprobs' must be a list of numbers"),
        ({"lengths": [0] * 6}, "field 'lengths' must hold numbers of tokens"),
        ({"lengths": [1.5] * 6}, "field 'lengths' must hold numbers of tokens"),
    ],
)
def test_a_mistyped_field_is_refused_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    lines = candidate_lines(3)
    lines[1] |= change
    path = write_lines(tmp_path / "c.jsonl", lines)
    with pytest.raises(cv.DataError) as refusal:
        read_candidates(path)
    assert str(refusal.value).startswith(f"{path}:2: ")
    assert message in str(refusal.value)


def test_missing_fields_repeated_ids_and_empty_files_are_refused(tmp_path: Path) -> None:
    lines = candidate_lines(3)
    with pytest.raises(cv.DataError, match=r":1: has no field 'outputs'"):
        read_candidates(write_lines(tmp_path / "a.jsonl", [{"id": "x", "condition": "y"}]))
    with pytest.raises(cv.DataError, match="news-1 came more than once"):
        read_candidates(write_lines(tmp_path / "b.jsonl", [*lines, lines[1]]))
    with pytest.raises(cv.DataError, match="holds no records"):
        read_candidates(write_lines(tmp_path / "c.jsonl", []))


def test_minus_infinity_in_a_file_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "a", "condition": "b", "outputs": ["c", "d"], "logprobs": [-1.0, -Infinity]}\n')
    with pytest.raises(cv.DataError, match=r":1: .*-Infinity is not a JSON value"):
        read_candidates(path)


def test_empty_candidates_are_refused_or_dropped_with_their_numbers() -> None:
    records = [replace(RECORD, outputs=["me", " \n", "you"]), replace(RECORD, id="b")]
    with pytest.raises(cv.DataError, match=r"1 candidates of a have no visible character.*empty_candidates: drop"):
        candidate_sets(records, "refuse", "refuse", [])
    notes: list[str] = []
    sets = candidate_sets(records, "drop", "refuse", notes)
    assert sets[0].texts == ["me", "you"]
    assert sets[0].logprobs == [-1.0, -0.5]
    assert sets[0].lengths == [3, 2]
    assert notes == ["1 candidates without a visible character were left out (a)"]


@pytest.mark.parametrize("outputs", [[], ["me"], ["me", ""]])
def test_one_candidate_or_none_is_refused_by_id(outputs: list[str]) -> None:
    records = [RECORD, CandidateRecord("lonely", "Who?", outputs)]
    with pytest.raises(cv.DataError, match=r"one candidate or none for lonely \([01]\)"):
        candidate_sets(records, "drop", "refuse", [])


def test_inputs_left_without_a_choice_may_be_dropped_unless_none_is_left() -> None:
    lonely = CandidateRecord("lonely", "Who?", ["me", ""])
    notes: list[str] = []
    sets = candidate_sets([RECORD, lonely], "drop", "drop", notes)
    assert [s.id for s in sets] == ["a"]
    assert notes[-1] == "1 inputs with one candidate or none were left out (lonely (1))"
    with pytest.raises(cv.DataError, match=r"one candidate or none for lonely \(1\)"):
        candidate_sets([lonely], "drop", "drop", [])


def test_identical_candidates_are_kept_and_said() -> None:
    notes: list[str] = []
    (same,) = candidate_sets([replace(RECORD, outputs=["me"] * 3)], "refuse", "refuse", notes)
    assert (same.texts, same.counts) == (["me"], [3])
    assert notes == ["all candidates are equal for a: every method chooses the same text there"]


@pytest.mark.parametrize(
    ("logprobs", "lengths", "message"),
    [
        (None, [1, 1, 1], "MBMBR and MBMBR-L need log-probabilities, which are missing for a"),
        ([-1.0, 0.5, -1.0], [1, 1, 1], "logprobs are positive for a"),
        ([-1.0, -math.inf, -1.0], [1, 1, 1], "logprobs are -inf"),
        ([-1.0, math.nan, -1.0], [1, 1, 1], "logprobs are NaN for a"),
        ([-1.0, -2.0, -1.0], None, "lengths, which are missing for a"),
    ],
)
def test_model_based_methods_refuse_what_they_cannot_weigh(
    logprobs: list[float] | None, lengths: list[int] | None, message: str
) -> None:
    good = CandidateSet.of(replace(RECORD, id="good"))
    bad = CandidateSet.of(replace(RECORD, outputs=["me", "you", "we"], logprobs=logprobs, lengths=lengths))
    with pytest.raises(cv.DataError) as refusal:
        check_logprobs([good, bad], ["mbmbr", "mbmbr_l"], lengths=True)
    assert message in str(refusal.value)
    assert "good" not in str(refusal.value)
    check_logprobs([good, bad], [], lengths=True)
