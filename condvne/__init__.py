"""condvne: conditional diversity of generative models, measured, guided, corrected and trained for."""

from condvne.core.entropy import (
    EntropyResult,
    conditional_entropy,
    conditional_rke,
    conditional_vendi,
    entropy,
    entropy_from_gram,
    mutual_information,
    rke,
    vendi,
)
from condvne.core.kernels import Cosine, Delta, Gaussian, Kernel, Laplacian, Polynomial
from condvne.core.population import PopulationEstimate, population_conditional_entropy
from condvne.core.projection import Projection, project
from condvne.errors import CondvneError, ConfigError, DataError, InputError, RunError

__version__ = "0.1.0"

__all__ = [
    "CondvneError",
    "ConfigError",
    "Cosine",
    "DataError",
    "Delta",
    "EntropyResult",
    "Gaussian",
    "InputError",
    "Kernel",
    "Laplacian",
    "Polynomial",
    "PopulationEstimate",
    "Projection",
    "RunError",
    "conditional_entropy",
    "conditional_rke",
    "conditional_vendi",
    "entropy",
    "entropy_from_gram",
    "mutual_information",
    "population_conditional_entropy",
    "project",
    "rke",
    "vendi",
]
