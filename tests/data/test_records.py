"""Records: what is written comes back, and every malformed line is refused with file and line."""

from __future__ import annotations

import gzip
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from condvne.data.records import PairRecord, clean_text, dump, parse_array, read_jsonl, read_pair_records
from condvne.errors import DataError


def write(folder: Path, data: bytes | str) -> Path:
    path = folder / "a.jsonl"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def pair(record_id: str = "a", **outputs: list[int]) -> PairRecord:
    texts = {name: f"text of {name}" for name in outputs}
    return PairRecord(record_id, "pre", [1, 2, 3], "cont", [4, 5], texts, dict(outputs))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), max_size=4))
def test_records_come_back_as_they_were(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(dump(record) + "\n" for record in records), encoding="utf-8", newline="")
    assert [record for _, record in read_jsonl(path)] == records


def test_characters_stand_as_they_are_and_lone_surrogates_are_escaped(tmp_path: Path) -> None:
    record = {"id": "a", "text": "é 😀 \u2028 \x85 \r \n end", "bad": "x\ud800y", "worse\udfff": 1}
    line = dump(record)
    assert "é 😀 \u2028" in line
    assert r"x\ud800y" in line
    assert "\n" not in line
    assert list(read_jsonl(write(tmp_path, line))) == [(1, record)]


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}])
def test_what_json_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="record 'q7' cannot be written as JSON"):
        dump({"id": "q7", "score": value})


def test_byte_order_mark_blank_lines_and_carriage_returns(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\n   \r\n{"a": 2}')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, {"a": 2})]


def test_byte_order_mark_on_an_empty_first_line(tmp_path: Path) -> None:
    assert list(read_jsonl(write(tmp_path, b'\xef\xbb\xbf\n{"a": 1}\n'))) == [(2, {"a": 1})]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"a": 1', r"is not valid JSON \(.*character \d+\)"),
        (b"[1, 2]", "must be a JSON object, not a value of type list"),
        (b'"text"', "must be a JSON object, not a value of type str"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON value"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": "\xff"}', "is not valid UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "is not valid UTF-8"),
        (b'{"a": 1} {"a": 2}', "is not valid JSON"),
        (b"[" * 100_000, "is not usable JSON|is not valid JSON"),
    ],
)
def test_malformed_line_is_named(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = write(tmp_path, b'{"a": 0}\n\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(DataError, match=complaint) as caught:
        list(read_jsonl(path))
    assert str(caught.value).startswith(f"{path}:3: ")


def test_utf16_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r":1: is not valid UTF-8"):
        list(read_jsonl(write(tmp_path, '{"a": 1}\n'.encode("utf-16"))))


def test_torn_tail_is_left_out_only_when_asked_and_only_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, '{"a": 1}\n{"a": "caf')
    with pytest.raises(DataError, match=r"a\.jsonl:2:"):
        list(read_jsonl(path))
    with caplog.at_level(logging.WARNING):
        assert list(read_jsonl(path, tolerate_torn_tail=True)) == [(1, {"a": 1})]
    assert f"{path}:2" in caplog.text
    with pytest.raises(DataError, match=r"a\.jsonl:2:"):
        list(read_jsonl(write(tmp_path, '{"a": 1}\n{"a": "caf\n'), tolerate_torn_tail=True))


def test_every_way_to_tear_a_file(tmp_path: Path) -> None:
    data = "".join(dump({"a": i, "t": "é😀"}) + "\n" for i in range(3)).encode()
    ends = [data.index(b"\n", data.index(b'"a": %d' % i)) for i in range(3)]  # a whole object is there without newline
    for cut in range(len(data) + 1):
        read = [r["a"] for _, r in read_jsonl(write(tmp_path, data[:cut]), tolerate_torn_tail=True)]
        assert read == [i for i in range(3) if cut >= ends[i]]


def test_streaming_gives_records_before_the_broken_line(tmp_path: Path) -> None:
    rows = read_jsonl(write(tmp_path, '{"a": 1}\n{broken\n'))
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(DataError):
        next(rows)


def test_compressed_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"a": 1}\n') + gzip.compress(b'{"a": 2}\n'))
    assert [r["a"] for _, r in read_jsonl(path)] == [1, 2]


def test_array_of_objects() -> None:
    assert parse_array('[{"a": 1}]', "f.json") == [{"a": 1}]
    with pytest.raises(DataError, match=r"f\.json: entry 2: must be a JSON object"):
        parse_array('[{"a": 1}, 2]', "f.json")
    with pytest.raises(DataError, match="must hold one JSON array"):
        parse_array("{}", "f.json")
    with pytest.raises(DataError, match=r"f\.json: is not valid JSON \(.* at line 2, character 1\)"):
        parse_array('[{"a": 1}\n{"a": 2}]', "f.json")


def test_pair_record_has_the_flat_form_and_comes_back(tmp_path: Path) -> None:
    record = pair("a", greedy=[7, 8], nucleus=[9, 9])
    flat = record.to_json()
    assert list(flat) == [
        *("id", "prefix", "prefix_ids", "training", "training_ids"),
        *("greedy", "greedy_ids", "nucleus", "nucleus_ids"),
    ]
    assert flat["nucleus_ids"] == [9, 9]
    path = write(tmp_path, dump(flat) + "\n" + dump(pair("b").to_json()) + "\n")
    assert read_pair_records(path) == [record, pair("b")]


def test_duplicate_ids_name_both_lines(tmp_path: Path) -> None:
    lines = [dump(pair(name).to_json()) for name in ("a", "b", "a")]
    with pytest.raises(DataError, match=r"a\.jsonl:3: id 'a' was already given in line 1"):
        read_pair_records(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"training_ids": None}, "field 'training_ids' must be a list of token ids"),
        ({"prefix_ids": [1, True]}, "field 'prefix_ids' must be a list of token ids"),
        ({"prefix_ids": [1, -1]}, "field 'prefix_ids' must be a list of token ids"),
        ({"prefix_ids": [1.0]}, "field 'prefix_ids' must be a list of token ids"),
        ({"id": 3}, "field 'id' must be a string, not int"),
        ({"greedy": "x"}, "has no field 'greedy_ids'; its fields are id, prefix"),
        ({"greedy_ids": [1]}, "field 'greedy_ids' belongs to no pair"),
        ({"score": 1.5}, "field 'score' belongs to no pair"),
    ],
)
def test_mistyped_fields_are_named(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    path = write(tmp_path, json.dumps(pair().to_json() | change))
    with pytest.raises(DataError, match=rf"a\.jsonl:1: {complaint}"):
        read_pair_records(path)


@pytest.mark.parametrize("name", ["id", "prefix", "prefix_ids", "training", "training_ids"])
def test_missing_fields_are_named(tmp_path: Path, name: str) -> None:
    flat = pair().to_json()
    del flat[name]
    with pytest.raises(DataError, match=rf"a\.jsonl:1: .*field '{name}|a\.jsonl:1: field '{name}_ids' belongs"):
        read_pair_records(write(tmp_path, json.dumps(flat)))


def test_records_without_a_wanted_group_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, dump(pair("a", greedy=[1]).to_json()) + "\n" + dump(pair("b").to_json()))
    with pytest.raises(DataError, match=r"a\.jsonl:2: has no field 'greedy'"):
        read_pair_records(path, groups=["greedy"])


def test_group_names_that_meet_other_fields_and_groups_without_ids() -> None:
    with pytest.raises(DataError, match="group name 'prefix_ids' meets another field"):
        pair("a", prefix_ids=[1]).to_json()
    with pytest.raises(DataError, match="group name 'greedy_ids' meets another field"):
        pair("a", greedy=[1], greedy_ids=[2]).to_json()
    with pytest.raises(DataError, match="group 'greedy' must have both a text and token ids"):
        PairRecord("a", "p", [1], "t", [2], {"greedy": "x"}, {}).to_json()


def test_clean_text_gives_text_that_can_be_encoded() -> None:
    assert clean_text("a\ud800b\udfff é😀") == "a\ufffdb\ufffd é😀"
