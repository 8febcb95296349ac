"""What a scored run holds (`scores.json`): plain, validated numbers that tasks write and reports read.

Scores are effective numbers (exponentials of entropies in nats) unless a metric says otherwise;
missing values are `None`, never NaN.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Direction = Literal["below", "above", "undecided"]

ROUNDING = 1e-6  # nats; embeddings are float32, and a smaller difference of their entropies has no sign


class Result(BaseModel):
    """Base of all result records: unknown fields and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Metric(Result):
    """A column of the table."""

    key: str  # e.g. "conditional_vendi"
    label: str  # short, for table heads, e.g. "Cond. VNE"
    description: str  # one sentence for the report: what it is, its unit, higher = more diverse


class Gap(Result):
    """A group's score minus the reference group's, over the same subsamples (paired)."""

    estimate: float
    low: float | None  # ends of the confidence interval; None when one subsample only
    high: float | None
    confidence: float  # e.g. 0.95
    direction: Direction  # where the interval lies relative to zero


class Cell(Result):
    """One group, one metric, one sample size, over R subsamples."""

    group: str
    metric: str
    n: int  # conditions drawn in each subsample
    values: list[float]  # one for each subsample, in subsample order
    mean: float
    std: float | None  # standard deviation over subsamples (R - 1 in the denominator); None when R = 1
    gap: Gap | None  # None for the reference group and where there is no reference
    numerical_error: float = 0.0  # the exact score of a subsample lies within this of its value; 0 where exact


class RobustnessMap(Result):
    """Whether a group lies below or above the reference for every order and pair of bandwidths, at one n.

    The conditional profile of the difference: `separate` holds every pair of bandwidths, `gaps` those where both are
    multiplied alike.
    """

    group: str
    n: int
    orders: list[float | Literal["inf"]]
    multipliers: list[float]  # of the recorded bandwidths
    gaps: list[list[float]]  # [order][multiplier of both sides]: conditional entropy minus the reference's, in nats
    # [order][multiplier of the condition][multiplier of the output]; empty where only one side has a bandwidth
    separate: list[list[list[float]]] = Field(default_factory=list)
    verdict: Direction  # "undecided" when the map has both signs
    sentence: str  # e.g. "greedy is below training for every order and bandwidth tried."

    def differences(self) -> list[float]:
        """Every difference of the map, in nats."""
        return [gap for plane in self.separate or [self.gaps] for row in plane for gap in row]


class Population(Result):
    """A group's score at infinite n, estimated from one subsample: free of the bias that grows as n falls."""

    group: str
    metric: str
    n: int
    plug_in: float  # the score of the n conditions themselves
    estimate: float
    low: float
    high: float
    confidence: float
    gap: Gap | None  # from the reference group, paired; None for the reference and without one


class SwapTest(Result):
    """Whether a group's gap could be chance, had its outputs and the reference's been dealt out at random.

    Within each condition the two outputs are swapped or not, many times; the p-value is two-sided.
    """

    group: str
    metric: str
    n: int
    p_value: float
    permutations: int


class Side(Result):
    """The kernel of one side of the pairs, as used."""

    kernel: str  # e.g. "Gaussian"
    bandwidth: float | None  # None for kernels without one
    fitted_on: str  # the group whose data gave the bandwidth, or "given", or "none" for kernels without one
    encoder: str
    dimension: int


class Scores(Result):
    """Everything a report shows."""

    title: str
    task: Literal["gap", "score", "images", "reweight"]
    reference: str | None
    groups: list[str]  # in display order, the reference first
    metrics: list[Metric]
    sizes: list[int]  # increasing
    repeats: int
    available: int  # conditions that could be drawn from
    outputs_per_condition: int  # of each condition; 1 for plain pairs
    cells: list[Cell]
    robustness: list[RobustnessMap] = Field(default_factory=list)
    populations: list[Population] = Field(default_factory=list)
    swap_tests: list[SwapTest] = Field(default_factory=list)
    condition: Side
    output: Side
    warnings: list[str] = Field(default_factory=list)  # what should keep a reader from a quick conclusion
    notes: list[str] = Field(default_factory=list)  # what was skipped, counted and why
    seed: int
    settings: dict[str, object]  # the resolved configuration
    versions: dict[str, str]

    def cell(self, group: str, metric: str, n: int) -> Cell | None:
        """The cell of a group, metric and size; None where the metric is undefined for it."""
        return next((c for c in self.cells if (c.group, c.metric, c.n) == (group, metric, n)), None)


class Shift(Result):
    """A term's share of a group's mentions, beside its share in the reference."""

    term: str
    share: float
    reference_share: float


class GroupAudit(Result):
    """The mentions of one lexicon's terms in one group's outputs."""

    group: str
    mentions: int
    distinct: int  # terms that are mentioned at all
    effective: float | None  # 2^H, H in bits of the terms' shares; None without a mention
    standard_error: float | None  # of `effective`, bootstrap over conditions
    gap: Gap | None  # of `effective` from the reference, paired over conditions
    shifts: list[Shift]  # largest differences of shares from the reference first


class LexiconAudit(Result):
    """One lexicon in all groups."""

    lexicon: str
    terms: int
    groups: list[GroupAudit]


class Audit(Result):
    """What `condvne audit` found (`audit.json`)."""

    title: str
    reference: str | None
    conditions: int
    audits: list[LexiconAudit]
    notes: list[str]


class TemperatureRow(Result):
    """One group of a temperature study beside the training text."""

    group: str
    temperature: float | None  # None for the training text and strategies of other kinds
    matched: bool  # found by the search
    conditional_vendi: float  # at the largest n
    gap: Gap | None  # of it, from the training text
    precision: float | None  # share of outputs on the training outputs' estimated support; None for the training text
    precision_error: float | None
    recall: float | None
    recall_error: float | None
    nll: float | None  # nats a token under the judge; None without one
    nll_error: float | None


class TemperatureMatch(Result):
    """How near the search came to the training text's conditional entropy."""

    temperature: float
    difference: float  # conditional entropy minus the training text's, nats, on the search's subsample
    reached: bool  # within the tolerance asked for
    bracket: tuple[float, float] | None  # temperatures with differences of both signs; None where there are none
    generations: int


class TemperatureReweighting(Result):
    """Candidates of one temperature, reweighted until draws, one a prefix, are as diverse as the training text."""

    candidates: int  # a prefix
    temperature: float
    before: float  # conditional entropy of equally weighted draws minus the training text's, nats
    difference: float  # of draws by the weights
    reached: bool  # within the tolerance asked for
    above: bool  # the draws were above the text before, so the weights were left
    lam: float  # λ of the projection; 0 where the weights were left
    share: float  # of the way from equal weights to the projection's
    certificate: float  # the projection's objective is at most this many λ log M above its minimum
    effective_candidates: float  # a prefix, exp of the entropy of its weights, mean


class TemperatureStudy(Result):
    """What `condvne temperature` found (`temperature.json`)."""

    title: str
    n: int
    judge: str | None
    neighbours: int
    rows: list[TemperatureRow]
    match: TemperatureMatch | None
    reweighting: TemperatureReweighting | None = None
    notes: list[str]
