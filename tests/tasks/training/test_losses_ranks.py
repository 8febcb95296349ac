"""Gradients through two gloo processes are those of one, and what is wrong on one is said on both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import found_by

PROGRAM = """
import json, os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import condvne as cv
from condvne.errors import InputError
from condvne.tasks.training import ConditionalEntropyLoss, RepresentationEntropyLoss, TokenEntropyLoss

size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
dist.init_process_group("gloo")
draw = torch.Generator().manual_seed(0)
X = torch.randn(22, 3, generator=draw, dtype=torch.float64)
Z = torch.randn(22, 4, generator=draw, dtype=torch.float64)
W = torch.rand(22, generator=draw, dtype=torch.float64)
WEIGHT = torch.randn(4, 4, generator=draw, dtype=torch.float64)
KX, KY = cv.Gaussian(1.5), cv.Gaussian(2.0)

def share(total, cut):
    return slice(0, total) if size == 1 else slice(0, cut) if rank == 0 else slice(cut, total)

def model():
    layer = torch.nn.Linear(4, 4, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(WEIGHT)
    return layer if size == 1 else DistributedDataParallel(layer)

def step(loss, cut, weighted=False, batches=((0, 22),), factor=1.0):
    \"\"\"Values and averaged gradient of a step over batches of which rank 0 has the first `cut` rows.\"\"\"
    net, values = model(), []
    for start, end in batches:
        part = share(end - start, cut)
        x, z, w = X[start:end][part], Z[start:end][part], W[start:end][part]
        net.zero_grad()
        value = loss(x, net(z), w if weighted else None)
        (factor * value).backward()
        values.append(value.item())
    (weight,) = net.parameters()
    return values + weight.grad.flatten().tolist()

found = {}
for name, options in (("exact", {}), ("order 2", {"order": 2.0}), ("sketch", {"num_features": 32})):
    for cut in (11, 15, 22):
        found[f"{name} {cut}"] = step(ConditionalEntropyLoss(KX, KY, **options), cut)
    found[f"{name} weighted"] = step(ConditionalEntropyLoss(KX, KY, **options), 9, weighted=True)
    found[f"{name} open bandwidths"] = step(ConditionalEntropyLoss(**options), 9)
memory = ConditionalEntropyLoss(num_features=32, decay=0.7)
found["memory, uneven last batch"] = step(memory, 5, batches=((0, 8), (8, 16), (16, 22)))
found["target"] = step(ConditionalEntropyLoss(KX, KY, target=3.0), 7)
factor = 1.0 if size == 1 else 0.6 + 0.8 * rank
found["other factors on the ranks"] = step(ConditionalEntropyLoss(KX, KY), 7, factor=factor)

net = model()
groups = share(5, 3)
of_groups = RepresentationEntropyLoss(KY, target=1.0)
value = of_groups(net(Z[:20].reshape(5, 4, 4)[groups]))
value.backward()
found["groups"] = [value.item()] + next(net.parameters()).grad.flatten().tolist()

net = model()
tokens = TokenEntropyLoss(cv.Gaussian(0.5))
value = tokens(net(Z[:20].reshape(5, 4, 4)[groups]), WEIGHT)
value.backward()
found["tokens"] = [value.item()] + next(net.parameters()).grad.flatten().tolist()

# Twice through the exchange.
y = Z[share(22, 9)].clone().requires_grad_()
value = ConditionalEntropyLoss(KX, KY)(X[share(22, 9)], y)
(once,) = torch.autograd.grad(value, y, create_graph=True)
(twice,) = torch.autograd.grad(once.square().sum() / 2, y)
parts = [None] * size
dist.all_gather_object(parts, (once.tolist(), twice.tolist()))
found["once"], found["twice"] = ([v for p in parts for row in p[k] for v in row] for k in (0, 1))

# The two ways that are not exact: rows gathered without a graph, and one's own rows put back among them.
if size == 2:
    for name in ("plain gather", "own rows put back"):
        net = model()
        own = net(Z[share(22, 11)])
        gathered = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(gathered, own.detach())
        if name == "own rows put back":
            gathered[rank] = own
        value = ConditionalEntropyLoss(KX, KY, gather=False)(X, torch.cat(gathered))
        if value.requires_grad:
            value.backward()
        gradient = next(net.parameters()).grad
        found[name] = None if gradient is None else gradient.flatten().tolist()
    refusals = {}
    def refused(name, x, z, w=None, **options):
        try:
            ConditionalEntropyLoss(**({"kernel_x": KX, "kernel_y": KY} | options))(x, z, w)
        except InputError as error:
            refusals[name] = str(error)
    bad = Z[:5].clone()
    if rank == 1:
        bad[2, 0] = float("nan")
    refused("nan", X[:5], bad)
    refused("nan in a sketch", X[:5], bad, num_features=16)
    refused("other kernels", X[:5], Z[:5], kernel_y=cv.Gaussian(2.0 + rank))
    refused("other widths", X[:5], Z[:5, : 4 - rank])
    refused("other precision", *(t[:5].float() if rank else t[:5] for t in (X, Z)))
    refused("weights on one", X[:5], Z[:5], W[:5] if rank else None)
    refused("no rows", X[:0], Z[:0])
    refused("groups on one", X[:5] if rank else X[:5][None], Z[:5] if rank else Z[:5][None])
    found["refusals"] = refusals
dist.barrier()
open(os.environ["FOUND"] + "." + os.environ["RANK"], "w").write(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    script = tmp_path_factory.mktemp("ranks") / "program.py"
    script.write_text(PROGRAM)
    (alone,) = found_by(1, script)
    return alone, found_by(2, script)


def test_two_processes_give_the_gradient_of_one(runs: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    alone, both = runs
    assert len(alone) > 15
    for found in both:
        for name, expected in alone.items():
            if name != "twice" and name != "once":
                assert found[name] == pytest.approx(expected, rel=1e-6, abs=1e-10), name
    # Each process asks for ∂L/∂y, so that the rows' own gradients come twice, and those of gradients four times.
    assert both[0]["once"] == pytest.approx([2 * v for v in alone["once"]], rel=1e-6, abs=1e-10)
    assert both[0]["twice"] == pytest.approx([4 * v for v in alone["twice"]], rel=1e-6, abs=1e-10)


def test_plain_gathers_have_no_gradient_and_own_rows_half_of_it(
    runs: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    alone, both = runs
    gradient = alone["exact 11"][1:]
    for found in both:
        assert found["plain gather"] is None
        assert found["own rows put back"] == pytest.approx([v / 2 for v in gradient], rel=1e-6, abs=1e-10)


def test_what_one_process_cannot_score_is_refused_on_both(
    runs: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    _, (first, second) = runs
    for name in ("nan", "nan in a sketch"):
        assert "y holds NaN or infinite values in rows 2" in second["refusals"][name]
        assert "rank 1 has a batch that cannot be scored" in first["refusals"][name]
    for found in (first, second):
        refusals = found["refusals"]
        assert "rank 1 has other settings of the loss" in refusals["other kernels"]
        assert "rank 1 gives 3 columns of y, rank 0 4 columns" in refusals["other widths"]
        assert "rank 1 has features of 32 bits and rank 0 of 64" in refusals["other precision"]
        assert "rank 1 gives 1 columns of weights, rank 0 none" in refusals["weights on one"]
        assert "no process has a row" in refusals["no rows"]
        assert "with the same number of dimensions" in refusals["groups on one"]
