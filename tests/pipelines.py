"""Tiny random diffusion pipelines of every family, built from configuration: no weights are downloaded."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.models import byte_tokenizer

SIDE = 32  # pixels; latents are half or a quarter of it


def clip_tokenizer() -> Any:
    """A real CLIP tokenizer of single characters."""
    from transformers import CLIPTokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    names = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, merges = Path(folder) / "vocab.json", Path(folder) / "merges.txt"
        vocabulary.write_text(json.dumps({name: i for i, name in enumerate(names)}))
        merges.write_text("#version: 0.2\n")
        return CLIPTokenizer.from_pretrained(folder, model_max_length=24)


def _clip(projection: bool, hidden: int = 32) -> Any:
    import transformers

    config = transformers.CLIPTextConfig(
        vocab_size=514, hidden_size=hidden, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
        projection_dim=hidden, max_position_embeddings=24, bos_token_id=512, eos_token_id=513, pad_token_id=513,
    )  # fmt: skip
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    return kind(config).eval()


def _t5() -> Any:
    import transformers

    config = transformers.T5Config(
        vocab_size=320, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5EncoderModel(config).eval()


def _vae(channels: int = 4, **options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 16), in_channels=3, out_channels=3, norm_num_groups=4, sample_size=SIDE,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels, **options,
    ).eval()  # fmt: skip


def _unet(cross: int, **options: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        block_out_channels=(8, 16), layers_per_block=1, sample_size=SIDE // 2, in_channels=4, out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=cross, attention_head_dim=4, norm_num_groups=4, **options,
    ).eval()  # fmt: skip


def quiet(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def sdxl(scheduler: Any = None, kind: str = "StableDiffusionXLPipeline") -> Any:
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return quiet(
            getattr(diffusers, kind)(
                vae=_vae(),
                text_encoder=_clip(False),
                text_encoder_2=_clip(True),
                tokenizer=clip_tokenizer(),
                tokenizer_2=clip_tokenizer(),
                unet=_unet(
                    64, addition_embed_type="text_time", addition_time_embed_dim=8,
                    projection_class_embeddings_input_dim=80, transformer_layers_per_block=1,
                    use_linear_projection=True,
                ),
                scheduler=scheduler or diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear"),
                add_watermarker=False,
            )
        )  # fmt: skip


def sd15(scheduler: Any = None, kind: str = "StableDiffusionPipeline") -> Any:
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return quiet(
            getattr(diffusers, kind)(
                vae=_vae(),
                text_encoder=_clip(False),
                tokenizer=clip_tokenizer(),
                unet=_unet(32, **({"time_cond_proj_dim": 8} if "Consistency" in kind else {})),
                scheduler=scheduler
                or diffusers.DDIMScheduler(clip_sample=False, steps_offset=1, beta_schedule="scaled_linear"),
                safety_checker=None,
                feature_extractor=None,
                requires_safety_checker=False,
            )
        )


def sd3() -> Any:
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = diffusers.SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=4,
            joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=64, out_channels=4,
        ).eval()  # fmt: skip
        return quiet(
            diffusers.StableDiffusion3Pipeline(
                transformer=transformer,
                scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
                vae=_vae(shift_factor=0.06, scaling_factor=1.5, use_quant_conv=False, use_post_quant_conv=False),
                text_encoder=_clip(True),
                tokenizer=clip_tokenizer(),
                text_encoder_2=_clip(True),
                tokenizer_2=clip_tokenizer(),
                text_encoder_3=None,
                tokenizer_3=None,
            )
        )


def flux() -> Any:
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
            num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
        ).eval()  # fmt: skip
        return quiet(
            diffusers.FluxPipeline(
                transformer=transformer,
                scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
                vae=_vae(shift_factor=0.0, scaling_factor=1.0, use_quant_conv=False, use_post_quant_conv=False),
                text_encoder=_clip(False),
                tokenizer=clip_tokenizer(),
                text_encoder_2=_t5(),
                tokenizer_2=byte_tokenizer(320, pad=True),
            )
        )


def pixart(kind: str = "PixArtSigmaPipeline") -> Any:
    import diffusers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = diffusers.PixArtTransformer2DModel(
            sample_size=16, num_layers=1, patch_size=2, attention_head_dim=8, num_attention_heads=2,
            caption_channels=32, in_channels=4, cross_attention_dim=16, out_channels=8, norm_type="ada_norm_single",
            attention_bias=True, num_embeds_ada_norm=1000, use_additional_conditions=False,
        ).eval()  # fmt: skip
        return quiet(
            getattr(diffusers, kind)(
                transformer=transformer,
                scheduler=diffusers.DDIMScheduler(clip_sample=False),
                vae=_vae(),
                text_encoder=_t5(),
                tokenizer=byte_tokenizer(320, pad=True),
            )
        )
