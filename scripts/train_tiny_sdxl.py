"""Train a small StableDiffusionXLPipeline on scikit-learn's digits, with captions such as "a handwritten three".
Usage: python scripts/train_tiny_sdxl.py runs/tiny-sdxl

Every part is the real class at a small size: AutoencoderKL, UNet2DConditionModel, two CLIP text encoders with their
tokenizers, EulerDiscreteScheduler. The folder loads with `StableDiffusionXLPipeline.from_pretrained`. Nothing is tuned.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor
from torch.nn import functional

from condvne.errors import CondvneError, ConfigError

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CAPTIONS = tuple(f"a handwritten {word}" for word in WORDS)
SIDE, HIDDEN, CONTEXT = 16, 64, 8  # pixels, width of a text encoder, tokens
BATCH, PEAK_RATE, WITHOUT_CAPTION, DECAY = 64, 2e-3, 0.1, 0.995
console = Console()


def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 3, 16, 16) in [-1, 1] and their digits (1797,)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 8 - 1
    larger = functional.interpolate(images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return larger.expand(-1, 3, -1, -1).contiguous(), torch.tensor(found.target)


def tokenizer() -> Any:
    """A CLIP tokenizer whose byte pairs were learnt on the captions, so that every word of them is one token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    core = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    options: dict[str, Any] = {"initial_alphabet": letters, "end_of_word_suffix": "</w>", "show_progress": False}
    core.train_from_iterator(CAPTIONS, trainers.BpeTrainer(vocab_size=400, **options))
    learnt = json.loads(core.to_str())["model"]
    names = [*letters, *(f"{letter}</w>" for letter in letters), *sorted(learnt["vocab"])]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*names, "<|startoftext|>", "<|endoftext|>"]))}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in learnt["merges"]]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (Path(folder) / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
        return CLIPTokenizer.from_pretrained(folder, model_max_length=CONTEXT)


def make_pipeline() -> Any:
    """All parts with random weights."""
    from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    words = tokenizer()
    text = CLIPTextConfig(
        vocab_size=len(words), hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=2,
        num_attention_heads=4, projection_dim=HIDDEN, max_position_embeddings=CONTEXT,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    vae = AutoencoderKL(
        block_out_channels=(16, 32, 32), sample_size=SIDE, latent_channels=4, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
    )  # fmt: skip
    unet = UNet2DConditionModel(
        sample_size=SIDE // 4, block_out_channels=(64, 128), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=2 * HIDDEN, attention_head_dim=4, transformer_layers_per_block=1,
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=HIDDEN + 6 * 8,
    )  # fmt: skip
    return StableDiffusionXLPipeline(
        vae=vae, text_encoder=CLIPTextModel(text), text_encoder_2=CLIPTextModelWithProjection(text), tokenizer=words,
        tokenizer_2=copy.deepcopy(words), unet=unet, add_watermarker=False,
        scheduler=EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
    )  # fmt: skip


def train_autoencoder(vae: Any, images: Tensor, steps: int, draw: torch.Generator) -> None:
    """Squared error and a light pull towards unit normal latents; the scaling factor makes their variance one."""
    optimizer = torch.optim.AdamW(vae.parameters(), lr=PEAK_RATE)
    schedule = _cosine(optimizer, steps)
    vae.train()
    for step in range(1, steps + 1):
        batch = images[torch.randint(len(images), (BATCH,), generator=draw)]
        posterior = vae.encode(batch).latent_dist
        noise = torch.randn(posterior.mean.shape, generator=draw)
        decoded = vae.decode(posterior.mean + posterior.std * noise).sample
        error = functional.mse_loss(decoded, batch)
        _descend(error + 1e-4 * posterior.kl().mean() / posterior.mean[0].numel(), vae, optimizer, schedule)
        if step % 100 == 0:
            console.print(f"autoencoder, step {step}/{steps}, squared error {error.item():.4f}")
    vae.eval()
    with torch.no_grad():
        vae.register_to_config(scaling_factor=float(1 / vae.encode(images).latent_dist.mean.std()))


def embed(pipe: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Token embeddings (b, context, 2·hidden) and pooled ones (b, hidden), as the pipeline makes them."""
    first = pipe.text_encoder(ids, output_hidden_states=True).hidden_states[-2]
    second = pipe.text_encoder_2(ids, output_hidden_states=True)
    return torch.cat([first, second.hidden_states[-2]], dim=-1), second[0]


def train_denoiser(pipe: Any, images: Tensor, labels: Tensor, steps: int, draw: torch.Generator) -> None:
    """Predict the noise; UNet and text encoders together, with the mean of late weights kept."""
    from diffusers import DDPMScheduler

    noising = DDPMScheduler.from_config(pipe.scheduler.config)
    parts = torch.nn.ModuleList([pipe.unet, pipe.text_encoder, pipe.text_encoder_2]).train()
    kept = copy.deepcopy(parts).requires_grad_(False)
    with torch.no_grad():
        posterior = pipe.vae.encode(images).latent_dist
    ids = pipe.tokenizer(list(CAPTIONS), padding="max_length", return_tensors="pt").input_ids
    optimizer = torch.optim.AdamW(parts.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    schedule = _cosine(optimizer, steps)
    sizes = torch.tensor([[SIDE, SIDE, 0, 0, SIDE, SIDE]], dtype=torch.float32).expand(BATCH, -1)
    smooth, begin = 1.0, time.perf_counter()
    for step in range(1, steps + 1):
        rows = torch.randint(len(images), (BATCH,), generator=draw)
        normal = torch.randn((2, BATCH, *posterior.mean.shape[1:]), generator=draw)
        clean = (posterior.mean[rows] + posterior.std[rows] * normal[0]) * pipe.vae.config.scaling_factor
        at = torch.randint(noising.config.num_train_timesteps, (BATCH,), generator=draw)
        tokens, pooled = (part[labels[rows]] for part in embed(pipe, ids))
        shown = (torch.rand(BATCH, generator=draw) >= WITHOUT_CAPTION).to(torch.float32)
        found = pipe.unet(
            noising.add_noise(clean, normal[1], at),
            at,
            encoder_hidden_states=tokens * shown[:, None, None],
            added_cond_kwargs={"text_embeds": pooled * shown[:, None], "time_ids": sizes},
        ).sample
        loss = functional.mse_loss(found, normal[1])
        _descend(loss, parts, optimizer, schedule)
        with torch.no_grad():
            decay = min(DECAY, step / (step + 10))
            for mean, current in zip(kept.parameters(), parts.parameters(), strict=True):
                mean.lerp_(current, 1 - decay)
        smooth += 0.02 * (loss.item() - smooth)
        if step % 100 == 0:
            rate = (time.perf_counter() - begin) / step
            console.print(f"denoiser, step {step}/{steps}, loss {smooth:.4f}, {rate:.2f} s a step")
    parts.load_state_dict(kept.state_dict())
    parts.eval()


def _cosine(optimizer: Any, steps: int) -> Any:
    warm = max(1, steps // 20)

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def _descend(loss: Tensor, module: torch.nn.Module, optimizer: Any, schedule: Any) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    schedule.step()


def reusable(out: Path, settings: dict[str, Any]) -> bool:
    """Whether the folder holds the pipeline of these settings. Raises ConfigError when it holds anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    record = out / "training.json"
    if record.is_file() and json.loads(record.read_bytes())["settings"] == settings:
        return True
    raise ConfigError(f"{out}: holds another pipeline or other files; remove it or name another folder.")


def build(out: Path, steps: int, autoencoder_steps: int, seed: int) -> None:
    """Train and save, whole or not at all: the folder appears by a rename."""
    settings: dict[str, Any] = {"steps": steps, "autoencoder_steps": autoencoder_steps, "seed": seed, "side": SIDE}
    settings |= {"batch": BATCH, "rate": PEAK_RATE, "hidden": HIDDEN}
    if reusable(out, settings):
        console.print(f"{out} holds the pipeline of these settings already; it is used as it is.")
        return
    images, labels = digits()
    begin = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipe = make_pipeline()
    parts = (pipe.unet, pipe.text_encoder, pipe.text_encoder_2, pipe.vae)
    console.print(f"{sum(p.numel() for part in parts for p in part.parameters()):,} parameters")
    draw = torch.Generator().manual_seed(seed)
    train_autoencoder(pipe.vae, images, autoencoder_steps, draw)
    train_denoiser(pipe, images, labels, steps, draw)
    seconds = time.perf_counter() - begin
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        pipe.save_pretrained(partial)
        record = json.dumps({"settings": settings, "seconds": round(seconds), "torch": torch.__version__}, indent=2)
        (partial / "training.json").write_text(record + "\n", encoding="utf-8")
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    console.print(f"trained in {seconds:.0f} s, saved in {out}")


def main(
    out: Annotated[Path, typer.Argument(help="folder for the pipeline")],
    steps: Annotated[int, typer.Option(min=1, help="of the denoiser, 64 images each")] = 3000,
    autoencoder_steps: Annotated[int, typer.Option(min=1, help="of the autoencoder, 64 images each")] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train a small StableDiffusionXLPipeline on scikit-learn's digits."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        build(out, steps, autoencoder_steps, seed)
    except CondvneError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
