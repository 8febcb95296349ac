from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

import pytest
from rich.console import Console

from condvne.data.results import Scores
from condvne.reports.formatting import spread
from condvne.reports.populations import population_rows
from condvne.reports.tables import CSV_COLUMNS, csv_text, markdown, rows, terminal_populations, terminal_table
from tests.reports import examples

ALL = [
    examples.scores,
    examples.without_reference,
    examples.single_size,
    examples.single_group,
    examples.hostile,
    examples.crowded,
]


def printed(scores: Scores, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, force_terminal=False)
    console.print(terminal_table(scores))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def parsed(scores: Scores) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(scores), newline="")))


@pytest.mark.parametrize("make", ALL)
def test_every_score_stands_in_every_table(make: Callable[[], Scores]) -> None:
    scores = make()
    terminal, marked = printed(scores), markdown(scores)
    for cell in scores.cells:
        text = spread(cell.mean, cell.std)
        assert text in terminal
        assert text in marked
    for text in (terminal, marked, csv_text(scores)):
        assert "nan" not in text.lower()
        assert "None" not in text


def test_rows_name_their_size_and_keep_the_order() -> None:
    scores = examples.scores()
    assert [(r.n, r.group) for r in rows(scores)] == [(n, g) for n in scores.sizes for g in scores.groups]
    for line in printed(scores).splitlines():
        if "±" in line and "deviation" not in line:
            assert line.split()[0] in {"250", "500", "1,000", "2,000"}


def test_marks_follow_the_directions() -> None:
    scores = examples.scores()
    by_place = {(r.n, r.group): r.entries for r in rows(scores)}
    for cell in scores.cells:
        k = [m.key for m in scores.metrics].index(cell.metric)
        entry = by_place[cell.n, cell.group][k]
        if cell.gap is None:
            assert entry.mark is None
            assert entry.delta is None
        else:
            assert entry.mark == {"below": "▼", "above": "▲", "undecided": "·"}[cell.gap.direction]
            assert entry.delta is not None
            assert entry.delta.startswith("−" if cell.gap.estimate < 0 else "+")
    text = printed(scores)
    assert "▼ −16.13" in text
    assert "[−16.31, −15.94]" in text
    assert "▲ +0.0615" in text
    assert "· +0.0018" in text


def test_undefined_cells_show_a_dash() -> None:
    scores = examples.single_size()
    nucleus = next(r for r in rows(scores) if r.group == "nucleus")
    assert nucleus.entries[3].score == "–"
    assert "–" in printed(scores)
    assert [line for line in markdown(scores).splitlines() if "nucleus" in line and line.endswith("| – |")]


def test_csv_is_long_and_exact() -> None:
    scores = examples.scores()
    text = csv_text(scores)
    assert text.splitlines()[0] == ",".join(CSV_COLUMNS)
    assert text.count("\r\n") == 1 + len(scores.sizes) * len(scores.groups) * len(scores.metrics)
    for line in parsed(scores):
        cell = scores.cell(line["group"], line["metric"], int(line["n"]))
        assert cell is not None
        assert float(line["mean"]) == cell.mean
        assert cell.std is not None
        assert float(line["std"]) == cell.std
        assert int(line["repeats"]) == len(cell.values)
        if cell.gap is None:
            assert [line[k] for k in ("gap", "gap_low", "gap_high", "direction")] == [""] * 4
        else:
            assert float(line["gap"]) == cell.gap.estimate
            assert (float(line["gap_low"]), float(line["gap_high"])) == (cell.gap.low, cell.gap.high)
            assert line["direction"] == cell.gap.direction


def test_population_values_have_intervals_and_p_values() -> None:
    scores = examples.scores()
    marked = markdown(scores)
    assert "| Cond. VNE | greedy | 19.25 | 21.75 [21.05, 22.46] | ▼ −17.80 [−18.20, −17.40] | – |" in marked
    assert "| Cond. RKE | greedy | 5.775 | 6.526 [5.826, 7.236] | ▼ −5.34 [−5.74, −4.94] | 0.0010 |" in marked
    assert "| Cond. RKE | ancestral | 10.52 | 11.89 [11.19, 12.60] | · +0.024 [−0.376, +0.424] | 0.24 |" in marked
    assert "n = 2,000 conditions" in marked
    assert "999 random exchanges" in marked
    without = examples.without_reference()
    assert all(row.delta is None and row.p_value is None for row in population_rows(without))
    assert len(list(population_rows(without))) == 6
    none = scores.model_copy(update={"populations": [], "swap_tests": []})
    assert "infinite" not in markdown(none)
    assert terminal_populations(none) is None
    console = Console(width=100, file=io.StringIO())
    console.print(terminal_populations(scores))
    assert isinstance(console.file, io.StringIO)
    words = console.file.getvalue().split()
    for number in ("19.25", "21.75", "[21.05,", "−17.80", "[−18.20,", "0.0010", "0.24"):
        assert number in words, number


def test_matrix_free_scores_are_named_with_their_numerical_error() -> None:
    scores = examples.scores()
    assert "matrix-free" not in markdown(scores)
    assert {line["numerical_error"] for line in parsed(scores)} == {"0.0"}
    cells = [
        c.model_copy(
            update={"numerical_error": 0.002 * c.mean} if c.n == 2000 and c.metric == "conditional_vendi" else {}
        )
        for c in scores.cells
    ]
    estimated = scores.model_copy(update={"cells": cells})
    assert "At n = 2,000 entropies are matrix-free estimates: exact scores lie within 0.2 % of them." in markdown(
        estimated
    )
    line = next(
        x for x in parsed(estimated) if (x["group"], x["metric"], x["n"]) == ("greedy", "conditional_vendi", "2000")
    )
    assert float(line["numerical_error"]) == pytest.approx(0.002 * float(line["mean"]))


def test_csv_leaves_undefined_fields_empty() -> None:
    lines = [x for x in parsed(examples.single_size()) if (x["group"], x["metric"]) == ("nucleus", "distinct_3")]
    assert len(lines) == 1
    assert lines[0]["n"] == "1500"
    assert {v for k, v in lines[0].items() if k not in ("group", "metric", "n")} == {""}
    one = parsed(examples.single_group())[0]
    assert one["std"] == ""
    assert math.isfinite(float(one["mean"]))


def test_hostile_names_come_back_from_csv_and_break_no_table() -> None:
    scores = examples.hostile()
    assert {line["group"] for line in parsed(scores)} == set(examples.HOSTILE)
    marked = markdown(scores)
    table = [line for line in marked.splitlines() if line.startswith("|")]
    bars = {line.replace("\\|", "").count("|") for line in table}
    assert bars == {len(scores.metrics) + 3}
    assert "<script>" not in marked
    assert "<img" not in marked
    terminal = printed(scores)
    assert "\x1b" not in terminal
    assert "\u202e" not in terminal
    assert "<script>alert(1)</script>" in terminal


def test_rich_markup_in_names_is_text() -> None:
    scores = examples.scores({"training": 1.0, "[red]x[/red] [/]": 0.5}, title="[bold]t")
    assert "[red]x[/red] [/]" in printed(scores)
    assert "[bold]t" in printed(scores)


def test_the_caption_names_reference_confidence_and_repeats() -> None:
    text = " ".join(printed(examples.scores()).split())
    assert "over 5 subsamples of n conditions" in text
    assert "difference from training at the same n with its 95 % interval" in text
    assert "half the pool" not in text
    small = examples.scores().model_copy(update={"available": 3000})
    assert "Above n = 1,500 the deviation is that of subsamples of half the pool." in markdown(small)
    alone = examples.scores().model_copy(update={"available": 1})
    assert "half the pool" not in markdown(alone)
    assert "Δ" not in printed(examples.without_reference())


def test_a_narrow_terminal_loses_no_number() -> None:
    words = printed(examples.scores(), width=80).split()
    for number in ("19.67", "−16.13", "−16.31,", "[−16.31,", "0.7587"):
        assert any(number in word for word in words), number
