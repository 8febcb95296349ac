"""Where the mass of single prompts' candidates went: a table, and a plot with a row for each distinct output."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.listing import counted
from condvne.data.reweighting import Probe, ProbedOutput
from condvne.data.storage import write_whole
from condvne.reports.formatting import clean, count, number, shortened
from condvne.reports.palette import LIGHT, series_look
from condvne.reports.panels import Sheet, plain_axes
from condvne.reports.svg import drawing, to_png
from condvne.reports.tables import markdown_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADS = ("output", "candidates", "mass before", "mass after")
CSV_COLUMNS = (
    "id", "condition", "output", "copies", "before", "after", "entropy_before", "entropy_after",
    "effective_before", "effective_after", "divergence",
)  # fmt: skip
DRAWN_ROWS = 12  # outputs of a prompt in the plot, those whose mass moved most
DRAWN_PROBES = 8
_LINE = 0.17  # inches from one row to the next


def probe_line(probe: Probe) -> str:
    """Entropies and effective numbers of one prompt in a sentence."""
    return (
        f"{counted(len(probe.outputs), 'distinct output')}; entropy {number(probe.entropy_before)} → "
        f"{number(probe.entropy_after)} nats, effective number {number(probe.effective_before)} → "
        f"{number(probe.effective_after)}, divergence {number(probe.divergence)} nats."
    )


def probes_markdown(probes: Sequence[Probe]) -> str:
    """A section a prompt, a row a distinct output."""
    sections = ["# Where the mass went\n\nEqual outputs are one row; masses of a prompt sum to 1."]
    for probe in probes:
        lines = [list(HEADS), ["---", *["---:"] * (len(HEADS) - 1)]]
        lines += [
            [markdown_text(clean(o.text)), count(o.copies), number(o.before), number(o.after)] for o in probe.outputs
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        title = f"{markdown_text(clean(probe.id))}: {markdown_text(shortened(probe.condition, 200))}"
        sections.append(f"## {title}\n\n{table}\n\n{probe_line(probe)}")
    return "\n\n".join(sections) + "\n"


def probes_csv(probes: Sequence[Probe]) -> str:
    """A line a distinct output, in full precision."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for probe in probes:
        whole = [
            probe.entropy_before, probe.entropy_after, probe.effective_before, probe.effective_after, probe.divergence,
        ]  # fmt: skip
        for o in probe.outputs:
            writer.writerow([probe.id, probe.condition, o.text, o.copies, o.before, o.after, *whole])
    return out.getvalue()


def probes_plot(probes: Sequence[Probe]) -> Figure:
    """A panel a prompt, a row a distinct output: its mass before (open) and after (filled)."""
    drawn = probes[:DRAWN_PROBES]
    most = max(min(len(probe.outputs), DRAWN_ROWS) for probe in drawn)
    with drawing():
        sheet = Sheet(len(drawn), height=0.15 + _LINE * most, left=1.45, right=0.12)
        for axes, probe in zip(sheet.panels, drawn, strict=True):
            sheet.title(axes, f"{probe.condition} ({number(probe.effective_before)} → {number(probe.effective_after)})")
            _dumbbells(axes, probe, most)
        return sheet.figure


def write_probes(probes: Sequence[Probe], folder: str | Path) -> None:
    """Write probes.md, probes.csv and probes.png. Raises RunError where the disk refuses a file."""
    folder = Path(folder)
    write_whole(folder / "probes.md", probes_markdown(probes))
    write_whole(folder / "probes.csv", probes_csv(probes))
    write_whole(folder / "probes.png", to_png(probes_plot(probes)))


def _dumbbells(axes: Axes, probe: Probe, rows: int) -> None:
    plain_axes(axes, numbers="x")
    moved = sorted(probe.outputs, key=_shift, reverse=True)[:DRAWN_ROWS]
    chosen = [output for output in probe.outputs if output in moved]  # by the mass before, as in the table
    colour = series_look(0).color
    for y, output in enumerate(chosen):
        axes.plot([output.before, output.after], [y, y], color=LIGHT["soft"], linewidth=1.0, zorder=1)
        axes.plot([output.before], [y], "o", color=colour, markerfacecolor=LIGHT["paper"], markersize=4, zorder=2)
        axes.plot([output.after], [y], "o", color=colour, markersize=4, zorder=3)
    axes.set_yticks(range(len(chosen)), labels=[shortened(output.text, 24) for output in chosen])
    axes.tick_params(axis="y", labelsize=6)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(left=0.0)
    left_out = len(probe.outputs) - len(chosen)
    more = f"; {count(left_out)} that moved less are left out" if left_out else ""
    axes.set_xlabel(f"mass before (open) and after (filled){more}", labelpad=1)


def _shift(output: ProbedOutput) -> float:
    return abs(output.after - output.before)
