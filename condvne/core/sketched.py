"""Entropies of sketches, with what is known about their error.

A sketch's entropy Ĥ_r is too small: entropy is concave and the sketch right on average, so that the bias is negative
and falls as 1/r once r is above the effective number exp H. Every sketch holds two independent ones of half its size,
with mean Ĥ_{r/2}. Hence:

    value            2 Ĥ_r - Ĥ_{r/2}, from which a bias of c/r has gone (Richardson)
    standard error   √((Ĥ_r - Ĥ_{r/2})² + s²): the whole correction, since what is left of the bias is below it, and the
                     spread s over draws. Fourier features: infinitesimal jackknife (Efron 1982), s² = Σ of squared
                     influences (∂H/∂C ∘ C) of the frequencies, those of X subtracted from those of XY. Projections,
                     renormalised, have no such influences: s is the difference of the two halves, twice its own
                     estimate of the spread, for it has one degree of freedom
    lower, upper     the exact entropy's range with probability 95 %, see `condvne.core.concentration`

All terms of a conditional entropy or mutual information come from one draw with one r.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from condvne.core.checks import checked_points, checked_weights
from condvne.core.concentration import entropy_range
from condvne.core.featuremaps import SketchMethod, checked_num_features
from condvne.core.kernels import Kernel, as_kernel
from condvne.core.sketches import JointSketch
from condvne.core.spectral import EPSILON, checked_order, matrix_entropy, spectrum
from condvne.errors import InputError

Terms = tuple[tuple[int, tuple[int, ...]], ...]  # sign and sides of each entropy in a combination
MARGINAL: Terms = ((1, (0,)),)
CONDITIONAL: Terms = ((1, (0, 1)), (-1, (0,)))
FAILURE = 0.05
INDEPENDENT_DRAWS = ("fourier", "orthogonal")
BLOCK_ENTRIES = 2**23  # feature values in flight: 32 MB in float32, a few times that with temporaries


@dataclass(frozen=True)
class SketchEstimate:
    """An entropy, or sum of entropies, of a sketch.

    Attributes:
        value: (...), nats, float64: the extrapolated estimate, differentiable. It can leave the range of the exact
            entropy by its error.
        standard_error: (...), of `value`; twice it covers the exact entropy in most draws where r exceeds exp H.
        lower, upper: (...), the concentration bound at 95 %.
        plain: (...), the entropy of the sketch as it is, with its bias.
        num_features: r.
        seed: of the draw.
        method: how features were made.
    """

    value: Tensor
    standard_error: Tensor
    lower: Tensor
    upper: Tensor
    plain: Tensor
    num_features: int
    seed: int
    method: str


def sketched_entropy(
    x: Tensor,
    kernel: Kernel | str = "gaussian",
    *,
    num_features: int,
    order: float = 1.0,
    weights: Tensor | None = None,
    seed: int = 0,
    method: SketchMethod = "auto",
    dtype: torch.dtype = torch.float32,
) -> SketchEstimate:
    """H_α(X) of a sketch; arguments as `sketched_conditional_entropy`."""
    return sketched_terms(MARGINAL, (x,), (kernel,), num_features, order, weights, seed, method, dtype)


def sketched_conditional_entropy(
    x: Tensor,
    y: Tensor,
    kernels: tuple[Kernel | str, Kernel | str] = ("gaussian", "gaussian"),
    *,
    num_features: int,
    order: float = 1.0,
    weights: Tensor | None = None,
    seed: int = 0,
    method: SketchMethod = "auto",
    dtype: torch.dtype = torch.float32,
) -> SketchEstimate:
    """H_α(Y|X) = H_α(XY) - H_α(X), both from one draw with the same number of features.

    Args:
        x, y: (..., n, dx) and (..., n, dy); leading dimensions are independent problems under one draw.
        kernels: one for each side; an open bandwidth is the median heuristic on the data.
        num_features: r, a positive multiple of 4, at most 2n: from r = n on the exact n × n matrix is the smaller one.
        order: α in [0, ∞].
        weights: (n,) or (..., n), non-negative, summing to one; 1/n each by default.
        seed, method: of the draw, see `JointSketch.draw`.
        dtype: of the features; sums and entropies are computed in float64.

    Raises:
        InputError: features, weights or order as in `condvne.conditional_entropy`; a number of features out of range;
            kernels or a method that cannot be sketched.

    >>> x, y = torch.eye(4).repeat(25, 1), torch.eye(5).repeat(20, 1)
    >>> estimate = sketched_conditional_entropy(x, y, ("cosine", "cosine"), num_features=128)
    >>> abs(float(estimate.value) - math.log(5)) < 2 * float(estimate.standard_error)
    True
    """
    return sketched_terms(CONDITIONAL, (x, y), kernels, num_features, order, weights, seed, method, dtype)


def sketched_terms(
    terms: Terms,
    features: Sequence[Tensor],
    kernels: Sequence[Kernel | str],
    num_features: int,
    order: float = 1.0,
    weights: Tensor | None = None,
    seed: int = 0,
    method: SketchMethod = "auto",
    dtype: torch.dtype = torch.float32,
) -> SketchEstimate:
    """A signed sum of entropies of one or two sides. Arguments and errors as `sketched_conditional_entropy`."""
    order = checked_order(order)
    points = checked_points(tuple(features), ("x", "y"))
    n = points.features[0].shape[-2]
    w = checked_weights(weights, points.features)
    if checked_num_features(num_features) > 2 * n:
        raise InputError(
            f"num_features is {num_features} for {n} points: beyond {n} the exact matrix is smaller than the sketch's; "
            "use method='exact', or fewer features."
        )
    fitted = [as_kernel(kernel).fit_each(x) for kernel, x in zip(kernels, points.features, strict=True)]
    sketch = JointSketch.draw(
        fitted,
        [x.shape[-1] for x in points.features],
        num_features,
        seed,
        method=method,
        origins=[x.detach().flatten(0, -2).mean(0) for x in points.features],
        dtype=dtype,
        device=points.features[0].device,
    )
    sums = sketched_covariances(sketch, [sides for _, sides in terms], points.features, w)
    return estimate(sketch, terms, sums, order, n)


def estimate(
    sketch: JointSketch, terms: Terms, covariances: Mapping[tuple[int, ...], Tensor], order: float, n: int
) -> SketchEstimate:
    """The signed sum of entropies of a sketch's covariances, with its error.

    Args:
        sketch: what the features came from.
        terms: sign and sides of each entropy.
        covariances: (..., r, r) for each set of sides, of any positive trace.
        order: α in [0, ∞].
        n: number of points, which bounds the exact entropy by log n.
    """
    epsilon = EPSILON if sketch.dtype == torch.float64 else torch.finfo(torch.float32).eps
    signs = [sign for sign, _ in terms]
    states = [_density(covariances[sides]) for _, sides in terms]
    first, second = (
        _signed(signs, [matrix_entropy(_half(C, h), order, epsilon=2 * epsilon) for C in states]) for h in (0, 1)
    )
    if sketch.method in INDEPENDENT_DRAWS:
        plain, variance = _with_influences(signs, states, order, epsilon)
    else:
        plain = _signed(signs, [matrix_entropy(C, order, epsilon=epsilon) for C in states])
        variance = (first - second).detach().square()
    correction = plain - (first + second) / 2
    lower, upper = _range(signs, states, order, n, sketch.deviation(FAILURE / len(terms)), epsilon)
    return SketchEstimate(
        value=plain + correction,
        standard_error=(correction.detach().square() + variance).sqrt(),
        lower=lower,
        upper=upper,
        plain=plain.detach(),
        num_features=sketch.num_features,
        seed=sketch.seed,
        method=sketch.method,
    )


def sketched_covariances(
    sketch: JointSketch,
    sets: Sequence[tuple[int, ...]],
    features: Sequence[Tensor],
    weights: Tensor | None = None,
) -> dict[tuple[int, ...], Tensor]:
    """Σ w_i ψ_i ψ_iᵀ, (..., r, r), float64, for each set of sides; block by block, differentiable in the features."""
    n = features[0].shape[-2]
    arguments = [*features] if weights is None else [*features, weights]
    again = torch.is_grad_enabled() and any(a.requires_grad for a in arguments)
    sums: dict[tuple[int, ...], Tensor] = {}
    for rows in _spans(n, sketch.num_features, max(x.shape[:-2].numel() for x in features)):
        xs = [x[..., rows, :] for x in features]
        w = None if weights is None else weights[..., rows]
        for sides in dict.fromkeys(sets):

            def block(w: Tensor | None, *xs: Tensor, sides: tuple[int, ...] = sides) -> Tensor:
                psi = sketch.marginal(xs[sides[0]], sides[0]) if len(sides) == 1 else sketch.features(*xs)
                weighted = psi / n if w is None else psi * w[..., :, None].to(psi.dtype)
                return (weighted.mT @ psi).to(torch.float64)

            # Where a gradient is wanted, features are made again in backward rather than kept.
            part: Tensor = checkpoint(block, w, *xs, use_reentrant=False) if again else block(w, *xs)
            sums[sides] = part if sides not in sums else sums[sides] + part
    return sums


def _spans(n: int, num_features: int, batch: int) -> Iterator[slice]:
    rows = max(1, BLOCK_ENTRIES // (num_features * max(1, batch)))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def _density(total: Tensor) -> Tensor:
    symmetric = (total + total.mT) / 2
    trace: Tensor = symmetric.diagonal(dim1=-2, dim2=-1).sum(-1)
    return symmetric / trace[..., None, None]


def _signed(signs: Sequence[int], parts: Sequence[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=parts[0].device)
    for sign, part in zip(signs, parts, strict=True):
        total = total + sign * part
    return total


def _half(C: Tensor, which: int) -> Tensor:
    half = C.shape[-1] // 2
    part = slice(which * half, (which + 1) * half)
    return _density(C[..., part, part])


def _with_influences(
    signs: Sequence[int], states: Sequence[Tensor], order: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The signed sum of entropies, and its variance over draws from the influence of each frequency."""
    entropies, influences = [], []
    for C in states:
        with torch.inference_mode(False), torch.enable_grad():
            inner = C if C.requires_grad else C.detach().clone().requires_grad_()
            H = matrix_entropy(inner, order, epsilon=epsilon)
            (slope,) = torch.autograd.grad(H.sum(), inner, retain_graph=C.requires_grad)
        of_columns = (slope * C.detach()).sum(-1)
        influences.append(of_columns.reshape(*of_columns.shape[:-1], -1, 2).sum(-1))  # cosine and sine together
        entropies.append(H if C.requires_grad else H.detach())
    influence = _signed(signs, influences)
    variance = (influence - influence.mean(-1, keepdim=True)).square().sum(-1)
    return _signed(signs, entropies), variance


def _range(
    signs: Sequence[int], states: Sequence[Tensor], order: float, n: int, deviation: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    ranges = [entropy_range(spectrum(C, epsilon=epsilon), order, n, deviation) for C in states]
    pairs = list(zip(signs, ranges, strict=True))
    lower = _signed(signs, [least if sign > 0 else largest for sign, (least, largest) in pairs])
    upper = _signed(signs, [largest if sign > 0 else least for sign, (least, largest) in pairs])
    if len(signs) <= 2:  # conditional entropies are in [0, log n] too, mutual information of any order is not
        lower, upper = lower.clamp(min=0.0), upper.clamp(max=math.log(n))
    return lower, upper
