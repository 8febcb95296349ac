"""The whole measurement on a small real model, and what happens when it is disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.data.config import Encoder, GapConfig
from condvne.data.encoders import load_encoder
from condvne.data.records import PairRecord, read_pair_records
from condvne.data.results import Scores
from condvne.data.text.generation import load_model
from condvne.evaluation import Progress
from condvne.evaluation.textpairs import TRAINING, repeated_prefixes
from condvne.tasks.gap import measure_gap
from tests.corpora import gap_settings, write_config, write_corpus

GROUPS = [TRAINING, "greedy", "nucleus", "ancestral"]


def silent(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def run(settings: dict[str, object], folder: Path, progress: Progress = silent) -> Scores:
    return measure_gap(GapConfig.model_validate(settings), folder, progress=progress)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("material")


@pytest.fixture(scope="module")
def finished(material: Path) -> tuple[Path, Scores]:
    folder = material / "finished"
    return folder, run(gap_settings(material), folder)


def test_a_run_scores_every_group_metric_and_size(finished: tuple[Path, Scores]) -> None:
    folder, scores = finished
    assert scores.groups == GROUPS
    assert scores.reference == TRAINING
    assert [m.key for m in scores.metrics] == ["conditional_vendi", "conditional_rke", "distinct_2", "distinct_3"]
    top = scores.available
    assert scores.sizes == [20, 40, 80] == [*scores.sizes[:2], top]
    for group in GROUPS:
        for metric in scores.metrics:
            for n in scores.sizes:
                cell = scores.cell(group, metric.key, n)
                assert cell is not None
                assert (cell.gap is None) == (group == TRAINING)
                assert cell.std is not None
                assert (1 <= cell.mean <= n) if "distinct" not in metric.key else (0 < cell.mean <= 1)
    assert Scores.model_validate_json((folder / "scores.json").read_text()) == scores
    assert {m.group for m in scores.robustness} == set(GROUPS[1:])
    assert scores.output.fitted_on == TRAINING
    assert scores.output.bandwidth is not None


def test_scores_are_those_of_the_records_by_the_public_functions(finished: tuple[Path, Scores]) -> None:
    folder, scores = finished
    records = read_pair_records(folder / "records.jsonl", groups=GROUPS[1:])
    encoder = load_encoder(Encoder(kind="hashed_ngrams", dimension=64), "cpu")
    x = encoder.encode([r.prefix for r in records])
    training = encoder.encode([r.training for r in records])
    kernel_x, kernel_y = cv.Gaussian().fit(x), cv.Gaussian().fit(training)
    assert scores.condition.bandwidth == pytest.approx(float(kernel_x.bandwidth or 0))
    assert scores.output.bandwidth == pytest.approx(float(kernel_y.bandwidth or 0))
    for group in GROUPS:
        y = encoder.encode([r.training if group == TRAINING else r.outputs[group] for r in records])
        for metric, function in (("conditional_vendi", cv.conditional_vendi), ("conditional_rke", cv.conditional_rke)):
            cell = scores.cell(group, metric, len(records))
            assert cell is not None
            assert cell.mean == pytest.approx(float(function(x, y, kernel_x=kernel_x, kernel_y=kernel_y)), rel=1e-5)
        cell = scores.cell(group, "distinct_2", len(records))
        assert cell is not None
        bigrams = []
        for r in records:
            ids = [*r.prefix_ids, *(r.training_ids if group == TRAINING else r.output_ids[group])]
            bigrams += [(ids[i - 1], ids[i]) for i in range(3, 5)]
        assert cell.mean == pytest.approx(len(set(bigrams)) / len(bigrams))


def test_records_hold_ids_as_the_truth_and_texts_decoded_from_them(
    material: Path, finished: tuple[Path, Scores]
) -> None:
    folder, _ = finished
    config = GapConfig.model_validate(gap_settings(material))
    _, tokenizer = load_model(config.model, "cpu")
    records = read_pair_records(folder / "records.jsonl", groups=GROUPS[1:])
    assert len(records) == 80
    corpus = [json.loads(line) for line in (material / "corpus.jsonl").read_text().splitlines()]
    texts = {entry["id"]: " ".join(entry["text"].split()) for entry in corpus}
    for record in records:
        assert len(record.prefix_ids) == 3
        assert len(record.training_ids) == 2
        assert all(len(ids) == 2 for ids in record.output_ids.values())
        assert tokenizer.decode(record.prefix_ids) == record.prefix
        assert any(text.startswith(record.prefix + record.training) for text in texts.values())
        for name, ids in record.output_ids.items():
            assert tokenizer.decode(ids) == record.outputs[name]


def test_the_same_seed_gives_the_same_records_in_any_batch_size_and_another_seed_others(
    material: Path, finished: tuple[Path, Scores]
) -> None:
    first = (finished[0] / "records.jsonl").read_bytes()
    again = material / "batch-of-seven"
    run(gap_settings(material, generation={"batch_size": 7}), again)
    assert (again / "records.jsonl").read_bytes() == first
    other = material / "seed-1"
    run(gap_settings(material, seed=1), other)
    assert (other / "records.jsonl").read_bytes() != first


def test_a_finished_run_is_taken_up_without_generating_again(material: Path, finished: tuple[Path, Scores]) -> None:
    folder, scores = finished
    before = (folder / "records.jsonl").stat().st_mtime_ns
    stages: list[tuple[str, int, int]] = []
    assert run(gap_settings(material), folder, lambda *report: stages.append(report)).cells == scores.cells
    assert (folder / "records.jsonl").stat().st_mtime_ns == before
    assert ("generating", 80, 80) in stages
    assert all(done == 80 for stage, done, _ in stages if stage == "generating")


def test_another_configuration_is_refused_in_the_same_folder(material: Path, finished: tuple[Path, Scores]) -> None:
    before = (finished[0] / "scores.json").read_bytes()
    with pytest.raises(cv.RunError, match="seed"):
        run(gap_settings(material, seed=5), finished[0])
    assert (finished[0] / "scores.json").read_bytes() == before


def test_a_run_killed_while_generating_goes_on_to_the_same_records(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl", documents=60, paragraphs=25)
    settings = gap_settings(
        tmp_path,
        pairs={"count": 1280, "continuation_tokens": 4},
        paragraphs={"pairs_per_document": 25, "candidates_per_document": 25},
        generation={"batch_size": 32},
    ) | {
        "evaluation": {"sizes": [50], "repeats": 2, "empty_texts": "drop", "robustness_size": 20, "population_size": 50}
    }
    config = write_config(tmp_path / "config.yaml", settings)
    undisturbed = tmp_path / "undisturbed"
    run(settings, undisturbed)
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "condvne", "gap", str(config), "--folder", str(killed)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        log = killed / "records.jsonl"
        deadline = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size > 0):
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    partly = log.read_bytes()
    whole = (undisturbed / "records.jsonl").read_bytes()
    assert 0 < len(partly) < len(whole)
    assert whole.startswith(partly)
    run(settings, killed)
    assert log.read_bytes() == whole
    ids = [record.id for record in read_pair_records(log)]
    assert len(set(ids)) == len(ids) == 1280
    assert (
        json.loads((killed / "scores.json").read_text())["cells"]
        == (json.loads((undisturbed / "scores.json").read_text())["cells"])
    )


def test_a_torn_record_is_made_again(material: Path, finished: tuple[Path, Scores], tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    run(gap_settings(material), folder)
    log = folder / "records.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    run(gap_settings(material), folder)
    assert log.read_bytes() == whole


def test_records_of_other_pairs_are_refused(material: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    run(gap_settings(material), folder)
    log = folder / "records.jsonl"
    lines = log.read_text(encoding="utf-8").split("\n")
    log.write_text("\n".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    with pytest.raises(cv.RunError, match=r"pairs\.jsonl"):
        run(gap_settings(material), folder)


def test_a_full_disk_keeps_what_is_finished(material: Path, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    run(gap_settings(material), folder)
    (folder / "scores.json").unlink()
    log = folder / "records.jsonl"
    kept = log.read_bytes()
    log.write_bytes(b"".join(kept.splitlines(keepends=True)[:40]))
    config = write_config(tmp_path / "config.yaml", gap_settings(material))
    # A real limit of the operating system on the size of files stands in for the full disk.
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({log.stat().st_size + 100}, resource.RLIM_INFINITY)); "
        f"sys.argv = ['condvne', 'gap', {str(config)!r}, '--folder', {str(folder)!r}]; "
        "from condvne.cli import main; sys.exit(main())"
    )
    result = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "finished records stay" in result.stderr
    assert "Traceback" not in result.stderr
    assert log.read_bytes() == b"".join(kept.splitlines(keepends=True)[:40])
    run(gap_settings(material), folder)
    assert log.read_bytes() == kept


def test_white_space_continuations_are_refused_by_id_or_dropped_and_counted(material: Path, tmp_path: Path) -> None:
    settings = gap_settings(material)
    folder = tmp_path / "blank"
    run(settings, folder)
    log = folder / "records.jsonl"
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    blank = records[3]["id"]
    records[3]["nucleus"] = " \n"
    log.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    evaluation = {"sizes": [20], "repeats": 2, "robustness_size": 20}
    refusing = settings | {"evaluation": evaluation | {"empty_texts": "refuse"}}
    dropping = settings | {"evaluation": evaluation | {"empty_texts": "drop"}}
    for name, changed in (("refusing", refusing), ("dropping", dropping)):
        other = tmp_path / name
        other.mkdir()
        run_folder_files = ("pairs.jsonl", "pairs.notes.json", "records.jsonl")
        for file in run_folder_files:
            (other / file).write_bytes((folder / file).read_bytes())
        from condvne.data.config import plain_settings

        (other / "config.json").write_text(json.dumps(plain_settings(GapConfig.model_validate(changed))))
    with pytest.raises(cv.DataError, match=blank):
        run(refusing, tmp_path / "refusing")
    scores = run(dropping, tmp_path / "dropping")
    assert scores.available < 80
    scores = run(gap_settings(material), folder)
    assert scores.sizes == [20, 40, 79]
    assert any("sizes 80 were lowered to the 79 pairs that are left" in note for note in scores.notes)
    assert any("left out of all groups" in note for note in scores.notes)


@pytest.mark.parametrize("size", [1, 3])
def test_chunks_of_tokens_are_embedded_one_by_one_and_laid_side_by_side(
    material: Path, tmp_path: Path, size: int
) -> None:
    pairs = {"count": 40, "prefix_tokens": 4, "continuation_tokens": 5}
    evaluation = {"sizes": [40], "repeats": 1, "robustness_size": 20, "empty_texts": "drop"}
    settings = gap_settings(material, pairs=pairs, evaluation=evaluation, chunk_tokens=size)
    scores = run(settings, tmp_path / "run")
    _, tokenizer = load_model(GapConfig.model_validate(settings).model, "cpu")
    encoder = load_encoder(Encoder(kind="hashed_ngrams", dimension=64), "cpu")

    def features(ids: list[list[int]]) -> Tensor:
        chunks = [[tokenizer.decode(row[i : i + size]) for i in range(0, len(row), size)] for row in ids]
        return torch.stack([encoder.encode(row).flatten() for row in chunks])

    records = read_pair_records(tmp_path / "run" / "records.jsonl", groups=GROUPS[1:])
    x, y = features([r.prefix_ids for r in records]), features([r.training_ids for r in records])
    assert scores.condition.dimension == x.shape[1] == 64 * -(-4 // size)
    assert scores.output.dimension == y.shape[1] == 64 * -(-5 // size)
    cell = scores.cell(TRAINING, "conditional_vendi", 40)
    assert cell is not None
    assert cell.mean == pytest.approx(float(cv.conditional_vendi(x, y)), rel=1e-5)


def test_repeated_prefixes_are_counted() -> None:
    def pair(prefix: str) -> PairRecord:
        return PairRecord(prefix, prefix, [1], "a", [2])

    told = repeated_prefixes([pair(text) for text in ("The end", "The end", "the END.", "An owl", "...", "!")])
    assert told == (
        "5 distinct prefixes of 6, 4 up to case, spacing and punctuation; the most frequent, 'The end', comes 2 times"
    )
    assert repeated_prefixes([pair("a"), pair("b")]).endswith("punctuation")


def test_a_corpus_without_a_valid_paragraph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "Too short."}\n', encoding="utf-8")
    with pytest.raises(cv.DataError, match="paragraph"):
        run(gap_settings(tmp_path), tmp_path / "run")


def test_sequences_over_the_context_are_refused_before_the_corpus_is_read(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl", documents=1)
    settings = gap_settings(tmp_path, pairs={"count": 20, "prefix_tokens": 50, "continuation_tokens": 40})
    settings["evaluation"] = {"sizes": [20], "repeats": 2}
    with pytest.raises(cv.ConfigError, match="exceed the model's context of 64 tokens"):
        run(settings, tmp_path / "run")


@pytest.mark.parametrize("family", ["olmo", "gpt_neo"])
def test_other_architectures_run_end_to_end(family: str, tmp_path: Path) -> None:
    from tests.models import save_tiny

    save_tiny(tmp_path / "model", family)
    settings = gap_settings(tmp_path, pairs={"count": 30})
    settings["evaluation"] = {
        "sizes": [20],
        "repeats": 2,
        "empty_texts": "drop",
        "robustness_size": 20,
        "population_size": 50,
    }
    scores = run(settings, tmp_path / "run")
    assert scores.groups == GROUPS


def test_changed_inputs_are_refused_and_a_missing_corpus_is_not(tmp_path: Path) -> None:
    settings = gap_settings(tmp_path, pairs={"count": 80})
    run(settings, tmp_path / "run")
    corpus = tmp_path / "corpus.jsonl"
    whole = corpus.read_text()
    corpus.write_text(whole.replace("The parser", "The lexer"))
    with pytest.raises(cv.RunError, match="its results are of the corpus as it was before"):
        run(settings, tmp_path / "run")
    corpus.unlink()
    run(settings, tmp_path / "run")
    (tmp_path / "model" / "generation_config.json").write_text('{"temperature": 0.5}')
    with pytest.raises(cv.RunError, match=r"its results are of the model in .*model as it was before"):
        run(settings, tmp_path / "run")


def test_a_broken_record_is_named_with_its_remedy(tmp_path: Path) -> None:
    settings = gap_settings(tmp_path)
    run(settings, tmp_path / "run")
    records = tmp_path / "run" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join([*lines[:3], lines[3][:40] + "\n", *lines[4:]]))
    with pytest.raises(
        cv.RunError, match=r"records\.jsonl:4: is not valid JSON .*remove records\.jsonl to have it made"
    ):
        run(settings, tmp_path / "run")
