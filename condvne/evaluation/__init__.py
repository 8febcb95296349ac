"""Texts of several groups under the same conditions, to scores with intervals: what the measuring tasks share.

Embed both sides, fix one bandwidth a side on the reference group, score every group on the same subsamples, estimate
what the scores would be at infinite n, and ask whether the ranking survives other orders and bandwidths.
"""

from condvne.evaluation.comparison import RKE, VENDI, Comparison, Heading, Progress
from condvne.evaluation.embedding import Embedder
from condvne.evaluation.evaluate import (
    checked_sizes,
    default_sizes,
    evaluate,
    evaluate_embedded,
    resolved_device,
    scored_cells,
    side_of,
)
from condvne.evaluation.features import Embedded, kernel_of, with_kernels

__all__ = [
    "RKE",
    "VENDI",
    "Comparison",
    "Embedded",
    "Embedder",
    "Heading",
    "Progress",
    "checked_sizes",
    "default_sizes",
    "evaluate",
    "evaluate_embedded",
    "kernel_of",
    "resolved_device",
    "scored_cells",
    "side_of",
    "with_kernels",
]
