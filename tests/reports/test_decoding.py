"""The report of minimum-Bayes-risk decoding: what it shows, and that nothing in it is computed anew."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

import condvne as cv
from condvne.data.decoding import Decoding, DecodingCell, DecodingMethod, ProjectionFacts, Utility
from condvne.data.results import Direction, Gap, Metric
from condvne.reports.decoding import (
    caption,
    csv_decoding,
    decoding_plot,
    markdown_decoding,
    projection_lines,
    rows,
    terminal_decoding,
    write_decoding,
)

METHODS = {"mc": "MC-MBR", "mbmbr_l": "MBMBR-L", "cvs": "CVS-MBR"}
METRICS = {"rouge_l": "ROUGE-L", "self_bleu_2": "Self-BLEU-2", "conditional_vendi": "Cond. VNE"}
UTILITIES = {"rouge_l": "ROUGE-L", "cosine": "cosine"}


def gap(estimate: float) -> Gap:
    direction: Direction = "above" if estimate > 0.02 else "below" if estimate < -0.02 else "undecided"
    return Gap(estimate=estimate, low=estimate - 0.015, high=estimate + 0.015, confidence=0.95, direction=direction)


def decoding(*, intervals: bool = True, converged: bool = True, reached: bool = True) -> Decoding:
    cells = []
    for u, utility in enumerate(UTILITIES):
        for m, method in enumerate(METHODS):
            for k, metric in enumerate(METRICS):
                if (utility, method, metric) == ("cosine", "mc", "self_bleu_2"):
                    continue  # undefined
                value = 0.3 + 0.1 * k + 0.01 * u + 0.03 * m
                ends = (value - 0.05, value + 0.06) if intervals else (None, None)
                difference = gap(0.03 * (m - 1)) if method != "mbmbr_l" else None
                cells.append(
                    DecodingCell(
                        utility=utility,
                        method=method,
                        metric=metric,
                        value=value,
                        low=ends[0],
                        high=ends[1],
                        gap=difference,
                    )
                )
    facts = ProjectionFacts(
        method="cvs",
        lam=0.1,
        entropy_before=2.1,
        entropy=2.25,
        distance=0.02,
        certificate=3.2e-7,
        iterations=41,
        converged=converged,
        reached=reached,
        largest_entropy=None if reached else 2.25,
        effective_candidates=17.5,
        candidates_before=24.0,
    )
    return Decoding(
        title="tiny_run",
        inputs=50,
        candidates=(32, 32.0, 32),
        distinct_candidates=(12, 29.5, 32),
        methods=[DecodingMethod(key=k, label=v, description="") for k, v in METHODS.items()],
        utilities=[Utility(key=k, label=v) for k, v in UTILITIES.items()],
        metrics=[Metric(key=k, label=v, description="") for k, v in METRICS.items()],
        reference="mbmbr_l",
        resamples=2000,
        confidence=0.95,
        cells=cells,
        projections=[facts],
        features="sketch",
        condition=None,
        output=None,
        seed=0,
        settings={},
        versions={},
    )


def test_every_utility_and_method_is_a_row_and_what_is_undefined_a_dash() -> None:
    found = list(rows(decoding()))
    assert [(r.utility, r.method) for r in found] == [(u, m) for u in UTILITIES.values() for m in METHODS.values()]
    first, undefined = found[0].entries[0], found[3].entries[1]
    assert (first.value, first.interval) == ("0.3000", "[0.2500, 0.3600]")
    assert (first.delta, first.delta_interval) == ("▼ −0.0300", "[−0.0450, −0.0150]")
    assert (undefined.value, undefined.delta) == ("–", None)
    assert found[1].entries[0].delta is None


def test_markdown_has_values_differences_and_certificates() -> None:
    text = markdown_decoding(decoding())
    assert text.startswith("# `tiny_run`\n")
    assert "| ROUGE-L | MC-MBR | 0.3000 [0.2500, 0.3600] |" in text
    assert "| ROUGE-L | CVS-MBR | ▲ +0.0300 [+0.0150, +0.0450] |" in text
    values, differences = text.split("Δ from MBMBR-L:")
    assert "| MBMBR-L |" in values
    assert "| MBMBR-L |" not in differences
    assert "objective within 3.2e-07 of its minimum after 41 iterations." in text
    assert "2.100 → 2.250 nats" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1


def test_projections_that_stopped_short_or_missed_their_target_say_so() -> None:
    (sentence,) = projection_lines(decoding(converged=False, reached=False))
    assert "short of the tolerance: raise projection.max_iterations" in sentence
    assert "the target is out of reach, and at most 2.250 nats are possible" in sentence


def test_csv_has_every_cell_in_full_precision() -> None:
    found = decoding()
    lines = list(csv.DictReader(io.StringIO(csv_decoding(found))))
    assert len(lines) == len(found.cells)
    for line, cell in zip(lines, found.cells, strict=True):
        assert (line["utility"], line["method"], line["metric"]) == (cell.utility, cell.method, cell.metric)
        assert float(line["value"]) == cell.value
        assert line["gap"] == ("" if cell.gap is None else str(cell.gap.estimate))


def test_the_terminal_shows_values_marks_and_the_caption() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(terminal_decoding(decoding()))
    text = console.export_text()
    for shown in ("MC-MBR", "0.3000", "▲ +0.0300", "[−0.0450, −0.0150]", "Lower Self-BLEU-2 is more diverse"):
        assert shown in text


def test_the_caption_names_candidates_intervals_and_the_reference() -> None:
    text = caption(decoding())
    assert "50 inputs, chosen from 32 candidates" in text
    assert "2,000 resamples of the inputs" in text
    assert "paired difference from MBMBR-L" in text
    assert "Brackets" not in caption(decoding(intervals=False))


def test_the_plot_has_a_panel_a_metric_with_every_defined_value() -> None:
    figure = decoding_plot(decoding())
    assert len(figure.axes) == 3
    for axes, metric in zip(figure.axes, METRICS, strict=True):
        points = sorted(float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() != "None")  # type: ignore[index, arg-type]
        assert points == sorted(cell.value for cell in decoding().cells if cell.metric == metric)
    assert len(decoding_plot(decoding(intervals=False)).axes[0].lines) == 6


def test_all_files_are_written_whole_or_refused(tmp_path: Path) -> None:
    paths = write_decoding(decoding(), tmp_path)
    assert [path.name for path in paths] == ["table.md", "table.csv", "decoding.png"]
    assert (tmp_path / "decoding.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").write_text("")
    with pytest.raises(cv.RunError, match="could not be written"):
        write_decoding(decoding(), tmp_path / "file")
