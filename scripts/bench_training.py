"""Benchmarks of training losses: beside the decomposition they rest on, the model they train, and a Python loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from bench_tools import Claim, clustered, in_turns
from torch import Tensor, nn

import condvne as cv
from condvne.tasks.training import ConditionalEntropyLoss, conditional_entropy_loss

BATCH, DIMENSIONS = 512, 768


def sides(device: torch.device) -> tuple[Tensor, Tensor]:
    """Conditions and outputs of one batch."""
    x, y = (clustered(BATCH, DIMENSIONS, device, seed=s) for s in (0, 1))
    return x, y.requires_grad_()


def step(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def exact_loss(device: torch.device) -> list[Claim]:
    """Forward and backward of the exact loss against one eigh of the same size."""
    x, y = sides(device)
    loss = ConditionalEntropyLoss(cv.Gaussian().fit(x), cv.Gaussian().fit(y.detach()))
    state = cv.Gaussian().gram(x.double()) / BATCH
    ours, one = in_turns([lambda: step(loss(x, y)), lambda: torch.linalg.eigh(state)], device)
    name = f"exact loss, batch {BATCH}, d = {DIMENSIONS}: forward and backward against one eigh (float64)"
    return [Claim(name, f"{ours / one:.2f} × ({1e3 * ours:.0f} ms)", "≤ 2 ×", ours <= 2 * one)]


def sketched_loss(device: torch.device) -> list[Claim]:
    """The sketched loss against training steps at the same batch: a language model's, and a plain network's."""
    x, y = sides(device)
    kernels = cv.Gaussian().fit(x), cv.Gaussian().fit(y.detach())
    loss = ConditionalEntropyLoss(*kernels, num_features=512, decay=0.9)
    width = 1536
    plain = nn.Sequential(
        nn.Linear(DIMENSIONS, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, DIMENSIONS)
    ).to(device)
    works: list[Callable[[], object]] = [lambda: step(loss(x, y)), lambda: step(plain(x).square().mean())]
    names = [f"a plain network of {sum(p.numel() for p in plain.parameters()) / 1e6:.1f} M parameters"]
    language = _language_model(device)
    ids = torch.randint(language.config.vocab_size, (BATCH, 32), device=device)
    works.append(lambda: step(language(input_ids=ids, labels=ids).loss))
    names.append(f"a GPT-NeoX of {language.num_parameters() / 1e6:.1f} M parameters, 32 tokens a row")
    ours, *others = in_turns(works, device, repeats=4)
    claims = []
    for name, other in zip(names, others, strict=True):
        measured = f"{ours / other:.1%} ({1e3 * ours:.0f} ms against {1e3 * other:.0f} ms)"
        title = f"sketched loss, r = 512, batch {BATCH}, of a step of {name}"
        claims.append(Claim(title, measured, "≤ 15 %", ours <= 0.15 * other))
    return claims


def _language_model(device: torch.device) -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=4096, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024,
        max_position_embeddings=128,
    )  # fmt: skip
    return GPTNeoXForCausalLM(config).to(device)


def grouped_loss(device: torch.device) -> list[Claim]:
    """64 prompts × 16 samples in one batched call against a loop over prompts."""
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, 16, 64, generator=draw).to(device) for _ in range(2))
    y.requires_grad_()
    kernel = cv.Gaussian(8.0)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return conditional_entropy_loss(a, b, kernel_x=kernel, kernel_y=kernel)

    def loop() -> None:
        step(torch.stack([loss(a, b) for a, b in zip(x, y, strict=True)]).mean())

    batched, looped = in_turns([lambda: step(loss(x, y)), loop], device)
    name = "64 groups of 16 in one call against a Python loop"
    return [Claim(name, f"{looped / batched:.1f} × faster", "≥ 10 ×", looped >= 10 * batched)]


def training(device: torch.device) -> list[Claim]:
    """All of them."""
    return [*exact_loss(device), *sketched_loss(device), *grouped_loss(device)]
