"""Benchmarks of diversity profiles: curves of four families, small and large sets, beside one solve a parameter."""

from __future__ import annotations

import importlib
import math
import os
import statistics
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import torch
from bench_tools import ROOT, Claim, clustered, seconds

import condvne as cv
from condvne.core.circles import circles_curve
from condvne.core.families import FAMILIES, default_grid
from condvne.core.magnitude import magnitude_curve

CPU = torch.device("cpu")
LARGE = 2000
# magnipy wants a SciPy of its own: what it needs beside torch lies in an environment in front of this one's packages.
MAGNIPY = ("magnipy==1.0.0", "scipy==1.13.0", "krypy==2.2.0", "numexpr==2.10.2", "seaborn==0.13.2")
MAGNIPY_RUN = """
import sys, time
import numpy as np
from magnipy.magnitude.compute import compute_magnitude_from_distances as magnitudes
held = np.load(sys.argv[1])
began = time.perf_counter()
values = magnitudes(held["D"], held["grid"], method="cholesky")
print(time.perf_counter() - began, *values)
"""


def sets(n: int) -> list[cv.ItemSet]:
    """Points as embeddings of short texts lie, and Gaussian ones in few and many dimensions."""
    generator = torch.Generator().manual_seed(0)
    return [
        cv.ItemSet.from_features(clustered(n, 384, CPU).double(), "cosine", name="clustered"),
        cv.ItemSet.from_features(torch.randn(n, 8, generator=generator).double(), "euclidean", name="8 dimensions"),
        cv.ItemSet.from_features(torch.randn(n, 384, generator=generator).double(), "euclidean", name="384 dimensions"),
    ]


def small_sets() -> list[Claim]:
    """n = 50, 101 parameters a curve (paper B's figure), after the distance matrix."""
    claims = []
    for family, known in FAMILIES.items():
        times, with_bands, exact = [], [], True
        for items in sets(50):
            grid = default_grid(family, items)
            found = cv.profile(items, family, grid, resamples=0)
            exact = exact and found.exact and len(found.grid) > 100
            times.append(seconds(lambda: cv.profile(items, family, grid, resamples=0), CPU, repeats=3))  # noqa: B023
            with_bands.append(seconds(lambda: cv.profile(items, family, grid, resamples=100), CPU))  # noqa: B023
        measured = f"{1e3 * max(times):.0f} ms (with bands of 100 half-samples {max(with_bands):.1f} s), exact: {exact}"
        holds = max(times) <= 1 and exact
        claims.append(Claim(f"{known.title}, n = 50, 101 {known.parameter}s", measured, "≤ 1 s", holds))
    return claims


def vendi_orders() -> list[Claim]:
    """200 orders at n = 2,000 against one decomposition, and against vendi_score at each order."""
    rival = importlib.import_module("vendi_score.vendi")
    items = sets(LARGE)[1]
    assert items.similarities is not None
    K = items.similarities / LARGE
    orders = [*torch.logspace(-4, 6, 199, base=2.0, dtype=torch.float64).tolist(), math.inf]
    curve, one, theirs = [], [], []
    for _ in range(3):  # in turns, so that a busy moment of the machine hits all
        curve.append(seconds(lambda: cv.profile(items, "vendi", orders, resamples=0), CPU))
        one.append(seconds(lambda: torch.linalg.eigvalsh(K), CPU))
        theirs.append(seconds(lambda: rival.score_K((K * LARGE).numpy(), q=0.5), CPU))
    ratio = statistics.median(curve) / statistics.median(one)
    against = len(orders) * statistics.median(theirs) / statistics.median(curve)
    measured = f"{ratio:.2f} × one eigendecomposition ({against:.0f} × faster than vendi_score order by order)"
    return [Claim(f"Vendi, n = {LARGE:,}, 200 orders", measured, "≤ 1.5 ×", ratio <= 1.5)]


def magnitude_scales() -> list[Claim]:
    """100 scales at n = 2,000 against as many dense solves, of which ten are timed."""
    claims = []
    for items in sets(LARGE):
        grid = default_grid("magnitude", items, points=100)
        D, ones = items.distances, torch.ones(LARGE, dtype=torch.float64)

        def dense(t: float, D: torch.Tensor = D, ones: torch.Tensor = ones) -> float:
            return float(torch.linalg.solve(torch.exp(-t * D), ones).sum())

        some = range(4, 100, 10)
        values: list[float] = []
        before = seconds(lambda: values.extend(dense(grid[k]) for k in some[::2]), CPU)  # noqa: B023
        curve: list[torch.Tensor] = []
        mine = seconds(lambda: curve.append(magnitude_curve(D, grid)), CPU)  # noqa: B023
        after = seconds(lambda: values.extend(dense(grid[k]) for k in some[1::2]), CPU)  # noqa: B023
        theirs = 10 * (before + after)
        compared = [*some[::2], *some[1::2]]
        off = max(abs(float(curve[0][k]) / value - 1) for k, value in zip(compared, values, strict=True))
        measured = f"1/{theirs / mine:.1f} ({mine:.1f} s against {theirs:.0f} s), relative difference {off:.0e}"
        holds = theirs / mine >= 5 and off <= 1e-7
        name = f"magnitude, {items.name}, n = {LARGE:,}, 100 scales, of as many dense solves"
        claims.append(Claim(name, measured, "≤ 1/5", holds))
    return claims


def magnitude_against_magnipy() -> list[Claim]:
    """The same scales and distances in magnipy's fastest exact method, Cholesky, in a process of its own."""
    python, claims = magnipy_python(), []
    folder = ROOT / "runs" / "bench"
    for items in sets(LARGE):
        grid = default_grid("magnitude", items, points=100)
        np.savez(folder / "magnipy.npz", D=items.distances.numpy(), grid=np.array(grid))
        curve: list[torch.Tensor] = []
        mine = seconds(lambda: curve.append(magnitude_curve(items.distances, grid)), CPU)  # noqa: B023
        command = [str(python), "-c", MAGNIPY_RUN, str(folder / "magnipy.npz")]
        alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=alone)
        theirs, *values = map(float, done.stdout.split())
        off = (curve[0] / torch.tensor(values, dtype=torch.float64) - 1).abs()
        measured = (
            f"{theirs / mine:.1f} × faster ({mine:.1f} s against {theirs:.0f} s), relative difference "
            f"{float(off.median()):.0e} in the median, {float(off.max()):.0e} at most"
        )
        name = f"magnitude, {items.name}, n = {LARGE:,}, 100 scales, against magnipy (Cholesky)"
        claims.append(Claim(name, measured, "faster", mine < theirs))
    return claims


def magnipy_python() -> Path:
    """The interpreter of an environment with magnipy, made at first use in `runs/bench`."""
    folder = ROOT / "runs" / "bench" / "magnipy"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", *MAGNIPY], check=True)
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def circles_intervals() -> list[Claim]:
    """100 thresholds at n = 2,000: time, and width of the certified intervals."""
    claims = []
    for items in sets(LARGE):
        grid = default_grid("circles", items, points=100)
        found: list[list[cv.Circles]] = []
        wall = seconds(lambda: found.append(circles_curve(items.distances, grid)), CPU)  # noqa: B023
        width = statistics.median(c.upper / c.lower for c in found[0])
        exact = sum(c.exact for c in found[0])
        measured = f"{wall:.0f} s (upper / lower {width:.2f} in the median, {exact} exact)"
        name = f"Circles, {items.name}, n = {LARGE:,}, {len(grid)} thresholds"
        claims.append(Claim(name, measured, "≤ 60 s", wall <= 60))
    return claims


def profiles(device: torch.device) -> list[Claim]:
    """All of them, on the CPU and one thread: threads that wait for each other would measure the waiting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            *small_sets(),
            *vendi_orders(),
            *magnitude_scales(),
            *magnitude_against_magnipy(),
            *circles_intervals(),
        ]
    finally:
        torch.set_num_threads(threads)
