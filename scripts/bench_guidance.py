"""Benchmarks of guidance: a step as the history grows, beside the exact route, and beside a step of SDXL's UNet."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from bench_tools import Claim, clustered, in_turns
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from condvne.tasks.guidance import History, HistorySettings, LatentFeatures, PushSettings, flattened, pooled, push

CAPTIONS, CURRENT = 64, 4  # dimensions of a caption; images in one call
SDXL = (4, 128, 128)


def latents(n: int, device: torch.device, seed: int, shape: tuple[int, ...] = (4, 16, 16)) -> Tensor:
    """Clean latents of roughly unit variance."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn((n, *shape), generator=draw).to(device)


def filled(images: int, device: torch.device, route: str = "sketch") -> History:
    """A history of that many images of 4 × 16 × 16 latents."""
    settings = HistorySettings(route="sketch") if route == "sketch" else HistorySettings(route="exact", capacity=images)
    history = History(settings)
    for start in range(0, images, 500):
        part = min(500, images - start)
        history.add(clustered(part, CAPTIONS, device, seed=start), flattened(latents(part, device, start)))
    return history


def one_step(history: History, device: torch.device) -> Callable[[], object]:
    """A push of four current images, as the callback makes it in every step; what a call makes once is made."""
    objective = history.objective(clustered(CURRENT, CAPTIONS, device, seed=1), 1.0)
    current = latents(CURRENT, device, 7)
    return lambda: push(objective, current, flattened, PushSettings())


def growing_history(device: torch.device) -> list[Claim]:
    """Time and memory at 100 and 10,000 images, r = 1,024; and the exact route at 1,000."""
    short, long, thousand = (filled(n, device) for n in (100, 10_000, 1000))
    exact = filled(1000, device, "exact")
    one, two = in_turns([one_step(short, device), one_step(long, device)], device)
    ours, theirs = in_turns([one_step(thousand, device), one_step(exact, device)], device, repeats=4)
    begin = time.perf_counter()
    long.add(clustered(CURRENT, CAPTIONS, device, seed=2), flattened(latents(CURRENT, device, 9)))
    long.spectrum()
    update = time.perf_counter() - begin
    return [
        Claim(
            "guidance step, r = 1,024: history of 10,000 against 100",
            f"{two / one:.2f} × ({1e3 * two:.1f} ms; once a call {1e3 * update:.0f} ms more)",
            "≤ 1.2 ×",
            two <= 1.2 * one,
        ),
        Claim(
            "guidance step at a history of 1,000 against the exact route",
            f"{theirs / ours:.0f} × faster",
            "≥ 50 ×",
            theirs >= 50 * ours,
        ),
        Claim(
            "memory of the history, 10,000 images against 100",
            f"{long.bytes / short.bytes:.2f} × ({long.bytes / 2**20:.0f} MiB)",
            "equal",
            long.bytes == short.bytes,
        ),
    ]


def beside_sdxl(device: torch.device) -> list[Claim]:
    """One step for latents of 4 × 128 × 128 against one UNet step: time on a GPU, else floating-point operations."""
    claims = []
    for name, features in (("flattened", flattened), ("pooled", pooled)):
        step = sdxl_step(features, device)
        if device.type == "cuda":
            unet = sdxl_unet(device)
            ours, theirs = in_turns([step, unet], device)
            measured, unit = f"{ours / theirs:.1%} of its time", "time"
        else:
            ours, theirs = operations(step), operations(sdxl_unet(torch.device("meta")))
            measured, unit = f"{ours / theirs:.3%} ({ours / 1e9:.1f} of {theirs / 1e9:,.0f} GFLOP)", "operations"
        claims.append(
            Claim(
                f"guidance step for SDXL latents, {name} features, of one UNet step ({unit}, 4 images)",
                measured,
                "≤ 2 %",
                ours <= 0.02 * theirs,
            )
        )
    return claims


def sdxl_step(features: LatentFeatures, device: torch.device) -> Callable[[], object]:
    """A push of SDXL latents."""
    history = History(HistorySettings())
    history.add(clustered(16, 1280, device), features(latents(16, device, 0, SDXL)))
    objective = history.objective(clustered(CURRENT, 1280, device, seed=1), 1.0)
    current = latents(CURRENT, device, 7, SDXL)
    return lambda: push(objective, current, features, PushSettings())


def sdxl_unet(device: torch.device) -> Callable[[], object]:
    """One call of SDXL's UNet at 1024 × 1024 with classifier-free guidance; random weights, its published sizes."""
    from diffusers import UNet2DConditionModel

    dtype = torch.float16 if device.type == "cuda" else torch.float32
    with device:
        unet = UNet2DConditionModel(
            sample_size=128, block_out_channels=(320, 640, 1280), layers_per_block=2, cross_attention_dim=2048,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20), use_linear_projection=True,
            addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816,
        ).to(dtype)  # fmt: skip
        rows = 2 * CURRENT
        inputs = torch.randn(rows, *SDXL, dtype=dtype)
        text = torch.randn(rows, 77, 2048, dtype=dtype)
        added = {"text_embeds": torch.randn(rows, 1280, dtype=dtype), "time_ids": torch.ones(rows, 6, dtype=dtype)}
        time_step = torch.ones(rows, dtype=torch.long)

    def call() -> object:
        with torch.no_grad():
            return unet(inputs, time_step, encoder_hidden_states=text, added_cond_kwargs=added)

    return call


def operations(work: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        work()
    total: int = counter.get_total_flops()
    return total


def guidance(device: torch.device) -> list[Claim]:
    """All of them."""
    return [*growing_history(device), *beside_sdxl(device)]
