"""Records of text pairs as a comparison: the training text and every decoder's continuations of the same prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from condvne.data.config import Distinct, Evaluation
from condvne.data.listing import listed
from condvne.data.records import PairRecord, has_visible
from condvne.data.text.lexical import DistinctCounter, Ngram, text_ngrams, token_ngrams
from condvne.errors import DataError
from condvne.evaluation.comparison import Chunks, Comparison

TRAINING = "training"
Cut = Callable[[Sequence[int]], list[str]]  # token ids to the texts of their chunks


def without_blanks(evaluation: Evaluation, records: Sequence[PairRecord], notes: list[str]) -> list[PairRecord]:
    """Records in which every text has a visible character; the others are refused, or dropped from all groups."""
    blank = [r.id for r in records if not all(map(has_visible, (r.prefix, r.training, *r.outputs.values())))]
    if not blank:
        return list(records)
    if evaluation.empty_texts == "refuse":
        raise DataError(
            f"{len(blank)} records have an empty or white-space continuation ({listed(blank)}); "
            "set evaluation.empty_texts: drop in a new run folder to leave them out of all groups."
        )
    notes.append(f"{len(blank)} pairs with an empty or white-space continuation were left out of all groups")
    dropped = set(blank)
    kept = [r for r in records if r.id not in dropped]
    if not kept:
        raise DataError("every record has an empty or white-space continuation; nothing is left to score.")
    return kept


def reachable(evaluation: Evaluation, available: int, notes: list[str]) -> Evaluation:
    """Sizes beyond the pairs that are left come down to them: what was generated is not lost for want of a few."""
    beyond = [n for n in evaluation.sizes if n > available]
    if not beyond:
        return evaluation
    notes.append(f"sizes {listed(beyond)} were lowered to the {available} pairs that are left")
    return evaluation.model_copy(update={"sizes": sorted({min(n, available) for n in evaluation.sizes})})


def repeated_prefixes(records: Sequence[PairRecord]) -> str:
    """How many prefixes come more than once, also up to case, spacing and punctuation, in one sentence."""
    texts = Counter(r.prefix for r in records)
    alike = {"".join(c for c in text.casefold() if c.isalnum()) or text for text in texts}
    frequent, times = texts.most_common(1)[0]
    sentence = f"{len(texts)} distinct prefixes of {len(records)}, {len(alike)} up to case, spacing and punctuation"
    return sentence + (f"; the most frequent, {frequent!r}, comes {times} times" if times > 1 else "")


def text_comparison(
    records: Sequence[PairRecord], strategies: Sequence[str], distinct: Distinct, cut: Cut | None = None
) -> Comparison:
    """Every group's continuations under the prefixes, the training text as reference.

    Args:
        cut: gives the texts of a continuation's or prefix's chunks from its token ids; None embeds texts whole.
    """
    groups = [TRAINING, *strategies]
    texts = {g: [[r.training if g == TRAINING else r.outputs[g]] for r in records] for g in groups}

    def ngrams(group: str, n: int) -> list[list[Ngram]]:
        if distinct.unit != "tokens":
            return text_ngrams(texts[group], n, distinct.unit)
        ids = [[r.training_ids if group == TRAINING else r.output_ids[group]] for r in records]
        return token_ngrams([r.prefix_ids for r in records], ids, n)

    return Comparison(
        ids=[r.id for r in records],
        conditions=[r.prefix for r in records],
        outputs=texts,
        distinct={n: {g: DistinctCounter(ngrams(g, n)) for g in groups} for n in distinct.orders},
        distinct_unit=distinct.unit,
        reference=TRAINING,
        chunks=None if cut is None else _chunks(records, groups, cut),
    )


def cutter(tokenizer: Any, size: int) -> Cut:
    """Cuts token ids into chunks of `size`, the last one shorter where it must be, and decodes each on its own."""
    known: dict[tuple[int, ...], str] = {}

    def text(ids: tuple[int, ...]) -> str:
        if ids not in known:
            known[ids] = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return known[ids]

    return lambda ids: [text(tuple(ids[start : start + size])) for start in range(0, len(ids), size)]


def _chunks(records: Sequence[PairRecord], groups: Sequence[str], cut: Cut) -> Chunks:
    return Chunks(
        conditions=[cut(r.prefix_ids) for r in records],
        outputs={g: [[cut(r.training_ids if g == TRAINING else r.output_ids[g])] for r in records] for g in groups},
    )
