"""A study's tables and page, and tables in LaTeX."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rich.console import Console

from condvne.data.results import Scores
from condvne.reports.latex import escaped, latex
from condvne.reports.study import (
    robust,
    study_csv,
    study_latex,
    study_markdown,
    study_page,
    terminal_study,
    write_study,
)
from tests.reports.examples import GROUPS, METRICS, SIZES, scores

CELLS: dict[str, Scores] = {
    "prefix3-gaussian": scores(),
    "prefix5-cosine": scores({"training": 1.0, "greedy": 0.6, "nucleus": 1.2, "ancestral": 1.3}),
}


def test_each_metric_has_a_table_with_a_row_a_cell() -> None:
    text = study_markdown("Grid <1>", CELLS)
    assert text.startswith("# Grid &lt;1&gt;")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {m.label}" for m in METRICS]
    rows = [line for line in text.splitlines() if line.startswith("| prefix")]
    assert len(rows) == len(CELLS) * len(METRICS)
    assert all(f"| {SIZES[-1]:,} |" in row for row in rows)


def test_agreement_of_the_cells_is_said() -> None:
    said = robust(CELLS)
    assert "greedy against training by Cond. VNE: below in all 2 cells." in said
    assert "nucleus against training by Cond. VNE: below in 1, above in 1." in said


def test_csv_has_every_value_with_its_cell() -> None:
    rows = list(csv.DictReader(io.StringIO(study_csv(CELLS))))
    assert len(rows) == len(CELLS) * len(SIZES) * len(GROUPS) * len(METRICS)
    assert {row["cell"] for row in rows} == set(CELLS)
    cell = CELLS["prefix5-cosine"].cell("nucleus", "conditional_rke", 500)
    assert cell is not None
    found = [r for r in rows if (r["cell"], r["group"], r["metric"], r["n"]) == (
        "prefix5-cosine", "nucleus", "conditional_rke", "500")]  # fmt: skip
    assert [float(r["mean"]) for r in found] == [cell.mean]


def test_latex_is_balanced_and_escaped() -> None:
    assert escaped("a_b & 50 % −1 ± \\x") == r"a\_b \& 50 \% $-$1 $\pm$ \textbackslash{}x"
    text = latex(scores({"training": 1.0, "top_p": 0.5}))
    lines = text.splitlines()
    assert lines[0].startswith("% Mean ± standard deviation")
    assert lines[1] == r"\begin{tabular}{rlrrrr}"
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {row.count("&") - row.count(r"\&") for row in rows} == {5}
    assert len(rows) == 1 + 2 * len(SIZES)
    assert any(r"top\_p" in row and r"$\downarrow$" in row for row in rows)
    assert study_latex(CELLS).count(r"\begin{tabular}") == study_latex(CELLS).count(r"\end{tabular}") == len(METRICS)


def test_the_page_links_every_cell_and_escapes() -> None:
    page = study_page("<script>", CELLS)
    assert "<script>" not in page
    for name in CELLS:
        assert f'href="cells/{name}/report.html"' in page
    warned = {"a": scores().model_copy(update={"warnings": ["8 of 8 texts were cut"]})}
    assert "a: 8 of 8 texts were cut" in study_page("t", warned)


def test_the_folder_holds_reports_of_the_study_and_of_each_cell(tmp_path: Path) -> None:
    paths = write_study("grid", {"one": scores()}, tmp_path)
    assert {path.name for path in paths} == {"table.md", "table.csv", "table.tex", "report.html"}
    assert (tmp_path / "cells" / "one" / "report.html").exists()
    console = Console(file=io.StringIO(), width=200)
    for table in terminal_study("grid", CELLS):
        console.print(table)
    assert "prefix5-cosine" in console.file.getvalue()  # type: ignore[attr-defined]
