"""The projection of a file's candidates, and what it did to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.groups import Engine, OutputGroup
from condvne.data.config.reweight import ReweightConfig
from condvne.data.reweighting import EffectiveCandidates, Inequality, Reweighting
from condvne.data.text.lexical import DistinctCounter, text_ngrams
from condvne.evaluation import Comparison, Embedded
from condvne.evaluation.drawing import drawn
from condvne.evaluation.inequality import theorem_one
from condvne.evaluation.projecting import Aim, PairFeatures
from condvne.tasks.reweighting.inputs import Candidates

BEFORE, AFTER = "before", "after"
BINS = 20  # of effective candidates


def projected(
    config: ReweightConfig, candidates: Candidates, embedded: Embedded, folder: Path
) -> tuple[Reweighting, Tensor]:
    """The projection's summary and the weights after, (M,) float64."""
    features = PairFeatures(
        candidates.x,
        candidates.y,
        candidates.owners,
        (embedded.kernel_x, embedded.kernel_y),
        num_features=config.num_features,
        seed=config.seed,
        scratch=folder,
        memory_share=config.memory_share,
    )
    target = config.target
    if target == "reference":
        assert candidates.reference is not None  # the configuration asks for the field
        target = features.conditional_entropy(candidates.reference)
    found = features.projected(candidates.prior, Aim(config.lam, target, config.tolerance, config.max_iterations))
    prior, weights = candidates.prior, found.weights.double().to(candidates.prior.device)
    unbounded = math.isinf(found.lam)
    scale = math.log(len(weights)) * (1.0 if unbounded else found.lam)
    effective = [features.effective_candidates(w) for w in (prior, weights)]
    summary = Reweighting(
        lam=None if unbounded else found.lam,
        target=target,
        reached=found.reached,
        largest=None if found.largest_entropy is None else found.largest_entropy - features.of_conditions,
        before=found.entropy_before - features.of_conditions,
        after=found.entropy - features.of_conditions,
        certificate=found.certificate,
        relative_certificate=found.certificate / scale if scale > 0 else 0.0,
        iterations=found.iterations,
        converged=found.converged,
        distance=found.distance,
        divergence=float(torch.special.xlogy(weights, weights / prior).nan_to_num(0.0).sum()) / len(candidates.x),
        candidates_before=float(effective[0].mean()),
        candidates_after=float(effective[1].mean()),
        num_features=config.num_features,
        mapped=features.mapped,
        effective=_histogram(*effective),
    )
    return summary, weights


def told(found: Reweighting) -> str:
    """How the search ended, in one sentence."""
    if found.target is None:
        end = "converged" if found.converged else "stopped before the certificate was as small as asked"
        return f"projection at λ = {found.lam or 0:g} {end} after {found.iterations} iterations"
    if found.target <= found.before:
        return f"the target of {found.target:.4g} nats is not above the {found.before:.4g} there are: weights unchanged"
    if not found.reached:
        largest = found.after if found.largest is None else found.largest
        return f"the target of {found.target:.4g} nats is out of reach: the largest is {largest:.4g}"
    return f"the target of {found.target:.4g} nats was reached at λ = {found.lam or 0:.4g}"


def compared(
    config: ReweightConfig,
    candidates: Candidates,
    ids: Sequence[str],
    conditions: Sequence[str],
    weights: Tensor,
    embedded: Embedded,
) -> tuple[Comparison, Comparison]:
    """What is scored: candidates with their weights before and after, in the place of which one a prompt is drawn
    beside a reference of one output a prompt, since scores grow with the number of outputs; and those weighted ones.

    `embedded` gets the groups of the first. Distinct-n is of the draws always.
    """
    flat, device = candidates.flat, candidates.y.device
    weighted = dict.fromkeys((BEFORE, AFTER), candidates.texts)
    outputs: dict[str, list[list[str]]] = dict(weighted)
    draws: dict[str, list[list[str]]] = {}
    for name, w in ((BEFORE, candidates.prior), (AFTER, weights)):
        places = drawn(w, candidates.owners, ids, 1, config.seed)[:, 0]
        draws[name] = [[flat[k]] for k in places.tolist()]
        embedded.groups[name] = OutputGroup(candidates.y, candidates.owners, w)
        if candidates.references is not None:
            owners = torch.arange(len(ids), device=device)
            embedded.groups[name] = OutputGroup(candidates.y[places.to(device)], owners)
            outputs[name] = draws[name]
    if candidates.references is not None:
        outputs[config.reference or ""] = draws[config.reference or ""] = [[text] for text in candidates.references]
    unit = config.evaluation.distinct.unit
    assert unit != "tokens"  # the configuration refuses it
    first = Comparison(
        ids=ids,
        conditions=conditions,
        outputs=outputs,
        distinct={
            n: {name: DistinctCounter(text_ngrams(texts, n, unit)) for name, texts in draws.items()}
            for n in config.evaluation.distinct.orders
        },
        distinct_unit=unit,
        reference=config.reference or BEFORE,
    )
    return first, Comparison(ids, conditions, weighted, {}, unit, BEFORE)


def inequality(
    config: ReweightConfig, candidates: Candidates, weights: Tensor, embedded: Embedded
) -> Inequality | None:
    """Theorem 1 beside the reference outputs; None without."""
    if candidates.references is None or candidates.reference is None:
        return None
    among = sum(text in texts for text, texts in zip(candidates.references, candidates.texts, strict=True))
    owners = torch.arange(len(candidates.x), device=candidates.x.device)
    return theorem_one(
        candidates.x,
        (embedded.kernel_x, embedded.kernel_y),
        OutputGroup(candidates.y, candidates.owners, candidates.prior),
        weights,
        OutputGroup(candidates.reference, owners),
        among,
        Engine(config.evaluation.method, config.evaluation.tolerance),
    )


def _histogram(before: Tensor, after: Tensor) -> EffectiveCandidates:
    top = max(2.0, math.ceil(float(torch.maximum(before.max(), after.max())) - 1e-9))
    edges = torch.linspace(1.0, top, BINS + 1, dtype=torch.float64)

    def counts(values: Tensor) -> list[int]:
        places = torch.bucketize(values.cpu(), edges[1:-1], right=True)
        return [int(k) for k in torch.bincount(places, minlength=BINS)]

    return EffectiveCandidates(edges=edges.tolist(), before=counts(before), after=counts(after))
