"""The conditional entropy of history and current images, and its gradient in the current images, by three routes.

All maximise H_α(Y|X) = H_α(K_X ∘ K_Y) - H_α(K_X) over the n = h + b images of history and current call, with X the
captions and Y the latent features (paper A, appendix E.4). Only the current images move, so only the joint term has a
gradient, and every current image sees the history and its siblings.

    exact     kernel matrix and eigenvectors, O(n³ + n² d); any order. The reference.
    order 2   closed form: -log tr A² by the b rows of the current images alone, O(b n d), no spectrum.
    sketch    joint random features z: H_α(C), C = (S + ZᵀZ) / n, in the cached eigenbasis of the history's S:
              O(r² b), whatever the history's length; any order up to 4 (see `resolvents`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from condvne.core.density import DensityState
from condvne.core.kernels import Kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import matrix_entropy, spectrum_entropy
from condvne.tasks.guidance.resolvents import UpdatedSpectrum


@dataclass(frozen=True)
class Gradient:
    """What a route answers.

    Attributes:
        entropy: H_α(Y|X) before the move, nats.
        values: ∂H/∂y, (b, d), for each current image; in the dtype of the features.
    """

    entropy: float
    values: Tensor


class Objective(Protocol):
    """The conditional entropy as a function of the current images' features (b, d)."""

    @property
    def route(self) -> str: ...

    def at(self, y: Tensor) -> Objective: ...

    def gradient(self, y: Tensor) -> Gradient: ...

    def entropy(self, y: Tensor) -> float: ...


@dataclass(frozen=True)
class ExactObjective:
    """The exact kernels, with kernel matrices of history and current images.

    Attributes:
        x_history, y_history: features of finished images, (h, dx) and (h, dy); h may be zero.
        x: captions of the current images, (b, dx).
        kernel_x, kernel_y: a kernel without bandwidth is fitted on history and current images at every step.
        order: α.
    """

    x_history: Tensor
    y_history: Tensor
    x: Tensor
    kernel_x: Kernel
    kernel_y: Kernel
    order: float = 1.0

    @property
    def route(self) -> str:
        return "order 2" if self.order == 2.0 else "exact"

    def at(self, y: Tensor) -> ExactObjective:
        """The same with bandwidths fixed at y: what is gained by a move is measured with those that it was made by."""
        kernel_x, kernel_y = self._fitted(*self._all(y.to(torch.float64)))
        return replace(self, kernel_x=kernel_x, kernel_y=kernel_y)

    def gradient(self, y: Tensor) -> Gradient:
        """H and ∂H/∂y. Raises InputError where a kernel is not positive semidefinite."""
        with torch.enable_grad():
            current = y.detach().to(torch.float64).requires_grad_()
            if self.order == 2.0:
                joint, marginal = self._purities(current)
            else:
                joint, marginal = self._entropies(current)
            (values,) = torch.autograd.grad(joint, current)
        return Gradient(float(joint.detach() - marginal), values.to(y.dtype))

    def entropy(self, y: Tensor) -> float:
        """H_α(Y|X) in nats."""
        with torch.no_grad():
            joint, marginal = (self._purities if self.order == 2.0 else self._entropies)(y.to(torch.float64))
        return float(joint - marginal)

    def _entropies(self, current: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._all(current)
        kernels = self._fitted(x, y)
        joint = matrix_entropy(DensityState(kernels, (x, y)).density_matrix(), self.order)
        marginal = matrix_entropy(DensityState(kernels[:1], (x,)).density_matrix(), self.order)
        return joint, marginal

    def _purities(self, current: Tensor) -> tuple[Tensor, Tensor]:
        """-log tr A² of joint and marginal; the history's own part of the joint carries no gradient."""
        x, y = self._all(current)
        kernel_x, kernel_y = self._fitted(x, y)
        h, n = self.y_history.shape[0], x.shape[0]
        joint = marginal = x.new_zeros(())
        if h:
            state = DensityState((kernel_x, kernel_y), (x[:h], y[:h].detach()))
            joint = joint + state.purity() * h**2
            marginal = marginal + state.marginal((0,)).purity() * h**2
        # Prepared together: a kernel may choose its coordinates by the data.
        ux, uy = kernel_x.prepare(x)[0], kernel_y.prepare(y)[0]
        among_x, among_y = kernel_x.evaluate(ux[h:]), kernel_y.evaluate(uy[h:])
        joint, marginal = joint + (among_x * among_y).square().sum(), marginal + among_x.square().sum()
        if h:
            across_x, across_y = kernel_x.evaluate(ux[h:], ux[:h]), kernel_y.evaluate(uy[h:], uy[:h])
            joint = joint + 2 * (across_x * across_y).square().sum()
            marginal = marginal + 2 * across_x.square().sum()
        return -torch.log(joint / n**2), -torch.log(marginal / n**2)

    def _all(self, current: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([self.x_history, self.x]).to(torch.float64)
        if self.y_history.shape[0] == 0:  # an empty history knows no width
            return x, current
        return x, torch.cat([self.y_history.to(torch.float64), current])

    def _fitted(self, x: Tensor, y: Tensor) -> tuple[Kernel, Kernel]:
        return self.kernel_x.fit_each(x), self.kernel_y.fit_each(y.detach())


@dataclass(frozen=True)
class SketchObjective:
    """The joint sketch, with the history as the eigendecomposition of its summed outer products.

    Attributes:
        sketch: of (captions, latent features), r features.
        eigenvalues, basis: of S = Σ z zᵀ over the history, (r,) and (r, r), float64.
        count: h, the weight of the history in images.
        x: captions of the current images, (b, dx).
        marginal: H_α(X) of history and current captions, nats.
        order: α.
    """

    sketch: JointSketch
    eigenvalues: Tensor
    basis: Tensor
    count: float
    x: Tensor
    marginal: float
    order: float = 1.0

    @property
    def route(self) -> str:
        return "sketch"

    def at(self, y: Tensor) -> SketchObjective:
        """Itself: a sketch has its bandwidths."""
        return self

    def gradient(self, y: Tensor) -> Gradient:
        """H and ∂H/∂y = (∂z/∂y)ᵀ 2 f'(C) z / n."""
        with torch.enable_grad():
            current = y.detach().requires_grad_()
            z = self.sketch.features(self.x, current)
            entropy, slope = self._answer(z.detach())
            (values,) = torch.autograd.grad(z, current, slope.to(z.dtype))
        return Gradient(float(entropy) - self.marginal, values.to(y.dtype))

    def entropy(self, y: Tensor) -> float:
        """H_α(Y|X) of the sketch, nats."""
        with torch.no_grad():
            entropy, _ = self._answer(self.sketch.features(self.x, y))
        return float(entropy) - self.marginal

    def _answer(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """H(C), and its gradient with respect to z, (b, r)."""
        n = self.count + z.shape[0]
        columns = self.basis.mT @ z.to(torch.float64).mT / n**0.5
        entropy, slope = UpdatedSpectrum(self.eigenvalues / n, columns, self.order).entropy_and_gradient()
        return entropy, (self.basis @ slope).mT / n**0.5


def marginal_entropy(total: Tensor, z: Tensor, count: float, order: float) -> float:
    """H_α(X) of a sketch: total (r, r) summed over the history's captions, z (b, r) of the current ones; nats."""
    added = z.to(torch.float64)
    state = (total + added.mT @ added) / (count + z.shape[0])
    values = torch.linalg.eigvalsh(state).clamp(min=0)
    return float(spectrum_entropy(values, order))
