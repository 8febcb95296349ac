"""(prefix, continuation) pairs of training text, cut by token position (paper A, appendix D.1)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from condvne.data.config import Pairs, Paragraphs
from condvne.data.records import PairRecord, clean_text, has_visible
from condvne.data.seeding import seeded_key
from condvne.data.text.corpus import Document, candidates
from condvne.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BATCH_DOCUMENTS = 256


@dataclass
class PairCounts:
    """What became of the documents that were read, and of the pairs made of them."""

    documents: int = 0
    without_paragraph: int = 0  # not one paragraph above the thresholds
    too_few_tokens: int = 0  # paragraphs, but none with enough tokens
    repaired: int = 0  # lone surrogates were replaced by U+FFFD, which tokenizers need
    made: int = 0  # pairs, from which `pairs.count` were drawn
    kept: int = 0
    blank_ids: list[str] = field(
        default_factory=list
    )  # pairs left out: prefix or continuation without a visible character

    def notes(self) -> list[str]:
        """The counts in sentences."""
        notes = [
            f"{self.documents} documents read: {self.without_paragraph} without a valid paragraph, "
            f"{self.too_few_tokens} with too few tokens; {self.made} pairs made, {self.kept} drawn"
        ]
        if self.repaired:
            notes.append(f"{self.repaired} documents held lone surrogates, read as U+FFFD")
        if self.blank_ids:
            notes.append(
                f"{len(self.blank_ids)} pairs whose prefix or continuation is only white space were left out: "
                + _some(self.blank_ids)
            )
        return notes


@dataclass(frozen=True)
class PairsReport:
    """The drawn pairs, in an order that depends on seed and ids only, and the counts."""

    records: list[PairRecord]
    counts: PairCounts


def make_pairs(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    paragraphs: Paragraphs,
    pairs: Pairs,
    seed: int,
) -> PairsReport:
    """Draw `pairs.count` pairs from the documents, with uniform probability and without replacement.

    A candidate paragraph is tokenised whole, without special tokens; its first `prefix_tokens` ids are the prefix, the
    next `continuation_tokens` the continuation, and both texts are decoded from the ids. The first
    `pairs_per_document` candidates with enough tokens give pairs, named after the document ("id", or "id#1", "id#2", …
    when several are asked for). Which pairs are drawn, and their order, depends on seed and ids, not on the order of
    documents. Pairs of which one side is only white space are left out and listed in the counts.

    Raises DataError when a document id comes twice, when no document has a valid paragraph, and when there are fewer
    pairs than `pairs.count`.
    """
    counts = PairCounts()
    drawn: list[tuple[int, str, PairRecord]] = []  # a heap whose first entry has the largest key: keys are negated
    read = islice(_distinct(documents), paragraphs.max_documents)
    for record in _pair_stream(read, tokenizer, paragraphs, pairs, seed, counts):
        entry = (-seeded_key(seed, "pair", record.id), record.id, record)
        counts.made += 1
        if len(drawn) < pairs.count:
            heapq.heappush(drawn, entry)
        else:
            heapq.heappushpop(drawn, entry)
    counts.kept = len(drawn)
    _check_enough(counts, paragraphs, pairs)
    return PairsReport([record for _, _, record in sorted(drawn, reverse=True)], counts)


def _check_enough(counts: PairCounts, paragraphs: Paragraphs, pairs: Pairs) -> None:
    if counts.documents == counts.without_paragraph:
        raise DataError(
            f"corpus: not one of {counts.documents} documents read has a valid paragraph; lower "
            f"paragraphs.min_characters (now {paragraphs.min_characters}) or paragraphs.min_sentences "
            f"(now {paragraphs.min_sentences}), or name another corpus."
        )
    if counts.kept < pairs.count:
        raise DataError(
            f"corpus: only {counts.made} pairs could be made of {counts.documents} documents "
            f"({counts.without_paragraph} without a valid paragraph, {counts.too_few_tokens} with fewer than "
            f"{pairs.prefix_tokens + pairs.continuation_tokens} tokens, {len(counts.blank_ids)} pairs of white space), "
            f"but pairs.count is {pairs.count}; lower pairs.count or widen the corpus."
        )


def _distinct(documents: Iterable[Document]) -> Iterator[Document]:
    positions: dict[str, int] = {}
    for number, document in enumerate(documents, start=1):
        first = positions.setdefault(document.id, number)
        if first != number:
            raise DataError(
                f"corpus: documents {first} and {number} have the same id {document.id!r}; ids must differ."
            )
        yield document


def _pair_stream(
    documents: Iterator[Document],
    tokenizer: PreTrainedTokenizerBase,
    paragraphs: Paragraphs,
    pairs: Pairs,
    seed: int,
    counts: PairCounts,
) -> Iterator[PairRecord]:
    while batch := list(islice(documents, _BATCH_DOCUMENTS)):
        waiting: dict[str, list[str]] = {}
        for document in batch:
            text = clean_text(document.text)
            counts.repaired += text != document.text
            found = candidates(Document(document.id, text), paragraphs, seed)
            counts.without_paragraph += not found
            if found:
                waiting[document.id] = found
        counts.documents += len(batch)
        needed = pairs.prefix_tokens + pairs.continuation_tokens
        for name, cuts in _cuts(waiting, tokenizer, needed, paragraphs.pairs_per_document).items():
            counts.too_few_tokens += not cuts
            for number, ids in enumerate(cuts, start=1):
                record_id = name if paragraphs.pairs_per_document == 1 else f"{name}#{number}"
                record = _record(record_id, ids, tokenizer, pairs)
                if has_visible(record.prefix) and has_visible(record.training):
                    yield record
                else:
                    counts.blank_ids.append(record_id)


def _cuts(
    waiting: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, needed: int, wanted: int
) -> dict[str, list[list[int]]]:
    """For each document the first `needed` token ids of its first `wanted` candidates that have as many."""
    cuts: dict[str, list[list[int]]] = {name: [] for name in waiting}
    # one candidate a round of every document that still needs one: most need only the first
    for turn in range(max(map(len, waiting.values()), default=0)):
        names = [name for name, texts in waiting.items() if turn < len(texts) and len(cuts[name]) < wanted]
        if not names:
            break
        texts = [waiting[name][turn] for name in names]
        tokenised = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for name, ids in zip(names, tokenised["input_ids"], strict=True):
            if len(ids) >= needed:
                cuts[name].append(list(ids[:needed]))
    return cuts


def _record(record_id: str, ids: list[int], tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> PairRecord:
    prefix_ids, training_ids = ids[: pairs.prefix_tokens], ids[pairs.prefix_tokens :]
    return PairRecord(
        id=record_id,
        prefix=_decode(prefix_ids, tokenizer),
        prefix_ids=prefix_ids,
        training=_decode(training_ids, tokenizer),
        training_ids=training_ids,
    )


def _decode(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
