"""The candidates of a user's file: their texts and vectors, weights before, and reference outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from condvne.data.config.reweight import ReweightConfig
from condvne.data.rows import read_rows
from condvne.data.tables import OutputTable, read_table
from condvne.errors import DataError
from condvne.evaluation import Embedder

SUM = 1e-6  # that a prior's weights may be off from one


@dataclass(frozen=True)
class Candidates:
    """All candidates in one row.

    Attributes:
        texts: of each prompt's candidates, N lists.
        x: features of the prompts, (N, dx).
        y: of the candidates, (M, dy).
        owners: (M,), each candidate's prompt, ascending.
        prior: (M,), weights before, one in sum for each prompt.
        references: the reference outputs' texts, one a prompt, or None.
        reference: their features, (N, dy).
    """

    texts: list[list[str]]
    x: Tensor
    y: Tensor
    owners: Tensor
    prior: Tensor
    references: list[str] | None
    reference: Tensor | None

    @property
    def flat(self) -> list[str]:
        """All candidates' texts, (M,)."""
        return [text for texts in self.texts for text in texts]

    def split(self, values: Tensor) -> list[list[float]]:
        """Values (M,) as a list a prompt."""
        parts = values.cpu().split([len(texts) for texts in self.texts])  # type: ignore[no-untyped-call]
        return [part.tolist() for part in parts]


def read_candidates(config: ReweightConfig) -> OutputTable:
    """The file's prompts and candidates. Raises DataError as `read_table`."""
    return _table(config, [config.outputs])


def _table(config: ReweightConfig, outputs: Sequence[str]) -> OutputTable:
    empty = config.evaluation.empty_texts
    return read_table(config.file, condition=config.condition, outputs=outputs, empty=empty)


def embedded_candidates(config: ReweightConfig, table: OutputTable, embedder: Embedder) -> Candidates:
    """Everything the projection needs. Raises DataError for weights or references that do not fit (row named)."""
    lists = table.groups[config.outputs]
    owners = [i for i, texts in enumerate(lists) for _ in texts]
    references = None if config.reference is None else _references(config, table, config.reference)
    flat = [text for texts in lists for text in texts]
    return Candidates(
        texts=lists,
        x=embedder.vectors("conditions", table.conditions, table.ids),
        y=embedder.vectors("candidates", flat, [table.ids[i] for i in owners]),
        owners=torch.tensor(owners, device=embedder.device),
        prior=_prior(config, table).to(embedder.device),
        references=references,
        reference=None if references is None else embedder.vectors("reference", references, table.ids),
    )


def _references(config: ReweightConfig, table: OutputTable, field: str) -> list[str]:
    """One reference output a prompt. Raises DataError naming the row that has none, or several."""
    other = _table(config, [field])
    lists = dict(zip(other.ids, other.groups[field], strict=True))
    odd = [name for name in table.ids if len(lists.get(name, ())) != 1]
    if odd:
        raise DataError(f"{config.file}: {odd[0]} has {len(lists.get(odd[0], ()))} outputs in {field!r}; give it one.")
    return [lists[name][0] for name in table.ids]


def _prior(config: ReweightConfig, table: OutputTable) -> Tensor:
    """Weights before, (M,) float64. Raises DataError naming the row whose weights do not fit its candidates."""
    lists = table.groups[config.outputs]
    if config.prior is None:
        return torch.cat([torch.full((len(texts),), 1 / len(texts), dtype=torch.float64) for texts in lists])
    rows = rows_of(config, table)
    found = []
    for texts, (where, fields) in zip(lists, rows, strict=True):
        given = fields.get(config.prior)
        numbers = isinstance(given, list) and all(type(w) in (int, float) and w >= 0 for w in given)
        if not isinstance(given, list) or not numbers or len(given) != len(texts):
            raise DataError(
                f"{where}: field {config.prior!r} must hold {len(texts)} weights, none negative, one a candidate."
            )
        if abs(sum(given) - 1) > SUM:
            raise DataError(f"{where}: the weights in {config.prior!r} sum to {sum(given):.6g} instead of 1.")
        found.append(torch.tensor(given, dtype=torch.float64))
    return torch.cat(found)


def rows_of(config: ReweightConfig, table: OutputTable) -> list[tuple[str, dict[str, Any]]]:
    """The file's rows that the table kept, in its order: "file:line" and fields."""
    by_id = {}
    for row in read_rows(config.file):
        name = str(row.fields["id"]) if "id" in row.fields and config.condition != "id" else row.place
        by_id[name] = (row.where, row.fields)
    return [by_id[name] for name in table.ids]
