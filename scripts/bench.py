"""Speed and memory, side by side with what people use today, in one run: prints a table and asserts each claim.

python scripts/bench.py                    every claim on the CPU (about an hour and a half on two cores)
python scripts/bench.py --device cuda      the same on a GPU
python scripts/bench.py exact order-2      some of them

A time on a shared machine is no evidence, a ratio within one run is: every claim is a ratio, a share or a size.
"""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from bench_engine import coverage, growth, hundred_thousand, large_exact_kernel, sketch_rate, stream
from bench_guidance import guidance
from bench_images import images_per_second
from bench_profiles import profiles
from bench_projection import projection
from bench_study import ablation, decoding
from bench_tools import ROOT, Claim, clustered, in_process, peak_memory, seconds
from bench_training import training
from rich.console import Console
from rich.table import Table

import condvne as cv

console = Console()
Device = torch.device


def exact_against_vendi_score(device: Device) -> list[Claim]:
    """Conditional VNE from the same two Gram matrices, n = 4,000, float64."""
    vendi = importlib.import_module("vendi_score.vendi")
    n = 4000
    x, y = (clustered(n, 384, device, seed=s).double() for s in (0, 1))
    marginal = cv.Gaussian().gram(x)
    joint = marginal * cv.Gaussian().gram(y)
    arrays = joint.cpu().numpy(), marginal.cpu().numpy()

    def peer() -> float:
        return float(vendi.score_K(arrays[0]) / vendi.score_K(arrays[1]))

    def ours() -> float:
        return float((cv.entropy_from_gram(joint) - cv.entropy_from_gram(marginal)).exp())

    theirs, mine = [], []
    for _ in range(3):  # in turns, so that a busy moment of the machine hits both
        theirs.append(seconds(peer, device))
        mine.append(seconds(ours, device))
    ratio = statistics.median(theirs) / statistics.median(mine)
    difference = abs(ours() / peer() - 1)
    measured = (
        f"{ratio:.2f} × faster ({statistics.median(mine):.1f} s against {statistics.median(theirs):.1f} s), "
        f"relative difference {difference:.0e}"
    )
    name = "conditional VNE, n = 4,000, exact, against vendi_score.score_K"
    return [Claim(name, measured, "≥ 1.5 ×, equal to 1e-5", ratio >= 1.5 and difference <= 1e-5)]


def covariance_route(device: Device) -> list[Claim]:
    """Cosine kernel at n = 20,000, d = 384: d × d covariance against the n × n Gram matrix."""
    x = clustered(20_000, 384, device)
    value = cv.vendi(x, kernel="cosine")
    short = seconds(lambda: cv.vendi(x, kernel="cosine"), device, repeats=3)
    gram: list[torch.Tensor] = []
    long = seconds(lambda: gram.append(cv.entropy_from_gram(cv.Cosine().gram(x)).exp()), device)
    ratio, difference = long / short, abs(float(gram[0] / value) - 1)
    measured = f"{ratio:.0f} × faster ({short:.2f} s against {long:.0f} s), relative difference {difference:.0e}"
    name = "cosine kernel, n = 20,000, d = 384, covariance against Gram route"
    return [Claim(name, measured, "≥ 50 ×", ratio >= 50 and difference <= 1e-4)]


def order_two(device: Device) -> list[Claim]:
    """Order 2 in closed form: no eigenvalues, and tiles instead of n × n matrices."""
    n = 8000
    x, y = (clustered(n, 64, device, seed=s) for s in (0, 1))
    (grown,) = in_process(
        "import torch, condvne as cv; from bench_tools import clustered, peak_memory\n"
        f"x, y = (clustered({n}, 64, torch.device('cpu'), seed=s) for s in (0, 1))\n"
        "cv.conditional_rke(x[:500], y[:500]); before = peak_memory(); cv.conditional_rke(x, y)\n"
        "print(peak_memory() - before)\n"
    )
    matrix = n * n * 8
    closed = seconds(lambda: cv.conditional_rke(x, y), device)
    eigen = seconds(lambda: cv.conditional_vendi(x, y, order=2.000001, method="exact"), device)
    return [
        Claim(
            f"order 2, n = {n:,}: growth of memory (CPU)",
            f"{grown / matrix:.2f} of one n × n float64 matrix",
            "≤ 1",
            grown <= matrix,
        ),
        Claim(
            f"order 2, n = {n:,}: closed form against eigenvalues",
            f"{eigen / closed:.1f} × faster ({closed:.1f} s against {eigen:.1f} s)",
            "faster",
            closed < eigen,
        ),
    ]


def generation(device: Device) -> list[Claim]:
    """Batched decoding against one prompt at a time, on the quickstart's model."""
    from condvne.data.config import ANCESTRAL, Model
    from condvne.data.text.generation import generate, load_model

    folder = ROOT / "runs" / "quickstart-model"
    if not folder.exists():
        goal = "≥ 5 × (train the model first: bash scripts/quickstart.sh)"
        return [Claim("generation, batch 64", "no model", goal, False)]
    model, tokenizer = load_model(Model(path=str(folder)), device)
    draw = torch.Generator().manual_seed(0)
    prefixes = torch.randint(10, 4000, (512, 3), generator=draw).tolist()
    ids = [str(i) for i in range(512)]

    def rate(count: int, batch: int) -> float:
        work = seconds(
            lambda: generate(model, tokenizer, prefixes[:count], ids[:count], ANCESTRAL, 2, 0, batch), device
        )
        return count / work

    rate(64, 64)
    single, batched = [], []
    for _ in range(3):
        single.append(rate(128, 1))
        batched.append(rate(512, 64))
    ratio = statistics.median(batched) / statistics.median(single)
    measured = f"{ratio:.1f} × ({statistics.median(batched):.0f} against {statistics.median(single):.0f} prompts/s)"
    return [Claim("generation, batch 64 against one at a time", measured, "≥ 5 ×", ratio >= 5)]


def import_time(device: Device) -> list[Claim]:
    """`import condvne` against `import torch`, fresh processes in turns."""

    def once(module: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        return time.perf_counter() - begin

    once("condvne")
    pairs = [(once("torch"), once("condvne")) for _ in range(7)]
    ratio = statistics.median(c for _, c in pairs) / statistics.median(t for t, _ in pairs)
    return [Claim("import condvne against import torch", f"{ratio:.2f} ×", "≤ 1.3 ×", ratio <= 1.3)]


CLAIMS: dict[str, Callable[[Device], list[Claim]]] = {
    "import": import_time,
    "exact": exact_against_vendi_score,
    "order-2": order_two,
    "generation": generation,
    "decoding": decoding,
    "ablation": ablation,
    "images": images_per_second,
    "guidance": guidance,
    "training": training,
    "profiles": profiles,
    "projection": projection,
    "covariance": covariance_route,
    "coverage": coverage,
    "sketch": sketch_rate,
    "stream": stream,
    "growth": growth,
    "lanczos": large_exact_kernel,
    "large": hundred_thousand,
}


def machine(device: Device) -> str:
    """The machine in a line."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.machine()}, {torch.get_num_threads()} threads, {memory:.0f} GiB, torch {torch.__version__}"


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Some of: {', '.join(CLAIMS)}.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Measure the claims, print the table, and end with status 1 where one does not hold."""
    unknown = [name for name in names or [] if name not in CLAIMS]
    if unknown:
        raise typer.BadParameter(f"no benchmark {unknown[0]!r}; there are {', '.join(CLAIMS)}")
    chosen = torch.device(device)
    table = Table(title=machine(chosen), title_justify="left")
    for heading in ("claim", "measured", "goal", "holds"):
        table.add_column(heading)
    failed = False
    for name in names or CLAIMS:
        for claim in CLAIMS[name](chosen):
            failed |= not claim.holds
            table.add_row(claim.name, claim.measured, claim.goal, "yes" if claim.holds else "NO")
            console.print(f"{claim.name}: {claim.measured} (goal {claim.goal}: {'yes' if claim.holds else 'NO'})")
    peak = peak_memory() / 2**30
    console.print(table)
    console.print(f"peak memory of this process {peak:.1f} GiB")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
