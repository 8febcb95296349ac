"""The surrogate of a language model's diversity: formula, gradient, masks, conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import condvne as cv
from condvne.errors import InputError
from condvne.tasks.training import TokenEntropyLoss, expected_embeddings, token_entropy_surrogate
from tests.models import tiny_model
from tests.references import points

B, T, V, D = 3, 5, 11, 4
LOGITS = points(B * T, V, 1).reshape(B, T, V)
EMBEDDINGS = points(V, D, 2)
CONDITIONS = points(B * T, 3, 3).reshape(B, T, 3)
MASK = torch.arange(T) < torch.tensor([[5], [3], [4]])
KERNEL, KERNEL_X = cv.Gaussian(1.0), cv.Gaussian(1.5)


def test_expected_embeddings_are_means_over_the_vocabulary() -> None:
    found = expected_embeddings(LOGITS[0, 0], EMBEDDINGS, temperature=2.0)
    p = (LOGITS[0, 0] / 2).exp()
    assert torch.allclose(found, sum(p[v] * EMBEDDINGS[v] for v in range(V)) / p.sum())
    ruled_out = LOGITS[0, 0].clone()
    ruled_out[1:] = -math.inf
    assert torch.allclose(expected_embeddings(ruled_out, EMBEDDINGS), EMBEDDINGS[0])


def test_tokens_are_points() -> None:
    y = expected_embeddings(LOGITS, EMBEDDINGS)[MASK]
    H = token_entropy_surrogate(LOGITS, EMBEDDINGS, mask=MASK, kernel=KERNEL)
    assert H.item() == pytest.approx(cv.entropy(y, kernel=KERNEL).item())
    H = token_entropy_surrogate(
        LOGITS, EMBEDDINGS, mask=MASK, conditions=CONDITIONS, kernel=KERNEL, kernel_x=KERNEL_X, order=2.0
    )
    expected = cv.conditional_entropy(CONDITIONS[MASK], y, kernel_x=KERNEL_X, kernel_y=KERNEL, order=2.0)
    assert H.item() == pytest.approx(expected.item())


def test_sequences_are_points() -> None:
    e = expected_embeddings(LOGITS, EMBEDDINGS)
    y = torch.stack([part[m].mean(0) for part, m in zip(e, MASK, strict=True)])
    H = token_entropy_surrogate(LOGITS, EMBEDDINGS, mask=MASK, pool="sequence", kernel=KERNEL)
    assert H.item() == pytest.approx(cv.entropy(y, kernel=KERNEL).item())
    loss = TokenEntropyLoss(KERNEL, KERNEL_X, pool="sequence")
    expected = cv.conditional_entropy(CONDITIONS[:, 0], y, kernel_x=KERNEL_X, kernel_y=KERNEL)
    assert loss(LOGITS, EMBEDDINGS, MASK, CONDITIONS[:, 0]).item() == pytest.approx(-expected.item())


def test_candidates_are_likely_tokens_weighted_by_their_probabilities() -> None:
    rows = LOGITS[MASK]
    p, tokens = rows.topk(3, dim=-1)
    p = (p / 2).exp() / (p / 2).exp().sum(-1, keepdim=True)
    x, y = CONDITIONS[MASK].repeat_interleave(3, 0), EMBEDDINGS[tokens].flatten(0, 1)
    expected = cv.conditional_entropy(x, y, kernel_x=KERNEL_X, kernel_y=KERNEL, weights=p.flatten() / len(p))
    loss = TokenEntropyLoss(KERNEL, KERNEL_X, candidates=3, temperature=2.0)
    assert loss.entropy(LOGITS, EMBEDDINGS, MASK, CONDITIONS).item() == pytest.approx(expected.item())
    everything = token_entropy_surrogate(LOGITS, torch.eye(V).double(), kernel="delta", candidates=100)
    whole = torch.softmax(LOGITS.flatten(0, 1), dim=-1).mean(0)
    assert everything.item() == pytest.approx(-(whole * whole.log()).sum().item())  # all tokens: the mixture's entropy
    assert torch.autograd.gradcheck(
        lambda z: token_entropy_surrogate(z, EMBEDDINGS, kernel=KERNEL, candidates=3),
        (LOGITS.clone().requires_grad_(),),
    )
    few = TokenEntropyLoss(KERNEL, candidates=3, max_points=7)  # two positions of three tokens
    assert few(LOGITS, EMBEDDINGS).item() >= -math.log(6)


def ascended(**options: Any) -> float:
    """Mean entropy of next-token distributions after ascending a surrogate, minus that before."""

    def spread(logits: Tensor) -> float:
        return float(torch.distributions.Categorical(logits=logits.detach()).entropy().mean())  # type: ignore[no-untyped-call]

    logits = LOGITS.clone().requires_grad_()
    for _ in range(20):
        H = token_entropy_surrogate(logits, EMBEDDINGS, kernel=KERNEL, **options)
        (gradient,) = torch.autograd.grad(H, logits)
        logits = (logits + gradient).detach().requires_grad_()
    return spread(logits) - spread(LOGITS)


def test_candidates_spread_the_probability_and_expected_embeddings_sharpen_it() -> None:
    given = {"conditions": CONDITIONS, "kernel_x": KERNEL_X}
    assert ascended(candidates=V, **given) > 0.05
    assert ascended(**given) < -0.05
    assert ascended() < -0.05


def test_the_gradient_reaches_logits_and_not_embeddings() -> None:
    logits = LOGITS.clone().requires_grad_()
    embeddings = EMBEDDINGS.clone().requires_grad_()
    token_entropy_surrogate(logits, embeddings, mask=MASK, kernel=KERNEL).backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is None
    assert logits.grad is not None
    assert float(logits.grad[~MASK].abs().max()) == 0.0
    assert torch.autograd.gradcheck(
        lambda z: token_entropy_surrogate(z, EMBEDDINGS, mask=MASK, kernel=KERNEL), (LOGITS.clone().requires_grad_(),)
    )


def test_positions_beyond_the_limit_are_drawn_with_a_seed() -> None:
    first, second = (TokenEntropyLoss(KERNEL, max_points=6, seed=5) for _ in range(2))
    values = [first(LOGITS, EMBEDDINGS).item() for _ in range(4)]
    assert values == [second(LOGITS, EMBEDDINGS).item() for _ in range(4)]
    assert len(set(values)) > 1
    assert all(-value <= math.log(6) for value in values)


def test_a_step_on_a_language_model_raises_the_surrogate() -> None:
    model = tiny_model()
    ids = torch.randint(320, (4, 16), generator=torch.Generator().manual_seed(0))
    embeddings = model.get_output_embeddings().weight
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = TokenEntropyLoss(target=None)
    values = []
    for _ in range(8):
        optimizer.zero_grad()
        value = loss(model(input_ids=ids).logits, embeddings)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < values[0] - 0.05


def nan_logits() -> Tensor:
    logits = LOGITS.clone()
    logits[1, 2, 0] = math.nan
    return logits


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"logits": LOGITS[0]}, r"logits must have shape \(B, T, V\)"),
        ({"embeddings": EMBEDDINGS[:-1]}, "do not fit"),
        ({"mask": MASK[:, :-1]}, "mask must have shape"),
        ({"mask": torch.zeros(B, T, dtype=torch.bool)}, "the batch is empty"),
        ({"mask": MASK & torch.tensor([[True], [False], [True]]), "pool": "sequence"}, "no position of sequences 1"),
        ({"conditions": CONDITIONS[0]}, "conditions must have shape"),
        ({"pool": "word"}, "pool must be"),
        ({"max_points": 0}, "max_points must be positive"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"logits": nan_logits()}, "no finite expected embedding at sequence 1 position 2"),
        ({"logits": nan_logits(), "candidates": 2}, "no finite probabilities at sequence 1 position 2"),
        ({"candidates": 1}, "candidates must be a whole number of at least 2 and at most max_points"),
        ({"candidates": 2.5}, "candidates must be a whole number .* but is 2.5"),
        ({"candidates": 9, "max_points": 8}, r"at most max_points \(8\), but is 9"),
        ({"candidates": 3, "pool": "sequence"}, "candidates are of single positions"),
        ({"logits": nan_logits(), "pool": "sequence"}, "no finite expected embedding at sequences 1"),
    ],
)
def test_what_has_no_surrogate_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        token_entropy_surrogate(**({"logits": LOGITS, "embeddings": EMBEDDINGS} | arguments))


def test_conditions_and_their_kernel_come_together() -> None:
    with pytest.raises(InputError, match="made with kernel_x, so give conditions"):
        TokenEntropyLoss(KERNEL, KERNEL_X)(LOGITS, EMBEDDINGS)
    with pytest.raises(InputError, match="conditions need a kernel"):
        TokenEntropyLoss(KERNEL)(LOGITS, EMBEDDINGS, None, CONDITIONS)
