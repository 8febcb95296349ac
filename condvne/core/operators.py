"""Products of density matrices with vectors, tile by tile from features or from a stored Gram matrix.

A = diag(√w) K diag(√w) is never formed. Every pass walks the upper triangle of K in square tiles; a tile is
evaluated from prepared features once and applied twice (K_IJ and its transpose). Matrices that share sides are
multiplied in the same pass: the K_X tile of a marginal serves every joint K_X ∘ K_Y as well. Where the stated
memory allows, tiles are kept in the first pass, half a Gram matrix for each matrix.

Vectors are float64. Features are centred and scaled in float64 and only then rounded, tiles are float32 unless
asked otherwise, and what tiles contribute is added up in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from operator import mul

import torch
from torch import Tensor

from condvne.core.density import DensityState, weighted_gram
from condvne.core.kernels import Delta
from condvne.core.tiles import (
    FeatureSide,
    GramSide,
    Precision,
    Rounding,
    Side,
    check_precision,
    full_precision,
    rounded,
    tile_layout,
)
from condvne.errors import InputError
from condvne.ranks import SINGLE, Ranks

Terms = Sequence[tuple[int, ...]]  # the sides whose kernels are multiplied, for each matrix

PROBED_ROWS = 8  # rows on which the rounding of the tiles is measured


class KernelOperators:
    """One or several density matrices of the same points, multiplied together.

    Make them with `from_state` or `from_grams`.

    Attributes:
        n: number of points.
        terms: for each matrix the sides whose kernels it multiplies; ((0,), (0, 1)) is K_X and K_X ∘ K_Y.
        state: the points and kernels, where the matrices come from features.
        stored: for each matrix whether its tiles are kept.
        rounding: of the tiles; None for Gram matrices that were given.
        passes: walks over all tiles so far.
        products: for each matrix the columns multiplied so far.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        terms: Terms,
        n: int,
        weights: Tensor | None,
        *,
        device: torch.device,
        precision: Precision,
        memory: int | None,
        state: DensityState | None = None,
        ranks: Ranks = SINGLE,
    ) -> None:
        self.n, self.device, self.state, self.precision = n, device, state, precision
        self.ranks = ranks
        self.terms = tuple(tuple(term) for term in terms)
        self._sides = tuple(sides)
        self.weights = torch.full((n,), 1 / n, dtype=torch.float64, device=device) if weights is None else weights
        self._root = self.weights.detach().sqrt()[:, None]
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self.rounding: Rounding | None = None
        self.passes = 0
        self.products = [0] * len(self.terms)
        self._squares: list[Tensor | None] = [None] * len(self.terms)
        self._tiles: list[dict[tuple[int, int], Tensor]] = [{} for _ in self.terms]
        self._stores: list[Tensor | None] = [None] * len(self.terms)
        shares = (ranks.size, ranks.sharing(device))
        layout = tile_layout(n, len(self._sides), len(self.terms), self.dtype, device, memory, *shares)
        # Ranks must cut the same tiles: what the least of them can hold.
        layouts = ranks.gather([layout])
        self.tile: int = min(tile for tile, _ in layouts)
        self.stored = tuple(all(kept) for kept in zip(*(stored for _, stored in layouts), strict=True))

    @classmethod
    def from_state(
        cls,
        state: DensityState,
        terms: Terms | None = None,
        *,
        precision: Precision = "float32",
        memory: int | None = None,
        ranks: Ranks = SINGLE,
    ) -> KernelOperators:
        """Operators of a state's kernels.

        Args:
            state: kernels with fixed bandwidth, features (n, d) without leading dimensions, weights (n,).
            terms: the sides of each matrix; by default one matrix, the product of all sides.
            precision: of the tiles: "float32", "float64", "tf32" (CUDA) or "bfloat16"; what the rounding costs
                is measured and found in `rounding`.
            memory: bytes for tiles, working and stored together; default half of the free memory of the device.
                0 stores nothing.
            ranks: processes that share the tiles; all must have the same state and make the same calls. Each keeps
                only its own tiles.

        Raises:
            InputError: features or weights with leading dimensions; terms that name no side, or one that is not
                there; a precision that is unknown or that the device does not have; a negative memory.
        """
        if any(x.ndim != 2 for x in state.features) or (state.weights is not None and state.weights.ndim != 1):
            shapes = ", ".join(str(tuple(x.shape)) for x in state.features)
            raise InputError(
                f"matrix-free products take one problem at a time, features (n, d) and weights (n,), but the shapes "
                f"are {shapes}; loop over the leading dimensions, or use method='exact'."
            )
        device = state.features[0].device
        check_precision(precision, device)
        if terms is None:
            terms = (tuple(range(len(state.kernels))),)
        _check_terms(terms, len(state.kernels))
        dtype = torch.float64 if precision == "float64" else torch.float32
        sides, exact = [], []
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for kernel, x in zip(state.kernels, state.features, strict=True):
                prepared = kernel.prepare(x)[0]
                exact.append(kernel.evaluate(prepared[:PROBED_ROWS], prepared))
                coarse = precision == "bfloat16" and not isinstance(kernel, Delta)  # labels are not to be rounded
                values = rounded(kernel, prepared, torch.bfloat16 if coarse else dtype)
                sides.append(FeatureSide(kernel.settled(prepared), values, dtype))
        operators = cls(
            sides,
            terms,
            state.n,
            state.weights,
            device=device,
            precision=precision,
            memory=memory,
            state=state,
            ranks=ranks,
        )
        operators.rounding = operators._measured_rounding(exact)
        return operators

    @classmethod
    def from_grams(
        cls,
        *grams: Tensor,
        weights: Tensor | None = None,
        precision: Precision = "float32",
        memory: int | None = None,
    ) -> KernelOperators:
        """Operators of Gram matrices (n, n), already checked: symmetric, positive semidefinite, unit diagonal.

        Where the precision is not their own, rounded tiles are kept as `memory` allows. Raises InputError where
        shapes differ or the precision is not to be had.
        """
        if not grams:
            raise InputError("no Gram matrix to multiply: pass at least one, (n, n).")
        shapes = {tuple(K.shape) for K in grams}
        if len(shapes) != 1 or any(K.ndim != 2 or K.shape[0] != K.shape[1] for K in grams):
            raise InputError(f"Gram matrices must be square and of one size (n, n), but have shapes {sorted(shapes)}.")
        device = grams[0].device
        check_precision(precision, device)
        dtype = torch.float64 if precision == "float64" else torch.float32
        sides = [GramSide(K.detach(), dtype) for K in grams]
        terms = tuple((i,) for i in range(len(grams)))
        n = grams[0].shape[0]
        if memory is None and all(K.dtype == dtype for K in grams):
            memory = 0  # tiles of their own would be copies
        return cls(sides, terms, n, weights, device=device, precision=precision, memory=memory)

    @torch.no_grad()
    def multiply(self, vectors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """A_t V_t for each matrix t in one pass over the tiles.

        Args:
            vectors: for each matrix (n, k), k its own, or None to leave the matrix out.

        Returns:
            For each matrix (n, k) in float64, or None.

        Raises:
            RunError: on every rank, where ranks do not multiply the same columns; one of them has ended.
        """
        wanted = [t for t, V in enumerate(vectors) if V is not None]
        self.ranks.keep_step([None if V is None else V.shape[1] for V in vectors])
        if not wanted:
            return [None] * len(self.terms)
        # Rows for columns: on a processor thin products with row-major vectors are a third faster.
        scaled = {t: (V * self._root).mT.to(self.dtype).contiguous() for t, V in enumerate(vectors) if V is not None}
        results = {t: torch.zeros(V.shape, dtype=torch.float64, device=self.device) for t, V in scaled.items()}
        counting = [t for t in wanted if self._squares[t] is None]
        totals = {t: torch.zeros((), dtype=torch.float64, device=self.device) for t in counting}
        with self.arithmetic():
            for rows, columns in self.pairs():
                for t, tile in self._evaluated(wanted, rows, columns):
                    results[t][:, rows] += scaled[t][:, columns] @ tile.mT
                    if rows != columns:
                        results[t][:, columns] += scaled[t][:, rows] @ tile
                    if t in totals:
                        totals[t] += self._weighted_squares(tile, rows, columns)
        self.passes += 1
        for t in wanted:
            self.ranks.sum(results[t])
        for t in counting:
            self._squares[t] = self.ranks.sum(totals[t])
        products: list[Tensor | None] = [None] * len(self.terms)
        for t in wanted:
            self.products[t] += scaled[t].shape[0]
            products[t] = results.pop(t).mT.contiguous() * self._root
        return products

    def purities(self) -> list[Tensor]:
        """tr A² = Σ w_i w_j k_ij² of each matrix, of the tiles as rounded: gathered in the first pass of products."""
        missing = [t for t, total in enumerate(self._squares) if total is None]
        if missing:
            empty = torch.zeros(self.n, 0, dtype=torch.float64, device=self.device)
            self.multiply([empty if t in missing else None for t in range(len(self.terms))])
        return [total for total in self._squares if total is not None]

    @property
    def cheap(self) -> tuple[bool, ...]:
        """For each matrix whether a pass reads its tiles rather than evaluating kernels."""
        given = self.state is None
        return tuple(given or kept for kept in self.stored)

    def dense(self) -> list[Tensor]:
        """The matrices themselves, (n, n) float64, differentiable where they come from features."""
        if self.state is not None:
            return [self.state.marginal(term).density_matrix() for term in self.terms]
        everything = slice(0, self.n)
        matrices = []
        for term in self.terms:
            K = reduce(mul, (self._sides[s].block(everything, everything).to(torch.float64) for s in term))
            matrices.append(weighted_gram(K, self.weights))
        return matrices

    def pairs(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of the tiles of the upper triangle that are this rank's."""
        spans = [slice(start, min(start + self.tile, self.n)) for start in range(0, self.n, self.tile)]
        triangle = ((rows, columns) for i, rows in enumerate(spans) for columns in spans[i:])
        return islice(triangle, self.ranks.rank, None, self.ranks.size)

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Matrix products in the precision asked for, whatever autocast or the global setting say."""
        with full_precision(self.precision), torch.autocast(self.device.type, enabled=False):
            yield

    def _evaluated(self, wanted: Sequence[int], rows: slice, columns: slice) -> Iterator[tuple[int, Tensor]]:
        """(t, tile of K_t) for the matrices wanted, each side evaluated at most once."""
        place = (rows.start, columns.start)
        blocks: dict[int, Tensor] = {}
        for t in wanted:
            kept = self._tiles[t].get(place)
            if kept is None:
                for side in self.terms[t]:
                    if side not in blocks:
                        blocks[side] = self._sides[side].block(rows, columns)
                kept = blocks[self.terms[t][0]]
                for side in self.terms[t][1:]:
                    kept = kept * blocks[side]
                if self.stored[t]:
                    self._keep(t, place, kept)
            yield t, kept

    def _keep(self, t: int, place: tuple[int, int], tile: Tensor) -> None:
        store = self._stores[t]
        if store is None:  # in one piece: tiles among temporaries would leave holes that nothing fits
            spans = -(-self.n // self.tile)
            mine = -(-(spans * (spans + 1) // 2) // self.ranks.size)
            store = tile.new_empty(mine, self.tile, self.tile)
            self._stores[t] = store
        view = store[len(self._tiles[t]), : tile.shape[0], : tile.shape[1]]
        self._tiles[t][place] = view.copy_(tile)

    def _weighted_squares(self, tile: Tensor, rows: slice, columns: slice) -> Tensor:
        # Control variates subtract nearly all of this sum again. Weights relative to the largest: equal ones are then
        # exactly 1 in any precision, and what rounding remains is random and averages out over the tiles.
        weights = self.weights.detach()
        largest = weights.max()
        sums = torch.mv(tile.square(), (weights[columns] / largest).to(self.dtype))
        total = torch.dot(weights[rows], sums.to(torch.float64)) * largest
        return total if rows == columns else 2 * total

    def _measured_rounding(self, exact: Sequence[Tensor]) -> Rounding:
        rows, everything = slice(0, min(PROBED_ROWS, self.n)), slice(0, self.n)
        largest, total, count = 0.0, 0.0, 0
        with torch.no_grad(), self.arithmetic():
            for term in self.terms:
                tile = reduce(mul, (self._sides[s].block(rows, everything) for s in term))
                off = (tile - reduce(mul, (exact[s] for s in term))).abs()
                largest = max(largest, float(off.max()))
                total, count = total + float(off.square().sum()), count + off.numel()
        return Rounding(largest, math.sqrt(total / count))


class KernelOperator:
    """One density matrix: products A V, tr A², and their count.

    >>> from condvne.core.kernels import Gaussian
    >>> state = DensityState((Gaussian(1.0),), (torch.eye(3, dtype=torch.float64),))
    >>> KernelOperator(KernelOperators.from_state(state)).matmat(torch.ones(3, 1, dtype=torch.float64)).shape
    torch.Size([3, 1])
    """

    def __init__(self, operators: KernelOperators, term: int = 0) -> None:
        self.operators, self.term = operators, term

    @property
    def n(self) -> int:
        return self.operators.n

    @property
    def products(self) -> int:
        """Columns multiplied so far."""
        return self.operators.products[self.term]

    def matmat(self, V: Tensor) -> Tensor:
        """A V for (n, k), in float64."""
        result = self.operators.multiply([V if t == self.term else None for t in range(len(self.operators.terms))])
        product = result[self.term]
        assert product is not None
        return product

    def frobenius(self) -> Tensor:
        """tr A² = ‖A‖_F², exact but for the rounding of the tiles; the trace itself is 1."""
        return self.operators.purities()[self.term]


def _check_terms(terms: Terms, sides: int) -> None:
    for term in terms:
        if not term or any(not 0 <= side < sides for side in term):
            raise InputError(f"terms must name sides from 0 to {sides - 1}, at least one each, but hold {term}.")
    if not terms:
        raise InputError("terms are empty: name the sides of at least one matrix.")
