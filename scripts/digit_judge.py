"""A judge of generated digits: a small classifier trained on scikit-learn's digits, and what it says of images.

Scripts measure by its features what they did not optimise.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import condvne as cv
from condvne.core.manifold import support

NEIGHBOURS = 5


class Judge:
    """The classifier's features of real and generated digits, and what they say."""

    def __init__(self, seed: int = 0) -> None:
        from sklearn.datasets import load_digits

        found = load_digits()
        self.labels = torch.tensor(found.target)
        images = torch.tensor(found.images, dtype=torch.float32).flatten(1) / 16
        self.network = self._trained(images, seed)
        self.real = self.features(images)
        self.kernels = {
            "diversity": cv.Gaussian(multiplier=0.5).fit(self.real),
            "diversity_median": cv.Gaussian().fit(self.real),
        }

    def _trained(self, images: Tensor, seed: int) -> torch.nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = torch.nn.Sequential(
                torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(),
                torch.nn.Linear(64, 10),
            )  # fmt: skip
        optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.05)
        draw = torch.Generator().manual_seed(seed)
        for _ in range(1500):
            rows = torch.randint(len(images), (128,), generator=draw)
            noisy = images[rows] + 0.05 * torch.randn(128, 64, generator=draw)
            loss = functional.cross_entropy(network(noisy), self.labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return network.eval()

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """(n, 64) of images (n, 64) in [0, 1]: what the last layer sees."""
        seen: Tensor = self.network[:-1](images)
        return seen.double()

    @torch.no_grad()
    def judged(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Conditional VNE in effective numbers, precision, recall and agreement, of images (n, 64) in [0, 1]."""
        features = self.features(images)
        covered = support(self.real, features, NEIGHBOURS)
        return {
            **self.diversities(features, labels),
            "precision": covered.precision,
            "recall": covered.recall,
            "agreement": float((self.network(images).argmax(1) == labels).double().mean()),
        }

    def diversities(self, features: Tensor, labels: Tensor) -> dict[str, float]:
        """Conditional VNE by half the median of the real digits' distances, and by the median, in effective numbers."""
        captions = functional.one_hot(labels, 10).double()
        return {
            name: float(cv.conditional_vendi(captions, features, kernel_x="cosine", kernel_y=kernel))
            for name, kernel in self.kernels.items()
        }

    def real_diversities(self, each: int, seed: int) -> dict[str, float]:
        """Conditional VNE of so many real digits of each class."""
        draw = torch.Generator().manual_seed(seed)
        rows = torch.cat([self.some(label, each, draw) for label in range(10)])
        return self.diversities(self.real[rows], self.labels[rows])

    def some(self, label: int, each: int, draw: torch.Generator) -> Tensor:
        """Rows of real digits of one class."""
        own = torch.nonzero(self.labels == label).squeeze(1)
        return own[torch.randperm(len(own), generator=draw)[:each]]
