"""Differentiable stand-ins for the diversity of a language model's texts; sampled tokens have no gradient.

**Expected embeddings** e = Σ_v p(v | context) E_v. Where the model says the same everywhere, or spreads its mass
everywhere alike, they coincide and their entropy is low; it is high where different contexts lead to different tokens,
each of them certain. So this counters collapse across contexts; it does *not* raise the diversity of samples under one
context, and lowers it where it is pushed far.

**Candidates**: each context stands as its k likeliest tokens, row (x, E_v) with weight p(v | context). That is the
state of which samples are draws, and H(Y|X) of it, given the context, grows where probability spreads over tokens that
differ in meaning: the conditional diversity of samples itself, as far as k tokens hold the mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from condvne.core.checks import NAMED_ROWS
from condvne.core.kernels import Kernel
from condvne.errors import InputError
from condvne.tasks.training.batches import BatchEntropy, BatchOptions
from condvne.tasks.training.compiling import outside_graphs
from condvne.tasks.training.objective import Objective

Pool = Literal["token", "sequence"]
MAX_POINTS = 512


def expected_embeddings(logits: Tensor, embeddings: Tensor, temperature: float = 1.0) -> Tensor:
    """e = softmax(logits / T) E.

    Args:
        logits: (..., V), any precision; -inf where a token is ruled out.
        embeddings: (V, d), constant: else spreading them would raise entropies without changing a word.
        temperature: T > 0.

    Returns:
        (..., d), float32 at least.

    >>> expected_embeddings(torch.zeros(1, 2), torch.eye(2)).tolist()
    [[0.5, 0.5]]
    """
    _refuse_vocabulary(logits, embeddings, temperature)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    with torch.autocast(logits.device.type, enabled=False):
        return torch.softmax(logits.to(dtype) / temperature, dim=-1) @ embeddings.detach().to(dtype)


@outside_graphs
def token_entropy_surrogate(
    logits: Tensor,
    embeddings: Tensor,
    *,
    mask: Tensor | None = None,
    conditions: Tensor | None = None,
    pool: Pool = "token",
    kernel: Kernel | str = "gaussian",
    kernel_x: Kernel | str = "gaussian",
    temperature: float = 1.0,
    candidates: int | None = None,
    max_points: int = MAX_POINTS,
    generator: torch.Generator | None = None,
    **options: Unpack[BatchOptions],
) -> Tensor:
    """H_α of what a model says next: of expected output embeddings, or of likely tokens; (), nats, differentiable.

    Args:
        logits: (B, T, V).
        embeddings: (V, d), the output embeddings; constant.
        mask: (B, T), true where a position counts (a continuation's tokens, no padding); all by default.
        conditions: (B, T, dx), or (B, dx) with `pool="sequence"`: then H_α(Y|X) given these, such as embeddings of
            the tokens before.
        pool: "token", each position is a point; "sequence", the mean over a sequence's positions is one.
        kernel, kernel_x: of expected embeddings and of conditions; open bandwidths are medians of this batch.
        temperature: of the softmax.
        candidates: None for expected embeddings; k for the k likeliest tokens of each position, weighted by their
            probabilities among themselves.
        max_points: rows at most; positions beyond it (or beyond max_points / k) are drawn without replacement.
        generator: draws them (on the CPU); a fixed seed by default.
        options: order, num_features, gather, … as in `ConditionalEntropyLoss`.

    Raises:
        InputError: shapes that do not fit; no position left by the mask; NaN logits (sequences and positions named).

    >>> logits = 50 * torch.eye(4)[None]  # four positions, four different tokens, all certain
    >>> round(token_entropy_surrogate(logits, torch.eye(4), kernel="cosine").exp().item(), 4)
    4.0
    """
    ways = _Ways(pool, temperature, candidates, max_points)
    sides, weights = ways.points(logits, embeddings, mask, conditions, generator)
    kernels = (kernel,) if conditions is None else (kernel_x, kernel)
    return BatchEntropy(kernels, **options).entropies(sides, weights)[0]


class TokenEntropyLoss(nn.Module):
    """-H_α of what a model says next, or its distance from a target: `token_entropy_surrogate` as a loss.

    To raise the diversity of samples, give `candidates` and `kernel_x`: then it is H_α(Y|X) of likely tokens.

    Args:
        kernel: of output embeddings.
        kernel_x: of conditions; None for the entropy without conditions.
        target, margin: nats; without a target the entropy is maximised.
        pool, temperature, candidates, max_points: as in `token_entropy_surrogate`.
        options: as in `ConditionalEntropyLoss`; `seed` also draws the positions.

    >>> loss = TokenEntropyLoss("cosine")
    >>> round(loss(50 * torch.eye(4)[None], torch.eye(4)).item(), 4)
    -1.3863
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        kernel_x: Kernel | str | None = None,
        *,
        target: float | None = None,
        margin: float = 0.0,
        pool: Pool = "token",
        temperature: float = 1.0,
        candidates: int | None = None,
        max_points: int = MAX_POINTS,
        **options: Unpack[BatchOptions],
    ) -> None:
        super().__init__()
        self.objective = Objective(target, margin)
        self.batches = BatchEntropy((kernel,) if kernel_x is None else (kernel_x, kernel), **options)
        self.ways = _Ways(pool, temperature, candidates, max_points)
        self.generator = torch.Generator().manual_seed(self.batches.seed)

    @outside_graphs
    def forward(
        self, logits: Tensor, embeddings: Tensor, mask: Tensor | None = None, conditions: Tensor | None = None
    ) -> Tensor:
        """The loss (). Shapes and errors as `token_entropy_surrogate`."""
        sides, weights = self._points(logits, embeddings, mask, conditions)
        return self.batches.loss(self.objective, sides, weights, remember=self.training)

    @outside_graphs
    def entropy(
        self, logits: Tensor, embeddings: Tensor, mask: Tensor | None = None, conditions: Tensor | None = None
    ) -> Tensor:
        """H_α () in nats, by the same ruler; the batch is not remembered."""
        return self.batches.entropies(*self._points(logits, embeddings, mask, conditions))[0]

    def get_extra_state(self) -> dict[str, Any]:
        return self.batches.state()

    def set_extra_state(self, state: Any) -> None:
        self.batches.restore(state)

    @property
    def conditional(self) -> bool:
        """Whether the loss needs conditions."""
        return len(self.batches.kernels) == 2

    def _points(
        self, logits: Tensor, embeddings: Tensor, mask: Tensor | None, conditions: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        if (conditions is not None) != self.conditional:
            raise InputError(
                "this loss was made with kernel_x, so give conditions."
                if self.conditional
                else "conditions need a kernel: make the loss with kernel_x='gaussian' or another."
            )
        return self.ways.points(logits, embeddings, mask, conditions, self.generator)


@dataclass(frozen=True)
class _Ways:
    """How logits become rows. Raises InputError where the ways do not exist or do not go together."""

    pool: Pool
    temperature: float
    candidates: int | None
    max_points: int

    def __post_init__(self) -> None:
        if self.pool not in get_args(Pool):
            raise InputError(f"pool must be 'token' or 'sequence', but is {self.pool!r}.")
        if self.max_points < 1:
            raise InputError(f"max_points must be positive, but is {self.max_points}.")
        if self.candidates is None:
            return
        if self.pool == "sequence":
            raise InputError("candidates are of single positions: leave pool at 'token', or candidates out.")
        if not isinstance(self.candidates, int) or not 2 <= self.candidates <= self.max_points:
            raise InputError(
                f"candidates must be a whole number of at least 2 and at most max_points ({self.max_points}), but is "
                f"{self.candidates}."
            )

    def points(
        self,
        logits: Tensor,
        embeddings: Tensor,
        mask: Tensor | None,
        conditions: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The sides of the batch, (y,) or (x, y) with conditions; and the rows' weights, where they have any."""
        _refuse_shapes(logits, mask, conditions, self.pool)
        kept = torch.ones(logits.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
        kept = kept.to(logits.device)
        if self.pool == "sequence":
            y = _means(expected_embeddings(logits, embeddings, self.temperature), kept)
            _refuse_undefined(y.detach(), None)
            return (y,) if conditions is None else (conditions, y), None
        each = 1 if self.candidates is None else min(self.candidates, logits.shape[-1])
        chosen = _drawn(torch.nonzero(kept), self.max_points // each, generator)
        given, weights = logits[chosen[:, 0], chosen[:, 1]], None
        x = None if conditions is None else conditions[chosen[:, 0], chosen[:, 1]]
        if self.candidates is None:
            y = expected_embeddings(given, embeddings, self.temperature)
            _refuse_undefined(y.detach(), chosen)
        else:
            tokens, weights = _likeliest(given, embeddings, each, self.temperature)
            _refuse_undefined(weights.detach(), chosen, "probabilities")
            y, weights = embeddings.detach()[tokens].flatten(0, 1), weights.flatten()
            x = None if x is None else x.repeat_interleave(tokens.shape[1], 0)
        return (y,) if x is None else (x, y), weights


def _likeliest(logits: Tensor, embeddings: Tensor, count: int, temperature: float) -> tuple[Tensor, Tensor]:
    """The likeliest tokens (n, k) of each row and their probabilities among themselves, float32 at least."""
    _refuse_vocabulary(logits, embeddings, temperature)
    found = logits.to(torch.promote_types(logits.dtype, torch.float32)).topk(count, dim=-1)
    return found.indices, torch.softmax(found.values / temperature, dim=-1)


def _drawn(places: Tensor, most: int, generator: torch.Generator | None) -> Tensor:
    if len(places) <= most:
        return places
    generator = generator or torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(places), generator=generator)[:most].sort().values
    return places[chosen.to(places.device)]


def _means(values: Tensor, kept: Tensor) -> Tensor:
    counts = kept.sum(1)
    if bool((counts == 0).any()):
        rows = ", ".join(map(str, torch.nonzero(counts == 0)[:NAMED_ROWS, 0].tolist()))
        raise InputError(f"mask leaves no position of sequences {rows}; leave them out of the batch.")
    return (values * kept[..., None]).sum(1) / counts[:, None]


def _refuse_vocabulary(logits: Tensor, embeddings: Tensor, temperature: float) -> None:
    if not temperature > 0:
        raise InputError(f"temperature must be positive, but is {temperature}.")
    if embeddings.ndim != 2 or logits.ndim < 1 or logits.shape[-1] != embeddings.shape[0]:
        raise InputError(
            f"logits {tuple(logits.shape)} and embeddings {tuple(embeddings.shape)} do not fit: give (..., V) and "
            "(V, d), such as model.get_output_embeddings().weight."
        )


def _refuse_shapes(logits: Tensor, mask: Tensor | None, conditions: Tensor | None, pool: Pool) -> None:
    if logits.ndim != 3:
        raise InputError(f"logits must have shape (B, T, V), but have {tuple(logits.shape)}.")
    if mask is not None and mask.shape != logits.shape[:2]:
        raise InputError(f"mask must have shape {tuple(logits.shape[:2])}, but has {tuple(mask.shape)}.")
    leading = logits.shape[:1] if pool == "sequence" else logits.shape[:2]
    if conditions is not None and (conditions.ndim != len(leading) + 1 or conditions.shape[:-1] != leading):
        raise InputError(f"conditions must have shape {(*leading, 'dx')}, but have {tuple(conditions.shape)}.")


def _refuse_undefined(points: Tensor, chosen: Tensor | None, what: str = "expected embedding") -> None:
    undefined = torch.nonzero(~torch.isfinite(points).all(-1))[:NAMED_ROWS, 0]
    if len(undefined) == 0:
        return
    if chosen is None:
        where = f"sequences {', '.join(map(str, undefined.tolist()))}"
    else:
        where = ", ".join(f"sequence {b} position {t}" for b, t in chosen[undefined].tolist())
    raise InputError(f"logits give no finite {what} at {where}; check the model, or lower its step.")
