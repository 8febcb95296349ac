"""The metric in lm-evaluation-harness: registered, and run over a task by the harness itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from condvne.errors import InputError
from condvne.integrations.lm_eval import pairs_from, register
from condvne.integrations.texts import TextScore
from tests.integrations.test_texts import letters
from tests.models import byte_tokenizer, tiny_model


def test_documents_give_their_pair() -> None:
    process = pairs_from("question")
    document = {"question": "one", "answer": "a"}
    assert process(document, ["b"]) == {"conditional_vendi": ("one", ["b"])}
    assert process(document, [["b", "c"]]) == {"conditional_vendi": ("one", ["b", "c"])}
    assert pairs_from(lambda d: d["answer"], name="other")(document, ["b"]) == {"other": ("a", ["b"])}
    with pytest.raises(InputError, match="no field 'prompt', only question, answer"):
        pairs_from("prompt")(document, ["b"])


@pytest.mark.filterwarnings("ignore")
def test_the_harness_runs_the_metric_over_a_corpus(tmp_path: Path) -> None:
    from lm_eval import evaluator
    from lm_eval.api.registry import get_aggregation, get_metric, get_metric_aggregation
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM

    register(letters, "delta", "delta")
    assert get_metric("exact_match") is not None  # the harness's own metrics are there still
    assert get_aggregation("conditional_vendi") is get_metric_aggregation("conditional_vendi")
    with pytest.raises(InputError, match="has a metric 'conditional_vendi' already"):
        register(letters)
    with pytest.raises(InputError, match="set process_results"):
        get_metric("conditional_vendi")(["target", "answer"])

    model = HFLM(pretrained=tiny_model(), tokenizer=byte_tokenizer(), device="cpu", batch_size=4)
    rows: list[dict[str, Any]] = [{"question": "one" if i < 6 else "two", "number": i} for i in range(12)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    task = ConfigurableTask(
        config={
            "task": "continuations",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")},
            "test_split": "test",
            "output_type": "generate_until",
            "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 3, "do_sample": False},
            "doc_to_text": "{{question}} {{number}}",
            "doc_to_target": "",
            "process_results": pairs_from("question"),
            "metric_list": [
                {"metric": "conditional_vendi", "aggregation": "conditional_vendi", "higher_is_better": True}
            ],
        }
    )
    found = evaluator.simple_evaluate(model=model, tasks=[task], bootstrap_iters=0, log_samples=True)
    answers = {row["doc"]["number"]: row["resps"][0][0] for row in found["samples"]["continuations"]}
    assert len(set(answers.values())) > 1
    expected = TextScore(letters, "delta", "delta")([row["question"] for row in rows], [answers[i] for i in range(12)])
    assert expected > 1.2
    assert found["results"]["continuations"]["conditional_vendi,none"] == pytest.approx(expected)
