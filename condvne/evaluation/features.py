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
from condvne.data.embeddings import TextEncoder, embed
from condvne.errors import InputError
from condvne.evaluation.comparison import Comparison, Progress
from condvne.ranks import SINGLE, Ranks


@dataclass(frozen=True)
class Embedded:
    """Features of the conditions (N, dx) and of every group, and kernels with fixed bandwidth."""

    x: Tensor
    groups: dict[str, OutputGroup]
    kernel_x: Kernel
    kernel_y: Kernel


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

    def embedded(name: str, texts: Sequence[str], ids: Sequence[str]) -> Tensor:
        result = embed(
            texts,
            encoder,
            cache,
            ids,
            progress=lambda done, total: progress(f"embedding {name}", done, total),
            note=notes.append,
            ranks=ranks,
        )
        notes.append(f"embeddings of {name}: {result.distinct} distinct texts of {len(texts)}")
        return result.tensor.to(device)

    x = embedded("conditions", comparison.conditions, comparison.ids)
    groups = {}
    for name in comparison.groups:
        lists = comparison.outputs[name]
        owners = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([len(texts) for texts in lists]))
        texts = [text for row in lists for text in row]
        ids = [comparison.ids[i] for i in owners.tolist()]
        groups[name] = OutputGroup(embedded(f"group {name}", texts, ids), owners.to(device))
    return with_kernels(x, groups, kernels, comparison.reference, notes)


def with_kernels(
    x: Tensor, groups: dict[str, OutputGroup], kernels: Kernels, reference: str | None, notes: list[str]
) -> Embedded:
    """Features with one kernel a side: bandwidths from all conditions, and from the outputs of the reference."""
    kernel_x = kernel_of(kernels.condition).fit_each(x)
    kernel_y = _output_kernel(kernel_of(kernels.output), reference, groups, notes)
    return Embedded(x, groups, kernel_x, kernel_y)


def _output_kernel(
    kernel: Kernel, reference: str | None, groups: Mapping[str, OutputGroup], notes: list[str]
) -> Kernel:
    pooled = torch.cat([group.features for group in groups.values()])
    if reference is None:
        return kernel.fit_each(pooled)
    try:
        return kernel.fit(groups[reference].features)
    except InputError:
        notes.append(f"all outputs of {reference} are equal: the output bandwidth was fixed on all groups instead")
        return kernel.fit_each(pooled)
