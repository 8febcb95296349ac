"""Texts of several groups under the same conditions, to scores with intervals: what the measuring tasks share.

Embed both sides, fix one bandwidth a side on the reference group, score every group on the same subsamples, estimate
what the scores would be at infinite n, and ask whether the ranking survives other orders and bandwidths.
"""

from condvne.evaluation.comparison import RKE, VENDI, Comparison, Heading, Progress
from condvne.evaluation.evaluate import default_sizes, evaluate, resolved_device
from condvne.evaluation.features import kernel_of

__all__ = [
    "RKE",
    "VENDI",
    "Comparison",
    "Heading",
    "Progress",
    "default_sizes",
    "evaluate",
    "kernel_of",
    "resolved_device",
]
