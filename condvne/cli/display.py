"""What the commands that score show: progress, tables, and where the report lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from condvne.data.pictures import ContactSheet
from condvne.data.results import Scores
from condvne.evaluation import Progress as Report
from condvne.ranks import Ranks


def hide_loading_bars() -> None:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # downloads keep theirs


@contextmanager
def display(ranks: Ranks) -> Iterator[Report]:
    if not ranks.main:
        yield lambda stage, done, total: None
        return
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        try:
            yield report
        except BaseException:
            for task in bars.tasks:  # a bar that stands still would say that work goes on
                if not task.finished:
                    bars.remove_task(task.id)
            raise


def present(scores: Scores, folder: Path, pictures: ContactSheet | None = None) -> None:
    from condvne.reports.formatting import clean
    from condvne.reports.tables import terminal_populations, terminal_table
    from condvne.reports.write import write_reports

    write_reports(scores, folder, pictures)
    console = Console()
    console.print(terminal_table(scores))
    populations = terminal_populations(scores)
    if populations is not None:
        console.print(populations)
    for text in scores.warnings:
        console.print(f"Read with care: {clean(text)}", style="yellow", markup=False)
    for entry in scores.robustness:
        console.print(clean(entry.sentence), markup=False)
    console.print(f"Report: {folder / 'report.html'}", markup=False)
