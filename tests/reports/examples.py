"""Scores of several shapes, with numbers of the size that real runs give."""

from __future__ import annotations

import random
import statistics

from condvne.data.results import Cell, Direction, Gap, Metric, Population, RobustnessMap, Scores, Side, SwapTest

METRICS = [
    Metric(
        key="conditional_vendi",
        label="Cond. VNE",
        description="Exponential of the conditional von Neumann entropy: an effective number of outputs per condition; "
        "higher is more diverse.",
    ),
    Metric(
        key="conditional_rke",
        label="Cond. RKE",
        description="Exponential of the conditional entropy of order 2, an effective number that weighs common "
        "outputs more; higher is more diverse.",
    ),
    Metric(
        key="distinct_2",
        label="Distinct-2",
        description="Share of distinct token 2-grams among all of a group; higher is more diverse.",
    ),
    Metric(
        key="distinct_3",
        label="Distinct-3",
        description="Share of distinct token 3-grams among all of a group; higher is more diverse.",
    ),
]
GROUPS = {"training": 1.0, "greedy": 0.55, "nucleus": 0.86, "ancestral": 1.002}
SIZES = [250, 500, 1000, 2000]
SETTINGS: dict[str, object] = {
    "name": "example",
    "seed": 0,
    "device": "auto",
    "corpus": {"source": "files", "paths": ["texts/*.jsonl.zst", "more/"], "text_field": "text"},
    "pairs": {"count": 5000, "prefix_tokens": 3, "continuation_tokens": 2},
    "generation": {
        "batch_size": "auto",
        "strategies": [
            {"name": "greedy", "do_sample": False, "top_p": 1.0, "top_k": 0},
            {"name": "nucleus", "do_sample": True, "top_p": 0.9, "top_k": 0},
        ],
    },
    "kernels": {"condition": {"name": "gaussian", "bandwidth": None, "multiplier": 1.0}},
    "evaluation": {"sizes": SIZES, "robustness_orders": [0.5, 1.0, 2.0, float("inf")], "empty": []},
}


def scores(
    groups: dict[str, float] | None = None,
    *,
    reference: str | None = "training",
    sizes: list[int] | None = None,
    repeats: int = 5,
    undefined: frozenset[tuple[str, str]] = frozenset(),
    robustness: bool = True,
    title: str = "Pythia-160M against The Pile",
    notes: list[str] | None = None,
) -> Scores:
    """A run whose groups have the given diversity relative to 1; `undefined` are (group, metric) without cells."""
    groups = GROUPS if groups is None else groups
    sizes = SIZES if sizes is None else sizes
    cells: list[Cell] = []
    for n in sizes:
        for metric in METRICS:
            noise = random.Random(f"{metric.key} {n}")
            common = [noise.gauss(0, 0.008) for _ in range(repeats)]
            drawn = {g: _values(metric.key, f, n, common, noise) for g, f in groups.items()}
            cells += [
                _cell(g, metric.key, n, values, drawn.get(reference or "") if g != reference else None)
                for g, values in drawn.items()
                if (g, metric.key) not in undefined
            ]
    others = [g for g in groups if g != reference]
    side = Side(kernel="Gaussian", bandwidth=0.9137, fitted_on="training", encoder="MiniLM-L6", dimension=384)
    return Scores(
        title=title,
        task="gap" if reference else "score",
        reference=reference,
        groups=list(groups),
        metrics=METRICS,
        sizes=sizes,
        repeats=repeats,
        available=5000,
        outputs_per_condition=1,
        cells=cells,
        robustness=[_map(g, groups[g], reference) for g in others] if robustness and reference else [],
        populations=[_population(g, m.key, groups, reference) for m in METRICS[:2] for g in groups],
        swap_tests=[_swap_test(g, groups[g]) for g in others] if reference else [],
        condition=side,
        output=side.model_copy(update={"bandwidth": 1.0241}),
        notes=notes or [],
        seed=0,
        settings=SETTINGS,
        versions={"condvne": "0.1.0", "torch": "2.14.1", "python": "3.11.9"},
    )


def _values(metric: str, factor: float, n: int, common: list[float], noise: random.Random) -> list[float]:
    scale = {"conditional_vendi": n**0.47, "conditional_rke": n**0.31}.get(metric, 1.9 * n**-0.12)
    factor = factor if metric.startswith("conditional") else factor**0.25 * 1.01 - 0.01
    return [factor * scale * (1 + c + noise.gauss(0, 0.002)) for c in common]


def _cell(group: str, metric: str, n: int, values: list[float], reference: list[float] | None) -> Cell:
    std = statistics.stdev(values) if len(values) > 1 else None
    gap = None
    if reference:
        pairs = [v - r for v, r in zip(values, reference, strict=True)]
        estimate = statistics.fmean(pairs)
        low = high = None
        direction: Direction = "undecided"
        if len(pairs) > 1:
            half = 2.776 * statistics.stdev(pairs) / len(pairs) ** 0.5
            low, high = estimate - half, estimate + half
            direction = "below" if high < 0 else "above" if low > 0 else "undecided"
        gap = Gap(estimate=estimate, low=low, high=high, confidence=0.95, direction=direction)
    return Cell(group=group, metric=metric, n=n, values=values, mean=statistics.fmean(values), std=std, gap=gap)


def _population(group: str, metric: str, groups: dict[str, float], reference: str | None) -> Population:
    plug_in = {"conditional_vendi": 35.0, "conditional_rke": 10.5}[metric] * groups[group]
    estimate, gap = 1.13 * plug_in, None
    if reference and group != reference:
        difference = 1.13 * plug_in * (1 - groups[reference] / groups[group])
        low, high = difference - 0.4, difference + 0.4
        direction: Direction = "below" if high < 0 else "above" if low > 0 else "undecided"
        gap = Gap(estimate=difference, low=low, high=high, confidence=0.95, direction=direction)
    return Population(
        group=group,
        metric=metric,
        n=2000,
        plug_in=plug_in,
        estimate=estimate,
        low=estimate - 0.7,
        high=estimate + 0.71,
        confidence=0.95,
        gap=gap,
    )


def _swap_test(group: str, factor: float) -> SwapTest:
    p_value = 0.001 if abs(factor - 1) > 0.1 else 0.237
    return SwapTest(group=group, metric="conditional_rke", n=2000, p_value=p_value, permutations=999)


def _map(group: str, factor: float, reference: str) -> RobustnessMap:
    orders, multipliers = [0.5, 1.0, 1.5, 2.0, 3.0], [0.25, 0.5, 1.0, 2.0, 4.0]
    gaps = [
        [(factor - 1) * (1.4 - 0.2 * i) / (1 + 0.4 * j) + (0.0008 * i * j if factor > 0.9 else 0) for j in range(5)]
        for i in range(6)
    ]
    signs = {g < 0 for row in gaps for g in row}
    if len(signs) > 1:
        verdict: Direction = "undecided"
        sentence = (
            f"{group} is below {reference} at some combinations of order and bandwidth and above it elsewhere: "
            "the ranking depends on the resolution."
        )
    else:
        verdict = "below" if signs == {True} else "above"
        sentence = f"{group} is {verdict} {reference} for every order and bandwidth tried."
    return RobustnessMap(
        group=group,
        n=1000,
        orders=[*orders, "inf"],
        multipliers=multipliers,
        gaps=gaps,
        verdict=verdict,
        sentence=sentence,
    )


def without_reference() -> Scores:
    """Three groups of the user's own, none of them a reference."""
    return scores({"model A": 0.9, "model B": 0.6, "model C": 0.75}, reference=None, robustness=False)


def single_size() -> Scores:
    """One n, and a metric that one group lacks."""
    return scores(sizes=[1500], undefined=frozenset({("nucleus", "distinct_3")}))


def single_group() -> Scores:
    """One group, one subsample."""
    return scores({"mine": 0.9}, reference=None, sizes=[800], repeats=1, robustness=False)


HOSTILE = [
    "<script>alert(1)</script>",
    'a & b | "c" $x_1$',
    "مجموعة\u202eالنص",
    "x" * 90,
    "=cmd(),\r\n\x1b[31mred",
]


def hostile() -> Scores:
    """Names and titles that try to be markup, formulas, escape sequences or a change of direction."""
    groups = dict(zip(HOSTILE, (1.0, 0.5, 0.9, 1.2, 1.001), strict=True))
    return scores(
        groups,
        reference=HOSTILE[0],
        sizes=[250, 1000],
        title="<img src=x onerror=alert(2)> & <b>",
        notes=["3 rows of </section> skipped"],
    )


def crowded() -> Scores:
    """Ten groups with long names."""
    names = {f"olmo-1b-step{k}000-nucleus-0.9-long-name": 0.4 + 0.08 * k for k in range(1, 10)}
    return scores({"training": 1.0, **names})
