"""Dominance and crossings of profiles whose order is known, and the sentences that say so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.core.comparison import Comparison, told
from condvne.core.families import FAMILIES, as_family
from condvne.core.profiles import Profile
from tests.references import double, points

UNKNOWN = "How sure that is was not examined: there are no half-samples of equal size."


def line(name: str, *at: float) -> cv.ItemSet:
    return cv.ItemSet(cv.distances(double(at)[:, None]), name=name)


def made(name: str, values: Any, ceilings: Any = None, family: str = "circles", **options: Any) -> Profile:
    """A profile with given values at thresholds 1, 2, 3, …"""
    values = double(values)
    grid = tuple(float(k + 1) for k in range(len(values)))
    ceilings = values if ceilings is None else double(ceilings)
    return Profile(as_family(family), "distances", name, options.pop("n", 9), grid, values, ceilings, **options)


def curves(a: cv.ItemSet, b: cv.ItemSet, family: Any, grid: Any = None, **options: Any) -> Comparison:
    return cv.compare(*(cv.profile(s, family, grid, resamples=0, **options) for s in (a, b)))


def test_figure_1_of_the_paper() -> None:
    """A = {1, 2, 3} has more items, B = {0, 4} more distance: which is more diverse depends on the resolution."""
    a, b = line("A", 1, 2, 3), line("B", 0, 4)
    found = curves(a, b, "circles", [0, 0.5, 1, 1.5, 2, 3, 4])
    assert found.verdict == "crosses"
    assert [(c.lower, c.upper, c.before) for c in found.crossings] == [(0.5, 2.0, "A")]
    assert found.crossings[0].at == 1.25  # the middle of the tie
    assert (found.share_above, found.share_below) == (2 / 7, 2 / 7)
    grid = torch.logspace(-3, 1, 200, dtype=torch.float64).tolist()
    found = curves(a, b, "magnitude", grid)
    low, high = 0.1, 5.0  # 1 + 2 tanh(t/2) = 1 + tanh(2t), by bisection
    for _ in range(60):
        t = (low + high) / 2
        low, high = (t, high) if math.tanh(2 * t) > 2 * math.tanh(t / 2) else (low, t)
    (crossing,) = found.crossings
    assert crossing.lower < low < crossing.upper
    assert crossing.at == pytest.approx(low, rel=1e-3)
    assert crossing.before == "B"
    assert (
        found.sentence
        == f"A and B: magnitude crosses at t = {low:.3g} (A above at 24 % of the scales, by up to 50 %; B above at "
        f"76 % of the scales, by up to 19 %). {UNKNOWN} A has 3 items and B 2: scores grow with the number of "
        "items, so compare sets of equal size."
    )


def test_dominance() -> None:
    wide, narrow = line("wide", 0, 2, 4, 6.5), line("narrow", 0, 1, 2, 3.25)
    for family in ("magnitude", "circles", "energy"):
        found = curves(wide, narrow, family, [0.5, 1.0, 2.5])
        mirrored = curves(narrow, wide, family, [0.5, 1.0, 2.5])
        assert (found.verdict, mirrored.verdict) == ("above", "below")
        assert (found.share_above, mirrored.share_below) == (1.0, 1.0) or family == "circles"
        assert found.note is None
        assert found.confidence is None
    assert found.sentence == mirrored.sentence == f"wide above narrow for every exponent in energy. {UNKNOWN}"


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([3, 2, 1], [3, 2, 1], "equal"),
        ([3, 2, 1], [3, 1, 1], "above"),
        ([3, 2, 1], [3, 2 * (1 + 1e-12), 1], "equal"),
        ([3, 1, 1], [3, 2, 1], "below"),
        ([3, 1, 2], [2, 1, 3], "crosses"),
    ],
)
def test_verdicts(a: Any, b: Any, verdict: str) -> None:
    assert cv.compare(made("A", a), made("B", b)).verdict == verdict


def test_several_crossings_are_all_listed() -> None:
    found = cv.compare(made("A", [3, 1, 3, 1]), made("B", [2, 2, 2, 2]))
    assert [c.at for c in found.crossings] == [1.5, 2.5, 3.5]
    assert [c.before for c in found.crossings] == ["A", "B", "A"]
    assert found.sentence == (
        "A and B: Circles crosses at τ = 1.5, τ = 2.5 and τ = 3.5 (A above at 50 % of the thresholds, by up to 50 %; B "
        f"above at 50 % of the thresholds, by up to 100 %). {UNKNOWN}"
    )
    assert (found.lead_above, found.lead_below) == (0.5, 1.0)


def test_crossings_are_interpolated_in_the_coordinate_of_the_family() -> None:
    a, b = [4.0, 1.0], [1.0, 2.0]  # differences 3 and -1
    at = {f: cv.compare(made("A", a, family=f), made("B", b, family=f)).crossings[0].at for f in FAMILIES}
    assert at["circles"] == pytest.approx(1.75)
    assert at["magnitude"] == at["energy"] == pytest.approx(2**0.75)
    assert 1 / at["vendi"] == pytest.approx(1 - 0.75 * 0.5)
    ends = (1.0, math.inf)
    found = cv.compare(
        replace(made("A", a, family="vendi"), grid=ends), replace(made("B", b, family="vendi"), grid=ends)
    )
    assert found.crossings[0].at == pytest.approx(4.0)


def test_bounds_that_overlap_are_undecided() -> None:
    a, b = made("A", [5, 3, 2], [5, 4, 2]), made("B", [4, 2, 1], [4, 3, 2])
    found = cv.compare(a, b)
    assert found.verdict == "undecided"
    assert found.share_undecided == pytest.approx(2 / 3)
    assert "Circles is undecided at 67 % of the thresholds" in found.sentence
    assert cv.compare(made("A", [5, 3], [5, 4]), made("B", [4, 2], [4, 2])).verdict == "above"
    crossing = cv.compare(made("A", [5, 3, 1], [5, 4, 1]), made("B", [4, 2, 2], [4, 3, 2]))
    assert [(c.lower, c.upper) for c in crossing.crossings] == [(1.0, 3.0)]


def test_confidence_is_the_share_of_half_samples() -> None:
    replicates = double([[2, 2], [3, 1], [2, 1], [1, 1]])
    a = made("A", [3, 2], replicates=replicates, resample_size=4)
    b = made("B", [2, 1], replicates=double([[1, 1], [1, 2], [2, 1], [2, 1]]), resample_size=4)
    found = cv.compare(a, b)
    assert found.support == {"above": 0.25, "below": 0.25, "equal": 0.25, "crosses": 0.25}
    assert found.confidence == 0.25
    assert found.sentence == (
        "Circles does not decide: A above on all items, but of half-samples A above in 25 %, B above in 25 %, no "
        "difference in 25 % and a crossing in 25 %."
    )
    assert cv.compare(a, replace(b, resample_size=5)).confidence is None


def test_a_clear_difference_is_certain() -> None:
    sets = cv.item_sets({"wide": points(40, 6, 0), "tight": 0.3 * points(40, 6, 1)}, "euclidean")
    found = cv.compare_sets(sets["wide"], sets["tight"], points=25, resamples=40)
    assert all(c.verdict == "above" and c.confidence is not None and c.confidence > 0.95 for c in found.comparisons)
    assert found.sentence == (
        "wide above tight for every order in Vendi, every scale in magnitude, every threshold in Circles "
        "(level at 4 %) and every exponent in energy."
    )


@pytest.mark.parametrize("family", ["vendi", "magnitude", "energy"])
def test_two_samples_of_one_law_are_rarely_told_apart(family: Any) -> None:
    """A two-sided test at 5 % would be wrong in 1 of 20 pairs."""
    certain = 0
    for seed in range(0, 40, 2):
        sets = [cv.ItemSet.from_features(points(30, 3, seed + k), "euclidean", bandwidth=1.5) for k in (0, 1)]
        generator = torch.Generator().manual_seed(seed)
        of_a, of_b = (cv.profile(s, family, [1.0], resamples=60, generator=generator) for s in sets)
        support = cv.compare(of_a, of_b).support
        assert support is not None
        certain += max(support["above"], support["below"]) > 0.975
    assert certain <= 4


def test_one_sentence_for_several_families() -> None:
    """Two tight pairs far apart against points evenly spread."""
    pairs, even = line("pairs", 0, 0.5, 9.5, 10), line("even", 0, 2.5, 5, 7.5)
    found = cv.compare_sets(even, pairs, ["magnitude", "circles", "energy"], points=60, resamples=0)
    assert [c.verdict for c in found.comparisons] == ["crosses", "crosses", "above"]
    of_magnitude, of_circles = (c.crossings for c in found.comparisons[:2])
    assert [(c.lower, c.upper, c.before) for c in of_circles] == [(0.5, 7.5, "even")]
    assert found.sentence == (
        "even above pairs for every exponent in energy; "
        f"magnitude crosses at t = {of_magnitude[0].at:.3g} (even above at 38 % of the scales, by up to 44 %; pairs "
        f"above at 62 % of the scales, by up to 7.3 %); Circles crosses at τ = {of_circles[0].at:.3g} (even above at "
        f"14 % of the thresholds, by up to 100 %; pairs above at 43 % of the thresholds, by up to 100 %). {UNKNOWN}"
    )


def test_sets_of_different_size_are_compared_at_equal_size_and_said_so() -> None:
    sets = cv.item_sets({"many": points(40, 3, 0), "few": points(24, 3, 1)}, "euclidean")
    found = cv.compare_sets(sets["many"], sets["few"], ["vendi"], points=9, resamples=10)
    assert found.sentence.endswith(
        "many has 40 items and few 24: scores grow with the number of items, so compare sets of equal size."
    )
    assert [p.resample_size for p in found.profiles[0]] == [12, 12]
    assert found.comparisons[0].confidence is not None


@pytest.mark.parametrize(
    ("b", "complaint"),
    [
        (made("B", [2, 1], family="energy"), "profiles of Circles and energy cannot be compared"),
        (made("B", [2, 1, 1]), "different grids"),
        (replace(made("B", [2, 1]), representation="cosine distance"), "A is of distances and B of cosine distance"),
    ],
)
def test_profiles_that_cannot_be_compared(b: Profile, complaint: str) -> None:
    with pytest.raises(cv.InputError, match=complaint):
        cv.compare(made("A", [2, 1]), b)


def test_sets_with_a_bandwidth_each_cannot_be_compared() -> None:
    a, b = (cv.ItemSet.from_features(points(9, 3, s), "euclidean", name=f"set {s}") for s in (0, 1))
    with pytest.raises(cv.InputError, match="that of the reference set"):
        cv.compare_sets(a, b, ["circles"])


@pytest.mark.parametrize("given", [[], ["circles", "circles"]])
def test_no_families_or_one_twice(given: list[Any]) -> None:
    with pytest.raises(cv.InputError, match="one or more, each once"):
        cv.compare_sets(line("A", 0, 1), line("B", 0, 1), given)


def test_one_family_by_its_name() -> None:
    found = cv.compare_sets(line("A", 0, 1), line("B", 0, 2), "magnitude")
    assert [c.family.title for c in found.comparisons] == ["magnitude"]
    assert found.comparisons[0].confidence is None  # half-samples of one item have no distances


def test_what_half_samples_confirm_comes_first() -> None:
    """An undecided family takes nothing away from the doubts about another."""
    draws = double([[2, 2], [1, 1], [2, 2], [1, 1]])
    options: dict[str, Any] = {"replicates": draws, "resample_size": 4}
    below: dict[str, Any] = {"replicates": double([[1, 1]] * 4), "resample_size": 4}
    doubtful = cv.compare(made("A", [3, 2], **options), made("B", [2, 1], **below))
    open_one = cv.compare(made("A", [3, 2], [4, 4], **options), made("B", [3, 1], [4, 3], **below))
    assert open_one.verdict == "undecided"
    assert open_one.confidence is None
    assert told([doubtful, open_one]) == (
        "A and B: Circles is undecided at 100 % of the thresholds. Circles does not decide: A above on all items, but "
        "of half-samples A above in 50 % and no difference in 50 %."
    )
    assert told([doubtful, open_one], level=0.4).startswith("A above B for every threshold in Circles; Circles is")


def test_a_copy_under_energy_is_named_with_its_set() -> None:
    with pytest.raises(cv.InputError, match=r"^B: items 0 and 1 are at distance 0"):
        cv.compare_sets(line("A", 0, 1, 2), line("B", 1, 1, 2), ["energy"], resamples=0)


def test_equal_names_are_told_apart() -> None:
    assert cv.compare(made("x", [2, 1]), made("x", [1, 1])).names == ("x (first)", "x (second)")
