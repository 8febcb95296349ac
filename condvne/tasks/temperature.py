"""Temperature scaling beside the training text: diversity, support and likelihood, and the temperature that matches it.

Ancestral samples at several temperatures, drawn by the same uniform numbers, so that entropies change smoothly with
the temperature and a bracketing search finds where they meet the training text's (paper A, E.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.groups import Engine, OutputGroup, conditional_entropies
from condvne.core.inference import subsample
from condvne.core.kernels import Kernel
from condvne.core.manifold import support
from condvne.data.config import Generation, Recording, Strategy, plain_settings
from condvne.data.config.temperature import REWEIGHTED, Reweighted, Search, TemperatureConfig
from condvne.data.embeddings import TextEncoder, embed, load_encoder
from condvne.data.memo import MemoEncoder
from condvne.data.records import PairRecord
from condvne.data.results import Scores, TemperatureMatch, TemperatureReweighting, TemperatureRow, TemperatureStudy
from condvne.data.runfolders import run_folder
from condvne.data.storage import write_whole
from condvne.data.text.generation import load_model
from condvne.data.text.likelihood import token_nll
from condvne.data.text.recording import local_inputs, record
from condvne.data.versions import installed_versions
from condvne.evaluation import VENDI, Heading, Progress, evaluate, kernel_of, resolved_device
from condvne.evaluation.crossing import crossing
from condvne.evaluation.drawing import drawn
from condvne.evaluation.matching import matched_weights
from condvne.evaluation.projecting import PairFeatures
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
        if config.reweight is not None:
            study.reweight(config.reweight)
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
        self.drawn: list[tuple[str, list[int]]] = []  # of the reweighted candidates
        self.reweighting: TemperatureReweighting | None = None
        self._difference = self._from_training()

    @property
    def groups(self) -> list[str]:
        names = [*(s.name for s in self.config.generation.strategies), *map(_name, sorted(self.found))]
        return [*names, REWEIGHTED] if self.drawn else names

    def at(self, temperature: float) -> list[PairRecord]:
        """The records of ancestral samples at a temperature, with one group named STRATEGY."""
        if temperature not in self.found:
            sampling = Strategy(name=STRATEGY, do_sample=True, temperature=temperature)
            self.found[temperature] = self._recorded(self.folder / "temperatures" / f"{temperature:.6g}", [sampling])
        return self.found[temperature]

    def reweight(self, settings: Reweighted) -> None:
        """Draw candidates, project their weights until draws are as diverse as the text, and keep one draw a prefix."""
        names = [f"candidate{k}" for k in range(settings.candidates)]
        sampling = [Strategy(name=name, do_sample=True, temperature=settings.temperature) for name in names]
        records = self._recorded(self.folder / "candidates", sampling)
        self.progress("projecting", 0, 1)
        x = self._embedded([r.prefix for r in self.base])
        y = self._embedded([r.outputs[name] for r in records for name in names])
        owners = torch.arange(len(x), device=x.device).repeat_interleave(len(names))
        kernels = self._kernels()
        features = PairFeatures(x, y, owners, kernels, num_features=settings.num_features, seed=self.config.seed)
        ids = [r.id for r in records]

        def draw(weights: Tensor) -> Tensor:
            return drawn(weights, owners, ids, 1, self.config.seed)[:, 0]

        match = matched_weights(
            features,
            torch.full((len(y),), 1 / len(names), dtype=torch.float64, device=x.device),
            lambda weights: self._difference(y[draw(weights).to(y.device)]),
            tolerance=settings.tolerance,
            certificate=settings.certificate,
            max_iterations=settings.max_iterations,
        )
        self.progress("projecting", 1, 1)
        chosen = [names[k % len(names)] for k in draw(match.weights).tolist()]
        self.drawn = [(r.outputs[name], r.output_ids[name]) for r, name in zip(records, chosen, strict=True)]
        self.reweighting = TemperatureReweighting(
            candidates=settings.candidates,
            temperature=settings.temperature,
            before=match.before,
            difference=match.difference,
            reached=match.reached,
            above=match.above,
            lam=match.lam,
            share=match.share,
            certificate=match.certificate,
            effective_candidates=float(features.effective_candidates(match.weights).mean()),
        )

    def _recorded(self, folder: Path, strategies: Sequence[Strategy]) -> list[PairRecord]:
        """Continuations of the same pairs by these strategies, in a folder of their own that is gone on with."""
        for name in ("pairs.jsonl", "pairs.notes.json"):
            if not (folder / name).exists():
                write_whole(folder / name, (self.folder / name).read_bytes())
        generation = Generation(strategies=list(strategies), batch_size=self.config.generation.batch_size)
        fields = {name: getattr(self.config, name) for name in Recording.model_fields}
        recording = Recording(**fields | {"generation": generation})
        notes: list[str] = []  # of the pairs, which the first recording has told
        return record(recording, folder, self.device, progress=self.progress, notes=notes, loaded=self.loaded)

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
        if self.drawn:
            merged = [
                replace(r, outputs=r.outputs | {REWEIGHTED: text}, output_ids=r.output_ids | {REWEIGHTED: ids})
                for r, (text, ids) in zip(merged, self.drawn, strict=True)
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
            reweighting=self.reweighting,
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

    def _kernels(self) -> tuple[Kernel, Kernel]:
        """Kernels of prefixes and continuations, their bandwidths from the training text."""
        x = self._embedded([r.prefix for r in self.base])
        y = self._embedded([r.training for r in self.base])
        return kernel_of(self.config.kernels.condition).fit_each(x), kernel_of(self.config.kernels.output).fit_each(y)

    def _from_training(self) -> Callable[[Tensor], float]:
        """Conditional entropy of outputs (N, d) minus the training text's."""
        config = self.config
        x = self._embedded([r.prefix for r in self.base])
        y = self._embedded([r.training for r in self.base])
        n = min(max(config.evaluation.sizes, default=len(self.base)), len(self.base))
        engine = Engine(config.evaluation.method, config.evaluation.tolerance)
        kernels = self._kernels()
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
    """The temperature whose conditional entropy is nearest to the training text's; differences grow with it."""
    end = crossing(
        difference,
        known,
        lower=search.lower,
        upper=search.upper,
        most=search.generations,
        tolerance=search.tolerance,
    )
    return TemperatureMatch(
        temperature=end.at,
        difference=end.difference,
        reached=end.reached,
        bracket=end.bracket,
        generations=end.spent,
    )


def _name(temperature: float) -> str:
    return f"t{temperature:.4g}"
