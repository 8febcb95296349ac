"""condvne: conditional diversity of generative models, measured, guided, corrected and trained for."""

from condvne.core.circles import Circles, circles
from condvne.core.comparison import compare, compare_sets
from condvne.core.distances import distances
from condvne.core.diversity import average_distance, energy, richness
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
from condvne.core.items import ItemSet, item_sets
from condvne.core.kernels import Cosine, Delta, Gaussian, Kernel, Laplacian, Polynomial
from condvne.core.magnitude import magnitude
from condvne.core.partition import partition
from condvne.core.population import PopulationEstimate, population_conditional_entropy
from condvne.core.profiles import Profile, profile
from condvne.core.projection import Projection, project
from condvne.errors import CondvneError, ConfigError, DataError, InputError, RunError

__version__ = "0.1.0"

__all__ = [
    "Circles",
    "CondvneError",
    "ConfigError",
    "Cosine",
    "DataError",
    "Delta",
    "EntropyResult",
    "Gaussian",
    "InputError",
    "ItemSet",
    "Kernel",
    "Laplacian",
    "Polynomial",
    "PopulationEstimate",
    "Profile",
    "Projection",
    "RunError",
    "average_distance",
    "circles",
    "compare",
    "compare_sets",
    "conditional_entropy",
    "conditional_rke",
    "conditional_vendi",
    "distances",
    "energy",
    "entropy",
    "entropy_from_gram",
    "item_sets",
    "magnitude",
    "mutual_information",
    "partition",
    "population_conditional_entropy",
    "profile",
    "project",
    "richness",
    "rke",
    "vendi",
]
