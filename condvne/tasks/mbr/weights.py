"""What each candidate counts in the expectation over candidates: one distribution an input and method.

MC-MBR      how often a text was drawn (Eikema & Aziz 2022)
MBMBR       its probability under the model, among the distinct candidates (Jinnai et al. 2024)
MBMBR-L     the same with log-probabilities divided by lengths
CVS-MBR     a projection of these onto higher conditional entropy of (input, candidate) (arXiv 2609.02275, 6.7)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from condvne.core.kernels import Kernel, row_kronecker
from condvne.core.projection import Projection, project, project_kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy
from condvne.data.config.mbr import MbrConfig, Method
from condvne.data.config.mbr import Projection as ProjectionSettings
from condvne.data.decoding import DecodingMethod, ProjectionFacts
from condvne.data.text.candidates import CandidateSet
from condvne.errors import ConfigError

LARGEST = 6000  # rows of the matrix that an iteration decomposes, where it is not a sketch's


@dataclass(frozen=True)
class Weighting:
    """A method with its weights.

    Attributes:
        weights: for each input the weights of its distinct candidates, (k,), float64, one in sum.
        facts: of the projection; None for the other methods.
    """

    method: DecodingMethod
    weights: list[Tensor]
    facts: ProjectionFacts | None = None


@dataclass(frozen=True)
class Embedded:
    """Embeddings of the inputs, (N, dx), of all their distinct candidates one after another, (M, dy), and kernels."""

    x: Tensor
    y: Tensor
    kernel_x: Kernel
    kernel_y: Kernel


def plain_weights(method: Method, sets: Sequence[CandidateSet]) -> list[Tensor]:
    """The weights of MC-MBR, MBMBR or MBMBR-L.

    Log-probabilities (and for MBMBR-L lengths) must be there and finite, see `check_logprobs`. However low they are,
    the most probable candidate of an input keeps a weight of at least 1/k.
    """
    return [_plain(method, candidates) for candidates in sets]


def _plain(method: Method, candidates: CandidateSet) -> Tensor:
    if method == "mc":
        counts = torch.tensor(candidates.counts, dtype=torch.float64)
        return counts / counts.sum()
    logprobs = torch.tensor(candidates.logprobs, dtype=torch.float64)
    if method == "mbmbr_l":
        logprobs = logprobs / torch.tensor(candidates.lengths, dtype=torch.float64)
    return torch.softmax(logprobs, dim=0)


def weightings(config: MbrConfig, sets: Sequence[CandidateSet], embedded: Embedded | None) -> list[Weighting]:
    """The weights of every method of a configuration; `embedded` is needed for CVS-MBR.

    Raises:
        ConfigError: features of the projection that do not go with the kernels or sizes.
        InputError: an embedding that the kernels refuse.
    """
    found: list[Weighting] = []
    for method in config.methods:
        if method == "cvs":
            assert embedded is not None
            found.extend(_projected(config, sets, embedded))
        else:
            found.append(Weighting(PLAIN[method], plain_weights(method, sets)))
    return found


PLAIN = {
    "mc": DecodingMethod(
        key="mc", label="MC-MBR", description="Every drawn candidate counts the same (Monte Carlo estimate)."
    ),
    "mbmbr": DecodingMethod(
        key="mbmbr",
        label="MBMBR",
        description="Distinct candidates count by their probability under the model (model-based MBR).",
    ),
    "mbmbr_l": DecodingMethod(
        key="mbmbr_l",
        label="MBMBR-L",
        description="Distinct candidates count by their probability to the power of one over their length.",
    ),
}


def _projected(config: MbrConfig, sets: Sequence[CandidateSet], embedded: Embedded) -> list[Weighting]:
    settings = config.projection
    prior = torch.cat(plain_weights(settings.prior, sets))
    candidates = _Features(settings, config.seed, embedded, [len(s.texts) for s in sets])
    by_target = settings.targets is not None
    values = settings.targets if settings.targets is not None else settings.lam or []
    found = []
    for value in values:
        result = candidates.projected(prior, value, by_target)
        name = "target" if by_target else "λ"
        alone = len(values) == 1
        method = DecodingMethod(
            key="cvs" if alone else f"cvs:{'target' if by_target else 'lam'}={value:g}",
            label="CVS-MBR" if alone else f"CVS-MBR, {name} = {value:g}",
            description=f"Weights of {PLAIN[settings.prior].label}, projected onto higher conditional entropy "
            f"({name} = {value:g}).",
        )
        weights = [w / w.sum() for w in torch.split(result.weights, candidates.sizes)]
        found.append(Weighting(method, weights, candidates.facts(method.key, result, prior)))
    return found


class _Features:
    """What is projected: features of (input, candidate), or the kernel of the pairs, whichever matrix is smaller.

    Features and their Gram matrix have the same optimum, and an iteration decomposes a matrix of the smaller size.
    """

    def __init__(self, settings: ProjectionSettings, seed: int, embedded: Embedded, sizes: list[int]) -> None:
        self.settings, self.sizes = settings, sizes
        self.owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        x, kernels = embedded.x, (embedded.kernel_x, embedded.kernel_y)
        pairs = (x[self.owners.to(x.device)], embedded.y)
        self.features: Tensor | None = None
        self.gram: Tensor | None = None
        if settings.features == "sketch":
            dims = [x.shape[1], embedded.y.shape[1]]
            origins = [x.mean(0), embedded.y.mean(0)]
            sketch = JointSketch.draw(kernels, dims, settings.num_features, seed, origins=origins, device=x.device)
            self._take(sketch.features(*pairs))
            self.of_inputs = self._entropy(sketch.marginal(x).double())
            return
        columns = len(pairs[0]) + 1 if settings.features == "kernel" else self._columns(kernels, pairs)
        self._refuse_large(min(columns, len(pairs[0])))
        if columns < len(pairs[0]):
            self.features = row_kronecker(*(k.feature_map(f.double()) for k, f in zip(kernels, pairs, strict=True)))
        else:
            of_inputs, of_candidates = (k.gram(f.double()) for k, f in zip(kernels, pairs, strict=True))
            self.gram = of_inputs * of_candidates
        self.of_inputs = float(matrix_entropy(kernels[0].gram(x.double()) / len(x)))

    def _take(self, features: Tensor) -> None:
        if len(features) <= features.shape[1]:
            wide = features.double()
            self.gram = wide @ wide.mT
        else:
            self.features = features

    def _columns(self, kernels: tuple[Kernel, Kernel], pairs: tuple[Tensor, Tensor]) -> int:
        dimensions = [k.feature_dimension(f) for k, f in zip(kernels, pairs, strict=True)]
        if None in dimensions:
            raise ConfigError(
                "projection.features: covariance needs kernels with explicit features; set both kernels to cosine or "
                "polynomial, or take sketch."
            )
        return math.prod(d for d in dimensions if d is not None)

    def _refuse_large(self, size: int) -> None:
        if size > LARGEST:
            raise ConfigError(
                f"projection.features: {self.settings.features} would decompose matrices of {size} rows, more than "
                f"{LARGEST}; take sketch."
            )

    def _entropy(self, marginal: Tensor) -> float:
        """H₁ of the inputs, each with weight 1/N, in the sketch."""
        n = len(marginal)
        smaller = marginal @ marginal.mT if n < marginal.shape[1] else marginal.mT @ marginal
        return float(matrix_entropy(smaller / n))

    def projected(self, prior: Tensor, value: float, by_target: bool) -> Projection:
        """The weights for a price, or for a conditional entropy to be reached."""
        held = self.gram if self.gram is not None else self.features
        assert held is not None
        solve = project_kernel if self.gram is not None else project
        return solve(
            held,
            groups=self.owners.to(held.device),
            prior=prior.to(held.device),
            tolerance=self.settings.tolerance,
            max_iterations=self.settings.max_iterations,
            lam=None if by_target else value,
            target=value + self.of_inputs if by_target else None,
        )

    def facts(self, method: str, result: Projection, prior: Tensor) -> ProjectionFacts:
        """What the weights reached, as the result keeps it."""
        largest = result.largest_entropy
        return ProjectionFacts(
            method=method,
            lam=result.lam if math.isfinite(result.lam) else None,
            entropy_before=result.entropy_before - self.of_inputs,
            entropy=result.entropy - self.of_inputs,
            distance=result.distance,
            certificate=result.certificate,
            iterations=result.iterations,
            converged=result.converged,
            reached=result.reached,
            largest_entropy=None if largest is None else largest - self.of_inputs,
            effective_candidates=self._effective(result.weights.cpu()),
            candidates_before=self._effective(prior),
        )

    def _effective(self, weights: Tensor) -> float:
        parts = torch.split(weights, self.sizes)
        return math.exp(sum(float(torch.special.entr(w).sum()) for w in parts) / len(parts))
