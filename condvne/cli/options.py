"""Kinds of options that several commands take."""

from __future__ import annotations

from enum import Enum
from typing import Any

from typer.core import TyperCommand

# options that take several values, one after another or repeated
LISTS = ("--outputs", "--sizes", "--lexicon", "--generated", "--columns", "--families", "--probe")


class ManyValues(TyperCommand):
    """Lets `--outputs a b c` stand for `--outputs a --outputs b --outputs c`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        current: str | None = None
        fresh = False
        for argument in args:
            if argument.startswith("-"):
                current, fresh = (argument, True) if argument in LISTS else (None, False)
                spread.append(argument)
                if current is None:
                    continue
            elif current is not None:
                spread.extend([argument] if fresh else [current, argument])
                fresh = False
            else:
                spread.append(argument)
        return super().parse_args(ctx, spread)


class KernelName(str, Enum):
    gaussian = "gaussian"
    laplacian = "laplacian"
    cosine = "cosine"
    polynomial = "polynomial"


class MethodName(str, Enum):
    auto = "auto"
    exact = "exact"
    lanczos = "lanczos"


class Unit(str, Enum):
    words = "words"
    characters = "characters"


class Empty(str, Enum):
    refuse = "refuse"
    drop = "drop"
