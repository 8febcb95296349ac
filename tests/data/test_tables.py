"""Tables of users: every form that is read, and every fault named by row."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from condvne.data.rows import read_rows
from condvne.data.tables import OutputTable, clean_text, read_table
from condvne.errors import DataError

WIDE = [{"p": "one", "a": "x", "b": ["y"]}, {"p": "two", "a": "z", "b": ["w"]}]


def table(
    folder: Path, rows: list[dict[str, Any]], outputs: tuple[str, ...] = ("a", "b"), **settings: Any
) -> OutputTable:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_table(path, condition="p", outputs=outputs, **settings)


def long(folder: Path, rows: list[tuple[str, str, Any]], **settings: Any) -> OutputTable:
    fields = [{"p": condition, "who": name, "out": output} for condition, name, output in rows]
    return table(folder, fields, ("out",), group="who", **settings)


def test_wide_rows(tmp_path: Path) -> None:
    found = table(tmp_path, WIDE)
    assert found == OutputTable(["one", "two"], ["line 1", "line 2"], {"a": [["x"], ["z"]], "b": [["y"], ["w"]]}, [])
    assert list(table(tmp_path, WIDE, ("b", "a")).groups) == ["b", "a"]
    assert list(table(tmp_path, WIDE, ("a",)).groups) == ["a"]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.jsonl.gz", "t.ndjson", "t.csv", "t.tsv", "t.CSV.gz"])
def test_the_same_table_in_every_format(tmp_path: Path, name: str) -> None:
    rows = [{"id": "q1", "p": 'say "é",\n\tthen', "a": "x"}, {"id": "q2", "p": "two", "a": "z\u2028 😀"}]
    plain = tmp_path / name.removesuffix(".gz")
    if "csv" in name.lower() or "tsv" in name:
        with plain.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if "tsv" in name else ",")
            writer.writeheader()
            writer.writerows(rows)
    elif ".json" in plain.suffixes and plain.suffix == ".json":
        plain.write_text("\ufeff" + json.dumps(rows, indent=1), encoding="utf-8")
    else:
        plain.write_text("\ufeff" + "\n".join(json.dumps(r, ensure_ascii=False) for r in rows), encoding="utf-8")
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
    found = read_table(tmp_path / name, condition="p", outputs=["a"])
    assert found == OutputTable([r["p"] for r in rows], ["q1", "q2"], {"a": [["x"], ["z\u2028 😀"]]}, [])


def test_long_rows_are_collected_in_order(tmp_path: Path) -> None:
    rows = [
        ("one", "m", "x"),
        ("two", "m", "y"),
        ("one", "n", "z"),
        ("one", "m", "v"),
        ("two", "n", "w"),
        ("one", "n", ["u"]),
    ]
    found = long(tmp_path, rows)
    assert found.conditions == ["one", "two"]
    assert found.ids == ["line 1", "line 2"]
    assert found.groups == {"m": [["x", "v"], ["y"]], "n": [["z", "u"], ["w"]]}
    assert found.notes == []


def test_equal_conditions_stay_apart_in_wide_form_only(tmp_path: Path) -> None:
    assert table(tmp_path, [WIDE[0], WIDE[0]]).conditions == ["one", "one"]
    assert long(tmp_path, [("one", "m", "x"), ("one", "m", "x")]).groups == {"m": [["x", "x"]]}


def test_duplicate_ids_are_named(tmp_path: Path) -> None:
    rows = [{"id": key, **WIDE[0]} for key in ("q1", 2, "q1")]
    assert table(tmp_path, rows[:2]).ids == ["q1", "2"]
    with pytest.raises(DataError, match=r"t\.jsonl:3: id 'q1' was already given in line 1"):
        table(tmp_path, rows)
    with pytest.raises(DataError, match=r"t\.jsonl:2: has no field 'id'"):
        table(tmp_path, [rows[0], WIDE[1]])
    with pytest.raises(DataError, match=r"t\.jsonl:1: field 'id' must be a string or integer, not NoneType"):
        table(tmp_path, [rows[0] | {"id": None}])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"p": None}, "field 'p' must be a string, not NoneType; the row's fields are p, a, b"),
        ({"p": ["one"]}, "field 'p' must be a string, not a list of str"),
        ({"a": 3}, "field 'a' must be a string or a list of strings, not int"),
        ({"a": ["x", 3, None]}, "field 'a' must be a string or a list of strings, not a list of NoneType, int, str"),
        ({"a": {"text": "x"}}, "field 'a' must be a string or a list of strings, not dict"),
    ],
)
def test_values_that_are_no_texts(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=rf"t\.jsonl:2: {complaint}"):
        table(tmp_path, [WIDE[0], WIDE[1] | change])


def test_missing_fields_name_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.jsonl:2: has no field 'b'; its fields are p, a\."):
        table(tmp_path, [WIDE[0], {"p": "x", "a": "y"}])
    with pytest.raises(DataError, match=r"t\.jsonl:1: has no field 'who'; its fields are p, a, b\."):
        table(tmp_path, WIDE, ("a",), group="who")


def test_fields_that_are_named_twice_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="field 'a' is named twice"):
        table(tmp_path, WIDE, ("a", "a"))
    with pytest.raises(DataError, match="field 'p' is named twice"):
        table(tmp_path, WIDE, ("a", "p"))
    with pytest.raises(DataError, match="must name one field per group, not 0"):
        table(tmp_path, WIDE, ())
    with pytest.raises(DataError, match="exactly one field"):
        table(tmp_path, WIDE, ("a", "b"), group="who")


@pytest.mark.parametrize("text", ["\u200b", "\ufeff\u2060", "\x00", "\u00ad\u200d \n"])
def test_characters_that_nobody_sees_are_no_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="1 field without a visible character: line 2, field 'a'"):
        table(tmp_path, [WIDE[0], WIDE[1] | {"a": text}])
    assert table(tmp_path, [WIDE[0] | {"a": f"{text}x"}, WIDE[1]]).groups["a"][0] == [f"{text}x"]


def test_fields_given_twice_in_a_row_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"p": "one", "a": "x"}\n{"p": "two", "a": "y", "b": {"c": 1}, "a": "z"}\n')
    with pytest.raises(DataError, match=r"t\.jsonl:2: is not usable JSON \(field 'a' comes twice in one object"):
        read_table(tmp_path / "t.jsonl", condition="p", outputs=["a"])


EMPTIES: list[dict[str, Any]] = [
    {"id": "k", "p": "one", "a": "x", "b": "y"},
    {"id": "l", "p": " \n", "a": "x", "b": "y"},
    {"id": "m", "p": "three", "a": ["", "x"], "b": ["y", "\u3000"]},
    {"id": "n", "p": "four", "a": [], "b": []},
]


def test_empty_texts_are_refused_by_row(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        table(tmp_path, EMPTIES)
    shown = "5 fields without a visible character: line 2 (id 'l'), field 'p'; line 3 (id 'm'), field 'a'; line 3"
    assert shown in str(caught.value)
    assert "--empty drop" in str(caught.value)
    many = [{"id": f"r{i}", "p": "one", "a": "", "b": "y"} for i in range(9)]
    with pytest.raises(DataError, match=r"9 fields .* line 5 \(id 'r4'\), field 'a'; … \(9 in all\)"):
        table(tmp_path, many)


def test_empty_texts_are_dropped_everywhere_when_asked(tmp_path: Path) -> None:
    found = table(tmp_path, EMPTIES, empty="drop")
    assert (found.conditions, found.ids, found.groups) == (["one"], ["k"], {"a": [["x"]], "b": [["y"]]})
    assert len(found.notes) == 1
    assert found.notes[0].startswith("3 conditions with empty texts left out in all groups: line 2 (id 'l'), field 'p'")
    rows = [("one", "m", "x"), ("two", "m", ""), ("one", "n", "y"), ("two", "n", "y")]
    with pytest.raises(DataError, match="1 field without a visible character: line 2, field 'out'"):
        long(tmp_path, rows)
    assert long(tmp_path, rows, empty="drop").groups == {"m": [["x"]], "n": [["y"]]}
    with pytest.raises(DataError, match=r"no condition is left to score .*4 conditions with empty"):
        table(tmp_path, [row | {"a": ""} for row in EMPTIES], empty="drop")


def test_conditions_that_a_group_lacks(tmp_path: Path) -> None:
    rows = [(f"c{i}", "m", "x") for i in range(10)] + [(f"c{i}", "n", "y") for i in range(3)] + [("only n", "n", "y")]
    with pytest.raises(DataError) as caught:
        long(tmp_path, rows)
    message = str(caught.value)
    assert "group 'm' lacks 1 of 11 conditions ('only n')" in message
    assert "group 'n' lacks 7 of 11 conditions ('c3', 'c4', 'c5', 'c6', 'c7', … (7 in all))" in message
    assert "pass --matched to keep only the 3 that all groups have" in message
    found = long(tmp_path, rows, matched=True)
    assert found.conditions == ["c0", "c1", "c2"]
    assert found.groups == {"m": [["x"]] * 3, "n": [["y"]] * 3}
    assert found.notes[0].startswith("8 of 11 conditions left out, since not all groups have them: group 'm' lacks 1")
    with pytest.raises(DataError, match="no condition is left"):
        long(tmp_path, [("one", "m", "x"), ("two", "n", "x")], matched=True)


def test_numbers_of_outputs_that_differ(tmp_path: Path) -> None:
    rows = [{"p": "one", "a": ["1", "2"], "b": ["3", "4"]}, {"p": "two", "a": ["1", "2", "3"], "b": ["3", "4", "5"]}]
    assert [len(texts) for texts in table(tmp_path, rows).groups["a"]] == [2, 3]  # fine within a group
    rows[1]["b"] = ["3", "4"]
    with pytest.raises(DataError) as caught:
        table(tmp_path, rows)
    assert "condition 'two' (line 2) has different numbers of outputs, 3 in group 'a', 2 in group 'b'" in str(
        caught.value
    )
    assert "--outputs-per-condition K (here at most 2)" in str(caught.value)
    with pytest.raises(
        DataError, match=r"condition 'one' \(line 1\) has different numbers of outputs, 2 in group 'm', 1 in"
    ):
        long(tmp_path, [("one", "m", "x"), ("one", "m", "y"), ("one", "n", "z")])


def test_so_many_outputs_of_each_condition(tmp_path: Path) -> None:
    rows = [{"p": f"c{i}", "a": [str(k) for k in range(6)], "b": [str(k) for k in range(9)]} for i in range(30)]
    found = table(tmp_path, rows, outputs_per_condition=3)
    for texts in (*found.groups["a"], *found.groups["b"]):
        assert len(texts) == 3
        assert texts == sorted(set(texts))  # without replacement, in their order
    assert len({tuple(texts) for texts in found.groups["a"]}) > 10
    assert table(tmp_path, rows, outputs_per_condition=3) == found
    assert table(tmp_path, rows, outputs_per_condition=3, seed=1) != found
    with pytest.raises(
        DataError, match=r"group 'a' has fewer than 7 outputs for 30 conditions: 'c0' has 6, .*\(30 in all\)"
    ):
        table(tmp_path, rows, outputs_per_condition=7)
    with pytest.raises(DataError, match="must be at least 1"):
        table(tmp_path, rows, outputs_per_condition=0)


def test_lone_surrogates_are_kept(tmp_path: Path) -> None:
    found = table(tmp_path, [{"p": "one\ud800", "a": ["x", "\udfff"], "b": ["y", "z"]}])
    assert found.conditions == ["one\ud800"]
    assert clean_text(found.conditions[0]) == "one\ufffd"
    assert found.groups["a"] == [["x", "\udfff"]]


def test_groups_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.jsonl:2: field 'who', the name of the group, is empty"):
        long(tmp_path, [("one", "m", "x"), ("one", " ", "y")])


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("t.jsonl", b'{"p": "one", "a": "x"}\n{"p": "two"\n', r"t\.jsonl:2: is not valid JSON \(.* at character 12\)"),
        ("t.jsonl", b'{"p": "one", "a": NaN}\n', r"t\.jsonl:1: .*NaN is not a JSON value"),
        ("t.jsonl", b"", r"t\.jsonl: holds no rows to score"),
        ("t.json", b'[{"p": "one", "a": "x"}, 7]', r"t\.json: entry 2: must be a JSON object"),
        ("t.json", b'[{"p": "one", "a": "x"}, {"p": 7}]', r"t\.json: entry 2: field 'p' must be a string"),
        ("t.json", b'[{"p": "one",\n "a": NaN}]', r"t\.json: .*NaN is not a JSON value"),
        ("t.json", b"[]", r"t\.json: holds no rows to score"),
        ("t.csv", b"", r"t\.csv: is empty"),
        ("t.csv", b"p,a\n", r"t\.csv: holds no rows to score"),
        ("t.csv", b"p;a\none;x\n", r"t\.csv:2: has no field 'p'; its fields are p;a\."),
        ("t.csv", b"p,a,a\n1,2,3\n", r"t\.csv:1: field 'a' comes twice"),
        ("t.csv", b'p,a\none,"x\ny"\n\ntwo,x,y\n', r"t\.csv:5: has 3 fields where the header has 2 \(p, a\)"),
        ("t.csv", b'p,a\none,"x"y\n', r"t\.csv:2: is not valid CSV"),
        ("t.csv", b'p,a\none,x\ntwo,"never closed\nx,y\n', r"t\.csv:3: is not valid CSV"),
        ("t.csv", b"p,a\none,\xff\n", r"t\.csv:2: is not valid UTF-8"),
        ("t.xlsx", b"", r"t\.xlsx: suffix '\.xlsx' is not that of a table; use \.jsonl"),
        ("t", b"", r"t: suffix 'none' is not that of a table"),
        (
            "t.jsonl.gz",
            gzip.compress(b'{"p": "one", "a": "x"}\n' * 99, mtime=0)[:-9],
            r"t\.jsonl\.gz: ends in the middle",
        ),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, name: str, data: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=complaint):
        read_table(tmp_path / name, condition="p", outputs=["a"])


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, not a table"):
        read_table(tmp_path, condition="p", outputs=["a"])


def test_long_fields_and_line_numbers_of_csv(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = tmp_path / "t.csv"
    path.write_text("p,a\r\n" + "x" * 200_000 + ',"1\n2"\r\n\r\nlast,3\r\n', newline="")
    rows = list(read_rows(path))
    assert [(row.number, row.where, row.fields["a"]) for row in rows] == [
        (2, f"{path}:2", "1\n2"),
        (5, f"{path}:5", "3"),
    ]
    assert csv.field_size_limit() == limit
