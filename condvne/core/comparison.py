"""Which of two sets is more diverse, at which parameters, and how sure that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.families import FAMILIES, Energy, Family, as_family, default_grid
from condvne.core.items import ItemSet
from condvne.core.profiles import CONFIDENCE, RESAMPLES, SEED, Profile, profile
from condvne.errors import InputError

SHOWN_CROSSINGS = 4  # in a sentence
TIE = 1e-8  # relative; magnitudes of large sets are accurate to a tenth of it
Verdict = Literal["above", "below", "equal", "crosses", "undecided"]


@dataclass(frozen=True)
class Crossing:
    """Where one curve passes the other.

    Attributes:
        lower, upper: neighbouring parameters with the curves in opposite order; ties may lie between.
        at: in between, interpolated.
        before: name of the set that is above at `lower`.
    """

    lower: float
    upper: float
    at: float
    before: str


@dataclass(frozen=True)
class Comparison:
    """Two profiles of one family.

    Attributes:
        family: of both.
        names: of the sets, a then b.
        sizes: items in each.
        verdict: of a over b on the grid: "above" (never below, somewhere above), "below", "equal", "crosses", or
            "undecided" where bounds on Circles overlap and no crossing is certain.
        crossings: in order of the parameter.
        share_above, share_below, share_undecided: of the grid.
        lead_above, lead_below: by how much a exceeds b at most, relative to b, and b exceeds a, relative to a; zero
            where it nowhere does, None for energies, which are negative.
        confidence: share of pairs of half-samples with the same verdict (of a crossing: any); None without resamples of
            one size, and for "undecided".
        support: that share for each verdict.
    """

    family: Family
    names: tuple[str, str]
    sizes: tuple[int, int]
    verdict: Verdict
    crossings: tuple[Crossing, ...]
    share_above: float
    share_below: float
    share_undecided: float
    lead_above: float | None
    lead_below: float | None
    confidence: float | None
    support: dict[Verdict, float] | None

    @property
    def note(self) -> str | None:
        """A warning where the sets are of different size."""
        if self.sizes[0] == self.sizes[1]:
            return None
        return size_note(self.names, self.sizes)

    @property
    def sentence(self) -> str:
        """The comparison in words, with what half-samples say where they do not agree."""
        note = "" if self.note is None else f" {self.note}"
        return f"{told([self])}{note}"


def size_note(names: tuple[str, str], sizes: tuple[int, int]) -> str:
    return (
        f"{names[0]} has {sizes[0]} items and {names[1]} {sizes[1]}: scores grow with the number of items, "
        "so compare sets of equal size."
    )


def compare(a: Profile, b: Profile) -> Comparison:
    """Dominance and crossings of two profiles.

    Raises InputError where they are of unlike families, representations or grids.
    """
    if a.family != b.family:
        raise InputError(
            f"profiles of {a.family.title} and {b.family.title} cannot be compared (or of other settings)."
        )
    if a.representation != b.representation:
        raise InputError(
            f"{a.name} is of {a.representation} and {b.name} of {b.representation}: use one representation "
            "(for a bandwidth, that of the reference set) for both."
        )
    if a.grid != b.grid:
        raise InputError(f"the profiles of {a.name} and {b.name} have different grids; compute both on one.")
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (first)", f"{b.name} (second)")
    signs = _signs(a, b)
    crossings = _crossings(a, b, signs, names)
    verdict = _verdict(signs, crossings)
    support = _support(a, b)
    confidence = None if support is None or verdict == "undecided" else support[verdict]
    return Comparison(
        family=a.family,
        names=names,
        sizes=(a.n, b.n),
        verdict=verdict,
        crossings=crossings,
        share_above=float((signs == 1).double().mean()),
        share_below=float((signs == -1).double().mean()),
        share_undecided=float(signs.isnan().double().mean()),
        lead_above=_lead(a, b, signs == 1),
        lead_below=_lead(b, a, signs == -1),
        confidence=confidence,
        support=support,
    )


def _lead(a: Profile, b: Profile, where: Tensor) -> float | None:
    """The largest certain relative excess of a over b."""
    if isinstance(a.family, Energy):
        return None
    return float((a.values / b.ceilings - 1)[where].max()) if bool(where.any()) else 0.0


def _tolerance(a: Tensor, b: Tensor) -> Tensor:
    return TIE * torch.maximum(a.abs(), b.abs())


def _signs(a: Profile, b: Profile) -> Tensor:
    """(parameters,): 1 where a is certainly above b, -1 below, 0 equal, NaN where bounds overlap."""
    slack = _tolerance(a.values, b.values)
    signs = torch.full_like(a.values, math.nan)
    known = (a.values == a.ceilings) & (b.values == b.ceilings)
    signs[known & ((a.values - b.values).abs() <= slack)] = 0
    signs[a.values - b.ceilings > slack] = 1
    signs[b.values - a.ceilings > slack] = -1
    return signs


def _crossings(a: Profile, b: Profile, signs: Tensor, names: tuple[str, str]) -> tuple[Crossing, ...]:
    family, found = a.family, []
    certain = [k for k in range(len(a.grid)) if float(signs[k]) in (1.0, -1.0)]
    for i, j in itertools.pairwise(certain):
        if signs[i] == signs[j]:
            continue
        left, right = family.position(a.grid[i]), family.position(a.grid[j])
        ties = [family.position(a.grid[k]) for k in range(i + 1, j) if signs[k] == 0]
        if ties:
            at = (ties[0] + ties[-1]) / 2
        else:
            before, after = (abs(float(a.values[k] - b.values[k])) for k in (i, j))
            at = left + (right - left) * (before / (before + after) if before + after else 0.5)
        above = names[0] if signs[i] > 0 else names[1]
        found.append(Crossing(a.grid[i], a.grid[j], family.parameter_at(at), above))
    return tuple(found)


def _verdict(signs: Tensor, crossings: Sequence[Crossing]) -> Verdict:
    if crossings:
        return "crosses"
    if bool(signs.isnan().any()):
        return "undecided"
    if bool((signs == 0).all()):
        return "equal"
    return "above" if bool((signs >= 0).all()) else "below"


def _support(a: Profile, b: Profile) -> dict[Verdict, float] | None:
    """Shares of pairs of half-samples with each verdict, at the size of the half-samples."""
    if a.replicates is None or b.replicates is None or a.resample_size != b.resample_size:
        return None
    pairs = min(len(a.replicates), len(b.replicates))
    A, B = a.replicates[:pairs], b.replicates[:pairs]
    slack = _tolerance(A, B)
    over, under = (slack < A - B).any(-1), (slack < B - A).any(-1)
    verdicts: dict[Verdict, Tensor] = {
        "above": over & ~under,
        "below": under & ~over,
        "equal": ~over & ~under,
        "crosses": over & under,
    }
    return {verdict: float(at.double().mean()) for verdict, at in verdicts.items()}


@dataclass(frozen=True)
class SetComparison:
    """Two sets over several families, each with its comparison and profiles."""

    comparisons: tuple[Comparison, ...]
    profiles: tuple[tuple[Profile, Profile], ...]

    @property
    def sentence(self) -> str:
        """All families in words, where half-samples do not agree, and that the sets are of different size if so."""
        note = self.comparisons[0].note
        return f"{told(self.comparisons)}{'' if note is None else f' {note}'}"


def compare_sets(
    a: ItemSet,
    b: ItemSet,
    families: Sequence[Family | str] | Family | str = tuple(FAMILIES),
    *,
    points: int = 101,
    resamples: int = RESAMPLES,
    epsilon: float | None = None,
    generator: torch.Generator | None = None,
) -> SetComparison:
    """Profiles of both sets on common grids, and what they say.

    Half-samples of both have the size of half the smaller set, so that the confidence is of a comparison at equal size
    even where the curves are not; of two or three items there are none. Arguments and errors as for `profile` and
    `compare`, and InputError where a family comes twice or none at all.
    """
    chosen = [as_family(f) for f in ([families] if isinstance(families, Family | str) else families)]
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"families must be one or more, each once, but are {families!r}.")
    generator = generator or torch.Generator().manual_seed(SEED)
    size = min(a.n, b.n) // 2
    resamples = resamples if size >= 2 else 0
    pairs = []
    for family in chosen:
        grid = default_grid(family, a, b, points=points)
        of_a, of_b = (
            profile(
                items,
                family,
                grid,
                resamples=resamples,
                resample_size=size if resamples else None,
                epsilon=epsilon if isinstance(family, Energy) else None,
                generator=generator,
            )
            for items in (a, b)
        )
        pairs.append((of_a, of_b))
    return SetComparison(tuple(compare(*pair) for pair in pairs), tuple(pairs))


def told(comparisons: Sequence[Comparison], level: float = CONFIDENCE) -> str:
    """Comparisons of the same two sets in sentences: verdicts that half-samples confirm, then those they do not.

    Args:
        level: share of pairs of half-samples that must have the same verdict.
    """
    unsure = [c for c in comparisons if c.confidence is not None and c.confidence < level]
    open_ones = [c for c in unsure if c.verdict != "crosses"]
    sure = [c for c in comparisons if c not in open_ones]
    sentences = [f"{summary_of(sure)}."] if sure else []
    sentences += [f"Of half-samples for {c.family.title}, {_shares(c)}." for c in unsure if c.verdict == "crosses"]
    sentences += [
        f"{c.family.title} does not decide: {_words(c)[c.verdict]} on all items, but of half-samples {_shares(c)}."
        for c in open_ones
    ]
    if all(c.support is None for c in comparisons):
        sentences.append("How sure that is was not examined: there are no half-samples of equal size.")
    return " ".join(sentences)


def _words(c: Comparison) -> dict[Verdict, str]:
    a, b = c.names
    return {"above": f"{a} above", "below": f"{b} above", "equal": "no difference", "crosses": "a crossing"}


def _shares(c: Comparison) -> str:
    """What half-samples say, the most frequent first: "A above in 60 % and a crossing in 40 %"."""
    ordered = sorted((c.support or {}).items(), key=lambda pair: -pair[1])
    return _listed([f"{_words(c)[verdict]} in {100 * share:.0f} %" for verdict, share in ordered if share >= 0.005])


def summary_of(comparisons: Sequence[Comparison]) -> str:
    """The verdicts of comparisons of the same two sets in words, those in which one dominates first."""
    a, b = comparisons[0].names
    clauses = []
    for verdict, words in (("above", f"{a} above {b}"), ("below", f"{b} above {a}"), ("equal", f"{a} equal to {b}")):
        where = [
            f"every {c.family.parameter} in {c.family.title}{_level(c)}" for c in comparisons if c.verdict == verdict
        ]
        if where:
            clauses.append(f"{words} for {_listed(where)}")
    dominance = bool(clauses)
    for c in comparisons:
        if c.verdict == "crosses":
            clauses.append(f"{c.family.title} {_crossing_words(c)}")
        elif c.verdict == "undecided":
            clauses.append(f"{c.family.title} is undecided at {100 * c.share_undecided:.0f} % of the {_plural(c)}")
    text = "; ".join(clauses)
    return text if dominance else f"{a} and {b}: {text}"


def _crossing_words(c: Comparison) -> str:
    """Where curves cross, and which set is above for how much of the grid, by how much."""
    at = [f"{c.family.symbol} = {crossing.at:.3g}" for crossing in c.crossings]
    if len(at) > SHOWN_CROSSINGS:
        at = [*at[: SHOWN_CROSSINGS - 1], f"{len(at) - SHOWN_CROSSINGS + 1} more"]
    sides = zip(c.names, (c.share_above, c.share_below), (c.lead_above, c.lead_below), strict=True)
    where = [
        f"{name} above at {_percent(share)} of the {_plural(c)}{'' if lead is None else f', by up to {_percent(lead)}'}"
        for name, share, lead in sides
    ]
    return f"crosses at {_listed(at)} ({'; '.join(where)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _level(comparison: Comparison) -> str:
    """Where a set that is never below is not above either."""
    level = 1 - comparison.share_above - comparison.share_below
    return f" (level at {100 * level:.0f} %)" if comparison.verdict != "equal" and 100 * level >= 0.5 else ""


def _plural(comparison: Comparison) -> str:
    return f"{comparison.family.parameter}s"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
