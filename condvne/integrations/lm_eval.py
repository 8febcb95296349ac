"""The conditional Vendi score as a corpus-level metric of lm-evaluation-harness (pip install "condvne[eval]").

Diversity belongs to a set of answers, not to one: each document gives its pairs of condition and output, and the
aggregation scores all of them at once. In the task's YAML:

    process_results: !function utils.process_results
    metric_list:
      - metric: conditional_vendi
        aggregation: conditional_vendi
        higher_is_better: true

and in its utils.py:

    from condvne.integrations.lm_eval import pairs_from, register
    register(SentenceTransformer("all-MiniLM-L6-v2"))
    process_results = pairs_from("question")

`repeats` (with the filter that keeps all of them) gives several outputs a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from condvne.core.kernels import Kernel
from condvne.errors import InputError
from condvne.integrations.texts import Encoder, TextScore

NAME = "conditional_vendi"
Pairs = tuple[str, Sequence[str]]  # a condition and its outputs


def register(
    encoder: Encoder,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    order: float = 1.0,
    name: str = NAME,
) -> Callable[[Sequence[Pairs]], float]:
    """Make metric and aggregation known to the harness, and return the aggregation.

    Args:
        encoder, kernel_x, kernel_y, order: as in `TextScore`.
        name: of metric and aggregation; give several names for several settings.

    Raises InputError where the name is taken already.
    """
    import lm_eval.api.metrics  # noqa: F401  # first: a registry that is not empty looks complete to the harness
    from lm_eval.api import registry

    score = TextScore(encoder, kernel_x, kernel_y, order)

    def aggregation(items: Sequence[Pairs]) -> float:
        return score(*_flattened(items))

    try:
        registry.register_aggregation(name)(aggregation)
        registry.register_metric(metric=name, higher_is_better=True, output_type="generate_until", aggregation=name)(
            _refused
        )
    except ValueError as error:
        raise InputError(f"lm_eval has a metric {name!r} already; give another name ({error}).") from error
    return aggregation


def pairs_from(condition: str | Callable[[Mapping[str, Any]], str], name: str = NAME) -> Callable[..., dict[str, Any]]:
    """A task's `process_results`: (document, results) to the document's pair under the metric's name.

    Args:
        condition: the document's field that holds the condition, or a function of the document.
        name: of the metric.
    """

    def process_results(document: Mapping[str, Any], results: Sequence[str | Sequence[str]]) -> dict[str, Any]:
        if callable(condition):
            given = condition(document)
        elif condition in document:
            given = document[condition]
        else:
            raise InputError(f"the document has no field {condition!r}, only {', '.join(document)}; name another.")
        outputs = [text for result in results for text in ([result] if isinstance(result, str) else result)]
        return {name: (given, outputs)}

    return process_results


def _flattened(items: Sequence[Pairs]) -> tuple[list[str], list[str]]:
    pairs = [(condition, output) for condition, outputs in items for output in outputs]
    return [condition for condition, _ in pairs], [output for _, output in pairs]


def _refused(*_: Any, **__: Any) -> float:
    """What the harness calls with an answer and its target, but without the condition."""
    raise InputError("a conditional score needs each document's condition: set process_results (see pairs_from).")
