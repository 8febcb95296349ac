"""New weights for candidates that were generated already: `condvne reweight`."""

from condvne.tasks.reweighting.outcome import AFTER, BEFORE
from condvne.tasks.reweighting.run import reweight_table

__all__ = ["AFTER", "BEFORE", "reweight_table"]
