"""What candidates count under each method."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import condvne as cv
from condvne.core.kernels import Cosine, Gaussian
from condvne.core.projection import project_kernel
from condvne.core.sketches import JointSketch
from condvne.data.config.mbr import MbrConfig
from condvne.data.encoders import HashedNgrams
from condvne.data.text.candidates import CandidateRecord, CandidateSet, candidate_sets
from condvne.tasks.mbr.weights import Embedded, Weighting, plain_weights, weightings
from tests.mbr import candidate_lines, mbr_settings

SET = CandidateSet("a", "Who?", ["me", "you", "we"], [3, 1, 2], [-2.0, -1.0, -6.0], [1, 4, 3], [])


def test_monte_carlo_weights_are_shares_of_the_draws() -> None:
    (weights,) = plain_weights("mc", [SET])
    assert weights.tolist() == pytest.approx([3 / 6, 1 / 6, 2 / 6])


def test_model_based_weights_are_probabilities_among_the_distinct_candidates() -> None:
    (weights,) = plain_weights("mbmbr", [SET])
    p = [math.exp(-2.0), math.exp(-1.0), math.exp(-6.0)]
    assert weights.tolist() == pytest.approx([value / sum(p) for value in p])
    (weights,) = plain_weights("mbmbr_l", [SET])
    p = [math.exp(-2.0 / 1), math.exp(-1.0 / 4), math.exp(-6.0 / 3)]
    assert weights.tolist() == pytest.approx([value / sum(p) for value in p])


def test_probabilities_that_underflow_still_weigh() -> None:
    unlikely = CandidateSet("a", "Who?", ["me", "you"], [1, 1], [-5000.0, -5000.0 - math.log(3)], [9, 9], [])
    assert plain_weights("mbmbr", [unlikely])[0].tolist() == pytest.approx([0.75, 0.25])


@pytest.fixture(scope="module")
def sets() -> list[CandidateSet]:
    records = [CandidateRecord.from_json(line, "line") for line in candidate_lines(6, 8)]
    return candidate_sets(records, "refuse", "refuse", [])


def embedded(sets: list[CandidateSet], kernel: Any, dimension: int = 32) -> Embedded:
    encoder = HashedNgrams((2, 4), dimension)
    x = encoder.encode([s.condition for s in sets])
    y = encoder.encode([text for s in sets for text in s.texts])
    return Embedded(x, y, kernel.fit_each(x), kernel.fit_each(y))


def cvs(sets: list[CandidateSet], kernel: Any, folder: Path, **projection: Any) -> list[Weighting]:
    config = MbrConfig.model_validate(mbr_settings(folder, projection=projection))
    return [w for w in weightings(config, sets, embedded(sets, kernel)) if w.method.key.startswith("cvs")]


def exact_entropy(sets: list[CandidateSet], kernel: Any, weights: list[torch.Tensor]) -> float:
    """H₁(Y|X) of the weighted candidates by the public function, with the exact kernel."""
    e = embedded(sets, kernel)
    owners = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(s.texts) for s in sets]))
    w = torch.cat(weights) / len(sets)
    x, y = e.x[owners].double(), e.y.double()
    return float(cv.conditional_entropy(x, y, kernel_x=e.kernel_x, kernel_y=e.kernel_y, weights=w))


@pytest.mark.parametrize("features", ["sketch", "kernel"])
def test_projected_weights_raise_the_exact_conditional_entropy(
    sets: list[CandidateSet], tmp_path: Path, features: str
) -> None:
    variants = cvs(sets, Gaussian(), tmp_path, features=features, num_features=256, lam=[0.0, 0.05, 1.0])
    assert [w.method.label for w in variants] == ["CVS-MBR, λ = 0", "CVS-MBR, λ = 0.05", "CVS-MBR, λ = 1"]
    assert torch.allclose(torch.cat(variants[0].weights), torch.cat(plain_weights("mc", sets)), atol=1e-12)
    entropies = [exact_entropy(sets, Gaussian(), w.weights) for w in variants]
    assert entropies[0] < entropies[1] < entropies[2]
    for w, entropy in zip(variants, entropies, strict=True):
        assert [float(values.sum()) for values in w.weights] == pytest.approx([1.0] * len(sets), abs=1e-12)
        assert w.facts is not None
        assert w.facts.converged
        assert w.facts.entropy == pytest.approx(entropy, abs=0.2 if features == "sketch" else 1e-8)
    first, last = variants[0].facts, variants[-1].facts
    assert first is not None
    assert last is not None
    assert first.effective_candidates == pytest.approx(first.candidates_before)
    assert last.effective_candidates != last.candidates_before


def test_explicit_features_and_the_kernel_give_the_same_weights(sets: list[CandidateSet], tmp_path: Path) -> None:
    found = []
    for features in ("covariance", "kernel"):
        config = MbrConfig.model_validate(
            mbr_settings(tmp_path, projection={"features": features, "lam": 0.3, "tolerance": 1e-7})
        )
        small = embedded(sets, Cosine(), dimension=5)  # 25 columns, fewer than candidates
        found.append(weightings(config, sets, small)[-1])
    a, b = (w.facts for w in found)
    assert a is not None
    assert b is not None
    assert a.entropy == pytest.approx(b.entropy, abs=1e-5)
    assert a.entropy_before == pytest.approx(b.entropy_before, abs=1e-9)
    assert torch.cat(found[0].weights).tolist() == pytest.approx(torch.cat(found[1].weights).tolist(), abs=1e-2)


def test_a_sketch_of_few_candidates_has_the_optimum_of_its_features(sets: list[CandidateSet], tmp_path: Path) -> None:
    settings = {"num_features": 128, "lam": 0.2, "tolerance": 1e-7}
    variant = cvs(sets, Gaussian(), tmp_path, **settings)[0]
    assert sum(len(s.texts) for s in sets) < 128
    e = embedded(sets, Gaussian())
    dims, origins = [e.x.shape[1], e.y.shape[1]], [e.x.mean(0), e.y.mean(0)]
    sketch = JointSketch.draw((e.kernel_x, e.kernel_y), dims, 128, 0, origins=origins)
    owners = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(s.texts) for s in sets]))
    prior = torch.cat(plain_weights("mc", sets))
    z = sketch.features(e.x[owners], e.y)
    by_features = cv.project(z, lam=0.2, groups=owners, prior=prior, tolerance=1e-7, max_iterations=500)
    assert variant.facts is not None
    assert by_features.entropy - by_features.entropy_before == pytest.approx(
        variant.facts.entropy - variant.facts.entropy_before, abs=1e-4
    )


def test_equal_candidates_weigh_together_what_they_weigh_apart(sets: list[CandidateSet], tmp_path: Path) -> None:
    """Merged candidates with their shares as prior have the optimum of the candidates as they came."""
    merged = cvs(sets, Gaussian(), tmp_path, features="kernel", lam=0.2, tolerance=1e-8)[0]
    e = embedded(sets, Gaussian())
    counts = torch.tensor([c for s in sets for c in s.counts])
    owners = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(s.texts) for s in sets]))
    rows = torch.repeat_interleave(torch.arange(len(counts)), counts)
    gram = e.kernel_x.gram(e.x[owners].double()) * e.kernel_y.gram(e.y.double())
    apart = project_kernel(gram[rows][:, rows], owners[rows], lam=0.2, tolerance=1e-8, max_iterations=500)
    together = torch.zeros(len(counts), dtype=torch.float64).index_add(0, rows, apart.weights)
    assert int(counts.max()) > 1
    assert together.tolist() == pytest.approx(torch.cat(merged.weights).tolist(), abs=2e-3)


def test_a_conditional_entropy_may_be_the_target(sets: list[CandidateSet], tmp_path: Path) -> None:
    before = exact_entropy(sets, Gaussian(), plain_weights("mc", sets))
    wanted = before + 0.02
    near, far = cvs(sets, Gaussian(), tmp_path, features="kernel", targets=[wanted, 50.0])
    assert near.facts is not None
    assert near.facts.reached
    assert exact_entropy(sets, Gaussian(), near.weights) == pytest.approx(wanted, abs=1e-3)
    assert far.facts is not None
    assert not far.facts.reached
    assert far.facts.lam is None
    assert far.facts.largest_entropy == pytest.approx(exact_entropy(sets, Gaussian(), far.weights), abs=1e-8)


def test_the_prior_may_be_the_models_probabilities(sets: list[CandidateSet], tmp_path: Path) -> None:
    variant = cvs(sets, Gaussian(), tmp_path, features="kernel", lam=0.0, prior="mbmbr_l")[0]
    assert torch.allclose(torch.cat(variant.weights), torch.cat(plain_weights("mbmbr_l", sets)), atol=1e-12)


def test_features_that_do_not_go_with_kernels_or_sizes_are_refused(
    sets: list[CandidateSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(cv.ConfigError, match=r"projection\.features: covariance needs kernels with explicit"):
        cvs(sets, Gaussian(), tmp_path, features="covariance", lam=0.1)
    monkeypatch.setattr("condvne.evaluation.projecting.LARGEST", 10)
    with pytest.raises(cv.ConfigError, match=r"covariance would decompose matrices of \d+ rows, more than 10"):
        cvs(sets, Cosine(), tmp_path, features="covariance", lam=0.1)
    with pytest.raises(cv.ConfigError, match=r"kernel would decompose .* take sketch"):
        cvs(sets, Gaussian(), tmp_path, features="kernel", lam=0.1)
