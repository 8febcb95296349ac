"""Embeddings of both sides, and one kernel a side that serves every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from condvne.core.groups import OutputGroup
from condvne.core.kernels import Cosine, Gaussian, Kernel, Laplacian, Polynomial
from condvne.data.config import KernelChoice, Kernels
from condvne.data.embeddings import TextEncoder
from condvne.errors import InputError
from condvne.evaluation.comparison import Comparison, Progress
from condvne.evaluation.embedding import Embedder
from condvne.ranks import SINGLE, Ranks

EVERYBODY = "all groups"


@dataclass(frozen=True)
class Embedded:
    """Features of the conditions (N, dx) and of every group, and kernels with fixed bandwidth."""

    x: Tensor
    groups: dict[str, OutputGroup]
    kernel_x: Kernel
    kernel_y: Kernel
    output_fitted_on: str  # whose outputs gave the bandwidth
    warnings: list[str]  # what keeps the vectors from telling texts apart


def kernel_of(choice: KernelChoice) -> Kernel:
    """The kernel that a configuration names. Raises InputError for parameters that do not go together."""
    if choice.name == "gaussian":
        return Gaussian(choice.bandwidth, choice.multiplier)
    if choice.name == "laplacian":
        return Laplacian(choice.bandwidth, choice.multiplier)
    if choice.name == "polynomial":
        return Polynomial(choice.degree, choice.gamma, choice.coef0)
    return Cosine()


def embedded_comparison(
    comparison: Comparison,
    encoder: TextEncoder,
    kernels: Kernels,
    cache: Path,
    device: torch.device,
    progress: Progress,
    notes: list[str],
    ranks: Ranks = SINGLE,
) -> Embedded:
    """Embed all texts and fix the bandwidths; what was done is added to `notes`.

    Raises:
        InputError: neither the reference group nor all groups together give a bandwidth.
        DataError: a text is empty or its embedding is not finite (ids named).
    """

    embedder = Embedder(encoder, cache, device, progress, notes, ranks=ranks)

    def embedded(name: str, texts: Sequence[Sequence[str]], ids: Sequence[str]) -> Tensor:
        found = embedder.vectors(
            name,
            [chunk for chunks in texts for chunk in chunks],
            [owner for owner in ids for _ in texts[0]],
            noun="texts" if comparison.chunks is None else "chunks",
            blank=comparison.chunks is not None,  # a token may be nothing but white space
        )
        return found.reshape(len(texts), -1)

    chunks = comparison.chunks
    x = embedded("conditions", chunks.conditions if chunks else [[c] for c in comparison.conditions], comparison.ids)
    groups = {}
    for name in comparison.groups:
        lists = chunks.outputs[name] if chunks else [[[text] for text in texts] for texts in comparison.outputs[name]]
        owners = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([len(texts) for texts in lists]))
        ids = [comparison.ids[i] for i in owners.tolist()]
        flat = [text for row in lists for text in row]
        groups[name] = OutputGroup(embedded(f"group {name}", flat, ids), owners.to(device))
    return with_kernels(x, groups, kernels, comparison.reference, notes, embedder.warnings)


def with_kernels(
    x: Tensor,
    groups: dict[str, OutputGroup],
    kernels: Kernels,
    reference: str | None,
    notes: list[str],
    warnings: list[str] | None = None,
) -> Embedded:
    """Features with one kernel a side: bandwidths from all conditions, and from the outputs of the reference."""
    kernel_x = kernel_of(kernels.condition).fit_each(x)
    kernel_y, fitted_on = _output_kernel(kernel_of(kernels.output), reference, groups, notes)
    return Embedded(x, groups, kernel_x, kernel_y, fitted_on, warnings or [])


def _output_kernel(
    kernel: Kernel, reference: str | None, groups: Mapping[str, OutputGroup], notes: list[str]
) -> tuple[Kernel, str]:
    """The kernel of the outputs with its bandwidth fixed, and whose outputs gave it."""
    pooled = torch.cat([group.features for group in groups.values()])
    if reference is None:
        return kernel.fit_each(pooled), EVERYBODY
    try:
        return kernel.fit(groups[reference].features), reference
    except InputError:
        notes.append(f"all outputs of {reference} are equal: the output bandwidth was fixed on all groups instead")
        return kernel.fit_each(pooled), EVERYBODY
