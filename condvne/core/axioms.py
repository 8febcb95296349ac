"""Axioms of diversity as searches for violations: no single score satisfies them all (paper B).

    distances   items moved apart (no distance smaller, some larger) are not less diverse
    new item    one more item, at a positive distance from all others, does not lower the score
    twin        one more exact copy of an item leaves the score as it is
    continuity  a vanishing change of the distances changes the score by a vanishing amount

A search draws small sets and changes of them; a violation is a proof that the axiom fails, finding none proves nothing.
Sets that a score refuses (an indefinite similarity matrix, a distance of zero) are outside its domain and are not
counted as tried: an axiom with nothing tried has no meaning for the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from condvne.core.circles import circles
from condvne.core.distances import distances
from condvne.core.diversity import average_distance, energy, richness
from condvne.core.entropy import entropy_from_gram
from condvne.core.magnitude import magnitude
from condvne.errors import InputError

Axiom = Literal["distances", "new item", "twin", "continuity"]
AXIOMS: tuple[Axiom, ...] = ("distances", "new item", "twin", "continuity")
Score = Callable[[Tensor], float]  # of distances (n, n)
TRIALS = 300
SEED = 0
ROUNDING = 1e-7  # relative change of a score that counts as none
HALVINGS = 30  # of a path between two sets, in search of a jump
JUMP = 0.1  # of the change over the whole path, if it is still there after the halvings


@dataclass(frozen=True)
class Violation:
    """Two sets of distances that disprove an axiom, and their scores."""

    axiom: Axiom
    before: Tensor
    after: Tensor
    score_before: float
    score_after: float


@dataclass(frozen=True)
class Finding:
    """The first violation, or None, and how many pairs of sets the score was tried on."""

    axiom: Axiom
    violation: Violation | None
    tried: int


def search(
    score: Score,
    axiom: Axiom,
    *,
    examples: Sequence[tuple[Tensor, Tensor]] = (),
    trials: int = TRIALS,
    generator: torch.Generator | None = None,
) -> Finding:
    """Looks for a violation of an axiom.

    Args:
        score: of distances (n, n), larger for more diverse; raises InputError outside its domain.
        axiom: one of `AXIOMS`.
        examples: pairs (before, after) that are tried first; they must be changes that the axiom speaks of.
        trials: random pairs (a tenth for continuity, where each is a path). Distances are cosine distances of
            non-negative vectors, in [0, 1], so that 1 - D is a similarity matrix.
        generator: draws them; a fixed seed by default.

    Raises InputError for an unknown axiom.
    """
    if axiom not in AXIOMS:
        raise InputError(f"no axiom {axiom!r}: give one of {', '.join(AXIOMS)}.")
    generator = generator or torch.Generator().manual_seed(SEED)
    tried = 0
    for before, after in (*examples, *_changes(axiom, trials, generator)):
        try:
            found = _jump(score, before, after) if axiom == "continuity" else _pair(score, axiom, before, after)
        except InputError:
            continue
        tried += 1
        if _violates(axiom, score, found, before, after):
            return Finding(axiom, found, tried)
    return Finding(axiom, None, tried)


def axiom_table(scores: Mapping[str, Score] | None = None, *, trials: int = TRIALS) -> dict[str, dict[Axiom, Finding]]:
    """Findings for each score and axiom; by default one score of each kind, as `standard_scores` names them."""
    chosen = standard_scores() if scores is None else scores
    return {name: {axiom: search(score, axiom, trials=trials) for axiom in AXIOMS} for name, score in chosen.items()}


def standard_scores() -> dict[str, Score]:
    """Scores of distances in [0, 1], at parameters in the middle of their range."""

    def vendi(order: float) -> Score:
        return lambda D: float(entropy_from_gram(1 - D, order=order).exp())

    return {
        "richness": lambda D: float(richness(D)),
        "average distance": lambda D: float(average_distance(D)),
        "energy, s = 1": lambda D: float(energy(D, 1.0)),
        "Circles, τ = 0.3": lambda D: float(circles(D, 0.3).lower),
        "Vendi, q = 0.5": vendi(0.5),
        "Vendi, q = 1": vendi(1.0),
        "Vendi, q = 2": vendi(2.0),
        "magnitude, t = 3": lambda D: float(magnitude(D, 3.0)),
    }


def _pair(score: Score, axiom: Axiom, before: Tensor, after: Tensor) -> Violation:
    return Violation(axiom, before, after, score(before), score(after))


def _violates(axiom: Axiom, score: Score, found: Violation, before: Tensor, after: Tensor) -> bool:
    change = found.score_after - found.score_before
    size = max(abs(found.score_before), abs(found.score_after))
    if axiom == "twin":
        return abs(change) > ROUNDING * size
    if axiom == "continuity":
        whole = abs(score(after) - score(before))
        return abs(change) > max(JUMP * whole, ROUNDING * size)
    return change < -ROUNDING * size


def _jump(score: Score, before: Tensor, after: Tensor) -> Violation:
    """Two nearly equal sets on the line between two, where most of the change of the score is."""
    low, high = 0.0, 1.0

    def at(share: float) -> tuple[Tensor, float]:
        D = (1 - share) * before + share * after
        return D, score(D)

    (A, of_a), (B, of_b) = at(low), at(high)
    for _ in range(HALVINGS):
        M, of_m = at((low + high) / 2)
        if abs(of_m - of_a) >= abs(of_b - of_m):
            high, B, of_b = (low + high) / 2, M, of_m
        else:
            low, A, of_a = (low + high) / 2, M, of_m
    return Violation("continuity", A, B, of_a, of_b)


def _changes(axiom: Axiom, trials: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for k in range(math.ceil(trials / 10) if axiom == "continuity" else trials):
        n = int(torch.randint(2, 6, (), generator=generator))
        x = torch.rand(n + 1, 3, generator=generator, dtype=torch.float64).square() + 1e-3
        D = distances(x, "cosine")
        if axiom == "new item":
            yield D[:n, :n], D
        elif axiom == "twin":
            rows = torch.tensor([*range(n), int(torch.randint(n, (), generator=generator))])
            yield D[:n, :n], D[rows][:, rows]
        elif axiom == "continuity":
            y = torch.rand(n + 1, 3, generator=generator, dtype=torch.float64) + 1e-3
            if k % 2:  # from a set with a copy, where what merges copies may jump
                x[n] = x[0]
            yield distances(x, "cosine"), distances(y, "cosine")
        else:
            yield D, _farther(D, generator)


def _farther(D: Tensor, generator: torch.Generator) -> Tensor:
    """One pair, or all pairs, moved towards distance 1."""
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    grown = D.clone()
    i, j = torch.randperm(len(D), generator=generator)[:2].tolist()
    if share < 0.8:
        grown[i, j] = grown[j, i] = D[i, j] + share * (1 - D[i, j])
        return grown
    eye = torch.eye(len(D), dtype=torch.bool)
    return (D + (share - 0.8) * (1 - D)).masked_fill(eye, 0.0)
