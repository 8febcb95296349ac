"""The small Stable Diffusion XL pipeline trains, loads, draws images, and is made once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
import typer

from condvne.integrations.diffusers.sampling import PipelineSampler, load_pipeline

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_tiny_sdxl.py"
pytestmark = pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")  # of diffusers' own schedulers


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_tiny_sdxl", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_pipeline_is_trained_whole_and_reused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sdxl"
    script.main(out, steps=2, autoencoder_steps=2)
    assert [path.name for path in tmp_path.iterdir()] == ["sdxl"]  # nothing half-made beside it
    pipe = load_pipeline(str(out), "float32", torch.device("cpu"), None, None)
    assert type(pipe).__name__ == "StableDiffusionXLPipeline"
    sample = PipelineSampler(pipe, {"num_inference_steps": 2, "guidance_scale": 2.0, "height": None})
    one, two = (sample(script.CAPTIONS[:2], [3, 4]) for _ in range(2))
    assert [image.size for image in one] == [(16, 16)] * 2
    assert [image.tobytes() for image in one] == [image.tobytes() for image in two]
    script.main(out, steps=2, autoencoder_steps=2)
    assert "used as it is" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(typer.Exit):
        script.main(out, steps=3, autoencoder_steps=2)
    assert "holds another pipeline" in " ".join(capsys.readouterr().out.split())


def test_every_word_of_a_caption_is_one_token(script: ModuleType) -> None:
    tokens = script.tokenizer()
    for caption in script.CAPTIONS:
        ids = tokens(caption).input_ids
        assert len(ids) == 5  # begin, three words, end
        assert tokens.decode(ids, skip_special_tokens=True).strip() == caption
    assert len({tuple(tokens(caption).input_ids) for caption in script.CAPTIONS}) == 10
