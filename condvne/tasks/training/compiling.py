"""What a compiled model leaves to Python: entropies, whose checks look at values and whose matrices vary in size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def outside_graphs(function: FunctionT) -> FunctionT:
    """The same function; `torch.compile` of a caller calls it as it is, between two graphs."""
    return cast(FunctionT, torch.compiler.disable(function))  # type: ignore[no-untyped-call]
