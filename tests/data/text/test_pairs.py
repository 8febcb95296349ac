"""Pairs: cut by token position, drawn without regard to order, everything that is left out counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from condvne.data.config import FileCorpus, Pairs, Paragraphs
from condvne.data.records import dump, read_pair_records
from condvne.data.text.corpus import Document, candidates, documents
from condvne.data.text.pairs import PairsReport, make_pairs
from condvne.errors import DataError
from tests.models import byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_tokenizer()


def make(found: Iterable[Document], tokenizer: Any, count: int, seed: int = 0, **settings: Any) -> PairsReport:
    lengths = {key: settings.pop(key) for key in ("prefix_tokens", "continuation_tokens") if key in settings}
    paragraphs = Paragraphs.model_validate({"min_characters": 10, "min_sentences": 1} | settings)
    return make_pairs(found, tokenizer, paragraphs, Pairs.model_validate({"count": count} | lengths), seed)


def corpus(number: int, paragraphs: int = 3) -> list[Document]:
    return [
        Document(f"d{i}", "\n\n".join(f"Paragraph {j} of document {i} says little." for j in range(paragraphs)))
        for i in range(number)
    ]


def test_pairs_are_the_first_tokens_of_the_whole_paragraph(tokenizer: Any) -> None:
    found = corpus(50)
    report = make(found, tokenizer, 50, prefix_tokens=4, continuation_tokens=3)
    texts = {document.id: document for document in found}
    settings = Paragraphs.model_validate({"min_characters": 10, "min_sentences": 1})
    for record in report.records:
        paragraph = candidates(texts[record.id], settings, seed=0)[0]
        ids = tokenizer(paragraph, add_special_tokens=False)["input_ids"]
        assert record.prefix_ids + record.training_ids == ids[:7]
        assert len(record.training_ids) == 3
        assert record.prefix == tokenizer.decode(ids[:4])
        assert record.training == tokenizer.decode(ids[4:7])
        assert paragraph.startswith(record.prefix + record.training)


def test_cuts_inside_a_word_and_inside_a_character_keep_the_ids(tokenizer: Any) -> None:
    text = "日本語のテキスト。" * 3
    record = make(
        [Document("a", text)], tokenizer, 1, sentence_marks="。", prefix_tokens=1, continuation_tokens=1
    ).records[0]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert [*record.prefix_ids, *record.training_ids] == ids[:2]
    assert record.prefix == "\ufffd"  # one byte of three: the text cannot say it, the ids do


def test_no_special_tokens_are_added_and_none_are_hidden() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    special = "<|endoftext|>"
    number = tokenizer.convert_tokens_to_ids(special)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{special} $A {special}", special_tokens=[(special, number)]
    )
    tokenizer.truncation_side = tokenizer.padding_side = "left"
    assert tokenizer("a")["input_ids"][0] == number
    record = make([Document("a", f"ab{special} and so on and on.")], tokenizer, 1).records[0]
    assert record.prefix_ids[0] != number
    assert special in record.prefix + record.training


def test_draw_depends_on_seed_and_ids_only(tokenizer: Any) -> None:
    found = corpus(600)
    report = make(found, tokenizer, 40)
    assert make(found[::-1], tokenizer, 40).records == report.records
    assert make(found, tokenizer, 20).records == report.records[:20]  # a smaller draw begins the larger one
    assert make(found, tokenizer, 40, seed=1).records != report.records
    without = [document for document in found if document.id != report.records[7].id]
    rest = make(without, tokenizer, 40).records
    assert rest[:39] == report.records[:7] + report.records[8:]
    assert (report.counts.documents, report.counts.made, report.counts.kept) == (600, 600, 40)


def test_draw_is_uniform(tokenizer: Any) -> None:
    found = corpus(20, paragraphs=1)
    hits = Counter(record.id for seed in range(200) for record in make(found, tokenizer, 5, seed=seed).records)
    expected = 200 * 5 / 20
    statistic = sum((hits[d.id] - expected) ** 2 / (expected * (1 - 5 / 20)) for d in found) * 19 / 20
    assert statistic < 43.8  # chi-square with 19 degrees of freedom, 0.1 % point


def test_first_candidate_long_enough_is_kept(tokenizer: Any) -> None:
    long = "A paragraph that is long enough for the twenty tokens that are asked for, and for more."
    found = [Document(f"d{i}", f"Too short {i}.\n\nAlso short.\n\n{long}\n\nToo short, too.") for i in range(300)]
    report = make(found, tokenizer, 300, prefix_tokens=15, continuation_tokens=5)
    assert {record.prefix + record.training for record in report.records} == {
        report.records[0].prefix + report.records[0].training
    }
    assert long.startswith(report.records[0].prefix)
    few = make(found, tokenizer, 10, prefix_tokens=15, continuation_tokens=5, candidates_per_document=1)
    assert few.counts.documents == few.counts.made + few.counts.too_few_tokens
    assert few.counts.made == sum(
        candidates(
            d,
            Paragraphs(
                min_characters=10, min_sentences=1, candidates_per_document=1, pairs_per_document=1, max_documents=None
            ),
            0,
        )[0]
        == long
        for d in found
    )


def test_several_pairs_of_a_document(tokenizer: Any) -> None:
    report = make(corpus(10, paragraphs=3), tokenizer, 20, pairs_per_document=2, continuation_tokens=20)
    assert {record.id for record in report.records} == {f"d{i}#{k}" for i in range(10) for k in (1, 2)}
    assert len({(record.id[:2], record.training) for record in report.records}) == 20  # two different paragraphs
    single = make(corpus(10, paragraphs=1), tokenizer, 10, pairs_per_document=2)
    assert {record.id for record in single.records} == {f"d{i}#1" for i in range(10)}


def test_everything_left_out_is_counted(tokenizer: Any) -> None:
    found = [
        *corpus(3),
        Document("none", "short\n\n\n"),
        Document("empty", ""),
        Document("tokens", "............"),
        Document("half\ud800", "This text holds half a pair of surrogates: \ud83d here."),
    ]
    report = make(found, tokenizer, 4, prefix_tokens=8, continuation_tokens=5)
    counts = report.counts
    assert (counts.documents, counts.without_paragraph, counts.too_few_tokens, counts.repaired) == (7, 2, 1, 1)
    assert counts.notes() == [
        "7 documents read: 2 without a valid paragraph, 1 with too few tokens; 4 pairs made, 4 drawn",
        "1 documents held lone surrogates, read as U+FFFD",
    ]


def test_white_space_sides_are_left_out_and_listed(tokenizer: Any) -> None:
    # a byte-level tokenizer gives the space before an unknown word a token of its own
    found = [*corpus(2), Document("blank", "ab 世界. And so on and on.")]
    ids = tokenizer(found[-1].text)["input_ids"]
    lead = next(i for i, number in enumerate(ids) if not tokenizer.decode([number]).strip())
    report = make(found, tokenizer, 2, prefix_tokens=lead, continuation_tokens=1)
    assert report.counts.blank_ids == ["blank"]
    assert report.counts.made == 2
    assert "1 pairs whose prefix or continuation is only white space were left out: blank" in report.counts.notes()


def test_corpus_without_one_valid_paragraph(tokenizer: Any) -> None:
    with pytest.raises(DataError) as caught:
        make(corpus(30), tokenizer, 5, min_characters=500, min_sentences=3)
    assert "not one of 30 documents read has a valid paragraph" in str(caught.value)
    assert "paragraphs.min_characters (now 500) or paragraphs.min_sentences (now 3)" in str(caught.value)
    with pytest.raises(DataError, match="not one of 0 documents"):
        make([], tokenizer, 5)


def test_fewer_pairs_than_asked(tokenizer: Any) -> None:
    with pytest.raises(DataError) as caught:
        make([*corpus(3), Document("none", "x")], tokenizer, 10)
    assert "only 3 pairs could be made of 4 documents (1 without a valid paragraph" in str(caught.value)
    assert "pairs.count is 10; lower pairs.count or widen the corpus" in str(caught.value)
    with pytest.raises(DataError, match=r"only 0 pairs .* 3 with fewer than 1005 tokens"):
        make(corpus(3), tokenizer, 1, prefix_tokens=1000, continuation_tokens=5)


def test_duplicate_document_ids_are_named(tokenizer: Any) -> None:
    with pytest.raises(DataError, match="documents 2 and 5 have the same id 'd1'"):
        make([*corpus(4), Document("d1", "other")], tokenizer, 2)


def test_only_so_many_documents_are_read(tokenizer: Any) -> None:
    def endless() -> Iterable[Document]:
        number = 0
        while True:
            yield Document(f"d{number}", f"Document {number} of a stream without end.")
            number += 1

    report = make(endless(), tokenizer, 10, max_documents=700)
    assert report.counts.documents == report.counts.made == 700


def test_from_file_to_records_and_back(tmp_path: Path, tokenizer: Any) -> None:
    rows = [{"text": f"Line {i} with \u2028 and 😀 and \ud800 inside."} for i in range(20)]
    (tmp_path / "corpus.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = FileCorpus.model_validate({"source": "files", "paths": [str(tmp_path / "corpus.jsonl")]})
    report = make(documents(source), tokenizer, 15, prefix_tokens=10, continuation_tokens=10)
    assert report.counts.repaired == 20
    (tmp_path / "records.jsonl").write_text("".join(dump(r.to_json()) + "\n" for r in report.records), encoding="utf-8")
    assert read_pair_records(tmp_path / "records.jsonl") == report.records
