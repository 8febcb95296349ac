"""Losses beside and inside compiled models: the same values and gradients, and no error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import condvne as cv
from condvne.tasks.training import ConditionalEntropyLoss, RepresentationEntropyLoss, TokenEntropyLoss
from tests.models import tiny_model
from tests.references import points

X, Z = points(16, 3, 1).float(), points(16, 5, 2).float()
# A graph that ends before a loss begins again with tensors that are no leaves, of which dynamo itself asks for .grad.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")


class Network(nn.Module):
    """A small network that may end in its own loss."""

    def __init__(self, inside: bool, **options: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
        self.entropy = ConditionalEntropyLoss(cv.Gaussian(1.5), cv.Gaussian(0.7), num_features=options.get("r"))
        self.hidden = RepresentationEntropyLoss()
        self.inside = inside

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        y: Tensor = self.layers(z)
        if not self.inside:
            return y
        loss: Tensor = y.square().mean() + 0.1 * self.entropy(x, y) + 0.1 * self.hidden(y.reshape(4, 4, 4))
        return loss


def gradient(network: Network, call: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    found = call(X, Z)
    if not network.inside:
        hidden = network.hidden(found.reshape(4, 4, 4))
        found = found.square().mean() + 0.1 * network.entropy(X, found) + 0.1 * hidden
    found.backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


@pytest.mark.parametrize("options", [{}, {"r": 16}])
@pytest.mark.parametrize("inside", [False, True])
def test_compiled_models_have_the_same_gradient(inside: bool, options: dict[str, int]) -> None:
    torch._dynamo.reset()
    plain, compiled = Network(inside, **options), Network(inside, **options)
    expected = gradient(plain, plain)
    found = gradient(compiled, torch.compile(compiled, backend="aot_eager"))
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_compiled_language_model_with_the_surrogate() -> None:
    torch._dynamo.reset()
    ids = torch.randint(320, (2, 8), generator=torch.Generator().manual_seed(0))
    model = tiny_model()
    compiled = torch.compile(model, backend="aot_eager")
    embeddings = model.get_output_embeddings().weight
    values = [TokenEntropyLoss(cv.Gaussian(0.3))(call(input_ids=ids).logits, embeddings) for call in (model, compiled)]
    assert values[0].item() == pytest.approx(values[1].item(), abs=1e-5)
    (found,) = torch.autograd.grad(values[1], [model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight])
    assert float(found.abs().max()) > 0
