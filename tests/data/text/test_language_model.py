from __future__ import annotations

from pathlib import Path

import pytest
import torch

from condvne.data.config import Model
from condvne.data.text.language_model import context_length, load_model, pad_id
from condvne.errors import ConfigError, DataError
from tests.models import FAMILIES, byte_tokenizer, save_gguf, save_tiny, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
def test_loads_a_saved_model_with_its_weights_dtype_and_context(tmp_path: Path, family: str) -> None:
    save_tiny(tmp_path, family)
    model, tokenizer = load_model(Model(path=str(tmp_path)), "cpu")
    assert not model.training
    assert model.dtype == torch.float32
    assert context_length(model) == 64
    assert tokenizer.decode(tokenizer("naïve – text")["input_ids"]) == "naïve – text"
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(model(ids).logits, tiny_model(family)(ids).logits)


def test_dtype_is_as_asked(tmp_path: Path) -> None:
    model, _ = load_model(Model(path=str(save_tiny(tmp_path)), dtype="bfloat16"), "cpu")
    assert model.dtype == torch.bfloat16


def test_a_name_that_is_no_folder_and_not_on_the_hub_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"model\.path: no-such/model is neither a folder"):
        load_model(Model(path="no-such/model"), "cpu")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a causal language model cannot be loaded from this folder"):
        load_model(Model(path=str(tmp_path)), "cpu")


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(DataError, match="holds no tokenizer's vocabulary"):
        load_model(Model(path=str(tmp_path)), "cpu")


def test_cut_off_weights_are_refused(tmp_path: Path) -> None:
    weights = save_tiny(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be loaded"):
        load_model(Model(path=str(tmp_path)), "cpu")


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = save_tiny(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["embed_out.weight"]
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(DataError, match=r"lacks 1 of the model's weights \((lm_head|embed_out)\.weight\)"):
        load_model(Model(path=str(tmp_path)), "cpu")


def test_a_tokenizer_with_more_ids_than_the_model_embeds_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model", vocab_size=300)
    byte_tokenizer(320).save_pretrained(tmp_path / "tokenizer")
    config = Model(path=str(tmp_path / "model"), tokenizer=str(tmp_path / "tokenizer"))
    with pytest.raises(ConfigError, match=r"model\.tokenizer: .* up to 319, but the model embeds only 300"):
        load_model(config, "cpu")


def test_code_of_a_checkpoint_runs_only_when_asked(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    config = (tmp_path / "config.json").read_text()
    own = '"auto_map": {"AutoConfig": "code.Own", "AutoModelForCausalLM": "code.OwnLM"}, "model_type": "own_type",'
    (tmp_path / "config.json").write_text(config.replace('"model_type": "gpt_neox",', own))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(DataError, match="trust_remote_code"):
        load_model(Model(path=str(tmp_path)), "cpu")
    assert not (tmp_path / "ran").exists()


def test_padding_takes_the_tokenizers_id_else_the_models_else_eos() -> None:
    padded = byte_tokenizer(320, pad=True)
    assert pad_id(tiny_model("gpt_neox"), padded) == padded.pad_token_id == 1
    assert pad_id(tiny_model("olmo"), byte_tokenizer(320)) == 1
    tokenizer = byte_tokenizer(320)
    assert pad_id(tiny_model("gpt_neox"), tokenizer) == tokenizer.eos_token_id == 0
    assert tokenizer.pad_token_id is None
    tokenizer.eos_token = None
    assert pad_id(tiny_model("gpt_neox"), tokenizer) == 0


def test_a_gguf_file_gives_model_and_tokenizer(tmp_path: Path) -> None:
    original = save_gguf(tmp_path)
    model, tokenizer = load_model(Model(path=str(tmp_path), gguf="tiny.gguf"), "cpu")
    ids = tokenizer("A tensor holds numbers")["input_ids"]
    assert tokenizer.decode(ids) == "A tensor holds numbers"
    assert ids == byte_tokenizer(320)("A tensor holds numbers")["input_ids"]
    with torch.inference_mode():
        torch.testing.assert_close(model(torch.tensor([ids])).logits, original(torch.tensor([ids])).logits)
    with pytest.raises(ConfigError, match=r"model\.gguf: .* holds no file 'other\.gguf'; name one of its \.gguf files"):
        load_model(Model(path=str(tmp_path), gguf="other.gguf"), "cpu")
