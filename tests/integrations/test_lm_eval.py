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
    pytest.importorskip("lm_eval")
    from lm_eval import evaluator
    from lm_eval.api.model import LM
    from lm_eval.api.registry import get_aggregation, get_metric, get_metric_aggregation
    from lm_eval.api.task import ConfigurableTask

    register(letters, "delta", "delta")
    assert get_metric("exact_match") is not None  # the harness's own metrics are there still
    assert get_aggregation("conditional_vendi") is get_metric_aggregation("conditional_vendi")
    with pytest.raises(InputError, match="has a metric 'conditional_vendi' already"):
        register(letters)
    with pytest.raises(InputError, match="set process_results"):
        get_metric("conditional_vendi")(["target", "answer"])

    class Parrot(LM):  # type: ignore[misc]
        """Answers with the document's number modulo three."""

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return ["abc"[int(request.args[0].split()[-1]) % 3] for request in requests]

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

    rows: list[dict[str, Any]] = [{"question": "one" if i < 6 else "two", "number": i} for i in range(12)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    task = ConfigurableTask(
        config={
            "task": "parrot",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")},
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": "{{question}} {{number}}",
            "doc_to_target": "",
            "process_results": pairs_from("question"),
            "metric_list": [
                {"metric": "conditional_vendi", "aggregation": "conditional_vendi", "higher_is_better": True}
            ],
        }
    )
    found = evaluator.simple_evaluate(model=Parrot(), tasks=[task], bootstrap_iters=0)["results"]["parrot"]
    outputs = ["abc"[i % 3] for i in range(12)]
    expected = TextScore(letters, "delta", "delta")([row["question"] for row in rows], outputs)
    assert expected == pytest.approx(3.0)
    assert found["conditional_vendi,none"] == pytest.approx(expected)
