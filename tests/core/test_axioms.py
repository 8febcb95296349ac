"""Violations that are found are real, those of the paper are confirmed, and none is found where there is a proof."""

from __future__ import annotations

import math

import pytest
import torch

import condvne as cv
from condvne.core.axioms import AXIOMS, Axiom, Finding, axiom_table, search, standard_scores
from tests.references import double, oracles

PAPER = oracles()["from_papers_and_peers"]
VENDI, MAGNITUDE = "Vendi, q = 0.5", "magnitude, t = 3"
# Score: the axioms it violates, and those without a meaning for it.
VIOLATED: dict[str, tuple[set[Axiom], set[Axiom]]] = {
    "richness": ({"continuity"}, set()),
    "average distance": ({"new item", "twin"}, set()),
    "energy, s = 1": ({"new item"}, {"twin"}),
    "Circles, τ = 0.3": ({"continuity"}, set()),
    VENDI: ({"distances", "new item", "twin"}, set()),
    "Vendi, q = 1": ({"distances", "new item", "twin"}, set()),
    "Vendi, q = 2": ({"new item", "twin"}, set()),
    MAGNITUDE: ({"distances"}, set()),
}


@pytest.fixture(scope="module")
def table() -> dict[str, dict[Axiom, Finding]]:
    return axiom_table(trials=60)


def test_every_score_violates_an_axiom(table: dict[str, dict[Axiom, Finding]]) -> None:
    assert set(table) == set(VIOLATED) == set(standard_scores())
    for name, row in table.items():
        violated, undefined = VIOLATED[name]
        assert {axiom for axiom in AXIOMS if row[axiom].violation} == violated, name
        assert {axiom for axiom in AXIOMS if row[axiom].tried == 0} == undefined, name


def test_violations_are_what_they_say(table: dict[str, dict[Axiom, Finding]]) -> None:
    for name, row in table.items():
        score = standard_scores()[name]
        for axiom, finding in row.items():
            found = finding.violation
            if found is None:
                continue
            before, after = found.before, found.after
            assert (score(before), score(after)) == (found.score_before, found.score_after)
            if axiom == "continuity":
                assert float((after - before).abs().max()) < 1e-8
                assert abs(found.score_after - found.score_before) > 0.1
            elif axiom == "twin":
                assert int((after[-1] == 0).sum()) == 2
                assert found.score_after != found.score_before
            else:
                n = len(before)
                least = after if axiom == "distances" else after[:n, :n]
                assert bool((least >= before).all())
                assert axiom == "distances" or float(after[-1, :n].min()) > 0
                assert found.score_after < found.score_before


def test_examples_of_the_paper() -> None:
    """Less similar items that score lower, under Vendi of order 1/2 and magnitude."""
    entry = PAPER["paper_B_vendi_order_half"]
    pair = (1 - double(entry["K"]), 1 - double(entry["K_less_similar"]))
    found = search(standard_scores()[VENDI], "distances", examples=[pair], trials=0)
    assert found.violation is not None
    assert round(found.violation.score_before, 4) == entry["vendi"]
    assert round(found.violation.score_after, 4) == entry["vendi_less_similar"]
    entry = PAPER["paper_B_magnitude"]
    pair = (-double(entry["Z"]).log(), -double(entry["Z_less_similar"]).log())
    found = search(lambda D: float(cv.magnitude(D, 1.0)), "distances", examples=[pair], trials=0)
    assert found.violation is not None
    assert found.violation.score_before == pytest.approx(entry["magnitude"], rel=1e-10)
    assert found.violation.score_after == pytest.approx(entry["magnitude_less_similar"], rel=1e-10)


def test_a_score_that_obeys_an_axiom_is_left_alone() -> None:
    assert search(lambda D: 1.0, "twin", trials=20) == Finding("twin", None, 20)
    assert search(lambda D: float(D.max()), "distances", trials=50).violation is None
    assert search(lambda D: math.floor(4 * float(D.max())), "continuity", trials=50).violation is not None


def test_what_a_score_refuses_is_not_counted() -> None:
    def fussy(D: torch.Tensor) -> float:
        if len(D) > 3:
            raise cv.InputError("too many.")
        return float(len(D))

    assert 0 < search(fussy, "new item", trials=40).tried < 40


def test_an_unknown_axiom() -> None:
    with pytest.raises(cv.InputError, match="no axiom 'symmetry': give one of distances, new item, twin, continuity"):
        search(lambda D: 0.0, "symmetry")  # type: ignore[arg-type]
