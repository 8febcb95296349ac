"""Temperature scaling beside the training text: diversity, support and likelihood, and the temperature that matches it.

Ancestral samples at several temperatures, drawn by the same uniform numbers, so that entropies change smoothly with
the temperature and a bracketing search finds where they meet the training text's (paper A, E.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.groups import Engine, OutputGroup, conditional_entropies
from condvne.core.inference import subsample
from condvne.core.manifold import support
from condvne.data.config import Generation, Recording, Strategy, plain_settings
from condvne.data.config.temperature import Search, TemperatureConfig
from condvne.data.embeddings import TextEncoder, embed, load_encoder
from condvne.data.memo import MemoEncoder
from condvne.data.records import PairRecord
from condvne.data.results import Scores, TemperatureMatch, TemperatureRow, TemperatureStudy
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.text.generation import load_model
from condvne.data.text.likelihood import token_nll
from condvne.data.text.recording import local_inputs, record
from condvne.data.versions import installed_versions
from condvne.evaluation import VENDI, Heading, Progress, evaluate, kernel_of, resolved_device
from condvne.evaluation.textpairs import TRAINING, reachable, text_comparison, without_blanks
from condvne.ranks import SINGLE

STRATEGY = "temperature"  # one name for all temperatures: draws are keyed by it


def measure_temperatures(
    config: TemperatureConfig, folder: Path, *, progress: Progress
) -> tuple[TemperatureStudy, Scores]:
    """Run, or go on with, a temperature study in `folder`; its results are in `temperature.json` and `scores.json`.

    Raises as `condvne.tasks.gap.measure_gap`; continuations of finished temperatures stay.
    """
    device = resolved_device(config.device)
    settings, versions = plain_settings(config), installed_versions()
    with run_folder(folder, settings, versions, SINGLE, local_inputs(config)) as run:
        study = _Study(config, run.path, device, progress)
        for temperature in config.temperatures:
            study.at(temperature)
        match = _search(config.search, study.difference, config.temperatures) if config.search else None
        if match is not None:
            study.at(match.temperature)
        kept = without_blanks(config.evaluation, study.records(), study.notes)
        evaluation = reachable(config.evaluation, len(kept), study.notes)
        scores = evaluate(
            text_comparison(kept, study.groups, evaluation.distinct),
            Heading(config.name, "gap", config.seed, settings, versions, [*run.notes, *study.notes]),
            encoder=study.encoder,
            kernels=config.kernels,
            settings=evaluation,
            cache=run.path / "embeddings",
            device=device,
            progress=progress,
        )
        found = study.result(scores, kept, match)
        write_whole(run.path / "temperature.json", found.model_dump_json(indent=2) + "\n")
        write_whole(run.path / "scores.json", scores.model_dump_json(indent=2) + "\n")
        return found, scores


class _Study:
    """The recordings of all temperatures so far, and what is measured of them."""

    def __init__(self, config: TemperatureConfig, folder: Path, device: torch.device, progress: Progress) -> None:
        self.config, self.folder, self.device, self.progress = config, folder, device, progress
        self.notes: list[str] = []
        self.loaded = cache(lambda: load_model(config.model, device))
        self.encoder: TextEncoder = MemoEncoder(load_encoder(config.encoder, device))
        self.base = record(config, folder, device, progress=progress, notes=self.notes, loaded=self.loaded)
        self.found: dict[float, list[PairRecord]] = {}
        self._difference = self._from_training()

    @property
    def groups(self) -> list[str]:
        return [*(s.name for s in self.config.generation.strategies), *map(_name, sorted(self.found))]

    def at(self, temperature: float) -> list[PairRecord]:
        """The records of ancestral samples at a temperature, with one group named STRATEGY."""
        if temperature not in self.found:
            folder = self.folder / "temperatures" / f"{temperature:.6g}"
            for name in ("pairs.jsonl", "pairs.notes.json"):
                if not (folder / name).exists():
                    write_whole(folder / name, (self.folder / name).read_bytes())
            sampling = Strategy(name=STRATEGY, do_sample=True, temperature=temperature)
            generation = Generation(strategies=[sampling], batch_size=self.config.generation.batch_size)
            fields = {name: getattr(self.config, name) for name in Recording.model_fields}
            recording = Recording(**fields | {"generation": generation})
            notes: list[str] = []  # of the pairs, which the first recording has told
            self.found[temperature] = record(
                recording, folder, self.device, progress=self.progress, notes=notes, loaded=self.loaded
            )
        return self.found[temperature]

    def difference(self, temperature: float) -> float:
        """Conditional entropy at a temperature minus the training text's, nats, on one subsample of conditions."""
        outputs = self._embedded([r.outputs[STRATEGY] for r in self.at(temperature)])
        return self._difference(outputs)

    def records(self) -> list[PairRecord]:
        """The first recording's records with a group for every temperature."""
        merged = list(self.base)
        for temperature in sorted(self.found):
            name = _name(temperature)
            merged = [
                replace(
                    r,
                    outputs=r.outputs | {name: warm.outputs[STRATEGY]},
                    output_ids=r.output_ids | {name: warm.output_ids[STRATEGY]},
                )
                for r, warm in zip(merged, self.found[temperature], strict=True)
            ]
        return merged

    def result(self, scores: Scores, records: Sequence[PairRecord], match: TemperatureMatch | None) -> TemperatureStudy:
        """Diversity, support and likelihood of every group at the largest n."""
        n = scores.sizes[-1]
        rows = subsample(len(records), n, 0, self.config.seed).tolist()
        chosen = [records[i] for i in rows]
        judged = self._judged(chosen)
        training = self._embedded([r.training for r in chosen])
        temperatures = {_name(t): t for t in self.found}
        found = []
        for group in (TRAINING, *self.groups):
            cell = scores.cell(group, VENDI, n)
            assert cell is not None  # every group has a conditional Vendi score
            on = None
            if group != TRAINING:
                outputs = self._embedded([r.outputs[group] for r in chosen])
                on = support(training, outputs, min(self.config.neighbours, n - 1))
            nll = judged.get(group)
            temperature = temperatures.get(group)
            found.append(
                TemperatureRow(
                    group=group,
                    temperature=temperature,
                    matched=match is not None and temperature == match.temperature,
                    conditional_vendi=cell.mean,
                    gap=cell.gap,
                    precision=on.precision if on else None,
                    precision_error=on.precision_error if on else None,
                    recall=on.recall if on else None,
                    recall_error=on.recall_error if on else None,
                    nll=None if nll is None else float(nll.mean()),
                    nll_error=None if nll is None else float(nll.std(correction=1) / len(nll) ** 0.5),
                )
            )
        judge = self.config.judge.path if self.config.judge else None
        return TemperatureStudy(
            title=self.config.name,
            n=n,
            judge=judge,
            neighbours=self.config.neighbours,
            rows=found,
            match=match,
            notes=self.notes,
        )

    def _judged(self, records: Sequence[PairRecord]) -> dict[str, Tensor]:
        if self.config.judge is None:
            return {}
        self.loaded.cache_clear()  # two models at once may be too much for the memory
        model, tokenizer = load_model(self.config.judge, self.device)
        texts = {TRAINING: [r.training for r in records]}
        texts |= {group: [r.outputs[group] for r in records] for group in self.groups}
        found = {}
        for done, (group, continuations) in enumerate(texts.items(), start=1):
            prefixes, ids = [r.prefix for r in records], [r.id for r in records]
            found[group] = token_nll(model, tokenizer, prefixes, continuations, ids)
            self.progress("judging", done, len(texts))
        return found

    def _embedded(self, texts: Sequence[str]) -> Tensor:
        return embed(texts, self.encoder, self.folder / "embeddings", blank=True).tensor.to(self.device)

    def _from_training(self) -> Callable[[Tensor], float]:
        """Conditional entropy of outputs (N, d) minus the training text's."""
        config = self.config
        x = self._embedded([r.prefix for r in self.base])
        y = self._embedded([r.training for r in self.base])
        n = min(max(config.evaluation.sizes, default=len(self.base)), len(self.base))
        engine = Engine(config.evaluation.method, config.evaluation.tolerance)
        kernels = kernel_of(config.kernels.condition).fit_each(x), kernel_of(config.kernels.output).fit_each(y)
        rows = subsample(len(self.base), n, 0, config.seed).to(self.device)

        def difference(outputs: Tensor) -> float:
            owners = torch.arange(len(x), device=x.device)
            entropies = conditional_entropies(
                x,
                {TRAINING: OutputGroup(y, owners), STRATEGY: OutputGroup(outputs, owners)},
                rows,
                kernel_x=kernels[0],
                kernel_y=kernels[1],
                orders=(1.0,),
                engine=engine,
            )
            return entropies[STRATEGY][0].value - entropies[TRAINING][0].value

        return difference


def _search(search: Search, difference: Callable[[float], float], known: Sequence[float]) -> TemperatureMatch:
    """The temperature whose conditional entropy is nearest to the training text's.

    Differences grow with the temperature. The temperatures that are generated anyway and, where they do not bracket
    zero, the ends of the search give a bracket; false position in log T narrows it. Entropies of samples are not
    strictly monotone, so the nearest point seen is the answer.
    """
    seen = {t: difference(t) for t in known}
    spent = 0
    for end, needed in ((search.lower, min(seen.values()) > 0), (search.upper, max(seen.values()) < 0)):
        if needed and end not in seen and spent < search.generations:
            seen[end], spent = difference(end), spent + 1
    bracket = _bracket(seen)
    while bracket and spent < search.generations and min(map(abs, seen.values())) > search.tolerance:
        low, high = bracket
        f_low, f_high = seen[low], seen[high]
        share = min(max(-f_low / (f_high - f_low), 0.1), 0.9)  # away from the ends, so that both move
        middle = float(f"{math.exp((1 - share) * math.log(low) + share * math.log(high)):.4g}")
        if middle in seen:
            break
        seen[middle], spent = difference(middle), spent + 1
        bracket = _bracket(seen)
    best = min(seen, key=lambda t: abs(seen[t]))
    return TemperatureMatch(
        temperature=best,
        difference=seen[best],
        reached=abs(seen[best]) <= search.tolerance,
        bracket=bracket,
        generations=spent,
    )


def _bracket(seen: dict[float, float]) -> tuple[float, float] | None:
    """Neighbouring temperatures with a difference below and one above zero."""
    ordered = sorted(seen)
    pairs = [(a, b) for a, b in pairwise(ordered) if seen[a] <= 0 <= seen[b]]
    return min(pairs, key=lambda pair: pair[1] / pair[0]) if pairs else None


def _name(temperature: float) -> str:
    return f"t{temperature:.4g}"
