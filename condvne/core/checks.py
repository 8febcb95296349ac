"""What may pass the door: features, weights and Gram matrices, checked once and brought to float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from condvne.core.spectral import in_double
from condvne.errors import InputError

NAMED_ROWS = 5
SYMMETRY_TILE = 256
WEIGHT_SUM_TOLERANCE = 1e-5  # float32 weights of a million points still sum to one within this


@dataclass(frozen=True)
class Points:
    """Checked features in float64, and the precision in which the answer is returned."""

    features: tuple[Tensor, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Gram:
    """A checked Gram matrix in float64, the rounding of its entries, and the precision of the answer."""

    values: Tensor
    epsilon: float
    dtype: torch.dtype


def checked_points(features: tuple[Tensor, ...], names: tuple[str, ...]) -> Points:
    """Features of equal row count, finite, with at least one row and one column; leading shapes that broadcast.

    Raises InputError naming the argument and, for NaN and infinity, the rows.
    """
    checked = [checked_features(x, name) for x, name in zip(features, names, strict=False)]
    rows = [x.shape[-2] for x in checked]
    if len(set(rows)) > 1:
        counts = f"{names[0]} has {rows[0]} rows and {names[1]} has {rows[1]}"
        raise InputError(f"{counts}: pass one output for each condition, in order.")
    check_leading_shapes(dict(zip(names, checked, strict=False)))
    devices = {x.device for x in checked}
    if len(devices) > 1:
        places = f"{names[0]} is on {checked[0].device} and {names[1]} on {checked[1].device}"
        raise InputError(f"{places}: move them to one device.")
    dtype = checked[0].dtype
    for x in checked[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    return Points(tuple(in_double(x) for x in checked), answer_dtype(dtype))


def checked_weights(weights: Tensor | None, points: tuple[Tensor, ...]) -> Tensor | None:
    """Weights (n,) or (..., n) of points (..., n, d), in float64.

    Raises InputError where they are not a distribution over the n points, or their leading shape does not broadcast.
    """
    if weights is None:
        return None
    n = points[0].shape[-2]
    w = in_double(_as_tensor(weights, "weights").to(points[0].device))
    if w.ndim < 1 or w.shape[-1] != n:
        raise InputError(f"weights must have {n} entries in the last dimension, one a point; shape {tuple(w.shape)}.")
    check_leading_shapes({"weights": w[..., None]} | dict(zip(("x", "y"), points, strict=False)))
    values = w.detach()
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"weights are not finite at {_named(~torch.isfinite(values))}.")
    if bool((values < 0).any()):
        raise InputError(f"weights are negative at {_named(values < 0)}; they must be non-negative and sum to one.")
    off = (values.sum(-1) - 1).abs()
    if bool((off > WEIGHT_SUM_TOLERANCE).any()):
        total = float(values.sum(-1).flatten()[off.flatten().argmax()])
        raise InputError(f"weights sum to {total:.6g} instead of 1; divide them by their sum.")
    return w


def checked_gram(K: Tensor) -> Gram:
    """A square, finite, symmetric matrix of unit diagonal and no larger entry. Raises InputError otherwise."""
    K = _as_tensor(K, "K")
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or K.shape[-1] == 0:
        raise InputError(f"K must be square, (..., n, n) with n >= 1, but has shape {tuple(K.shape)}.")
    epsilon = torch.finfo(K.dtype).eps if K.is_floating_point() else torch.finfo(torch.float64).eps
    tolerance = max(1e-5, epsilon**0.5)
    values = in_double(K.detach())
    # Without n × n temporaries: at thousands of points the checks would else weigh beside the eigenvalues.
    if not bool(torch.isfinite(values.sum())) and not bool(torch.isfinite(values).all()):
        raise InputError(f"K holds NaN or infinite values in rows {_named(~torch.isfinite(values).all(-1))}.")
    if _asymmetry(values) > tolerance:
        raise InputError("K is not symmetric; score (K + K.T) / 2, or check the kernel.")
    if not bool(((torch.diagonal(values, dim1=-2, dim2=-1) - 1).abs() <= tolerance).all()):
        raise InputError("the diagonal of K must be 1; divide K by sqrt(diag_i * diag_j).")
    largest = float(torch.maximum(values.amax(), -values.amin()))
    if largest > 1 + tolerance:
        raise InputError(f"K holds the value {largest:.6g}, but |k(z, z')| <= 1 where k(z, z) = 1; check the kernel.")
    return Gram(in_double(K), epsilon, answer_dtype(K.dtype))


def _asymmetry(values: Tensor) -> float:
    """Largest |K_ij - K_ji|, tile by tile: both tiles fit the cache, where a strided pass would miss it every time."""
    n = values.shape[-1]
    spans = [slice(start, min(start + SYMMETRY_TILE, n)) for start in range(0, n, SYMMETRY_TILE)]
    tiles = (
        (values[..., rows, columns] - values[..., columns, rows].mT).abs().amax()
        for i, rows in enumerate(spans)
        for columns in spans[i:]
    )
    return float(torch.stack(list(tiles)).amax())


def checked_features(x: Tensor, name: str) -> Tensor:
    """Finite real features (..., n, d) in their own precision. Raises InputError naming the argument and the rows."""
    x = _as_tensor(x, name)
    if x.ndim < 2:
        hint = "; add a column with unsqueeze(-1)" if x.ndim == 1 else ""
        raise InputError(f"{name} must have shape (..., n, d), but has shape {tuple(x.shape)}{hint}.")
    if 0 in x.shape:
        raise InputError(f"{name} is empty: shape {tuple(x.shape)}; at least one row and one column are needed.")
    finite = torch.isfinite(x.detach()).all(-1)
    if not bool(finite.all()):
        raise InputError(f"{name} holds NaN or infinite values in rows {_named(~finite)}; drop or repair them.")
    if not x.is_floating_point() and bool((x.to(torch.float64).to(x.dtype) != x).any()):
        raise InputError(f"{name} holds integers beyond 2**53, which float64 cannot tell apart; number them anew.")
    return x


def answer_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of the answer: the input's own, float32 for half types, float64 for integers."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16, torch.float32) else torch.float64


def _as_tensor(values: object, name: str) -> Tensor:
    try:
        if isinstance(values, np.ndarray):  # torch takes no reversed strides and warns of read-only memory
            values = np.require(values, requirements=["C", "W"])
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as cause:
        raise InputError(f"{name} cannot be made a tensor: {cause}; pass a tensor, an array or nested lists.") from None
    if tensor.is_complex():
        raise InputError(f"{name} is complex; pass real numbers.")
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def check_leading_shapes(arguments: dict[str, Tensor]) -> None:
    try:
        torch.broadcast_shapes(*(a.shape[:-2] for a in arguments.values()))  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = " and ".join(str(tuple(a.shape[:-2])) for a in arguments.values())
        raise InputError(f"the leading dimensions of {' and '.join(arguments)} do not match: {shapes}.") from None


def _named(at: Tensor) -> str:
    """The first few places where a mask is true, and how many there are."""
    places = torch.nonzero(at).tolist()
    named = ", ".join(str(p[0] if len(p) == 1 else tuple(p)) for p in places[:NAMED_ROWS])
    return named if len(places) <= NAMED_ROWS else f"{named}, … ({len(places)} in all)"
