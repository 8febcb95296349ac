"""Diversity against precision on the small pipeline: our guidance, noise, lower guidance scales, annealed conditions.
Usage: python scripts/guidance_frontier.py runs/tiny-sdxl runs/frontier

For each method and seed 10 captions × 60 images. Diversity is the conditional VNE of features of a classifier trained
on the real digits, which no method optimises; precision the share of images inside the 5-nearest-neighbour balls of
the real digits in these features; agreement the share that the classifier reads as the caption's digit. Results are
kept as they come, so a run that stops goes on. Writes results.json, table.md, frontier.png and grid.png.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from digit_judge import Judge
from rich.console import Console
from torch import Tensor
from torch.nn import functional

from condvne.data.storage import write_whole
from condvne.integrations.diffusers import ConditionalVNEGuidance, HistorySettings
from condvne.tasks.guidance import flattened

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PROMPTS = [f"a handwritten {word}" for word in WORDS]
BASE = 2.0  # classifier-free guidance scale of the baseline
console = Console()
Callback = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Method:
    """A way of sampling: a classifier-free guidance scale, and what is done after each step."""

    family: str
    label: str
    scale: float = BASE
    guidance: dict[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    annealing: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.label}, guidance scale {self.scale:g}"


def methods() -> list[Method]:
    """Every method of the comparison; the first is the baseline."""
    chosen = [Method("guidance scale", "plain", scale) for scale in (BASE, 1.0, 1.25, 1.5, 3.0, 5.0)]
    for scale in (0.005, 0.01, 0.015, 0.02):
        chosen.append(Method("order 1, clean", f"order 1, clean, κ = {scale:g}", guidance={"scale": scale}))
    for scale in (0.005, 0.01, 0.02):
        chosen.append(
            Method("order 2, clean", f"order 2, clean, κ = {scale:g}", guidance={"scale": scale, "order": 2.0})
        )
    for scale in (0.005, 0.01, 0.02):
        options = {"scale": scale, "space": "latent"}
        chosen.append(Method("order 1, noisy", f"order 1, noisy, κ = {scale:g}", guidance=options))
    chosen += [Method("noise", f"noise, κ = {size:g}", noise=size) for size in (0.02, 0.05, 0.1)]
    chosen += [Method("annealing", f"CADS, s = {size:g}", annealing=size) for size in (0.1, 0.25, 0.5)]
    for cfg in (1.0, 1.25, 1.5):
        for scale in (0.0025, 0.005, 0.01):
            chosen.append(
                Method("order 1 with a lower scale", f"order 1, clean, κ = {scale:g}", cfg, guidance={"scale": scale})
            )
    chosen.append(Method("raw", "raw gradients, η = 0.03", guidance={"scale": 0.03, "normalize": "raw"}))
    for cfg, scale in ((BASE, 0.02), (BASE, 0.05), (1.0, 0.02)):  # the last two would go beyond the target
        options = {"scale": scale, "target": True}
        chosen.append(Method("target", f"order 1, clean, κ = {scale:g}, target", cfg, guidance=options))
    return chosen


def small_digits(images: Tensor) -> Tensor:
    """Decoded images (b, 3, 16, 16) in [0, 1] as (b, 64) rows of 8 × 8 grey values."""
    return functional.avg_pool2d(images.mean(1, keepdim=True).float(), 2).flatten(1)


def guide_for(pipe: Any, options: dict[str, Any], target: float) -> ConditionalVNEGuidance:
    chosen = dict(options)
    if chosen.pop("target", False):
        chosen["target"] = target
    return ConditionalVNEGuidance(pipe, history=HistorySettings(), **chosen)


def noising(size: float, draw: torch.Generator) -> Callback:
    """Noise of the norm that guidance moves by: κ times the norm of clean latents of unit variance."""

    def callback(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        latents = given["latents"]
        if not 0.1 <= (step + 1) / pipe.num_timesteps <= 0.9:
            return given
        noise = torch.randn(latents.shape, generator=draw)
        return {**given, "latents": latents + size * noise}  # of norm κ √d, as a clean latent has norm √d

    return callback


def annealed(embeddings: Tensor, share: float, strength: float, draw: torch.Generator) -> Tensor:
    """CADS (arXiv 2310.17347), algorithm 1: √γ c + s √(1-γ) n, rescaled to the mean and deviation of c.

    `share` is the diffusion time left, 1 at the start; γ falls from 1 at τ1 = 0.6 to 0 at τ2 = 0.9.
    """
    gamma = min(1.0, max(0.0, (0.9 - share) / 0.3))
    if gamma == 1.0:
        return embeddings
    noise = torch.randn(embeddings.shape, generator=draw)
    mixed = math.sqrt(gamma) * embeddings + strength * math.sqrt(1 - gamma) * noise
    dims = tuple(range(1, embeddings.ndim))
    mean, deviation = embeddings.mean(dims, keepdim=True), embeddings.std(dims, keepdim=True)
    return (mixed - mixed.mean(dims, keepdim=True)) / mixed.std(dims, keepdim=True) * deviation + mean


def annealing_options(pipe: Any, prompts: list[str], scale: float, strength: float, draw: torch.Generator) -> Any:
    """Arguments of a call whose conditions are annealed: noisy from the first step on."""
    with torch.no_grad():
        tokens, _, pooled, _ = pipe.encode_prompt(prompts, do_classifier_free_guidance=False)

    def callback(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        share = 1 - (step + 1) / pipe.num_timesteps
        fresh = dict(given)
        for name, clean in (("prompt_embeds", tokens), ("add_text_embeds", pooled)):
            changed = given[name].clone()
            changed[-len(prompts) :] = annealed(clean, share, strength, draw)
            fresh[name] = changed
        return fresh

    return {
        "prompt_embeds": annealed(tokens, 1.0, strength, draw),
        "pooled_prompt_embeds": annealed(pooled, 1.0, strength, draw),
        "negative_prompt_embeds": torch.zeros_like(tokens) if scale > 1 else None,
        "negative_pooled_prompt_embeds": torch.zeros_like(pooled) if scale > 1 else None,
        "callback_on_step_end": callback,
        "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds", "add_text_embeds"],
    }


def sampled(
    pipe: Any, method: Method, images: int, steps: int, batch: int, seed: int, target: float
) -> tuple[Tensor, Tensor, float]:
    """Images (n, 64) and digits (n,) of one method and seed, and the latents' conditional entropy where it is known."""
    draw = torch.Generator().manual_seed(1000 + seed)
    guide = guide_for(pipe, method.guidance, target) if method.guidance else None
    pairs = [label for _ in range(images) for label in range(10)]
    found = []
    if guide is None:
        batch *= 10  # images without a guide do not depend on their siblings
    for start in range(0, len(pairs), batch):
        labels = pairs[start : start + batch]
        prompts = [PROMPTS[label] for label in labels]
        seeds = [torch.Generator().manual_seed(seed * 1_000_000 + start + k) for k in range(len(labels))]
        options: dict[str, Any] = {"guidance_scale": method.scale, "num_inference_steps": steps, "generator": seeds}
        if method.annealing:
            options |= annealing_options(pipe, prompts, method.scale, method.annealing, draw)
        else:
            options["prompt"] = prompts
        if guide is not None:
            options |= {"callback_on_step_end": guide, "callback_on_step_end_tensor_inputs": guide.tensor_inputs}
        elif method.noise:
            options["callback_on_step_end"] = noising(method.noise, draw)
        found.append(small_digits(pipe(output_type="pt", **options).images))
    return torch.cat(found), torch.tensor(pairs), math.nan if guide is None else guide.entropy()


def latent_target(pipe: Any, judge: Judge, each: int) -> float:
    """Conditional entropy of so many real digits of each class in the guide's own features, nats."""
    from sklearn.datasets import load_digits

    grey = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    larger = functional.interpolate(grey, size=(16, 16), mode="bilinear", align_corners=False).expand(-1, 3, -1, -1)
    draw = torch.Generator().manual_seed(0)
    rows = torch.cat([judge.some(label, each, draw) for label in range(10)])
    with torch.no_grad():
        latents = pipe.vae.encode(larger[rows]).latent_dist.mean * pipe.vae.config.scaling_factor
        pooled = pipe.encode_prompt(PROMPTS, do_classifier_free_guidance=False)[2]
    guide = ConditionalVNEGuidance(pipe)
    guide.history.add(functional.normalize(pooled[judge.labels[rows]]), flattened(latents))
    return guide.entropy()


def run(pipe: Any, out: Path, chosen: list[Method], seeds: int, images: int, steps: int, batch: int) -> dict[str, Any]:
    """Results by method and seed; those that the folder holds are kept."""
    judge, path = Judge(), out / "results.json"
    setting = {"images": images, "steps": steps, "batch": batch}
    stored = json.loads(path.read_text()) if path.exists() else {}
    results: dict[str, Any] = stored["results"] if stored.get("setting") == setting else {}
    target = latent_target(pipe, judge, images)
    of_real = [judge.real_diversities(images, seed) for seed in range(seeds)]
    real = {name: statistics.mean(found[name] for found in of_real) for name in of_real[0]}
    head = {"setting": setting, "real": real, "latent_target": target}
    for seed, method in itertools.product(range(seeds), chosen):  # so that a run that is stopped has seeds of all
        if str(seed) in results.setdefault(method.name, {"family": method.family, "scale": method.scale}):
            continue
        pictures, labels, entropy = sampled(pipe, method, images, steps, batch, seed, target)
        kept = judge.judged(pictures, labels) | ({} if math.isnan(entropy) else {"latent_entropy": entropy})
        results[method.name][str(seed)] = kept
        write_whole(path, json.dumps(head | {"results": results}, indent=1) + "\n")
        console.print(f"{method.name}, seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in kept.items()))
        if seed == 0 and method in (chosen[0], _shown(chosen)):
            _keep_for_grid(out, method, pictures, labels)
    return head | {"results": results}


def _shown(chosen: list[Method]) -> Method:
    return next((m for m in chosen if m.guidance.get("scale") == 0.01), chosen[-1])


def _keep_for_grid(out: Path, method: Method, pictures: Tensor, labels: Tensor) -> None:
    rows = [pictures[labels == label][:10].reshape(-1, 8, 8).tolist() for label in range(10)]
    write_whole(out / f"grid-{'guided' if method.guidance else 'plain'}.json", json.dumps(rows))


def summary(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Means over seeds, and standard errors of the diversity, by method."""
    rows = []
    for name, kept in found["results"].items():
        seeds = [value for key, value in kept.items() if key.isdigit()]
        means = {key: statistics.mean(s[key] for s in seeds) for key in seeds[0]}
        spread = statistics.stdev(s["diversity"] for s in seeds) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
        rows.append({"name": name, "family": kept["family"], "scale": kept["scale"], "error": spread, **means})
    return rows


def write_table(rows: list[dict[str, Any]], found: dict[str, Any], path: Path) -> None:
    names, base = tuple(found["real"]), rows[0]
    lines = [
        "| method | cond. VNE, half the median | against plain | median | against plain | agrees "
        "| precision | recall |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def compared(values: dict[str, Any]) -> str:
        cells = [
            f"{values[n]:.2f}"
            + (f" ± {values['error']:.2f}" if n == names[0] and "error" in values else "")
            + f" | {values[n] / base[n] - 1:+.1%}"
            for n in names
        ]
        return " | ".join(cells)

    for row in rows:
        lines.append(
            f"| {row['name']} | {compared(row)} | "
            f"{row['agreement']:.1%} | {row['precision']:.1%} | {row['recall']:.1%} |"
        )
    lines.append(f"| real digits | {compared(found['real'])} | | | |")
    write_whole(path, "\n".join(lines) + "\n")
    console.print("\n".join(lines), markup=False)


def frontier(rows: list[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """At each precision of a lower scale with guidance: its diversity, and that of the best scale alone there."""
    alone = sorted((r["precision"], r["diversity"]) for r in rows if r["family"] == "guidance scale")
    compared = []
    for row in rows:
        if row["family"] != "order 1 with a lower scale":
            continue
        at_least = [d for p, d in alone if p >= row["precision"]]
        if at_least:
            compared.append((row["precision"], row["diversity"], max(at_least)))
    return sorted(compared)


def plot(rows: list[dict[str, Any]], found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for family in dict.fromkeys(row["family"] for row in rows):
        points = sorted((r["precision"], r["diversity"]) for r in rows if r["family"] == family)
        axes.plot([100 * p for p, _ in points], [d for _, d in points], "o-", label=family)
    axes.axhline(found["real"]["diversity"], color="grey", linestyle=":", label="real digits")
    axes.set_xlabel("precision, %")
    axes.set_ylabel("conditional VNE, effective images a caption")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def plot_grid(out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    files = [out / f"grid-{name}.json" for name in ("plain", "guided")]
    if not all(file.exists() for file in files):
        return
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4.6))
    for axes, file, title in zip(panels, files, ("plain", "guided"), strict=True):
        rows = torch.tensor(json.loads(file.read_text()))
        axes.imshow(rows.permute(0, 2, 1, 3).reshape(80, -1), cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(title)
        axes.axis("off")
    figure.tight_layout()
    figure.savefig(out / "grid.png", dpi=120)
    pyplot.close(figure)


def main(
    pipeline: Annotated[Path, typer.Argument(help="Of scripts/train_tiny_sdxl.py.")],
    out: Annotated[Path, typer.Argument(help="Folder for results.")],
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    images: Annotated[int, typer.Option(min=6, help="Of each caption.")] = 60,
    steps: Annotated[int, typer.Option(min=2)] = 25,
    batch: Annotated[int, typer.Option(min=1, help="Images in one call.")] = 20,
    only: Annotated[str, typer.Option(help="Methods whose name holds this; the baseline always runs.")] = "",
) -> None:
    """Measure the frontier, and write table, plot and grid."""
    from diffusers import StableDiffusionXLPipeline

    pipe = StableDiffusionXLPipeline.from_pretrained(str(pipeline))
    pipe.set_progress_bar_config(disable=True)
    chosen = [m for k, m in enumerate(methods()) if k == 0 or only in m.name]
    found = run(pipe, out, chosen, seeds, images, steps, batch)
    rows = summary(found)
    write_table(rows, found, out / "table.md")
    for precision, ours, best in frontier(rows):
        console.print(f"precision {precision:.1%}: {ours:.2f} with guidance, {best:.2f} by the best scale alone")
    plot(rows, found, out / "frontier.png")
    plot_grid(out)


if __name__ == "__main__":
    typer.run(main)
