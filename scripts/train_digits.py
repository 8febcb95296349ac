"""A class-conditional generator of digits that loses modes, with and without an entropy loss, and with dropout.
Usage: python scripts/train_digits.py configs/train-digits.yaml runs/train-digits

A small auxiliary-classifier GAN (arXiv 1610.09585) learns scikit-learn's digits. Each arm differs from the first in
one thing: the entropy loss (towards the conditional entropy of the data, by pixels), or dropout in the generator, on in
sampling, too. What is reported is measured by another classifier's features, which no arm sees. Results are kept as
they come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from digit_judge import Judge
from experiments import Results, show
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

import condvne as cv
from condvne.data.config.settings import Settings, load_yaml, validate
from condvne.tasks.training import ConditionalEntropyLoss

CLASSES, PIXELS = 10, 64
COLUMNS = {"diversity": "cond. VNE", "agreement": "agrees with digit", "precision": "precision", "recall": "recall"}
SHARES = ("agreement", "precision", "recall")


class Arm(Settings):
    """One way of training."""

    entropy: float = Field(default=0.0, ge=0)  # weight of the entropy loss
    margin: float = Field(default=0.02, ge=0)  # nats
    dropout: float = Field(default=0.0, ge=0, lt=1)  # in the generator, in sampling, too


class Experiment(Settings):
    """The whole of configs/train-digits.yaml."""

    steps: int = Field(ge=1)
    batch: int = Field(default=128, ge=2)
    noise: int = Field(default=16, ge=1)  # dimensions of z
    width: int = Field(default=128, ge=1)
    rate: float = Field(default=5e-4, gt=0)
    seeds: list[int] = Field(min_length=1)
    images: int = Field(default=60, ge=6)  # of each digit, judged
    arms: dict[str, Arm] = Field(min_length=1)


class Generator(nn.Module):
    """Noise and digit to 64 grey values in [0, 1]."""

    def __init__(self, noise: int, width: int, dropout: float) -> None:
        super().__init__()
        self.noise, self.dropout = noise, dropout
        self.layers = nn.ModuleList([nn.Linear(noise + CLASSES, width), nn.Linear(width, width)])
        self.last = nn.Linear(width, PIXELS)

    def forward(self, z: Tensor, digits: Tensor) -> Tensor:
        h = torch.cat([z, digits], dim=1)
        for layer in self.layers:
            h = functional.dropout(functional.relu(layer(h)), self.dropout)  # on in sampling, too
        return torch.sigmoid(self.last(h))


class Discriminator(nn.Module):
    """Grey values to the logit of being real and those of the digits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(PIXELS, width), nn.LeakyReLU(0.2), nn.Linear(width, width))
        self.last = nn.Linear(width, 1 + CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        found: Tensor = self.last(functional.leaky_relu(self.layers(images), 0.2))
        return found[:, 0], found[:, 1:]


class Data:
    """Real digits, and the ruler that the loss measures by: kernels and target from the data alone."""

    def __init__(self, batch: int) -> None:
        from sklearn.datasets import load_digits

        found = load_digits()
        self.images = torch.tensor(found.images, dtype=torch.float32).flatten(1) / 16
        self.labels = torch.tensor(found.target)
        self.kernels = cv.Cosine(), cv.Gaussian(multiplier=0.5).fit(self.images)
        draw = torch.Generator().manual_seed(0)
        entropies = []
        for _ in range(50):
            images, labels = self.some(batch, draw)
            digits = functional.one_hot(labels, CLASSES).float()
            entropies.append(cv.conditional_entropy(digits, images, kernel_x=self.kernels[0], kernel_y=self.kernels[1]))
        self.target = float(torch.stack(entropies).mean())

    def some(self, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """That many images and labels, drawn with replacement."""
        rows = torch.randint(len(self.images), (count,), generator=draw)
        return self.images[rows], self.labels[rows]


def trained(data: Data, setting: Experiment, arm: Arm, seed: int) -> Generator:
    """A generator after all steps: the non-saturating losses, those of the auxiliary classifier, and the arm's own."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    generator, judge = Generator(setting.noise, setting.width, arm.dropout), Discriminator(setting.width)
    makers, judges = (torch.optim.Adam(m.parameters(), lr=setting.rate, betas=(0.5, 0.9)) for m in (generator, judge))
    entropy = ConditionalEntropyLoss(*data.kernels, target=data.target, margin=arm.margin)
    for _ in range(setting.steps):
        images, labels = data.some(setting.batch, draw)
        digits = functional.one_hot(labels, CLASSES).float()
        made = generator(torch.randn(setting.batch, setting.noise, generator=draw), digits)
        (real, read), (fake, _) = judge(images), judge(made.detach())
        found = functional.softplus(-real).mean() + functional.softplus(fake).mean()
        judges.zero_grad()
        (found + functional.cross_entropy(read, labels)).backward()  # type: ignore[no-untyped-call]
        judges.step()
        real, read = judge(made)
        loss = functional.softplus(-real).mean() + functional.cross_entropy(read, labels)
        if arm.entropy:
            loss = loss + arm.entropy * entropy(digits, made)  # the one line
        makers.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        makers.step()
    return generator


@torch.no_grad()
def sampled(generator: Generator, images: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (10·images, 64) and their labels."""
    labels = torch.arange(CLASSES).repeat_interleave(images)
    draw = torch.Generator().manual_seed(10_000 + seed)
    torch.manual_seed(10_000 + seed)  # of dropout
    z = torch.randn(len(labels), generator.noise, generator=draw)
    return generator(z, functional.one_hot(labels, CLASSES).float()), labels


def run(setting: Experiment, out: Path) -> Results:
    """Scores by arm and seed; those that the folder holds are kept."""
    results = Results(out, setting.model_dump())
    missing = results.missing(setting.seeds)
    if missing:
        data, judge = Data(setting.batch), Judge()
        results.beside("real digits", [judge.real_diversities(setting.images, seed) for seed in setting.seeds])
        for seed, name in missing:
            generator = trained(data, setting, setting.arms[name], seed)
            results.keep(seed, name, judge.judged(*sampled(generator, setting.images, seed)))
    return results


def main(
    config: Annotated[Path, typer.Argument(help="e.g. configs/train-digits.yaml")],
    out: Annotated[Path, typer.Argument(help="folder for results")],
) -> None:
    """Train every arm with every seed, and print and write the table."""
    show(
        lambda: run(validate(Experiment, load_yaml(config), str(config)), out),
        COLUMNS,
        ("agreement", "precision", "recall"),
    )


if __name__ == "__main__":
    typer.run(main)
