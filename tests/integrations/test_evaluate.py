"""The metric of Hugging Face evaluate, over batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from condvne.integrations.texts import TextScore
from tests.integrations.test_texts import CONDITIONS, OUTPUTS, letters


@pytest.mark.filterwarnings("ignore")
def test_batches_are_scored_together(tmp_path: Path) -> None:
    from condvne.integrations.evaluate import ConditionalVendi

    metric = ConditionalVendi(cache_dir=str(tmp_path))
    for start in (0, 4):
        metric.add_batch(predictions=OUTPUTS[start : start + 4], references=CONDITIONS[start : start + 4])
    found = metric.compute(encoder=letters, kernel_x="cosine", order=2.0)
    expected = TextScore(letters, "cosine", order=2.0)(CONDITIONS, OUTPUTS)
    assert found == {"conditional_vendi": pytest.approx(expected)}
    assert "condition" in metric.inputs_description
