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

LARGEST_COVARIANCE = 4096  # columns of explicit product features
LARGEST_KERNEL = 6000  # candidates of all inputs together; an iteration decomposes a matrix of this size


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
    """What is projected: features of (input, candidate), or their kernel."""

    def __init__(self, settings: ProjectionSettings, seed: int, embedded: Embedded, sizes: list[int]) -> None:
        self.settings, self.sizes = settings, sizes
        self.owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        x, y = embedded.x, embedded.y
        kernels = (embedded.kernel_x, embedded.kernel_y)
        pairs = (x[self.owners.to(x.device)], y)
        if settings.features == "kernel":
            self._refuse_large(len(y), LARGEST_KERNEL, "candidates", "sketch")
            of_pairs, of_outputs = (k.gram(f.double()) for k, f in zip(kernels, pairs, strict=True))
            self.values = of_pairs * of_outputs
            marginal = kernels[0].gram(x.double())
        elif settings.features == "covariance":
            self.values, marginal = self._covariance(kernels, pairs, x)
        else:
            dims = [x.shape[1], y.shape[1]]
            sketch = JointSketch.draw(
                kernels, dims, settings.num_features, seed, origins=[x.mean(0), y.mean(0)], device=x.device
            )
            self.values, marginal = sketch.features(*pairs), sketch.marginal(x)
        self.of_inputs = self._entropy(marginal)

    def _covariance(
        self, kernels: tuple[Kernel, Kernel], pairs: tuple[Tensor, Tensor], x: Tensor
    ) -> tuple[Tensor, Tensor]:
        dimensions = [k.feature_dimension(f) for k, f in zip(kernels, pairs, strict=True)]
        if None in dimensions:
            raise ConfigError(
                "projection.features: covariance needs kernels with explicit features; set both kernels to cosine or "
                "polynomial, or take sketch."
            )
        self._refuse_large(math.prod(d for d in dimensions if d is not None), LARGEST_COVARIANCE, "columns", "sketch")
        mapped = [k.feature_map(f.double()) for k, f in zip(kernels, pairs, strict=True)]
        return row_kronecker(*mapped), kernels[0].feature_map(x.double())

    def _refuse_large(self, size: int, largest: int, noun: str, instead: str) -> None:
        if size > largest:
            raise ConfigError(
                f"projection.features: {self.settings.features} would have {size} {noun}, more than {largest}; "
                f"take {instead}."
            )

    def _entropy(self, marginal: Tensor) -> float:
        """H₁ of the inputs, each with weight 1/N, in the features of the projection."""
        n = len(marginal)
        if self.settings.features == "kernel":
            return float(matrix_entropy(marginal / n))
        wide = marginal.double()
        return float(matrix_entropy(wide @ wide.mT / n if n < wide.shape[1] else wide.mT @ wide / n))

    def projected(self, prior: Tensor, value: float, by_target: bool) -> Projection:
        """The weights for a price, or for a conditional entropy to be reached."""
        groups = self.owners.to(self.values.device)
        solve = project_kernel if self.settings.features == "kernel" else project
        return solve(
            self.values,
            groups=groups,
            prior=prior.to(self.values.device),
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
