"""How alike two texts are: ROUGE-L, BERTScore and the cosine of embeddings, as utilities and against references.

    ROUGE-L     F-measure of the longest common subsequence of words, in [0, 1] (Lin 2004; rouge-score)
    BERTScore   F1 of greedily matched contextual vectors, at most 1, not rescaled (Zhang et al. 2020; bert-score)
    cosine      of two sentence embeddings, in [-1, 1] (sentence-transformers, or any encoder of condvne)

All are symmetric, so a utility matrix has one value a pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from condvne.data.config.mbr import BertScore, MeasureName
from condvne.data.encoders import TextEncoder
from condvne.data.fingerprints import fingerprint
from condvne.data.records import clean_text
from condvne.errors import ConfigError

EXTRA = "pip install 'condvne[mbr]'"
LABELS: dict[MeasureName, str] = {"rouge_l": "ROUGE-L", "bertscore": "BERTScore", "cosine": "cosine"}
_PACKAGES = {"rouge_l": "rouge_score", "bertscore": "bert_score", "self_bleu_2": "sacrebleu"}
_ENDLESS = 1 << 20  # tokens; a tokenizer that names a higher limit knows none


def check_packages(measures: Iterable[str]) -> None:
    """Raises ConfigError where a package that one of these utilities or metrics needs is not installed."""
    needed = sorted({_PACKAGES[name] for name in measures if name in _PACKAGES})
    absent = [name for name in needed if find_spec(name) is None]
    if absent:
        raise ConfigError(f"{' and '.join(absent)} not installed, which utilities or metrics need; run {EXTRA}.")


class Measure(Protocol):
    """How alike texts are."""

    @property
    def name(self) -> str:
        """Identity, part of the cache's key: what is computed, with what."""

    def pairwise(self, texts: Sequence[str]) -> Tensor:
        """u(h, y) of every text h (rows) and y (columns): (k, k), float64, symmetric."""

    def against(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        """The best value of each text over the references: (k,), float64."""


class RougeL:
    """ROUGE-L of words: letters a-z and digits, in lower case, stemmed where asked for.

    Texts without one such word, of other scripts for instance, have ROUGE-L 0 with every text.

    >>> [round(value, 3) for value in RougeL(stemmer=False).pairwise(["the cat sat", "the cat"])[0].tolist()]
    [1.0, 0.8]
    """

    def __init__(self, *, stemmer: bool = True) -> None:
        check_packages(["rouge_l"])
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer

        self.name = f"rouge_l:stemmer={stemmer}"
        self._scorer: Any = RougeScorer(["rougeL"], tokenizer=_Remembering(DefaultTokenizer(stemmer)))

    def pairwise(self, texts: Sequence[str]) -> Tensor:
        values = torch.zeros(len(texts), len(texts), dtype=torch.float64)
        for i, j in combinations_with_replacement(range(len(texts)), 2):
            values[i, j] = values[j, i] = self._scorer.score(texts[i], texts[j])["rougeL"].fmeasure
        return values

    def against(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        best = [self._scorer.score_multi(references, text)["rougeL"].fmeasure for text in texts]
        return torch.tensor(best, dtype=torch.float64)


class _Remembering:
    """A tokenizer that splits each text once: utilities compare every text with every other."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[str]] = {}

    def tokenize(self, text: str) -> list[str]:
        if text not in self._known:
            if len(self._known) >= 4096:
                self._known.clear()
            self._known[text] = self._tokenizer.tokenize(text)
        return self._known[text]


class BertScoreF1:
    """BERTScore's F1, without idf weights and without rescaling.

    Raises ConfigError where the model cannot be loaded, or no layer is recommended for it and none was given.
    """

    def __init__(self, config: BertScore, device: torch.device | str) -> None:
        check_packages(["bertscore"])
        from bert_score import BERTScorer
        from bert_score.utils import model2layers

        layers = config.layers if config.layers is not None else model2layers.get(config.path)
        if layers is None:
            raise ConfigError(
                f"bertscore.layers: bert-score recommends no layer of {config.path}; give the layer to compare."
            )
        try:
            self._scorer: Any = BERTScorer(model_type=config.path, num_layers=layers, device=str(device))
        except (OSError, ValueError, ImportError, KeyError, TypeError, RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"bertscore.path: {config.path} cannot be loaded for BERTScore with layer {layers} "
                f"({' '.join(str(error).split())}); give a folder or hub name of an encoder, and one of its layers."
            ) from error
        self._batch_size = config.batch_size
        self._limit_tokens()
        folder = Path(config.path)
        version = fingerprint(folder) if folder.is_dir() else "hub"
        self.name = f"bertscore:{config.path}@{version}:layer={layers}"

    def _limit_tokens(self) -> None:
        # A tokenizer without a limit names one beyond a C long, which its own truncation then refuses.
        tokenizer, model = self._scorer._tokenizer, self._scorer._model
        if tokenizer.model_max_length > _ENDLESS:
            positions = getattr(model.config, "max_position_embeddings", None)
            # RoBERTa and its kin begin to count positions after the padding's id.
            offset = (getattr(model.config, "pad_token_id", None) or 0) + 1 if positions else 0
            tokenizer.model_max_length = positions - offset if positions else 512

    def pairwise(self, texts: Sequence[str]) -> Tensor:
        pairs = list(combinations_with_replacement(range(len(texts)), 2))
        found = self._f1([texts[i] for i, _ in pairs], [texts[j] for _, j in pairs])
        values = torch.zeros(len(texts), len(texts), dtype=torch.float64)
        rows, columns = torch.tensor(pairs).T
        values[rows, columns] = found
        values[columns, rows] = found
        return values

    def against(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        count = len(references)
        found = self._f1([text for text in texts for _ in references], list(references) * len(texts))
        best: Tensor = found.reshape(len(texts), count).amax(1)
        return best

    def _f1(self, candidates: Sequence[str], references: Sequence[str]) -> Tensor:
        cleaned = [[clean_text(text) for text in texts] for texts in (candidates, references)]
        precision, recall, f1 = self._scorer.score(*cleaned, batch_size=self._batch_size)
        # bert-score gives F1 = 0 for precision or recall that are NaN, so that a broken model looks like a verdict.
        kept: Tensor = f1.double().where(torch.isfinite(precision + recall), torch.nan)
        return kept


class EmbeddingCosine:
    """The cosine of embeddings."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.name = f"cosine:{encoder.name}"

    def pairwise(self, texts: Sequence[str]) -> Tensor:
        vectors = self._vectors(texts)
        return vectors @ vectors.mT

    def against(self, texts: Sequence[str], references: Sequence[str]) -> Tensor:
        return (self._vectors(texts) @ self._vectors(references).mT).amax(1)

    def _vectors(self, texts: Sequence[str]) -> Tensor:
        encoded = self._encoder.encode([clean_text(text) for text in texts]).double()
        unit: Tensor = encoded / torch.linalg.vector_norm(encoded, dim=-1, keepdim=True)
        return unit
