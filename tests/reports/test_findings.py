from __future__ import annotations

import pytest

from condvne.data.results import Direction, Gap, RobustnessMap, Scores
from condvne.reports.findings import Findings, compared, findings
from condvne.reports.formatting import difference
from tests.reports import examples


def plain(text: str) -> str:
    return text.replace("\u2068", "").replace("\u2069", "").replace("\xa0", " ")


def everything(found: Findings) -> str:
    return plain("\n".join([found.lead, *found.groups, found.robustness, *found.warnings, *found.method]))


def with_gaps(scores: Scores, metric: str, gaps: dict[tuple[str, int], tuple[float, float]]) -> Scores:
    """The same scores with the given intervals for (group, n)."""
    cells = []
    for cell in scores.cells:
        ends = gaps.get((cell.group, cell.n)) if cell.metric == metric else None
        if ends:
            low, high = ends
            direction: Direction = "below" if high < 0 else "above" if low > 0 else "undecided"
            gap = Gap(estimate=(low + high) / 2, low=low, high=high, confidence=0.9, direction=direction)
            cell = cell.model_copy(update={"gap": gap})
        cells.append(cell)
    return scores.model_copy(update={"cells": cells})


def test_the_lead_names_each_direction_at_the_largest_size() -> None:
    scores = with_gaps(
        examples.scores(),
        "conditional_vendi",
        {("greedy", 2000): (-9.0, -8.0), ("nucleus", 2000): (1.0, 2.0), ("ancestral", 2000): (-0.5, 0.5)},
    )
    assert plain(findings(scores).lead) == (
        "By Cond. VNE at n = 2,000, greedy is less diverse than training; nucleus is more diverse than training; "
        "ancestral is undecided: the interval includes zero."
    )


def test_a_group_that_agrees_everywhere_has_the_first_metric_numbers() -> None:
    scores = examples.scores()
    sentence = plain(findings(scores).groups[0])
    gap = scores.cell("greedy", "conditional_vendi", 2000).gap  # type: ignore[union-attr]
    assert gap is not None
    delta, ends = difference(gap)
    assert ends is not None
    assert sentence.startswith("greedy is below training by every score: ")
    assert f"(Δ {delta}, 95 % interval {ends[0]} to {ends[1]})" in sentence
    assert sentence.endswith("The same holds at every n.")


def test_sizes_that_read_otherwise_are_named() -> None:
    scores = with_gaps(
        examples.scores(),
        "conditional_vendi",
        {("greedy", 250): (1.0, 2.0), ("greedy", 500): (-1.0, 2.0), ("greedy", 1000): (-1.0, 1.0)},
    )
    sentence = plain(findings(scores).groups[0])
    assert "At smaller n it is" in sentence
    assert "above by Cond. VNE at n = 250" in sentence
    assert "undecided by Cond. VNE at n = 500 and 1,000" in sentence
    assert "The same holds" not in sentence


def test_metrics_that_disagree_are_listed_and_warned_of() -> None:
    scores = with_gaps(examples.scores(), "conditional_rke", {("greedy", 2000): (1.0, 2.0)})
    found = findings(scores)
    sentence = plain(found.groups[0])
    assert "below training by Cond. VNE" in sentence
    assert "above by Cond. RKE (Δ +1.50, +1.00 to +2.00)" in sentence
    assert [plain(w) for w in found.warnings] == [
        "The scores disagree on greedy: below by Cond. VNE, Distinct-2 and Distinct-3, above by Cond. RKE."
    ]


def test_robustness_is_summed_up_and_dependence_is_a_warning() -> None:
    scores = examples.scores()
    mixed = RobustnessMap(
        group="nucleus",
        n=1000,
        orders=[1.0],
        multipliers=[1.0, 2.0],
        gaps=[[-0.1, 0.2]],
        verdict="undecided",
        sentence="nucleus is below training at bandwidth 1 and above it at 2",
    )
    scores = scores.model_copy(update={"robustness": [scores.robustness[0], mixed, scores.robustness[2]]})
    found = findings(scores)
    assert plain(found.robustness) == (
        "At n = 1,000, greedy is below training; ancestral is above training for every order and bandwidth tried."
    )
    assert [plain(w) for w in found.warnings] == ["nucleus is below training at bandwidth 1 and above it at 2."]


def test_robustness_that_was_not_examined_is_said() -> None:
    assert "was not examined" in findings(examples.scores(robustness=False)).robustness


def test_method_names_equal_sizes_pairing_and_pool() -> None:
    text = everything(findings(examples.scores()))
    assert "used at once" not in text
    assert "comparable at equal n only" in text
    assert "same 5 subsamples of the 5,000 conditions available" in text
    assert "Its 95 % interval speaks of fresh conditions, not of this pool only" in text


def test_no_reference() -> None:
    scores = examples.without_reference()
    found = findings(scores)
    assert compared(scores) == []
    assert plain(found.lead) == (
        "No reference group was given, so no differences are tested. "
        "By Cond. VNE at n = 2,000, model A scores highest and model B lowest."
    )
    assert len(found.groups) == len(scores.metrics)
    order = [plain(found.groups[0]).index(g) for g in ("model A", "model C", "model B")]
    assert order == sorted(order)
    assert "Δ" not in everything(found)


def test_one_subsample_gives_no_interval() -> None:
    found = findings(examples.scores(repeats=1))
    assert "greedy, nucleus and ancestral are not told from training: there is no interval" in plain(found.lead)
    text = everything(found)
    assert "One subsample was drawn at each n" in text
    assert "%" not in text


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (examples.scores({"training": 1.0}), "Only the reference group training was scored"),
        (
            examples.scores({"training": 1.0, "b": 0.5}).model_copy(update={"cells": []}),
            "No score is defined for both training and another group",
        ),
        (examples.single_group(), "No reference group was given"),
    ],
)
def test_nothing_to_compare(scores: Scores, words: str) -> None:
    found = findings(scores)
    assert words in plain(found.lead)
    assert len(found.groups) == len(scores.metrics)


def test_undefined_metrics() -> None:
    found = findings(examples.single_size())
    assert "nucleus is below training by every score that is defined" in plain(found.groups[1])
    nothing = examples.without_reference().model_copy(update={"cells": []})
    assert "Cond. VNE is undefined for every group." in findings(nothing).groups


def test_a_pool_taken_whole_is_said() -> None:
    scores = examples.scores().model_copy(update={"available": 2000})
    assert "At n = 2,000 all that is available is used at once." in everything(findings(scores))


def test_equal_entropies_are_level_not_mixed() -> None:
    scores = examples.scores({"training": 1.0, "copy": 1.0})
    noise = [[1e-16, -1e-16], [0.0, 2e-13]]
    flat = scores.robustness[0].model_copy(update={"gaps": noise, "verdict": "undecided"})
    found = findings(scores.model_copy(update={"robustness": [flat]}))
    assert plain(found.robustness) == ("At n = 1,000, copy is level with training for every order and bandwidth tried.")
    assert found.warnings == []


def test_names_are_isolated_and_cannot_forge_isolates() -> None:
    scores = examples.scores({"training": 1.0, "a\u2069b": 0.5})
    found = findings(scores)
    assert "\u2068a\\u2069b\u2069" in found.lead
    for text in (found.lead, *found.groups):
        assert text.count("\u2068") == text.count("\u2069")
