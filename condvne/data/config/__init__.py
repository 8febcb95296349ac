"""Validated configurations: one YAML a run, unknown keys refused with the nearest valid name; a module a command."""

from condvne.data.config.gap import GapConfig, Recording, load_gap_config
from condvne.data.config.generating import (
    ANCESTRAL,
    GREEDY,
    NAMED_STRATEGIES,
    NUCLEUS,
    CorpusSource,
    FileCorpus,
    Generation,
    HubCorpus,
    InstalledDocumentation,
    Model,
    Pairs,
    Paragraphs,
    Strategy,
)
from condvne.data.config.score import ScoreConfig
from condvne.data.config.scoring import Distinct, Encoder, Evaluation, KernelChoice, Kernels
from condvne.data.config.settings import Settings, load_yaml, plain_settings, validate

__all__ = [
    "ANCESTRAL",
    "GREEDY",
    "NAMED_STRATEGIES",
    "NUCLEUS",
    "CorpusSource",
    "Distinct",
    "Encoder",
    "Evaluation",
    "FileCorpus",
    "GapConfig",
    "Generation",
    "HubCorpus",
    "InstalledDocumentation",
    "KernelChoice",
    "Kernels",
    "Model",
    "Pairs",
    "Paragraphs",
    "Recording",
    "ScoreConfig",
    "Settings",
    "Strategy",
    "load_gap_config",
    "load_yaml",
    "plain_settings",
    "validate",
]
