"""What `condvne mbr` found (`decoding.json`): plain, validated numbers that the task writes and reports read."""

from __future__ import annotations

from pydantic import Field

from condvne.data.results import Gap, Metric, Result, Side


class DecodingMethod(Result):
    """A way to weigh candidates."""

    key: str  # e.g. "mbmbr_l", "cvs:lam=0.1"
    label: str  # e.g. "MBMBR-L"
    description: str


class Utility(Result):
    """What the chosen output is to be alike."""

    key: str
    label: str


class DecodingCell(Result):
    """The outputs that one method chose with one utility, by one metric."""

    utility: str
    method: str
    metric: str
    value: float
    low: float | None  # ends of the interval over inputs; None where there are too few
    high: float | None
    gap: Gap | None  # from the reference method with the same utility, paired over inputs; None for the reference


class ProjectionFacts(Result):
    """What the weights of a CVS-MBR variant reached, and how far from the best they may be."""

    method: str
    lam: float | None  # the price of a nat; None where the entropy alone was raised
    entropy_before: float  # conditional entropies in nats, in the features that were projected
    entropy: float
    distance: float  # maximum mean discrepancy from the weights before
    certificate: float  # the objective is at most this much above its minimum
    iterations: int
    converged: bool
    reached: bool  # whether the target was reached; true where none was asked for
    largest_entropy: float | None
    effective_candidates: float  # of an input, exp of the entropy of its weights, mean
    candidates_before: float


class Decoding(Result):
    """Everything a report of `condvne mbr` shows."""

    title: str
    inputs: int
    candidates: tuple[int, float, int]  # of an input: fewest, mean, most
    distinct_candidates: tuple[int, float, int]
    methods: list[DecodingMethod]
    utilities: list[Utility]
    metrics: list[Metric]
    reference: str  # key of the method that the others are compared with
    resamples: int
    confidence: float
    cells: list[DecodingCell]
    projections: list[ProjectionFacts] = Field(default_factory=list)
    features: str  # what was projected
    condition: Side | None  # kernels and encoder; None where no metric or method needed one
    output: Side | None
    notes: list[str] = Field(default_factory=list)
    seed: int
    settings: dict[str, object]
    versions: dict[str, str]

    def cell(self, utility: str, method: str, metric: str) -> DecodingCell | None:
        """The cell of a utility, method and metric; None where the metric is undefined for it."""
        wanted = (utility, method, metric)
        return next((c for c in self.cells if (c.utility, c.method, c.metric) == wanted), None)
