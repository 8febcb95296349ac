"""What is compared, and how its result is headed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from condvne.data.text.lexical import DistinctCounter

Progress = Callable[[str, int, int], None]  # stage, done, total

VENDI, RKE = "conditional_vendi", "conditional_rke"


@dataclass(frozen=True)
class Chunks:
    """The texts cut into chunks that are embedded one by one, as many of each condition, and of each output.

    Attributes:
        conditions: for each condition its chunks' texts.
        outputs: for each group, condition and output its chunks' texts.
    """

    conditions: Sequence[Sequence[str]]
    outputs: Mapping[str, Sequence[Sequence[Sequence[str]]]]


@dataclass(frozen=True)
class Comparison:
    """Outputs of several groups under the same conditions.

    Attributes:
        ids: one for each condition, named in errors.
        conditions: the conditions' texts.
        outputs: for each group and condition the outputs' texts, at least one each.
        distinct: for each n of Distinct-n and each group, its counter over the same conditions.
        distinct_unit: what the n-grams are made of.
        reference: the group that the others are compared with; None for no comparison.
        chunks: what is embedded in place of the whole texts, the vectors of a text's chunks one after another.
    """

    ids: Sequence[str]
    conditions: Sequence[str]
    outputs: Mapping[str, Sequence[Sequence[str]]]
    distinct: Mapping[int, Mapping[str, DistinctCounter]]
    distinct_unit: str
    reference: str | None
    chunks: Chunks | None = None

    @property
    def groups(self) -> list[str]:
        """Display order: the reference first, then as given."""
        first = [self.reference] if self.reference is not None else []
        return first + [g for g in self.outputs if g != self.reference]


@dataclass(frozen=True)
class Heading:
    """What the result says of its run beside the scores; `notes` tell what was skipped before this."""

    title: str
    task: Literal["gap", "score", "images", "reweight"]
    seed: int
    settings: dict[str, object]
    versions: dict[str, str]
    notes: Sequence[str] = ()
