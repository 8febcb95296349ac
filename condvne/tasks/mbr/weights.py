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

from condvne.core.kernels import Kernel
from condvne.core.projection import Projection
from condvne.data.config.mbr import MbrConfig, Method
from condvne.data.decoding import DecodingMethod, ProjectionFacts
from condvne.data.text.candidates import CandidateSet
from condvne.evaluation.projecting import Aim, PairFeatures


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
    sizes = [len(s.texts) for s in sets]
    candidates = PairFeatures(
        embedded.x,
        embedded.y,
        torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(embedded.x.device),
        (embedded.kernel_x, embedded.kernel_y),
        kind=settings.features,
        num_features=settings.num_features,
        seed=config.seed,
    )
    by_target = settings.targets is not None
    values = settings.targets if settings.targets is not None else settings.lam or []
    found = []
    for value in values:
        aim = Aim(
            lam=None if by_target else value,
            target=value if by_target else None,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
        )
        result = candidates.projected(prior, aim)
        name = "target" if by_target else "λ"
        alone = len(values) == 1
        method = DecodingMethod(
            key="cvs" if alone else f"cvs:{'target' if by_target else 'lam'}={value:g}",
            label="CVS-MBR" if alone else f"CVS-MBR, {name} = {value:g}",
            description=f"Weights of {PLAIN[settings.prior].label}, projected onto higher conditional entropy "
            f"({name} = {value:g}).",
        )
        weights = [w / w.sum() for w in torch.split(result.weights.cpu(), sizes)]
        found.append(Weighting(method, weights, _facts(method.key, result, prior, candidates)))
    return found


def _facts(method: str, result: Projection, prior: Tensor, candidates: PairFeatures) -> ProjectionFacts:
    """What the weights reached, as the result keeps it."""
    largest, of_conditions = result.largest_entropy, candidates.of_conditions
    return ProjectionFacts(
        method=method,
        lam=result.lam if math.isfinite(result.lam) else None,
        entropy_before=result.entropy_before - of_conditions,
        entropy=result.entropy - of_conditions,
        distance=result.distance,
        certificate=result.certificate,
        iterations=result.iterations,
        converged=result.converged,
        reached=result.reached,
        largest_entropy=None if largest is None else largest - of_conditions,
        effective_candidates=float(candidates.effective_candidates(result.weights).mean()),
        candidates_before=float(candidates.effective_candidates(prior).mean()),
    )
