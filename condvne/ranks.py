"""The processes that share one job, as `torchrun` and `accelerate launch` start them.

Every process runs the same code on the same settings; what is shared out is done in parts and gathered in the order of
the ranks, so that the result is that of one process. Rank 0 alone touches the run folder. Without a launcher there is
one rank, and nothing is sent anywhere. What travels is JSON and tensors, never pickled objects.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from condvne.errors import CondvneError, ConfigError, RunError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PATIENCE = timedelta(days=7)  # rank 0 may read a corpus for hours; the launcher ends all ranks when one fails
MEETING = timedelta(minutes=10)  # for all processes to come
HEARING = 5.0  # seconds for rank 0 to fail of the same cause

_VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_REFUSAL = "condvne/refusal"
_LOST = ("closed by peer", "reset by peer", "broken pipe", "remote worker")


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the job.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local: its number on this machine, which is also that of its GPU.
        neighbours: how many there are on this machine, this one included.
        between_gpus: the group that sums tensors of GPUs; None for the default one.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    neighbours: int = 1
    between_gpus: Any = None

    @property
    def main(self) -> bool:
        """Whether this is the process that reads, writes and prints."""
        return self.rank == 0

    def sharing(self, device: torch.device) -> int:
        """How many ranks share the memory of this rank's device."""
        if device.type != "cuda" or self.neighbours == 1:
            return self.neighbours
        import torch

        return -(-self.neighbours // torch.cuda.device_count())

    def share(self, count: int) -> slice:
        """This rank's part of `count` items: contiguous, in rank order, of sizes that differ by at most 1."""
        base, extra = divmod(count, self.size)
        start = self.rank * base + min(self.rank, extra)
        return slice(start, start + base + (self.rank < extra))

    def broadcast(self, value: Any = None) -> Any:
        """What rank 0 has, as JSON knows it, on every rank."""
        if self.size == 1:
            return value
        import torch
        import torch.distributed as dist

        sent = _packed(value if self.main else None)
        length = torch.tensor([sent.numel()])
        with _exchange():
            dist.broadcast(length, src=0)
            received = sent if self.main else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(received, src=0)
        return _unpacked(received)

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all ranks, as JSON knows them, one after the other, on every rank."""
        if self.size == 1:
            return list(items)
        return [item for part in self._parts(_packed(list(items))) for item in _unpacked(part)]

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Rows (n, d) of all ranks, whose n may differ, one after the other, on every rank."""
        if self.size == 1:
            return rows
        import torch

        return torch.cat(self._parts(rows))

    def broadcast_rows(self, rows: Tensor) -> Tensor:
        """Rank 0's rows (n, d) on every rank; the others give any tensor of the same d and dtype."""
        if self.size == 1:
            return rows
        import torch.distributed as dist

        count = self.broadcast(rows.shape[0])
        shared = rows.contiguous() if self.main else rows.new_empty(count, *rows.shape[1:])
        with _exchange():
            dist.broadcast(shared, src=0)
        return shared

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place, equal on every rank."""
        if self.size > 1:
            import torch.distributed as dist

            with _exchange():
                dist.all_reduce(tensor, group=self.between_gpus if tensor.device.type == "cuda" else None)
        return tensor

    def agree(self, settings: Mapping[str, Any], what: str) -> None:
        """Raises ConfigError on every rank where one has other settings than rank 0, naming the first that differs."""
        ours, *others = self.gather([settings])
        for rank, theirs in enumerate(others, start=1):
            if theirs != ours:
                raise ConfigError(
                    f"rank {rank} has other {what} than rank 0 ({_first_difference(ours, theirs)}); "
                    "start every process with the same command, files and packages."
                )

    def keep_step(self, step: Sequence[int | None]) -> None:
        """Raises RunError on every rank where one takes another step, whose exchange would never end."""
        steps = self.gather([list(step)])
        strays = [rank for rank, theirs in enumerate(steps) if theirs != steps[0]]
        if strays:
            raise RunError(
                f"ranks {', '.join(map(str, strays))} take other steps than rank 0, as processors that round "
                "differently may; use machines of one kind, or method exact."
            )

    def _parts(self, rows: Tensor) -> list[Tensor]:
        """Rows of every rank, on every rank."""
        import torch
        import torch.distributed as dist

        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with _exchange():
            dist.all_gather(sizes, torch.tensor([rows.shape[0]]))
            counts = [int(n) for n in sizes]
            padded = rows.new_zeros(max(counts), *rows.shape[1:])
            padded[: rows.shape[0]] = rows
            parts = [torch.empty_like(padded) for _ in counts]
            dist.all_gather(parts, padded)
        return [part[:n] for part, n in zip(parts, counts, strict=True)]


SINGLE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that a launcher started, or be the only one.

    gloo between CPUs; NCCL between GPUs where every process has its own, else gloo. What is wrong on all ranks is
    raised on rank 0, and ends the others silently with status 1. After a failure the group is left as it is: the
    launcher ends those who wait.

    Raises:
        ConfigError: the launcher's variables are incomplete or no numbers.
        RunError: the other processes did not come, or one has ended.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield SINGLE
        return
    size, rank, local, neighbours = _placed()
    import torch.distributed as dist

    store = _met(size, rank)
    ranks = Ranks(rank, size, local, neighbours, _between_gpus(local, neighbours))
    try:
        yield ranks
        ranks.broadcast()  # nobody leaves while others still send
    except CondvneError as error:
        if _told_by_first(store, rank, str(error)):
            raise SystemExit(1) from None
        raise
    dist.destroy_process_group()


def rank_label() -> str:
    """ " (rank 1)" where the environment says that this is one of several processes, else ""."""
    return f" (rank {os.environ.get('RANK', '?')})" if os.environ.get("WORLD_SIZE", "1") != "1" else ""


def _placed() -> tuple[int, int, int, int]:
    """World size, rank, local rank and processes on this machine, from the environment."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    size = os.environ["WORLD_SIZE"]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set: start with torchrun or accelerate launch."
        )
    # Without a word on this machine's processes, all may be here.
    texts = [os.environ.get(name, default) for name, default in zip(_VARIABLES, (size, "0", "0", size), strict=True)]
    wrong = [f"{name} is {text!r}" for name, text in zip(_VARIABLES, texts, strict=True) if not text.isdecimal()]
    if wrong:
        raise ConfigError(f"{wrong[0]}, which is no number: start with torchrun or accelerate launch.")
    world, rank, local, neighbours = (int(text) for text in texts)
    return world, rank, local, max(1, neighbours)


def _met(size: int, rank: int) -> Any:
    """Join the process group; the store in which its processes leave word."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    try:
        store, _, _ = next(rendezvous("env://", rank, size, timeout=MEETING))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # ValueError: a rank or port out of range
        raise RunError(
            f"the {size} processes of WORLD_SIZE did not all come to {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} ({_reason(error)}); start all of them, on machines that reach this address."
        ) from error
    return store


def _between_gpus(local: int, neighbours: int) -> Any:
    """A group of NCCL where every rank has a GPU to itself, which NCCL demands; else None."""
    import torch
    import torch.distributed as dist

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        torch.cuda.set_device(local % gpus)
    without = torch.tensor([int(neighbours > gpus)])
    with _exchange():
        dist.all_reduce(without)
        return dist.new_group(backend="nccl", timeout=PATIENCE) if int(without) == 0 else None


def _told_by_first(store: Any, rank: int, message: str) -> bool:
    """Whether rank 0 reports the same error, so that this rank need not."""
    try:
        if rank == 0:
            store.set(_REFUSAL, message)
            return False
        until = time.monotonic() + HEARING
        while not store.check([_REFUSAL]):  # waiting in the store would print warnings when it is in vain
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return bool(store.get(_REFUSAL).decode() == message)
    except RuntimeError:  # rank 0 kept the store, and is gone
        return False


@contextmanager
def _exchange() -> Iterator[None]:
    """Failures of the exchange as RunError. The libraries know no finer type than RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error).lower() for sign in _LOST):
            raise RunError(
                "another process has ended, as it or the launcher reports; finished records stay, and the same "
                "command goes on from there."
            ) from error
        raise RunError(f"the processes could not exchange their results ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def _packed(value: Any) -> Tensor:
    import torch

    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _unpacked(data: Tensor) -> Any:
    return json.loads(data.numpy().tobytes())


def _first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> str:
    for key in dict.fromkeys((*ours, *theirs)):
        a, b = ours.get(key), theirs.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return _first_difference(a, b, f"{prefix}{key}.")
        return f"{prefix}{key} is {b!r} instead of {a!r}"
    return "they have the same values in another order"
