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
HEADER = 4  # numbers in front of the widths: fault, rows, fingerprint, precision


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

    def gather(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The rows (n, d) of all processes, in the order of their ranks, for each tensor of the batch; one exchange."""
        widths = [part.shape[1] for part in parts]
        gathered: Tensor = _Gather.apply(_joined(parts, self.wanted), self.counts, self.rank, self.group)
        return _parted(list(gathered.split(widths, dim=1)), self.wanted)

    def sum(self, parts: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor]:
        """The sum over processes of each tensor; one exchange. `wanted` as of the class, for each of them."""
        flat = _joined([part.reshape(1, -1) for part in parts], wanted)
        total: Tensor = _Sum.apply(flat, self.group)
        pieces = total[0].split([part.numel() for part in parts])
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
    device = parts[0].device
    widths = [0 if fault else part.shape[1] for part in parts]
    precision = 0 if fault else max(torch.finfo(part.dtype).bits for part in parts)
    wants = [int(part.requires_grad and torch.is_grad_enabled()) for part in parts]
    numbers = [int(fault is not None), 0 if fault else len(parts[0]), fingerprint, precision, *widths, *wants]
    mine = torch.tensor(numbers, device=device)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, mine, group=group)
    found = [row.tolist() for row in gathered]
    rank = dist.get_rank(group)
    faulty = [r for r, row in enumerate(found) if row[0]]
    if faulty:
        raise InputError(fault or f"rank {faulty[0]} has a batch that cannot be scored; its own message says why.")
    first = HEADER + len(widths)
    _refuse_strays(found, first)
    wanted = tuple(any(row[first + k] for row in found) for k in range(len(parts)))
    return Rows(tuple(row[1] for row in found), rank, wanted, group)


def _refuse_strays(found: Sequence[Sequence[int]], end: int) -> None:
    for rank, row in enumerate(found):
        if row[2] != found[0][2]:
            raise InputError(
                f"rank {rank} has other settings of the loss than rank 0; give every process the same kernels, "
                "bandwidths, order, number of features, seed and history."
            )
        for name, ours, theirs in zip(("precision", *NAMES), found[0][3:end], row[3:end], strict=False):
            if ours != theirs:
                what = f"{name} of {theirs} bits" if name == "precision" else f"{name} of {theirs} columns"
                raise InputError(f"rank {rank} has {what} where rank 0 has {ours}; give every process the same.")


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
