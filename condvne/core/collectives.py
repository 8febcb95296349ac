"""Rows and sums of several processes with their gradients: what autograd needs to see through an exchange.

Every process computes the same loss L on the rows of all. Backward adds up what the processes ask of a row, W times
∂L/∂row for W processes, and `DistributedDataParallel` and its like average the parameters' gradients over processes:
together exactly the gradient that one process with all rows would have. (A plain gather has no gradient; putting one's
own rows back among gathered ones gives 1/W of it.)

Processes may hold different numbers of rows, or none. A fault that one process sees is raised on all of them, so that
none waits for an exchange that never comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from condvne.errors import InputError

NAMES = ("x", "y", "weights")
ABSENT = -1


@dataclass(frozen=True)
class Rows:
    """How the rows of one batch lie over the processes.

    Attributes:
        counts: rows of each process.
        rank: of this process.
        wanted: for each tensor of the batch, whether any process wants its gradient.
        group: the processes.
    """

    counts: tuple[int, ...]
    rank: int
    wanted: tuple[bool, ...]
    group: dist.ProcessGroup | None

    @property
    def total(self) -> int:
        return sum(self.counts)

    def gather(self, parts: Sequence[Tensor], *, graph: bool = True) -> list[Tensor]:
        """The rows (n, d) of all processes, in the order of their ranks, for each tensor of the batch; one exchange."""
        wanted = tuple(graph and wanted for wanted in self.wanted[: len(parts)])
        widths = [part.shape[1] for part in parts]
        gathered: Tensor = _Gather.apply(_joined(parts, wanted), self.counts, self.rank, self.group)
        return _parted(torch.split(gathered, widths, dim=1), wanted)

    def sum(self, parts: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor]:
        """The sum over processes of each tensor; one exchange. `wanted` as of the class, for each of them."""
        flat = _joined([part.reshape(1, -1) for part in parts], wanted)
        total: Tensor = _Sum.apply(flat, self.group)
        pieces = torch.split(total[0], [part.numel() for part in parts])
        return _parted([piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)], wanted)


def in_company(group: dist.ProcessGroup | None = None) -> bool:
    """Whether there are other processes to exchange with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def agreed_rows(
    parts: Sequence[Tensor], fault: str | None, fingerprint: int, group: dist.ProcessGroup | None = None
) -> Rows:
    """What the processes of a group need to know of each other before they exchange a batch.

    Args:
        parts: tensors (n, d) of this process, n the same for all; of any shape where there is a fault.
        fault: what is wrong with them, for an error on every process; None where nothing is.
        fingerprint: of what must be the same everywhere (kernels, order, …), an integer.
        group: the processes; all by default.

    Raises:
        InputError: on every process, where one has a fault, another fingerprint, other widths or another precision.
    """
    missing = [ABSENT] * (len(NAMES) - len(parts))
    widths = [ABSENT if fault else part.shape[1] for part in parts] + missing
    wants = [int(part.requires_grad and torch.is_grad_enabled()) for part in parts] + missing
    precision = 0 if fault else max(torch.finfo(part.dtype).bits for part in parts)
    head = [int(fault is not None), 0 if fault else len(parts[0]), fingerprint, precision]
    mine = torch.tensor(head + widths + wants, device=parts[0].device)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, mine, group=group)
    found = [_Header.of(row.tolist()) for row in gathered]
    faulty = [rank for rank, header in enumerate(found) if header.fault]
    if faulty:
        raise InputError(fault or f"rank {faulty[0]} has a batch that cannot be scored; its own message says why.")
    for rank, header in enumerate(found):
        _refuse_stray(rank, header, found[0])
    wanted = tuple(any(header.wants[k] for header in found) for k in range(len(parts)))
    return Rows(tuple(header.rows for header in found), dist.get_rank(group), wanted, group)


@dataclass(frozen=True)
class _Header:
    fault: int
    rows: int
    fingerprint: int
    precision: int
    widths: tuple[int, ...]
    wants: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> _Header:
        fault, rows, fingerprint, precision, *rest = numbers
        return cls(fault, rows, fingerprint, precision, tuple(rest[: len(NAMES)]), tuple(rest[len(NAMES) :]))


def _refuse_stray(rank: int, header: _Header, first: _Header) -> None:
    if header.fingerprint != first.fingerprint:
        raise InputError(
            f"rank {rank} has other settings of the loss than rank 0; give every process the same kernels, bandwidths, "
            "order, number of features, seed, history, and features with the same number of dimensions."
        )
    if header.precision != first.precision:
        raise InputError(
            f"rank {rank} has features of {header.precision} bits and rank 0 of {first.precision}; give every process "
            "the same precision."
        )
    for name, theirs, ours in zip(NAMES, header.widths, first.widths, strict=True):
        if theirs != ours:
            raise InputError(
                f"rank {rank} gives {_columns(theirs)} of {name}, rank 0 {_columns(ours)}; give all of them the same."
            )


def _columns(width: int) -> str:
    return "none" if width == ABSENT else f"{width} columns"


def _joined(parts: Sequence[Tensor], wanted: Sequence[bool]) -> Tensor:
    """Side by side, in the widest precision, and with a graph on every process where one needs it for its backward."""
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    joined = torch.cat([part.to(dtype) for part in parts], dim=1)
    return joined.detach().requires_grad_() if any(wanted) and not joined.requires_grad else joined


def _parted(parts: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor]:
    return [part if needed else part.detach() for part, needed in zip(parts, wanted, strict=True)]


class _Gather(torch.autograd.Function):
    """Rows of all processes; backward, this process's rows of the sum of all gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], rank: int, group: Any) -> Tensor:
        ctx.counts, ctx.rank, ctx.group = counts, rank, group
        padded = rows.new_zeros(max(*counts, 1), rows.shape[1])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        mine: Tensor = _ShareOfSum.apply(grads[0], ctx.counts, ctx.rank, ctx.group)
        return mine, None, None, None


class _ShareOfSum(torch.autograd.Function):
    """This process's rows of the sum over processes: the transpose of `_Gather`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], rank: int, group: Any) -> Tensor:
        ctx.counts, ctx.rank, ctx.group = counts, rank, group
        total = rows.contiguous().clone()
        dist.all_reduce(total, group=group)
        start = sum(counts[:rank])
        return total[start : start + counts[rank]].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        gathered: Tensor = _Gather.apply(grads[0], ctx.counts, ctx.rank, ctx.group)
        return gathered, None, None, None


class _Sum(torch.autograd.Function):
    """The sum over processes, which is its own transpose."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = tensor.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total: Tensor = _Sum.apply(grads[0], ctx.group)
        return total, None
