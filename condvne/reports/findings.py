"""What the scores say, in plain sentences.

A group's name stands between the Unicode isolates U+2068 and U+2069, so that a name in a script that runs from right
to left leaves the sentence around it in order; `formatting.clean` keeps these characters out of the names themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from condvne.data.listing import counted
from condvne.data.results import ROUNDING, Cell, Metric, RobustnessMap, Scores
from condvne.reports.formatting import MARKS, clean, count, difference, listed, number, percent, spread


@dataclass(frozen=True)
class Findings:
    """The answer in sentences."""

    lead: str
    groups: list[str]  # one for each group (or, without a reference, each metric)
    robustness: str  # whether the directions hold over order and bandwidth; "" where nothing is compared
    warnings: list[str]
    method: list[str]  # what the numbers may and may not be compared with


def findings(scores: Scores) -> Findings:
    """Which groups differ from the reference, in which direction, where, by how much, and how far to trust it."""
    others = compared(scores)
    if others:
        lead, groups = _lead(scores, others), [_standing(scores, group) for group in others]
    else:
        lead, groups = _no_comparison(scores), _rankings(scores)
    return Findings(lead, groups, _robustness(scores), _warnings(scores), _method(scores))


def name(group: str) -> str:
    """A group's name, isolated from the direction of the text around it."""
    return f"\u2068{clean(group)}\u2069"


def compared(scores: Scores) -> list[str]:
    """The groups that have a difference from the reference somewhere."""
    with_gap = {cell.group for cell in scores.cells if cell.gap}
    return [group for group in scores.groups if group in with_gap]


def confidence(scores: Scores) -> str:
    """The confidence of the intervals, as "95 %"."""
    return percent(next((cell.gap.confidence for cell in scores.cells if cell.gap), 0.95))


def largest(scores: Scores, group: str, metric: str) -> Cell | None:
    """The defined cell of the largest n."""
    cells = [scores.cell(group, metric, n) for n in reversed(scores.sizes)]
    return next((cell for cell in cells if cell), None)


def _lead(scores: Scores, others: list[str]) -> str:
    """The first metric at its largest n, in one sentence."""
    metric = next(m for m in scores.metrics if any(c.gap and c.metric == m.key for c in scores.cells))
    n = max(c.n for c in scores.cells if c.metric == metric.key and c.gap)
    reference = name(scores.reference or "")
    meanings = {
        "below": f"less diverse than {reference}",
        "above": f"more diverse than {reference}",
        "undecided": "undecided: the interval includes zero",
        "unknown": f"not told from {reference}: there is no interval",
    }
    sides: dict[str, list[str]] = {side: [] for side in meanings}
    for group in others:
        cell = scores.cell(group, metric.key, n)
        if cell and cell.gap:
            unknown = cell.gap.direction == "undecided" and cell.gap.low is None
            sides["unknown" if unknown else cell.gap.direction].append(name(group))
    clauses = [
        f"{listed(groups)} {'is' if len(groups) == 1 else 'are'} {meanings[side]}"
        for side, groups in sides.items()
        if groups
    ]
    return f"By {clean(metric.label)} at {_at(n)}, {'; '.join(clauses)}."


def _standing(scores: Scores, group: str) -> str:
    """One group against the reference: every metric at its largest n, then the sizes at which it reads otherwise."""
    lasts: dict[str, list[tuple[Metric, Cell]]] = {direction: [] for direction in MARKS}
    exceptions = []
    for metric in scores.metrics:
        cells = [c for n in scores.sizes if (c := scores.cell(group, metric.key, n)) and c.gap]
        if not cells:
            continue
        final = _direction(cells[-1])
        lasts[final].append((metric, cells[-1]))
        for direction in MARKS:
            sizes = [count(c.n) for c in cells if _direction(c) == direction != final]
            if sizes:
                exceptions.append(f"{direction} by {clean(metric.label)} at n\xa0=\xa0{listed(sizes)}")
    sentence = f"{name(group)} is {_amounts(scores, lasts)}."
    if exceptions:
        return f"{sentence} At smaller n it is {listed(exceptions)}."
    return sentence + (" The same holds at every n." if len(scores.sizes) > 1 else "")


def _amounts(scores: Scores, lasts: dict[str, list[tuple[Metric, Cell]]]) -> str:
    """Where all metrics agree, the first one's numbers stand for all; else each has its own."""
    agreed = [direction for direction, found in lasts.items() if found]
    clauses = []
    for direction in agreed:
        found = lasts[direction]
        first = direction == agreed[0]
        side = f"{direction} {name(scores.reference or '')}" if first and direction != "undecided" else direction
        if len(agreed) == 1 and len(found) > 1:
            every = "every score" if len(found) == len(scores.metrics) else "every score that is defined"
            return f"{side} by {every}: {_contrast(scores, *found[0])}"
        amounts = [_amount(scores, *pair, named=first and k == 0) for k, pair in enumerate(found)]
        clauses.append(f"{side} by {listed(amounts)}")
    return "; ".join(clauses)


def _contrast(scores: Scores, metric: Metric, cell: Cell) -> str:
    """Both scores of a metric, and their difference."""
    against = scores.cell(scores.reference or "", metric.key, cell.n)
    both = f"{number(cell.mean)} against {number(against.mean)} by " if against else ""
    return f"{both}{_amount(scores, metric, cell, named=True)}"


def _amount(scores: Scores, metric: Metric, cell: Cell, named: bool) -> str:
    """A metric with its Δ and interval; the first of a sentence names n and the confidence."""
    assert cell.gap is not None
    delta, ends = difference(cell.gap)
    interval = f", {f'{confidence(scores)} interval ' if named else ''}{ends[0]} to\xa0{ends[1]}" if ends else ""
    size = f" at {_at(cell.n)}" if named or cell.n != scores.sizes[-1] else ""
    return f"{clean(metric.label)}{size} (Δ\xa0{delta}{interval})"


def _direction(cell: Cell) -> str:
    assert cell.gap is not None
    return cell.gap.direction


def _at(n: int) -> str:
    return f"n\xa0=\xa0{count(n)}"


def _no_comparison(scores: Scores) -> str:
    if scores.reference is not None and len(scores.groups) == 1:
        return f"Only the reference group {name(scores.reference)} was scored, so there is nothing to compare it with."
    if scores.reference is not None:
        return f"No score is defined for both {name(scores.reference)} and another group, so nothing is compared."
    text = "No reference group was given, so no differences are tested."
    for metric in scores.metrics:
        ranked = _ranked(scores, metric)
        if len(ranked) > 1:
            return f"{text} By {clean(metric.label)} at {_at(ranked[0].n)}, {_ends(ranked)}.{_contradictions(scores)}"
    return text


def _ends(ranked: list[Cell]) -> str:
    """Which group scores highest, and lowest, unless their subsamples spread as far as they differ."""
    first, last = ranked[0], ranked[-1]
    if first.std is not None and last.std is not None and first.mean - last.mean <= first.std + last.std:
        return "the groups differ by no more than the spread of their subsamples, so none is told from another"
    return f"{name(first.group)} scores highest and {name(last.group)} lowest"


def _contradictions(scores: Scores) -> str:
    """That scores put different groups first."""
    firsts = {ranked[0].group for metric in scores.metrics if len(ranked := _ranked(scores, metric)) > 1}
    return " Other scores put another group first." if len(firsts) > 1 else ""


def _ranked(scores: Scores, metric: Metric) -> list[Cell]:
    """The cells of a metric at its largest n, most diverse first."""
    cells = [c for c in scores.cells if c.metric == metric.key]
    n = max((c.n for c in cells), default=0)
    return sorted((c for c in cells if c.n == n), key=lambda c: -c.mean)


def _rankings(scores: Scores) -> list[str]:
    """One sentence for each metric."""
    sentences = []
    for metric in scores.metrics:
        ranked = _ranked(scores, metric)
        if not ranked:
            sentences.append(f"{clean(metric.label)} is undefined for every group.")
            continue
        numbers = [f"{name(c.group)} {spread(c.mean, c.std)}".replace(" ±", "\xa0±") for c in ranked]
        sentences.append(f"{clean(metric.label)} at {_at(ranked[0].n)}: {listed(numbers)}.")
    return sentences


def _robustness(scores: Scores) -> str:
    if not compared(scores):
        return ""
    if not scores.robustness:
        return "Whether the directions depend on order or bandwidth was not examined."
    reference = name(scores.reference or "")
    clauses = []
    for direction, words in (("below", "below"), ("above", "above"), ("undecided", "level with")):
        groups = [name(m.group) for m in scores.robustness if m.verdict == direction and not _mixed(m)]
        if groups:
            clauses.append(f"{listed(groups)} {'is' if len(groups) == 1 else 'are'} {words} {reference}")
    n = listed(sorted({_at(m.n) for m in scores.robustness}))
    tried = "order and bandwidth" if any(len(m.multipliers) > 1 for m in scores.robustness) else "order"
    return f"At {n}, {'; '.join(clauses)} for every {tried} tried." if clauses else ""


def _mixed(robustness: RobustnessMap) -> bool:
    """Whether the map has both signs: then order or bandwidth decide the ranking."""
    gaps = robustness.differences()
    return min(gaps, default=0.0) < -ROUNDING and max(gaps, default=0.0) > ROUNDING


def _warnings(scores: Scores) -> list[str]:
    """What should keep a reader from a quick conclusion."""
    found = [_sentence(text) for text in scores.warnings]
    found += [_sentence(m.sentence) for m in scores.robustness if _mixed(m)]
    for group in compared(scores):
        sides: dict[str, list[str]] = {"below": [], "above": []}
        for metric in scores.metrics:
            cell = largest(scores, group, metric.key)
            if cell and cell.gap and cell.gap.direction in sides:
                sides[cell.gap.direction].append(clean(metric.label))
        if all(sides.values()):
            below, above = listed(sides["below"]), listed(sides["above"])
            found.append(f"The scores disagree on {name(group)}: below by {below}, above by {above}.")
    return found


def _method(scores: Scores) -> list[str]:
    lines = []
    distinct = any(m.key.startswith("distinct") for m in scores.metrics)
    falling = " while Distinct scores fall" if distinct else ""
    lines.append(
        f"Effective numbers tend to grow with the number of conditions n{falling}: "
        "scores are comparable at equal n only."
    )
    if scores.repeats == 1:
        lines.append("One subsample was drawn at each n, so there is no spread and no interval.")
    elif compared(scores):
        lines.append(
            f"Each difference Δ is paired: both groups are scored on the same {count(scores.repeats)} subsamples of "
            f"the {counted(scores.available, 'condition')} available. Its {confidence(scores)} interval speaks of "
            "fresh conditions, not of this pool only, so it accounts for the pool’s size."
        )
    if scores.repeats > 1 and scores.available in scores.sizes:
        lines.append(f"At {_at(scores.available)} all that is available is used at once.")
    return lines


def _sentence(text: str) -> str:
    """A sentence from the results: on one line, with its full stop."""
    text = clean(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."
