"""Circles: how many items lie pairwise farther apart than a threshold, exact or between certified bounds.

Circles(τ) is the largest number of items of which any two are at distance > τ: the independence number of the graph
of pairs at distance <= τ, or the clique number of the graph of far pairs. Both bounds carry their proof:

    from below  a set of items pairwise farther apart than τ. Farthest-first traversals give one for every τ at once:
                the prefix up to where the distance to what is chosen falls to τ
    from above  a partition of the items into clusters of diameter <= τ, each of which can hold one chosen item.
                Complete linkage gives one for every τ at once; per τ, greedy colouring of the far graph another

Between them a branch-and-bound search with colour bounds (Tomita and Seki 2003), on bit sets, decides; at hundreds of
items it closes almost every instance in milliseconds, a hundred times faster than a general integer program. It stops
after a number of nodes, not of seconds: results do not depend on the machine. Circles falls with τ, so what is found at
one threshold bounds it at all others, and a set for a larger threshold starts the search at a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from condvne.core.distances import Distances, checked_distances, distinct_items
from condvne.core.spectral import as_number
from condvne.errors import InputError

NODES = 20_000  # of one search, up to EXACT_UP_TO items: about a second at most
EXACT_UP_TO = 200  # distinct items; beyond, a node costs more and there are fewer of them
SPARSE = 0.5  # share of far pairs up to which bounds from neighbourhoods pay for large sets
STARTS = 32  # farthest-first traversals

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Circles:
    """Bounds on the number of items pairwise farther apart than a threshold.

    Attributes:
        lower, upper: bounds, both certain.
        rows: `lower` items that are pairwise farther apart than the threshold, ascending.
    """

    lower: int
    upper: int
    rows: tuple[int, ...]

    @property
    def exact(self) -> bool:
        return self.lower == self.upper


def circles(D: Tensor, threshold: float, *, nodes: int = NODES) -> Circles:
    """The largest number of items pairwise at distance strictly above the threshold.

    Args:
        D: distances (n, n), n >= 2.
        threshold: τ >= 0, finite, in units of the distances.
        nodes: effort of the search at up to 200 distinct items (it falls with 1/n² beyond); 0 leaves the first bounds.

    Returns:
        `lower`, `upper`, whether they agree (`exact`) and the chosen `rows`.

    Raises:
        InputError: the distances are not finite, negative, asymmetric, non-zero on the diagonal, or of fewer than two
            items; a threshold or an effort out of range.

    >>> import torch
    >>> x = torch.tensor([1.0, 2.0, 3.0])
    >>> circles((x[:, None] - x).abs(), 1.0).lower
    2
    """
    return circles_curve(D, (threshold,), nodes=nodes)[0]


def circles_curve(D: Tensor, thresholds: Sequence[float], *, nodes: int = NODES) -> list[Circles]:
    """Circles at ascending thresholds: evaluated once between two observed distances, bounds shared by all.

    Arguments and errors as for `circles`; thresholds that are not ascending are refused.
    """
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 0:
        raise InputError(f"nodes must be a whole number, at least 0, but is {nodes!r}.")
    taus = np.array([_checked_threshold(t) for t in thresholds])
    if taus.size == 0 or (np.diff(taus) < 0).any():
        raise InputError("thresholds must be given in ascending order, at least one; sort them.")
    found = checked_distances(D)
    return _curve(found, taus, nodes)


def _checked_threshold(threshold: float) -> float:
    number = as_number(threshold)
    if number is None or not 0 <= number < math.inf:
        raise InputError(f"the threshold of Circles must be at least 0 and finite, but is {threshold!r}.")
    return number


def _curve(found: Distances, taus: Array, nodes: int) -> list[Circles]:
    rows = distinct_items(found).cpu().numpy()
    D: Array = found.values.detach().cpu().numpy()[np.ix_(rows, rows)]
    n = len(rows)
    if n == 1:
        return [Circles(1, 1, (int(rows[0]),)) for _ in taus]
    pairs: Array = D[np.triu_indices(n, 1)]
    steps, place = np.unique(np.searchsorted(np.sort(pairs), taus, side="right"), return_inverse=True)
    at = np.array([taus[np.flatnonzero(place == k)[0]] for k in range(len(steps))])
    bounds = _Bounds.first(D, pairs, at)
    budget = nodes if n <= EXACT_UP_TO else math.ceil(nodes * (EXACT_UP_TO / n) ** 2)
    if budget:
        for k in _middle_first(len(at)):
            bounds.improve(k, at[k] < D, budget)
    return [
        Circles(len(bounds.chosen[k]), int(bounds.upper[k]), tuple(sorted(int(rows[i]) for i in bounds.chosen[k])))
        for k in place
    ]


def _middle_first(count: int) -> Iterator[int]:
    """0 … count - 1, halving intervals: where both ends agree by then, the bounds meet inside without a search."""
    spans = [(0, count)]
    while spans:
        rest = []
        for start, stop in spans:
            middle = (start + stop) // 2
            yield middle
            rest += [(a, b) for a, b in ((start, middle), (middle + 1, stop)) if a < b]
        spans = rest


@dataclass
class _Bounds:
    """Chosen items and upper bounds at each threshold, both monotone in it."""

    chosen: list[list[int]]
    upper: npt.NDArray[np.int64]

    @classmethod
    def first(cls, D: Array, pairs: Array, taus: Array) -> _Bounds:
        from scipy.cluster.hierarchy import linkage  # slow to import

        n = len(D)
        merges = np.sort(linkage(pairs, "complete")[:, 2])
        upper = n - np.searchsorted(merges, taus, side="right")
        chosen: list[list[int]] = [[] for _ in taus]
        for start in np.unique(np.linspace(0, n - 1, min(n, STARTS)).astype(int)):
            order, apart = _farthest_first(D, int(start))
            sizes = n - np.searchsorted(apart[::-1], taus, side="right")
            for k, size in enumerate(sizes):
                if size > len(chosen[k]):
                    chosen[k] = order[:size].tolist()
        bounds = cls(chosen, upper.astype(np.int64))
        for k in range(len(taus)):
            bounds._spread(k)
        return bounds

    def improve(self, k: int, far: Flags, budget: int) -> None:
        if len(self.chosen[k]) == self.upper[k]:
            return
        if len(far) > EXACT_UP_TO:  # below, the search finds it anyway
            self.chosen[k] = max(self.chosen[k], _fewest_near_first(far), key=len)
        search = _Search(far, self.chosen[k], int(self.upper[k]), budget)
        self.chosen[k], self.upper[k] = search.result()
        self._spread(k)

    def _spread(self, k: int) -> None:
        self.upper[k:] = np.minimum(self.upper[k:], self.upper[k])
        for j in range(k - 1, -1, -1):
            if len(self.chosen[j]) >= len(self.chosen[k]):
                break
            self.chosen[j] = self.chosen[k]


def _farthest_first(D: Array, start: int) -> tuple[npt.NDArray[np.int64], Array]:
    """Items in the order in which each is the farthest from those before, and that distance, descending."""
    n = len(D)
    order, apart = np.empty(n, dtype=np.int64), np.empty(n)
    order[0], apart[0] = start, np.inf
    nearest = D[start].copy()
    nearest[start] = -np.inf
    for k in range(1, n):
        item = int(nearest.argmax())
        order[k], apart[k] = item, nearest[item]
        np.minimum(nearest, D[item], out=nearest)
        nearest[item] = -np.inf
    return order, apart


def _fewest_near_first(far: Flags) -> list[int]:
    """Items pairwise far: each time the one with the fewest near items among those still possible."""
    possible = np.ones(len(far), dtype=bool)
    near = (~far).sum(1)  # itself included; of those possible
    chosen = []
    while possible.any():
        item = int(np.where(possible, near, len(far) + 1).argmin())
        chosen.append(item)
        gone = possible & ~far[item]
        near -= (~far[gone]).sum(0)
        possible &= ~gone
    return chosen


class _SpentError(Exception):
    """The search has used its nodes."""


class _Search:
    """Largest clique of the far graph by branch and bound; sets of items are bits of an integer."""

    def __init__(self, far: Flags, chosen: list[int], upper: int, nodes: int) -> None:
        # Items far from most come first: colour classes of the others are then few.
        self.order = np.argsort(-far.sum(1), kind="stable")
        packed = np.packbits(far[np.ix_(self.order, self.order)], axis=1, bitorder="little")
        self.far = [int.from_bytes(row.tobytes(), "little") for row in packed]
        self.best, self.upper, self.nodes = list(chosen), upper, nodes
        self.density = float(far.mean())

    def result(self) -> tuple[list[int], int]:
        """The best set found and an upper bound, met where the search was finished."""
        everything = (1 << len(self.far)) - 1
        self.upper = min(self.upper, self._coloured(everything, 0)[1][-1])
        if len(self.far) > EXACT_UP_TO and self.density <= SPARSE:
            self.upper = min(self.upper, self._bound_by_neighbours())
        try:
            self._expand(everything, [])
        except _SpentError:
            return self.best, self.upper
        return self.best, len(self.best)

    def _bound_by_neighbours(self) -> int:
        """Colours of the far items of each item among those before it, and one: a clique has a last member."""
        bound = len(self.best)
        for item, far in enumerate(self.far):
            before = far & ((1 << item) - 1)
            if before.bit_count() >= bound:
                bound = max(bound, 1 + self._coloured(before, 0)[1][-1])
        return bound

    def _coloured(self, candidates: int, needed: int) -> tuple[list[int], list[int]]:
        """Candidates in colour classes of mutually near items, with the number of classes so far.

        Only those whose class number exceeds `needed` are listed: no clique among the others is large enough.
        """
        items, colours, colour = [], [], 0
        while candidates:
            colour += 1
            open_items = candidates
            while open_items:
                bit = open_items & -open_items
                item = bit.bit_length() - 1
                open_items &= ~(self.far[item] | bit)
                candidates ^= bit
                if colour > needed:
                    items.append(item)
                    colours.append(colour)
        return items, colours

    def _expand(self, candidates: int, chosen: list[int]) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise _SpentError
        items, colours = self._coloured(candidates, len(self.best) - len(chosen))
        for item, colour in zip(reversed(items), reversed(colours), strict=True):
            if len(chosen) + colour <= len(self.best):
                return
            grown = [*chosen, item]
            inner = candidates & self.far[item]
            if inner:
                self._expand(inner, grown)
            elif len(grown) > len(self.best):
                self.best = [int(self.order[i]) for i in grown]
            if len(self.best) >= self.upper:
                return
            candidates &= ~(1 << item)
