"""What a reweighting did, in lines."""

from __future__ import annotations

from condvne.data.results import Reweighting
from condvne.reports.formatting import count, number


def reweighting_lines(found: Reweighting) -> list[str]:
    """The projection in sentences: aim, entropies on the sketch, certificate, and how far the weights moved."""
    aim = f"λ = {number(found.lam or 0)}" if found.target is None else f"target {number(found.target)} nats"
    if found.target is not None and not found.reached:
        aim += ", out of reach"
        aim += f" (largest {number(found.largest)})" if found.largest is not None else ""
    certificate = f"certified within {found.relative_certificate:.1e} λ log M of the optimum"
    return [
        f"{aim}: conditional entropy {number(found.before)} → {number(found.after)} nats on the sketch of "
        f"{count(found.num_features)} features, {certificate} after {count(found.iterations)} iterations.",
        f"Effective candidates a prompt {number(found.candidates_before)} → {number(found.candidates_after)}; "
        f"divergence from the weights before {number(found.divergence)} nats, mean features moved by "
        f"{number(found.distance)}.",
    ]
