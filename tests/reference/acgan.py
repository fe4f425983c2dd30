"""A training step of an AC-GAN with an optimizer for each network, losses written out by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def stepper(generator: nn.Module, discriminator: nn.Module) -> Callable[[Tensor, Tensor], None]:
    """A function that does one step; random numbers are drawn as the step under test draws them."""
    judge = torch.optim.SGD(discriminator.parameters(), 0.05, momentum=0.5)
    forger = torch.optim.SGD(generator.parameters(), 0.05, momentum=0.5)

    def step(images: Tensor, labels: Tensor) -> None:
        count = len(labels)
        wanted = torch.randint(10, (count,))
        drawn = generator(2 * torch.rand(count, 100) - 1, wanted)

        real, shown = discriminator(torch.cat([images, drawn.detach()]))
        loss = torch.zeros(())
        for number in range(2 * count):
            chance = 1 / (1 + torch.exp(-real[number]))
            truth = 0.95 if number < count else 0.0
            loss = loss - (truth * torch.log(chance) + (1 - truth) * torch.log(1 - chance)) / (2 * count)
        for number in range(count):
            chances = torch.exp(shown[number]) / torch.exp(shown[number]).sum()
            loss = loss - torch.log(chances[labels[number]]) / count
        judge.zero_grad()
        loss.backward()
        judge.step()

        real, shown = discriminator(drawn)
        loss = torch.zeros(())
        for number in range(count):
            chance = 1 / (1 + torch.exp(-real[number]))
            chances = torch.exp(shown[number]) / torch.exp(shown[number]).sum()
            loss = loss - (0.95 * torch.log(chance) + 0.05 * torch.log(1 - chance)) / count
            loss = loss - torch.log(chances[wanted[number]]) / count
        forger.zero_grad()
        loss.backward()
        forger.step()

    return step
