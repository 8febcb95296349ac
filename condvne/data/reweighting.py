"""What reweighting found (`reweighting.json`): plain numbers that tasks write and reports read."""

from __future__ import annotations

from pydantic import Field

from condvne.data.results import Cell, Result


class Inequality(Result):
    """Theorem 1: for weights q projected from q⁰ and any p of at least q's entropy among the candidates' reweightings,

        MMD²(p, q) + MMD²(q, q⁰) ≤ MMD²(p, q⁰)

    of the joint distributions of (condition, output), in the exact product kernel. Here p is the reference.
    """

    to_after: float  # MMD²(p, q)
    moved: float  # MMD²(q, q⁰)
    to_before: float  # MMD²(p, q⁰)
    holds: bool  # up to rounding
    entropy: float  # H₁(Y|X) of the reference, nats, exact kernel
    entropy_after: float  # of the candidates with their new weights
    among_candidates: int  # conditions whose reference outputs are all among their candidates
    conditions: int

    @property
    def promised(self) -> bool:
        """Whether the theorem's conditions are met, so that it must hold for the projection in the same kernel."""
        return self.entropy >= self.entropy_after and self.among_candidates == self.conditions


class EffectiveCandidates(Result):
    """How many conditions have an effective number of candidates within each bin."""

    edges: list[float]
    before: list[int]  # one fewer than edges
    after: list[int]


class ProbedOutput(Result):
    """One distinct output of a condition."""

    text: str
    copies: int  # candidates with this text
    before: float  # their mass together
    after: float


class Probe(Result):
    """The mass on each distinct output of one condition, before and after (paper A, E.8)."""

    id: str
    condition: str
    outputs: list[ProbedOutput]  # by the mass before, falling
    entropy_before: float  # Shannon's, of the masses, nats
    entropy_after: float
    effective_before: float  # exp of it
    effective_after: float
    divergence: float  # Kullback-Leibler, of the masses after from those before, nats


class Reweighting(Result):
    """What the projection of candidates did (`reweighting.json`); entropies are of the sketch it worked on, in nats."""

    lam: float | None  # None where entropy alone counts, since the target is out of reach
    target: float | None  # conditional entropy asked for
    reached: bool
    largest: float | None  # conditional entropy that any weights reach, where the search had to know
    before: float  # conditional entropy under the weights before
    after: float
    certificate: float  # the objective is at most this much above its minimum
    relative_certificate: float  # over λ log M; 0 where λ is 0
    iterations: int
    converged: bool
    distance: float  # of the mean features, maximum mean discrepancy
    divergence: float  # mean Kullback-Leibler divergence of a condition's weights from those before, nats
    candidates_before: float  # effective number of candidates a condition, exp of the entropy of its weights, mean
    candidates_after: float
    num_features: int
    mapped: bool = False  # whether the features lay in a file, since the memory was too small for them
    cells: list[Cell] = Field(default_factory=list)  # all candidates with their weights, exact kernel
    effective: EffectiveCandidates | None = None
    inequality: Inequality | None = None  # where there is a reference
    probes: list[Probe] = Field(default_factory=list)
