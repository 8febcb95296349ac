from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
import typer

from condvne.data.config import NUCLEUS, Model
from condvne.data.text.generation import generate
from condvne.data.text.language_model import context_length, load_model

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_quickstart_model.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_quickstart_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    words = ["array", "matrix", "returns", "value", "index", "shape", "order", "sum", "of", "the", "and", "a"]
    for number in range(40):
        text = " ".join(words[(number * 7 + place * place) % len(words)] for place in range(60))
        (tmp_path / "corpus" / f"{number}.txt").write_text(f"{text}.\n\nDocument {number} is about {text[:80]}.")
    path = tmp_path / "config.yaml"
    corpus = f"corpus: {{source: files, paths: ['{tmp_path / 'corpus'}']}}"
    path.write_text(f"name: small\ndevice: cpu\n{corpus}\npairs: {{count: 5}}\nmodel: {{path: model}}\n")
    return path


def test_the_model_is_saved_whole_seeded_reused_and_able_to_generate(
    script: ModuleType, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        script.main(config, tmp_path / name, steps=3)
    assert "held-out loss" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml", "corpus", "one", "two"]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    model, tokenizer = load_model(Model(path=str(tmp_path / "one")), "cpu")
    assert context_length(model) == 128
    ids = tokenizer("The array – naïve")["input_ids"]
    assert tokenizer.decode(ids) == "The array – naïve"
    assert len(generate(model, tokenizer, [ids], ["a"], NUCLEUS, 5, 0)[0]) == 5
    script.main(config, tmp_path / "one", steps=3)
    assert "used as it is" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(typer.Exit):
        script.main(config, tmp_path / "one", steps=4)
    assert "holds another model" in " ".join(capsys.readouterr().out.split())


def test_training_lowers_the_loss(script: ModuleType) -> None:
    class Marks:
        eos_token_id = 0

    torch.manual_seed(0)
    model = script.make_model(Marks)
    sequences = [[5, 6, 7, 8, 9, 0], [10, 11, 12, 0]] * 8
    before = script.held_out_loss(model, sequences)
    assert before == pytest.approx(8.3, abs=0.4)  # log 4096: nothing is learnt yet
    script.train(model, sequences, 12, seed=0)
    assert script.held_out_loss(model, sequences) < 0.6 * before


def test_padding_takes_no_part_in_the_loss(script: ModuleType) -> None:
    class Marks:
        eos_token_id = 0

    torch.manual_seed(0)
    model = script.make_model(Marks).eval()
    long, short = [5, 6, 7, 8, 9, 10, 11, 0], [12, 13, 0]
    alone = [script.loss_of(model, [sequence]).item() * (len(sequence) - 1) for sequence in (long, short)]
    assert script.loss_of(model, [long, short]).item() == pytest.approx(sum(alone) / 9, rel=1e-5)
