"""What `condvne profile` found (`profile.json`): curves of scores over their parameter, and what they say."""

from __future__ import annotations

from typing import Any, Literal

from condvne.data.results import Result

Parameter = float | Literal["inf"]
Verdict = Literal["above", "below", "equal", "crosses", "undecided"]


class Curve(Result):
    """A score of one set over the family's grid."""

    group: str
    n: int
    values: list[float]  # of Circles lower bounds
    ceilings: list[float]  # upper bounds; the values where they are exact
    lower: list[float] | None  # ends of the pointwise band; None without half-samples
    upper: list[float] | None
    full: float  # share of the grid at which the curve says "all n items", to 2 %
    single: float  # and "one item"


class CurveCrossing(Result):
    """Where one curve passes the other."""

    lower: Parameter
    upper: Parameter
    at: Parameter
    before: str  # the set that is above at `lower`


class CurveComparison(Result):
    """Two sets over one family."""

    first: str
    second: str
    verdict: Verdict  # of the first over the second, on the whole grid
    crossings: list[CurveCrossing]
    above: float  # shares of the grid
    below: float
    undecided: float
    lead_above: float | None  # by how much the first exceeds the second at most, relative; None for energies
    lead_below: float | None  # and the second the first
    confidence: float | None  # share of pairs of half-samples with the same verdict
    support: dict[Verdict, float] | None  # shares of pairs of half-samples with each verdict


class FamilyCurves(Result):
    """All sets over one family of scores."""

    key: str
    title: str
    parameter: str  # "order"
    symbol: str  # "q"
    grid: list[Parameter]
    positions: list[float]  # of the parameters on an axis: thresholds themselves, else places in the geometric grid
    curves: list[Curve]
    comparisons: list[CurveComparison]


class DistanceHistogram(Result):
    """Pairwise distances of one set."""

    group: str
    edges: list[float]
    shares: list[float]  # of the pairs in each bin
    mean: float
    std: float
    relative_contrast: float | None  # mean distance over that of the nearest item; None where copies make it infinite


class SingleScores(Result):
    """Scores of one set that have no parameter."""

    group: str
    n: int
    richness: float  # distinct items
    average_distance: float


class ProfileStudy(Result):
    """Profiles of several sets in one representation."""

    title: str
    kind: str
    representation: str
    singles: list[SingleScores]
    families: list[FamilyCurves]
    histograms: list[DistanceHistogram]
    sentences: list[str]  # one for each pair of sets
    warnings: list[str]
    notes: list[str]
    confidence: float  # of the bands
    resamples: int
    settings: dict[str, Any]
    seed: int
