"""The processes that share one job, as `torchrun` and `accelerate launch` start them.

Every process runs the same code on the same settings; what is shared out is done in parts and gathered in the order of
the ranks, so that the result is that of one process. Rank 0 alone touches the run folder. Without a launcher there is
one rank, and nothing is sent anywhere. What travels is JSON and tensors, never pickled objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from condvne.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

PATIENCE = timedelta(days=7)  # rank 0 may read a corpus for hours; the launcher ends all ranks when one fails


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the job.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local: its number on this machine, which is also that of its GPU.
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def main(self) -> bool:
        """Whether this is the process that reads, writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> slice:
        """This rank's part of `count` items: contiguous, in rank order, of sizes that differ by at most 1."""
        base, extra = divmod(count, self.size)
        start = self.rank * base + min(self.rank, extra)
        return slice(start, start + base + (self.rank < extra))

    def broadcast(self, value: Any = None) -> Any:
        """What rank 0 has, as JSON knows it, on every rank."""
        if self.size == 1:
            return value
        return self._exchanged(value if self.main else None)[0]

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all ranks, as JSON knows them, one after the other, on every rank."""
        if self.size == 1:
            return list(items)
        return [item for part in self._exchanged(list(items)) for item in part]

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Rows (n, d) of all ranks, whose n may differ, one after the other, on every rank."""
        if self.size == 1:
            return rows
        import torch
        import torch.distributed as dist

        counts = [int(n) for n in self._exchanged(rows.shape[0])]
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    def broadcast_rows(self, rows: Tensor) -> Tensor:
        """Rank 0's rows (n, d) on every rank; the others give any tensor of the same d and dtype."""
        if self.size == 1:
            return rows
        import torch.distributed as dist

        count = self.broadcast(rows.shape[0])
        shared = rows.contiguous() if self.main else rows.new_empty(count, *rows.shape[1:])
        dist.broadcast(shared, src=0)
        return shared

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place, equal on every rank."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def agree(self, settings: Mapping[str, Any], what: str) -> None:
        """Raises ConfigError on every rank where one has other settings than rank 0, naming the first that differs."""
        for rank, theirs in enumerate(self.gather([settings])):
            ours = self.broadcast(settings)
            if theirs != ours:
                raise ConfigError(
                    f"rank {rank} has other {what} than rank 0 ({_first_difference(ours, theirs)}); "
                    "start every process with the same command, files and packages."
                )

    def _exchanged(self, value: Any) -> list[Any]:
        import torch
        import torch.distributed as dist

        mine = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([mine.numel()]))
        padded = torch.zeros(max(int(n) for n in sizes), dtype=torch.uint8)
        padded[: mine.numel()] = mine
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return [json.loads(part[: int(n)].numpy().tobytes()) for part, n in zip(parts, sizes, strict=True)]


SINGLE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that a launcher started, or be the only one.

    gloo between CPUs, NCCL between GPUs. After a failure the group is left as it is: the launcher ends the others.

    Raises:
        ConfigError: the launcher's variables are incomplete.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set: start with torchrun or accelerate launch."
        )
    import torch
    import torch.distributed as dist

    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    yield Ranks(rank, size, local)
    dist.barrier()
    dist.destroy_process_group()


def rank_label() -> str:
    """ " (rank 1)" where the environment says that this is one of several processes, else ""."""
    return f" (rank {os.environ.get('RANK', '?')})" if os.environ.get("WORLD_SIZE", "1") != "1" else ""


def _first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> str:
    for key in dict.fromkeys((*ours, *theirs)):
        a, b = ours.get(key), theirs.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return _first_difference(a, b, f"{prefix}{key}.")
        return f"{prefix}{key} is {b!r} instead of {a!r}"
    return "they have the same values in another order"
