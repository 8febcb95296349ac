"""Conditional entropy and entropy of representations as losses: functions, and modules that keep their ruler."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from condvne.core.kernels import Kernel
from condvne.errors import InputError
from condvne.tasks.training.batches import BatchEntropy, BatchOptions
from condvne.tasks.training.compiling import outside_graphs
from condvne.tasks.training.objective import Objective


@outside_graphs
def conditional_entropy_loss(
    x: Tensor,
    y: Tensor,
    *,
    kernel_x: Kernel | str = "gaussian",
    kernel_y: Kernel | str = "gaussian",
    weights: Tensor | None = None,
    target: float | None = None,
    margin: float = 0.0,
    **options: Unpack[BatchOptions],
) -> Tensor:
    """-H_α(Y|X), or the distance of H_α(Y|X) from a target beyond a margin; (), nats.

    H_α(Y|X) = H_α(K_X ∘ K_Y) - H_α(K_X) (paper A, section 4) of all rows of all processes together.

    Args:
        x, y: conditions (n, dx) and outputs (n, dy); or (..., n, dx) and (..., n, dy), independent groups whose losses
            are averaged. Half precision is computed in float32, eigenvalues always in float64.
        kernel_x, kernel_y: a kernel or its name. An open bandwidth is the median heuristic on this batch (no gradient).
        weights: (..., n), non-negative, divided by their sum; differentiable.
        target, margin: nats; without a target the entropy is maximised.
        options: order, num_features, method, seed, gather, group as in `ConditionalEntropyLoss`.

    Raises:
        InputError: features NaN or infinite (rows named), of different row counts or empty; weights negative or all
            zero; settings out of range; on every process, where one has such a batch or others than rank 0.

    Warns (UserWarning): a batch of one row, or of equal rows, which has no gradient.

    >>> x, y = torch.eye(2).repeat_interleave(3, 0), torch.eye(6)
    >>> round(conditional_entropy_loss(x, y, kernel_x="cosine", kernel_y="cosine").item(), 4)  # -log 3
    -1.0986
    """
    entropy = BatchEntropy((kernel_x, kernel_y), **options)
    return entropy.loss(Objective(target, margin), (x, y), weights)


@outside_graphs
def representation_entropy_loss(
    hidden: Tensor,
    *,
    kernel: Kernel | str = "cosine",
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    target: float | None = None,
    margin: float = 0.0,
    **options: Unpack[BatchOptions],
) -> Tensor:
    """-H_α of the kernel matrix of hidden states, or the distance from a target; (), nats.

    Args:
        hidden: (n, d), one set; or (..., n, d), such as (batch, tokens, d): independent sets whose losses are averaged.
        kernel: cosine by default, which has no bandwidth and cannot be raised by scaling the states.
        mask: (..., n), true where a row counts (an attention mask); instead of weights.
        weights, target, margin, options: as in `conditional_entropy_loss`, whose errors and warnings apply.

    >>> round(representation_entropy_loss(torch.eye(4).expand(2, 4, 4)).item(), 4)  # -log 4
    -1.3863
    """
    entropy = BatchEntropy((kernel,), **options)
    return entropy.loss(Objective(target, margin), (hidden,), _row_weights(hidden, mask, weights))


class _EntropyLoss(nn.Module):
    """A loss that keeps its bandwidths, and with `decay` past batches, in `state_dict()`."""

    def __init__(
        self, kernels: tuple[Kernel | str, ...], target: float | None, margin: float, options: BatchOptions
    ) -> None:
        super().__init__()
        self.objective = Objective(target, margin)
        self.batches = BatchEntropy(kernels, **options)

    def get_extra_state(self) -> dict[str, Any]:
        return self.batches.state()

    def set_extra_state(self, state: Any) -> None:
        self.batches.restore(state)

    def _loss(self, sides: tuple[Tensor, ...], weights: Tensor | None) -> Tensor:
        return self.batches.loss(self.objective, sides, weights, remember=self.training)

    def _entropy(self, sides: tuple[Tensor, ...], weights: Tensor | None) -> Tensor:
        return self.batches.entropies(sides, weights)[0]


class ConditionalEntropyLoss(_EntropyLoss):
    """-H_α(Y|X) of each batch, or its distance from a target beyond a margin: `conditional_entropy_loss` as a module.

    Args:
        kernel_x, kernel_y: a kernel or its name. An open bandwidth is the median of the first batch and then kept; a
            kernel fitted on data (`cv.Gaussian().fit(features)`) is the better ruler.
        target, margin: nats; without a target the entropy is maximised.
        options:
            order: α in [0, ∞]; 1 by default. 2 needs no eigenvalues.
            num_features: r of a sketch, a positive multiple of 4: r × r covariances instead of the n × n matrix, and
                of all that passes between processes. None, the default, is exact.
            decay: γ in [0, 1); with a sketch, past batches count too, faded by γ at each step (in training mode, and
                where gradients are on). They carry no gradient; that of the batch is scaled up to the whole.
            method, seed: of the sketch.
            gather: whether the batches of all processes are one (default). Every process must then call, with batches
                of any size, none included; after the usual averaging of gradients the result is that of one process.
            group: the process group; all by default.

    A sketch's entropy is smaller than the exact one: measure a target with `entropy` of the same loss, on data.

    >>> loss = ConditionalEntropyLoss("cosine", "cosine", target=1.0, margin=0.05)
    >>> x, y = torch.eye(2).repeat_interleave(3, 0), torch.eye(6, requires_grad=True)
    >>> value = loss(x, y)
    >>> round(loss.entropy(x, y).item(), 4), round(value.item(), 4)
    (1.0986, 0.0486)
    """

    def __init__(
        self,
        kernel_x: Kernel | str = "gaussian",
        kernel_y: Kernel | str = "gaussian",
        *,
        target: float | None = None,
        margin: float = 0.0,
        **options: Unpack[BatchOptions],
    ) -> None:
        super().__init__((kernel_x, kernel_y), target, margin, options)

    @outside_graphs
    def forward(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss (). Shapes, errors and warnings as `conditional_entropy_loss`."""
        return self._loss((x, y), weights)

    @outside_graphs
    def entropy(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """H_α(Y|X) (...) in nats, by the same ruler (and past batches); the batch is not remembered."""
        return self._entropy((x, y), weights)


class RepresentationEntropyLoss(_EntropyLoss):
    """-H_α of hidden states, or its distance from a target: `representation_entropy_loss` as a module.

    Args as there and in `ConditionalEntropyLoss`.

    >>> loss = RepresentationEntropyLoss(order=2.0)
    >>> round(loss(torch.eye(4)).item(), 4)
    -1.3863
    """

    def __init__(
        self,
        kernel: Kernel | str = "cosine",
        *,
        target: float | None = None,
        margin: float = 0.0,
        **options: Unpack[BatchOptions],
    ) -> None:
        super().__init__((kernel,), target, margin, options)

    @outside_graphs
    def forward(self, hidden: Tensor, mask: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """The loss (). Shapes, errors and warnings as `representation_entropy_loss`."""
        return self._loss((hidden,), _row_weights(hidden, mask, weights))

    @outside_graphs
    def entropy(self, hidden: Tensor, mask: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """H_α (...) in nats, by the same ruler (and past batches); the batch is not remembered."""
        return self._entropy((hidden,), _row_weights(hidden, mask, weights))


def _row_weights(hidden: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor | None:
    if mask is None:
        return weights
    if weights is not None:
        raise InputError("give either mask or weights: a weight of zero leaves a row out.")
    if mask.shape != hidden.shape[:-1]:
        raise InputError(f"mask must have shape {tuple(hidden.shape[:-1])}, but has {tuple(mask.shape)}.")
    return mask.to(torch.float32)
