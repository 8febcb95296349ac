"""The plan of `condvne gap`: what it will read, generate, embed and score, and about what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from condvne.data.config import CorpusSource, FileCorpus, GapConfig, HubCorpus
from condvne.data.text.corpus import corpus_files
from condvne.errors import CondvneError
from condvne.evaluation import default_sizes, resolved_device
from condvne.evaluation.plan import ASSUMED_DIMENSION, ScoringCost, measured_rates, scoring_costs

UNKNOWN = "not here: needs the hub"


@dataclass(frozen=True)
class Plan:
    """Lines of a label and what it says, and the cost of each sample size."""

    lines: list[tuple[str, str]]
    costs: list[ScoringCost]

    @property
    def scoring_seconds(self) -> float:
        """Of all sample sizes together, estimated."""
        return sum(cost.seconds for cost in self.costs)


def gap_plan(config: GapConfig, folder: Path) -> Plan:
    """The plan of a configuration; reads nothing but sizes of files, and works offline.

    Raises ConfigError for a device that is not there.
    """
    device = resolved_device(config.device)
    rates = measured_rates(device)
    pairs, strategies = config.pairs, config.generation.strategies
    groups = 1 + len(strategies)
    sizes = config.evaluation.sizes or default_sizes(pairs.count)
    costs = scoring_costs(config.evaluation, sizes, pairs.count, groups, device, rates)
    tokens = pairs.count * pairs.continuation_tokens * len(strategies)
    texts = pairs.count * (1 + groups)
    chunks = 1 if config.chunk_tokens is None else -(-pairs.continuation_tokens // config.chunk_tokens)
    lines = [
        ("folder", f"{folder}" + (" (a run is there already)" if (folder / "config.json").exists() else "")),
        ("device", str(device)),
        ("corpus", _corpus(config.corpus)),
        (
            "pairs",
            f"{pairs.count:,} of {pairs.prefix_tokens} prefix and {pairs.continuation_tokens} continuation tokens",
        ),
        ("model", _model(config, tokens, rates.products)),
        ("decoders", f"{', '.join(s.name for s in strategies)}: at most {tokens:,} tokens to generate"),
        (
            "encoder",
            f"{config.encoder.path if config.encoder.kind == 'sentence_transformer' else config.encoder.kind}: at most "
            f"{texts:,} texts, {4e-9 * texts * chunks * ASSUMED_DIMENSION:.2g} GB of vectors "
            f"(at {ASSUMED_DIMENSION} dimensions)",
        ),
        ("scores", f"{groups} groups at n = {', '.join(f'{n:,}' for n in sizes)}"),
        (
            "robustness",
            f"{len(config.evaluation.robustness_orders)} orders × {len(config.evaluation.robustness_multipliers)} "
            f"bandwidths of either side at n = {min(config.evaluation.robustness_size, pairs.count):,}",
        ),
        ("infinite n", f"from at most {min(config.evaluation.population_size, pairs.count):,} conditions"),
    ]
    return Plan(lines, costs)


def _corpus(source: CorpusSource) -> str:
    if isinstance(source, HubCorpus):
        local = Path(source.name).is_dir()
        return f"{source.name}, {source.split}" + ("" if local else f" ({UNKNOWN})")
    if isinstance(source, FileCorpus):
        try:
            files = corpus_files(source.paths)
        except CondvneError as error:
            return str(error)
        return f"{len(files):,} files, {sum(f.stat().st_size for f in files) / 1e9:.2g} GB"
    return f"installed documentation of {', '.join(source.packages)}" + (
        " and the standard library" if source.standard_library else ""
    )


def _model(config: GapConfig, tokens: int, rate: float) -> str:
    folder = Path(config.model.path)
    weights = list(folder.glob("*.safetensors")) if folder.is_dir() else []
    if not weights:
        return f"{config.model.path}" + ("" if folder.is_dir() else f" ({UNKNOWN})")
    size = sum(f.stat().st_size for f in weights)
    parameters = size / 4  # at float32; twice as many in half precision
    seconds = 2 * parameters * (tokens + config.pairs.count * config.pairs.prefix_tokens) / rate
    return f"{folder}: {size / 1e9:.2g} GB of weights; decoding takes at least {seconds / 60:.2g} minutes"
