"""Which terms of a lexicon the groups mention, and how evenly (paper A, E.9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import norm

from condvne.data.records import read_pair_records
from condvne.data.results import Audit, Gap, GroupAudit, LexiconAudit, Shift
from condvne.data.tables import read_table
from condvne.data.text.lexicons import Lexicon
from condvne.errors import ConfigError, DataError
from condvne.evaluation.significance import interval
from condvne.evaluation.textpairs import TRAINING

RESAMPLES = 500
CONFIDENCE = 0.95
SHOWN_SHIFTS = 10
LEAST_MENTIONS = 10  # fewer say nothing of how much they vary
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """Texts to audit: for each group and condition its texts, each with the number of characters before the output."""

    title: str
    texts: Mapping[str, Sequence[Sequence[tuple[str, int]]]]
    reference: str | None
    notes: Sequence[str] = ()


def run_source(folder: Path) -> Source:
    """The records of a run of `condvne gap`; a term counts where it ends in the continuation, so it may begin before.

    Raises DataError where the folder holds no records.
    """
    path = folder / "records.jsonl"
    if not path.exists():
        raise DataError(f"{folder}: holds no records.jsonl; give the folder of a finished `condvne gap`, or a table.")
    records = read_pair_records(path)
    if not records:
        raise DataError(f"{path}: holds no records yet; let the run finish first.")
    texts = {TRAINING: [[(r.prefix + r.training, len(r.prefix))] for r in records]}
    for name in records[0].outputs:
        texts[name] = [[(r.prefix + r.outputs[name], len(r.prefix))] for r in records]
    return Source(folder.name, texts, TRAINING)


def table_source(
    file: Path, condition: str, outputs: Sequence[str], group: str | None, reference: str | None, matched: bool
) -> Source:
    """The outputs of a table, read as `condvne score` does. Raises as `read_table`, and for an unknown reference."""
    table = read_table(file, condition=condition, outputs=outputs, group=group, matched=matched, empty="drop")
    if reference is not None and reference not in table.groups:
        raise ConfigError(f"reference {reference!r} is none of the groups, {', '.join(table.groups)}.")
    texts = {name: [[(text, 0) for text in row] for row in lists] for name, lists in table.groups.items()}
    return Source(file.name, texts, reference, table.notes)


def audit(source: Source, lexicons: Sequence[Lexicon], seed: int = 0) -> Audit:
    """Count every lexicon's terms in every group.

    The effective number of terms is 2^H of their shares among a group's mentions, H in bits; its standard error and
    the interval of its difference from the reference come from resampling conditions, the same for all groups; fewer
    than ten mentions give neither.
    """
    conditions = len(next(iter(source.texts.values())))
    draws = np.random.Generator(np.random.Philox(key=seed)).multinomial(
        conditions, np.full(conditions, 1 / conditions), size=RESAMPLES
    )
    return Audit(
        title=source.title,
        reference=source.reference,
        conditions=conditions,
        audits=[_lexicon(source, lexicon, draws.astype(np.float64)) for lexicon in lexicons],
        notes=list(source.notes),
    )


def effective_number(counts: Floats) -> Floats:
    """2^H of shares along the last axis; 0 where nothing is counted."""
    totals = counts.sum(-1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.where(totals[..., 0] > 0, np.exp2(-(shares * logs).sum(-1)), 0.0)


def _lexicon(source: Source, lexicon: Lexicon, draws: Floats) -> LexiconAudit:
    counted = {name: _counted(texts, lexicon) for name, texts in source.texts.items()}
    resampled = {name: effective_number(draws @ counts) for name, counts in counted.items()}
    names = [n for n in source.texts if n == source.reference] + [n for n in source.texts if n != source.reference]
    groups = [_group(name, lexicon, counted, resampled, source.reference) for name in names]
    return LexiconAudit(lexicon=lexicon.name, terms=len(lexicon.terms), groups=groups)


def _counted(texts: Sequence[Sequence[tuple[str, int]]], lexicon: Lexicon) -> sparse.csr_array:
    """Mentions, (conditions, terms)."""
    places = {term: k for k, term in enumerate(lexicon.terms)}
    entries = [
        (i, places[term], number)
        for i, row in enumerate(texts)
        for term, number in sum((lexicon.counts(text, begin) for text, begin in row), Counter()).items()
    ]
    rows, columns, numbers = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csr_array(
        (np.array(numbers, dtype=np.float64), (np.array(rows, dtype=int), np.array(columns, dtype=int))),
        shape=(len(texts), len(lexicon.terms)),
    )


def _group(
    name: str,
    lexicon: Lexicon,
    counted: Mapping[str, sparse.csr_array],
    resampled: Mapping[str, Floats],
    reference: str | None,
) -> GroupAudit:
    totals = np.asarray(counted[name].sum(0)).ravel()
    mentions = int(totals.sum())
    effective = float(effective_number(totals)) if mentions else None
    gap, shifts = None, []
    if reference is not None and name != reference:
        base = np.asarray(counted[reference].sum(0)).ravel()
        if mentions and base.sum():
            difference = float(effective_number(totals) - effective_number(base))
            enough = min(mentions, base.sum()) >= LEAST_MENTIONS
            gap = _gap(difference, resampled[name] - resampled[reference] if enough else None)
            shifts = _shifts(lexicon, totals, base)
    return GroupAudit(
        group=name,
        mentions=mentions,
        distinct=int((totals > 0).sum()),
        effective=effective,
        standard_error=float(resampled[name].std(ddof=1)) if mentions >= LEAST_MENTIONS else None,
        gap=gap,
        shifts=shifts,
    )


def _gap(estimate: float, differences: Floats | None) -> Gap:
    if differences is None:
        return interval(estimate, None, None, CONFIDENCE)
    # Resampled effective numbers are too small alike, so the spread is taken and not the quantiles themselves.
    margin = float(norm.ppf((1 + CONFIDENCE) / 2) * differences.std(ddof=1))
    return interval(estimate, estimate - margin, estimate + margin, CONFIDENCE)


def _shifts(lexicon: Lexicon, totals: Floats, base: Floats) -> list[Shift]:
    shares, reference = totals / totals.sum(), base / base.sum()
    order = np.argsort(-np.abs(shares - reference), kind="stable")[:SHOWN_SHIFTS]
    return [
        Shift(term=lexicon.terms[k], share=float(shares[k]), reference_share=float(reference[k]))
        for k in order
        if shares[k] != reference[k]
    ]
