"""What the training experiments share: results by arm and seed that are kept as they come, and their table."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from condvne.data.storage import write_whole
from condvne.errors import CondvneError, ConfigError

console = Console()
Scores = Mapping[str, float]


class Results:
    """`results.json` of a folder: what was measured, by arm and seed.

    Arms and seeds may be added later; what is there is not measured again. Raises ConfigError where the folder holds
    results of other settings, of all or of one arm.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder, self.path = folder, folder / "results.json"
        shared = {name: value for name, value in settings.items() if name not in ("arms", "seeds")}
        self.content: dict[str, Any] = {"settings": shared, "arms": {}}
        if self.path.exists():
            self.content = json.loads(self.path.read_text())
        arms = {name: arm["settings"] for name, arm in self.content["arms"].items()}
        other = [name for name, arm in settings["arms"].items() if arms.get(name, arm) != arm]
        if self.content["settings"] != shared or other:
            which = f"arm {other[0]!r}" if other else "the experiment"
            raise ConfigError(
                f"{folder}: holds results of other settings of {which}; remove it or name another folder."
            )
        for name, arm in settings["arms"].items():
            self.content["arms"].setdefault(name, {"settings": arm, "seeds": {}})

    def missing(self, seeds: Sequence[int]) -> list[tuple[int, str]]:
        """Seeds and arms not measured yet, seed by seed."""
        arms = self.content["arms"]
        return [(seed, name) for seed in seeds for name in arms if str(seed) not in arms[name]["seeds"]]

    def keep(self, seed: int, arm: str, scores: Scores) -> None:
        self.content["arms"][arm]["seeds"][str(seed)] = dict(scores)
        self.write()
        console.print(f"{arm}, seed {seed}: " + ", ".join(f"{key} {value:.3f}" for key, value in scores.items()))

    def beside(self, name: str, scores: Sequence[Scores]) -> None:
        """Scores of what was not trained, such as the data: the table's last row."""
        self.content["beside"] = {"name": name, "scores": [dict(row) for row in scores]}
        self.write()

    def write(self) -> None:
        write_whole(self.path, json.dumps(self.content, indent=1) + "\n")

    def table(self, columns: Mapping[str, str], shares: Sequence[str] = ()) -> str:
        """Means over seeds with standard errors, in Markdown; `shares` are shown in percent. Also in `table.md`."""
        lines = [f"| training | {' | '.join(columns.values())} |", "| --- " * (len(columns) + 1) + "|"]
        rows = {name: list(arm["seeds"].values()) for name, arm in self.content["arms"].items()}
        beside = self.content["beside"]
        for name, scores in (rows | {beside["name"]: beside["scores"]}).items():
            cells = [_cell([row[key] for row in scores if key in row], key in shares) for key in columns]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        text = "\n".join(lines) + "\n"
        write_whole(self.folder / "table.md", text)
        return text


def show(measured: Callable[[], Results], columns: Mapping[str, str], shares: Sequence[str] = ()) -> None:
    """Run an experiment, print and write its table; one sentence and status 1 where it cannot be run."""
    try:
        results = measured()
    except CondvneError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    console.print(results.table(columns, shares), markup=False)


def _cell(values: Sequence[float], share: bool) -> str:
    if not values:
        return ""
    mean = statistics.mean(values)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    shown = f"{mean:.1%} ± {error:.1%}" if share else f"{mean:.3f} ± {error:.3f}"
    return shown if len(values) > 1 else shown.split(" ±")[0]
