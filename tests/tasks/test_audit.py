"""Mentions of terms in groups of outputs."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import condvne as cv
from condvne.cli import app
from condvne.data.results import Audit
from condvne.data.text.lexicons import Lexicon, load_lexicon
from condvne.tasks.audit import Source, audit, effective_number, run_source, table_source
from tests.references import renyi

BIRDS = Lexicon("birds", ["owl", "hen", "crow", "jay"])


def source(reference: str | None = "all", conditions: int = 200) -> Source:
    names = BIRDS.terms
    return Source(
        "birds",
        {
            "all": [[(f"an {names[i % 4]}", 0)] for i in range(conditions)],
            "two": [[(f"an {names[i % 2]}", 0)] for i in range(conditions)],
            "none": [[("a fish", 0)] for _ in range(conditions)],
        },
        reference,
    )


def test_effective_number_is_two_to_the_entropy() -> None:
    counts = np.array([[5.0, 1, 2, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
    expected = [2 ** (renyi(counts[0] / 8, 1) / math.log(2)), 1.0, 0.0]
    assert effective_number(counts) == pytest.approx(expected)


def test_groups_are_counted_and_compared() -> None:
    (found,) = audit(source(), [BIRDS]).audits
    everything, two, none = found.groups
    assert (everything.mentions, everything.distinct, everything.gap, everything.shifts) == (200, 4, None, [])
    assert everything.effective == pytest.approx(4)
    assert (two.mentions, two.distinct) == (200, 2)
    assert two.gap is not None
    assert two.gap.direction == "below"
    assert two.gap.estimate == pytest.approx(-2)
    assert {s.term for s in two.shifts} == set(BIRDS.terms)
    assert [(s.share, s.reference_share) for s in two.shifts if s.term == "owl"] == [(0.5, 0.25)]
    assert (none.mentions, none.effective, none.standard_error, none.gap) == (0, None, None, None)


def test_standard_error_is_that_of_fresh_samples() -> None:
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    generator = np.random.default_rng(0)
    fresh = [float(effective_number(generator.multinomial(300, shares).astype(float))) for _ in range(2000)]
    drawn = generator.choice(4, size=300, p=shares)
    texts = {"a": [[(BIRDS.terms[k], 0)] for k in drawn]}
    (group,) = audit(Source("s", texts, None), [BIRDS]).audits[0].groups
    assert group.standard_error == pytest.approx(np.std(fresh), rel=0.25)


def test_few_mentions_give_no_interval() -> None:
    (found,) = audit(source(conditions=8), [BIRDS]).audits
    assert found.groups[1].standard_error is None
    assert found.groups[1].gap is not None
    assert (found.groups[1].gap.low, found.groups[1].gap.direction) == (None, "undecided")


def test_records_of_a_run_count_what_ends_in_the_continuation(tmp_path: Path) -> None:
    record = {"prefix": "Peru and South", "prefix_ids": [1], "training": " Korea", "training_ids": [2]}
    record |= {"greedy": " Sudan", "greedy_ids": [3]}
    lines = [json.dumps({"id": str(i)} | record) for i in range(3)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    (found,) = audit(run_source(tmp_path), [load_lexicon("countries")]).audits
    training, greedy = found.groups
    assert (training.group, training.mentions, greedy.mentions) == ("training", 3, 3)
    assert Counter(s.term for s in greedy.shifts) == {"South Sudan": 1, "South Korea": 1}


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cv.DataError, match=r"holds no records\.jsonl; give the folder of a finished"):
        run_source(tmp_path)
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(cv.DataError, match="holds no records yet"):
        run_source(tmp_path)


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"p": "x", "a": "Peru"}\n')
    with pytest.raises(cv.ConfigError, match="reference 'b' is none of the groups, a"):
        table_source(tmp_path / "a.jsonl", "p", ["a"], None, "b", False)


def test_the_command_writes_its_tables(tmp_path: Path) -> None:
    named = enumerate(["Chad", "Peru", "Mali"] * 5)
    rows = [{"p": f"q{i}", "human": f"In {country}.", "model": "In Peru."} for i, country in named]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["audit", str(tmp_path / "mine.jsonl"), "--condition", "p", "--outputs", "human", "model"]
    arguments += ["--reference", "human", "--lexicon", "countries", "sports", "--folder", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = Audit.model_validate_json((tmp_path / "out" / "audit.json").read_text())
    assert [a.lexicon for a in found.audits] == ["countries", "sports"]
    assert found.audits[0].groups[1].gap is not None
    assert found.audits[0].groups[1].gap.direction == "below"
    text = (tmp_path / "out" / "audit.md").read_text()
    assert "| human | 15 | 3 | 3.000" in text
    assert (tmp_path / "out" / "audit.csv").read_text().count("\n") == 5
