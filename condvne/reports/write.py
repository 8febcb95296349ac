"""All that a run shows, written into its folder."""

from __future__ import annotations

from pathlib import Path

from condvne.data.pictures import ContactSheet
from condvne.data.results import Scores
from condvne.data.storage import write_whole
from condvne.reports.latex import latex
from condvne.reports.page import render
from condvne.reports.plots import gap_plot
from condvne.reports.svg import to_png
from condvne.reports.tables import csv_text, markdown


def write_reports(scores: Scores, folder: str | Path, pictures: ContactSheet | None = None) -> list[Path]:
    """Write table.md, table.csv, table.tex, gap.png and report.html, each whole or not at all, and return their paths.

    All are made before the first is written, so that a fault leaves the folder as it was. Raises RunError where the
    disk refuses a file.
    """
    files: dict[str, str | bytes] = {
        "table.md": markdown(scores),
        "table.csv": csv_text(scores),
        "table.tex": latex(scores),
        "gap.png": to_png(gap_plot(scores)),
        "report.html": render(scores, pictures),
    }
    paths = [Path(folder) / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_whole(path, content)
    return paths
