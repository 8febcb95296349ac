"""The conditional Vendi score as a metric of Hugging Face evaluate (pip install "condvne[eval]").

metric = ConditionalVendi()
metric.add_batch(predictions=outputs, references=conditions)
metric.compute(encoder=SentenceTransformer("all-MiniLM-L6-v2"))   # {"conditional_vendi": …}
"""

from __future__ import annotations

import evaluate
from evaluate import MetricInfo

from condvne.core.kernels import Kernel
from condvne.integrations.texts import Encoder, TextScore

DESCRIPTION = (
    "Effective number of different outputs for a condition: exp H(Y|X) of kernel matrices (conditional Vendi)."
)
INPUTS = """
Args:
    predictions: outputs, texts.
    references: the condition (prompt) of each output; not a target.
    encoder: an object with encode(texts), or a function, that gives one vector a text.
    kernel_x, kernel_y: of conditions and outputs; fit them once on reference texts to compare models.
    order: of the entropy, 1 by default.
Returns:
    conditional_vendi: at least 1.
"""


class ConditionalVendi(evaluate.Metric):  # type: ignore[misc]
    """exp H_α(Y|X) of predictions Y given references X, which are the conditions."""

    def _info(self) -> MetricInfo:
        from datasets import Features, Value

        features = Features({"predictions": Value("string"), "references": Value("string")})
        return MetricInfo(
            description=DESCRIPTION, citation="arXiv 2609.02275", inputs_description=INPUTS, features=features
        )

    def _compute(
        self,
        predictions: list[str],
        references: list[str],
        encoder: Encoder,
        kernel_x: Kernel | str = "gaussian",
        kernel_y: Kernel | str = "gaussian",
        order: float = 1.0,
    ) -> dict[str, float]:
        return {"conditional_vendi": TextScore(encoder, kernel_x, kernel_y, order)(references, predictions)}
