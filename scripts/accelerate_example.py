"""An entropy loss in an accelerate loop, with gradient accumulation, in one process or several.

python scripts/accelerate_example.py
torchrun --nproc-per-node 2 scripts/accelerate_example.py

A small network learns y = g(x, z) from noisy targets, and would ignore its noise z; the loss holds the conditional
entropy of its outputs at that of the data. The batches of all processes count as one, gradients are exact, and nothing
needs scaling: accelerate divides by the accumulated batches, and processes average.
"""

from __future__ import annotations

from typing import Annotated

import torch
import typer
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import condvne as cv
from condvne.tasks.training import ConditionalEntropyLoss


def data(n: int = 2048) -> tuple[Tensor, Tensor]:
    """Points x on a line and, for each, y on one of two branches."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, generator=generator) * 4 - 2
    side = torch.randint(2, (n, 1), generator=generator) * 2.0 - 1
    return x, torch.sin(2 * x) + side + 0.1 * torch.randn(n, 1, generator=generator)


class Generator(nn.Module):
    """x and noise to y."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        y: Tensor = self.layers(torch.cat([x, z], dim=1))
        return y


def main(
    epochs: Annotated[int, typer.Option(min=1)] = 20,
    batch: Annotated[int, typer.Option(min=2, help="of each process")] = 64,
    weight: Annotated[float, typer.Option(min=0, help="of the entropy loss")] = 3.0,
) -> None:
    """Train with the entropy loss and print conditional Vendi scores before, after, and of the data."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    torch.manual_seed(0)
    x, y = data()
    kernels = cv.Gaussian(multiplier=0.5).fit(x), cv.Gaussian(multiplier=0.5).fit(y)
    target = cv.conditional_entropy(x[:512], y[:512], kernel_x=kernels[0], kernel_y=kernels[1])
    entropy = ConditionalEntropyLoss(*kernels, target=target.item(), margin=0.05)  # the line to add
    model = Generator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
    )
    noise = torch.Generator().manual_seed(accelerator.process_index)

    def score() -> float:
        device = accelerator.device
        with torch.no_grad():
            z = torch.randn(512, 1, generator=torch.Generator().manual_seed(7)).to(device)
            found = model(x[:512].to(device), z)
        return float(cv.conditional_vendi(x[:512].to(device), found, kernel_x=kernels[0], kernel_y=kernels[1]))

    before = score()
    for _ in range(epochs):
        for inputs, outputs in loader:
            with accelerator.accumulate(model):
                found = model(inputs, torch.randn(len(inputs), 1, generator=noise).to(inputs.device))
                loss = (found - outputs).square().mean() + weight * entropy(inputs, found)  # and the one to change
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    after = score()
    accelerator.print(f"conditional Vendi: {before:.3f} before, {after:.3f} after, data {target.exp().item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    typer.run(main)
