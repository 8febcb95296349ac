"""CEP-BEG and the kernel projection: against stored optima, a general solver, and the conditions of an optimum."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import condvne as cv
from condvne.core.projection import project_kernel
from condvne.core.spectral import matrix_entropy
from tests.references import double, oracles

ORACLES = oracles()["projection"]
SHARP: dict[str, Any] = {"tolerance": 1e-7, "max_iterations": 500}


def units(*shape: int, seed: int = 0) -> Tensor:
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(z, dim=-1)


def objective(z: Tensor, p: Tensor, lam: float, prior: Tensor | None = None, weights: Tensor | None = None) -> float:
    """Eq. 2, written out."""
    n, m, _ = z.shape
    w = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights
    before = torch.full((n, m), 1 / m, dtype=torch.float64) if prior is None else prior
    shift = torch.einsum("i,ij,ijr->r", w, p - before, z)
    values = torch.linalg.eigvalsh(torch.einsum("i,ij,ijr,ijs->rs", w, p, z, z)).clamp(min=0)
    return float(shift.square().sum() - lam * torch.special.entr(values).sum())


@pytest.mark.parametrize("entry", ORACLES, ids=lambda e: f"lambda {e['lam']}")
@pytest.mark.parametrize("form", ["features", "groups", "kernel"])
def test_stored_optima(entry: dict[str, Any], form: str) -> None:
    z, lam = double(entry["z"]), entry["lam"]
    n, m, r = z.shape
    groups = torch.arange(n).repeat_interleave(m)
    flat = z.reshape(-1, r)
    if form == "features":
        result = cv.project(z, lam=lam, **SHARP)
    elif form == "groups":
        result = cv.project(flat, lam=lam, groups=groups, **SHARP)
    else:
        gram = flat @ flat.mT
        result = project_kernel(gram.fill_diagonal_(1.0), groups, lam=lam, **SHARP)
    p = result.weights.reshape(n, m)
    assert result.values[0] == pytest.approx(entry["F_uniform"], abs=1e-12)
    assert result.entropy_before == pytest.approx(entry["H_uniform"], abs=1e-12)
    assert result.objective == pytest.approx(entry["F_optimal"], abs=1e-9)
    assert result.entropy == pytest.approx(entry["H_optimal"], abs=1e-5)
    torch.testing.assert_close(p, double(entry["p_optimal"]), atol=1e-4, rtol=0)
    torch.testing.assert_close(p.sum(1), torch.ones(n, dtype=torch.float64), atol=1e-12, rtol=0)
    assert objective(z, p, lam) == pytest.approx(result.objective, abs=1e-12)
    for value, certificate in zip(result.values, result.certificates, strict=True):
        assert certificate >= value - entry["F_optimal"] - 1e-12


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 4), m=st.integers(2, 4), lam=st.floats(0.05, 5), seed=st.integers(0, 10**6))
def test_the_optimum_is_that_of_a_general_solver(n: int, m: int, lam: float, seed: int) -> None:
    from scipy.optimize import minimize

    z = units(n, m, 3, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    prior = torch.rand(n, m, generator=draw, dtype=torch.float64) + 0.1
    prior /= prior.sum(1, keepdim=True)
    weights = torch.rand(n, generator=draw, dtype=torch.float64) + 0.1
    weights /= weights.sum()
    result = cv.project(z, lam=lam, prior=prior, prompt_weights=weights, **SHARP)

    def value(p: np.ndarray[Any, Any]) -> float:
        return objective(z, torch.from_numpy(p).reshape(n, m), lam, prior, weights)

    constraints = [{"type": "eq", "fun": lambda p, i=i: p.reshape(n, m)[i].sum() - 1} for i in range(n)]
    solved = minimize(
        value,
        prior.flatten().numpy(),
        method="SLSQP",
        bounds=[(0, 1)] * (n * m),
        constraints=constraints,
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert result.objective <= solved.fun + 1e-6
    assert result.objective == pytest.approx(value(result.weights.flatten().numpy()), abs=1e-10)
    assert result.objective - result.certificate <= solved.fun + 1e-9  # the certificate is a lower bound of any value


def test_ragged_prompts_in_any_order_and_a_lone_candidate() -> None:
    z = units(9, 5)
    groups = torch.tensor([7, 3, 7, 3, 3, 90, 7, 7, 3])
    result = cv.project(z, lam=1.0, groups=groups, **SHARP)
    sums = {g: float(result.weights[groups == g].sum()) for g in (3, 7, 90)}
    assert sums == pytest.approx({3: 1.0, 7: 1.0, 90: 1.0}, abs=1e-12)
    assert float(result.weights[5]) == 1.0
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    again = cv.project(z[order], lam=1.0, groups=groups[order], **SHARP)
    torch.testing.assert_close(again.weights, result.weights[order], atol=1e-5, rtol=0)


def test_the_conditions_of_an_optimum_hold() -> None:
    z = units(20, 5, 8, seed=3)
    lam = 2.0
    result = cv.project(z, lam=lam, **SHARP)
    p = result.weights.clone().requires_grad_()
    C = torch.einsum("ij,ijr,ijs->rs", p, z, z) / 20
    shift = ((p - 1 / 5)[..., None] * z).sum((0, 1)) / 20
    (shift.square().sum() - lam * matrix_entropy(C)).backward()  # type: ignore[no-untyped-call]
    assert p.grad is not None
    slope = 20 * p.grad
    for row in range(20):
        least = slope[row].min()
        carrying = result.weights[row] > 1e-3
        assert float((slope[row][carrying] - least).abs().max()) < 1e-3
    assert result.entropy > result.entropy_before


def test_the_adaptive_step_outruns_the_theorem() -> None:
    z = units(40, 6, 12, seed=5)
    adaptive = cv.project(z, lam=1.0, tolerance=1e-12, max_iterations=40)
    theorem = cv.project(z, lam=1.0, tolerance=1e-12, max_iterations=40, step="theorem")
    assert adaptive.objective < theorem.objective < theorem.values[0]
    assert adaptive.certificate < 1e-2 * theorem.certificate
    assert adaptive.certificate == min(adaptive.certificates)


def test_lambda_zero_and_a_target_that_is_met_leave_the_weights() -> None:
    z = units(5, 4, 6)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).expand(5, 4)
    for result in (cv.project(z, prior=prior, lam=0.0), cv.project(z, prior=prior, target=0.5)):
        torch.testing.assert_close(result.weights, prior)
        assert result.lam == 0
        assert result.reached
        assert result.converged
        assert result.iterations == 0
        assert result.distance == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_target_between_is_reached_with_the_least_price(share: float) -> None:
    z = units(10, 4, 60, seed=7)  # more dimensions than candidates: every change has a price
    enough: dict[str, Any] = {"tolerance": 1e-6, "max_iterations": 200}
    top = cv.project(z, target=10.0, **enough)
    assert not top.reached
    assert top.largest_entropy == top.entropy
    target = top.entropy_before + share * (top.entropy - top.entropy_before)
    result = cv.project(z, target=target, **enough)
    assert result.reached
    assert result.entropy == pytest.approx(target, abs=1e-3)
    assert result.entropy >= target
    assert result.largest_entropy == pytest.approx(top.entropy, abs=1e-5)
    cheaper = cv.project(z, lam=0.98 * result.lam, **enough)
    assert cheaper.entropy < target
    assert cheaper.distance <= result.distance


def test_a_target_that_costs_nothing_is_met_and_not_passed() -> None:
    z = units(20, 4, 8, seed=7)  # more candidates than dimensions: some weights keep the mean and have more entropy
    start = cv.project(z, lam=0.0).entropy
    free = cv.project(z, lam=1e-4, tolerance=1e-6, max_iterations=200)
    assert free.distance < 1e-4
    target = (start + free.entropy) / 2
    result = cv.project(z, target=target, tolerance=1e-6, max_iterations=100)
    assert result.reached
    assert result.entropy == pytest.approx(target, abs=1e-5)
    assert result.entropy >= target
    assert result.distance < 1e-3
    torch.testing.assert_close(result.weights.sum(1), torch.ones(20, dtype=torch.float64), atol=1e-12, rtol=0)


def test_identical_candidates_share_their_weight_as_before() -> None:
    z = units(4, 3, 5)
    twice = torch.cat([z, z[:, :1]], dim=1)
    single = cv.project(z, lam=1.0, **SHARP)
    prior = torch.tensor([1 / 6, 1 / 3, 1 / 3, 1 / 6], dtype=torch.float64).expand(4, 4)
    double_ = cv.project(twice, lam=1.0, prior=prior, **SHARP)
    torch.testing.assert_close(double_.weights[:, 0], double_.weights[:, 3])
    torch.testing.assert_close(2 * double_.weights[:, 0], single.weights[:, 0], atol=1e-4, rtol=0)


def test_single_precision_features_and_blocks_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    z = units(50, 6, 16, seed=2)
    whole = cv.project(z, lam=1.0, max_iterations=30)
    monkeypatch.setattr("condvne.core.mirror.BLOCK_ENTRIES", 16 * 7)
    blocks = cv.project(z, lam=1.0, max_iterations=30)
    torch.testing.assert_close(blocks.weights, whole.weights, atol=1e-8, rtol=0)
    single = cv.project(z.float(), lam=1.0, max_iterations=30)
    assert single.objective == pytest.approx(whole.objective, abs=1e-4)
    assert single.weights.dtype == torch.float64


def test_features_mapped_from_a_file_are_read_in_place(tmp_path: Any) -> None:
    z = units(30, 4, 6, seed=4)
    path = tmp_path / "features.bin"
    z.numpy().tofile(path)
    mapped = torch.from_file(str(path), shared=False, size=z.numel(), dtype=torch.float64).reshape(30, 4, 6)
    torch.testing.assert_close(cv.project(mapped, lam=1.0).weights, cv.project(z, lam=1.0).weights)


MAPPED = """
import resource, sys, torch, condvne as cv
path, rows, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
small = torch.nn.functional.normalize(torch.ones(8, width), dim=-1)
cv.project(small, lam=1.0, groups=torch.arange(8) // 4, max_iterations=1)  # what libraries take once
mapped = torch.from_file(path, shared=True, size=rows * width, dtype=torch.float32).reshape(-1, 10, width)
taken = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) * 1024  # mapped files do not count
limit = taken + 2 * rows * width  # half of the features
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
result = cv.project(mapped, lam=1.0, max_iterations=1)
assert result.iterations == 1
try:
    mapped.clone()
except RuntimeError:
    print("no memory for a copy")
"""


def test_features_in_a_file_are_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    rows, width = 100_000, 256
    path = tmp_path / "features.bin"
    with path.open("wb") as file:
        for seed in range(10):
            block = torch.randn(rows // 10, width, generator=torch.Generator().manual_seed(seed))
            file.write(torch.nn.functional.normalize(block, dim=-1).numpy().tobytes())
    command = [sys.executable, "-c", MAPPED, str(path), str(rows), str(width)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "no memory for a copy"  # the limit was in force


def test_a_mapped_file_of_single_precision_gives_the_same_weights(tmp_path: Path) -> None:
    z = units(60, 5, 12, seed=4).float()
    path = tmp_path / "features.bin"
    z.numpy().tofile(path)
    mapped = torch.from_file(str(path), shared=False, size=z.numel(), dtype=torch.float32).reshape(z.shape)
    from_file, from_memory = (cv.project(f, lam=1.0, tolerance=1e-6) for f in (mapped, z))
    torch.testing.assert_close(from_file.weights, from_memory.weights, atol=1e-10, rtol=0)
    assert from_file.certificate == pytest.approx(from_memory.certificate, abs=1e-10)


def test_the_certificate_is_of_the_candidates_that_may_move() -> None:
    z = units(6, 4, 9, seed=8)
    prior = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64).expand(6, 4)
    result = cv.project(z, lam=2.0, prior=prior, **SHARP)
    alone = cv.project(z[:, :2].contiguous(), lam=2.0, **SHARP)
    assert result.converged
    assert bool((result.weights[:, 2:] == 0).all())
    torch.testing.assert_close(result.weights[:, :2], alone.weights, atol=1e-4, rtol=0)


def test_weights_that_vanish_stay_finite() -> None:
    z = torch.zeros(1, 3, 3, dtype=torch.float64)
    z[0, 0, 0] = z[0, 1, 0] = z[0, 2, 1] = 1.0
    prior = torch.tensor([[1.0, 0.0, 1e-300]], dtype=torch.float64)
    result = cv.project(z, lam=100.0, prior=prior, **SHARP)
    assert bool(torch.isfinite(result.weights).all())
    assert float(result.weights[0, 1]) == 0.0
    assert math.isfinite(result.objective)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "give either lam or target"),
        ({"lam": 1.0, "target": 1.0}, "give either lam or target"),
        ({"lam": -1.0}, "lam must be a non-negative number"),
        ({"lam": math.nan}, "lam must be a non-negative number"),
        ({"target": math.inf}, "target must be"),
        ({"lam": 1.0, "step": "newton"}, "step must be"),
        ({"lam": 1.0, "tolerance": 0.0}, "tolerance and max_iterations must be positive"),
        ({"lam": 1.0, "prior": torch.full((4, 3), 0.5)}, "prior must sum to 1 for each prompt"),
        ({"lam": 1.0, "prior": torch.full((4, 2), 0.5)}, "prior must have 12 entries"),
        ({"lam": 1.0, "prior": torch.tensor([[-1.0, 1.0, 1.0]] * 4)}, "prior must be finite and non-negative"),
        ({"lam": 1.0, "prompt_weights": torch.ones(4)}, "prompt_weights must sum to 1"),
        ({"lam": 1.0, "prompt_weights": torch.ones(3) / 3}, "prompt_weights must have 4 entries"),
        ({"lam": 1.0, "groups": torch.zeros(12, dtype=torch.long)}, "groups go with features"),
    ],
)
def test_what_cannot_be_projected_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(cv.InputError, match=message):
        cv.project(units(4, 3, 5), **changes)


def test_features_that_cannot_be_candidates_are_refused() -> None:
    z = units(12, 5)
    with pytest.raises(cv.InputError, match="row 3 has length 2"):
        cv.project(torch.where(torch.arange(12)[:, None] == 3, 2 * z, z), lam=1.0, groups=torch.arange(12))
    with pytest.raises(cv.InputError, match="need groups"):
        cv.project(z, lam=1.0)
    with pytest.raises(cv.InputError, match="must name the prompt of each of 12"):
        cv.project(z, lam=1.0, groups=torch.arange(11))
    with pytest.raises(cv.InputError, match="integers"):
        cv.project(z, lam=1.0, groups=torch.arange(12.0))
    with pytest.raises(cv.InputError, match="NaN or infinite values in rows 2"):
        cv.project(torch.where(torch.arange(12)[:, None] == 2, math.nan, z), lam=1.0, groups=torch.arange(12))
