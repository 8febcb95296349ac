"""What a reweighting did: sentences, the table of the weighted candidates, and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from condvne.data.results import Cell, Scores
from condvne.data.reweighting import Inequality, Reweighting
from condvne.data.storage import write_whole
from condvne.reports.formatting import MARKS, UNDEFINED, count, difference, number, shortened, spread
from condvne.reports.palette import LIGHT, Look, look, series_look
from condvne.reports.panels import Sheet, plain_axes
from condvne.reports.probes import write_probes
from condvne.reports.svg import drawing, to_png
from condvne.reports.tables import markdown_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

HEADS = ("score", "n", "before", "after", "Δ")
NAMES = {"conditional_vendi": "Cond. VNE", "conditional_rke": "Cond. RKE"}
WEIGHTED = "All candidates with their weights, exact kernel"
DRAWN = "One output a prompt"


def reweighting_lines(found: Reweighting) -> list[str]:
    """The projection in sentences: aim, entropies on the sketch, certificate, how far the weights moved, theorem 1."""
    aim = f"λ = {number(found.lam or 0)}" if found.target is None else f"target {number(found.target)} nats"
    if found.target is not None and not found.reached:
        aim += ", out of reach"
        aim += f" (largest {number(found.largest)})" if found.largest is not None else ""
    if found.lam == 0:
        aim += ", weights unchanged" if found.target is None else ", not above what there is: weights unchanged"
    certificate = f"certified within {found.relative_certificate:.1e} λ log M of the optimum"
    lines = [
        f"{aim}: conditional entropy {number(found.before)} → {number(found.after)} nats on the sketch of "
        f"{count(found.num_features)} features, {certificate} after {count(found.iterations)} iterations.",
        f"Effective candidates a prompt {number(found.candidates_before)} → {number(found.candidates_after)}; "
        f"divergence from the weights before {number(found.divergence)} nats, mean features moved by "
        f"{number(found.distance)}.",
    ]
    return lines if found.inequality is None else [*lines, inequality_line(found.inequality)]


def inequality_line(found: Inequality) -> str:
    """Theorem 1 in one sentence: the three terms, whether it holds, and whether it had to."""
    sums = found.to_after + found.moved
    text = (
        f"Theorem 1 with the reference as p, exact kernel: MMD²(p, after) {number(found.to_after)} + "
        f"MMD²(after, before) {number(found.moved)} = {number(sums)} {'≤' if found.holds else '>'} MMD²(p, before) "
        f"{number(found.to_before)}: it {'holds' if found.holds else 'does not hold'}"
    )
    if found.promised:
        return f"{text}, as it must but for the sketch's error."
    short = []
    if found.entropy < found.entropy_after:
        short.append(
            f"the reference's conditional entropy, {number(found.entropy)} nats, is below the "
            f"{number(found.entropy_after)} of the weighted candidates"
        )
    if found.among_candidates < found.conditions:
        short.append(
            f"its output is among the candidates for {count(found.among_candidates)} of "
            f"{count(found.conditions)} prompts"
        )
    return f"{text}, and need not, since {' and '.join(short)}."


def weighted_rows(found: Reweighting) -> list[list[str]]:
    """A row a score and size, as text, in the order of HEADS: before and after are the candidates' two weights."""
    rows = []
    for metric, n in dict.fromkeys((cell.metric, cell.n) for cell in found.cells):
        before, after = (_cell(found, group, metric, n) for group in ("before", "after"))
        texts = [UNDEFINED if c is None else spread(c.mean, c.std) for c in (before, after)]
        rows.append([NAMES.get(metric, metric), count(n), *texts, _delta(after)])
    return rows


def weighted_caption(found: Reweighting) -> str:
    """What the table of weighted candidates shows."""
    text = f"{WEIGHTED}: effective numbers, mean ± standard deviation over subsamples of n prompts, Δ paired."
    estimated = max((cell.numerical_error for cell in found.cells), default=0.0)
    return text + (f" Estimated from matrix products, off by {number(estimated, 2)} at most." if estimated else "")


def reweighting_markdown(found: Reweighting, title: str) -> str:
    """Sentences and table as Markdown."""
    lines = [list(HEADS), ["---", *["---:"] * (len(HEADS) - 1)]]
    lines += [[markdown_text(text) for text in row] for row in weighted_rows(found)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    told = "\n".join(f"* {markdown_text(line)}" for line in reweighting_lines(found))
    return f"# {markdown_text(title)}\n\n{told}\n\n{table}\n\n{markdown_text(weighted_caption(found))}\n"


def terminal_weighted(found: Reweighting) -> Table:
    """The table for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(WEIGHTED, style="bold"), box=box.SIMPLE_HEAD, title_justify="left")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "score" else "right", overflow="fold")
    for row in weighted_rows(found):
        table.add_row(*map(Text, row))
    return table


def reweighting_plot(found: Reweighting, scores: Scores) -> Figure:
    """Cond. VNE of all candidates before and after, and beside the reference of one output a prompt; their spread over
    subsamples; and how many effective candidates the prompts have."""
    beside = scores.reference not in (None, "before")
    with drawing():
        sheet = Sheet(3 if beside else 2, height=1.2, left=0.85, right=0.15)
        panels = iter(sheet.panels)
        if beside:
            axes = next(panels)
            sheet.title(axes, f"{DRAWN}: Cond. VNE")
            n = scores.sizes[-1]
            cells = [(g, scores.cell(g, "conditional_vendi", n), look(scores, g)) for g in scores.groups]
            _points(axes, cells, n)
        axes, n = next(panels), max((cell.n for cell in found.cells), default=0)
        sheet.title(axes, "All candidates, weighted: Cond. VNE")
        groups = zip(("before", "after"), _looks(scores), strict=True)
        _points(axes, [(g, _cell(found, g, "conditional_vendi", n), style) for g, style in groups], n)
        axes = next(panels)
        sheet.title(axes, "Effective candidates a prompt")
        _histogram(axes, found, _looks(scores))
        return sheet.figure


def write_reweighting(found: Reweighting, scores: Scores, folder: str | Path) -> None:
    """Write reweighting.md and reweighting.png, and the probes' files. Raises RunError where the disk refuses one."""
    folder = Path(folder)
    write_whole(folder / "reweighting.md", reweighting_markdown(found, f"Reweighting of {scores.title}"))
    write_whole(folder / "reweighting.png", to_png(reweighting_plot(found, scores)))
    if found.probes:
        write_probes(found.probes, folder)


def _looks(scores: Scores) -> tuple[Look, Look]:
    before, after = (
        look(scores, g) if g in scores.groups else series_look(k) for k, g in enumerate(("before", "after"))
    )
    return before, after


def _points(axes: Axes, cells: list[tuple[str, Cell | None, Look]], n: int) -> None:
    plain_axes(axes, numbers="x")
    for y, (_, cell, style) in enumerate(cells):
        if cell is None:
            continue
        axes.errorbar(cell.mean, y, xerr=cell.std or 0.0, color=style.color, linewidth=1.1)
        style.plot(axes, [cell.mean], [y])
        told = number(cell.mean) if cell.gap is None else f"{number(cell.mean)}  Δ {_delta(cell)}"
        axes.text(0.0, y - 0.16, told, transform=axes.get_yaxis_transform(), size=6.5, va="bottom")
    axes.set_yticks(range(len(cells)), labels=[shortened(name, 16) for name, _, _ in cells])
    axes.set_ylim(len(cells) - 0.5, -0.8)
    axes.margins(x=0.15)
    axes.set_xlabel(f"score at n = {count(n)}", labelpad=1)


def _histogram(axes: Axes, found: Reweighting, styles: tuple[Look, Look]) -> None:
    plain_axes(axes, numbers="y")
    bins = found.effective
    if bins is None:
        return
    middles = [(a + b) / 2 for a, b in zip(bins.edges[:-1], bins.edges[1:], strict=True)]
    width = bins.edges[1] - bins.edges[0]
    for name, counts, style in zip(("before", "after"), (bins.before, bins.after), styles, strict=True):
        axes.bar(middles, counts, width, color=style.color, alpha=0.45, linewidth=0, label=name)
    axes.set_ylabel("prompts", labelpad=2)
    axes.set_xlabel("exp of the entropy of a prompt's weights", labelpad=1)
    axes.legend(frameon=False, fontsize=7, labelcolor=LIGHT["soft"])


def _cell(found: Reweighting, group: str, metric: str, n: int) -> Cell | None:
    return next((c for c in found.cells if (c.group, c.metric, c.n) == (group, metric, n)), None)


def _delta(cell: Cell | None) -> str:
    if cell is None or cell.gap is None:
        return UNDEFINED
    delta, ends = difference(cell.gap)
    return f"{MARKS[cell.gap.direction]} {delta}" + (f" [{ends[0]}, {ends[1]}]" if ends else "")
