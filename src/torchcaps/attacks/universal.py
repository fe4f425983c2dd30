"""Universal attacks: one perturbation for all images, from a trained generator or by projected gradient descent.

chen2019, section 4.4 and supplement 6.2; after Moosavi-Dezfooli et al.: Universal adversarial perturbations, 2017,
https://arxiv.org/abs/1610.08401. Universal PGD: Shafahi et al.: Universal adversarial training, 2020,
https://arxiv.org/abs/1811.11304.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.attacks.base import Attack, AttackRecord, attacks, predict_labels
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.progress import progress_bar

LATENT = 100
GENERATOR_LOSSES = ("logit-difference", "cross-entropy")


class PerturbationGenerator(nn.Module):
    """Maps latent vectors (N, 100) in [0, 1] to perturbations (N, C, H, W) in (-1, 1).

    Three transposed convolutions, each with batch normalization. The paper gives no widths; here they are 64 and 32.
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, self.height, self.width = image_shape
        start = (-(-self.height // 4), -(-self.width // 4))  # doubled twice, then cropped to the image
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(LATENT, 64, start),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.ConvTranspose2d(32, channels, 4, stride=2, padding=1),
            nn.BatchNorm2d(channels),
            nn.Tanh(),
        )

    def forward(self, latent: Tensor) -> Tensor:
        perturbations: Tensor = self.layers(latent[:, :, None, None])
        return perturbations[:, :, : self.height, : self.width]


class UniversalSettings(TypedDict, total=False):
    """Settings of every universal attack, see :class:`UniversalAttack`."""

    epsilon: float | None
    norm: str
    iterations: int
    batch_size: int
    eval_every: int


class UniversalAttack(Attack):
    """Base class: optimize one perturbation on batches of the attacked images, then add it to every image.

    ``history`` of the result is the accuracy under the perturbation by iteration.

    Args:
        epsilon, norm: as in :class:`Attack`.
        iterations: optimization steps.
        batch_size: images per step.
        eval_every: iterations between two evaluations of the accuracy.
    """

    all_views = False
    all_images = True

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        norm: str = "linf",
        iterations: int = 120,
        batch_size: int = 64,
        eval_every: int = 10,
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        if min(iterations, eval_every) < 1 or batch_size < 2:
            raise TorchcapsError(
                f"{type(self).__name__} needs iterations and eval_every of at least 1, and a batch_size of at least 2, "
                f"got {iterations}, {eval_every} and {batch_size}"
            )
        self.iterations, self.batch_size, self.eval_every = iterations, batch_size, eval_every

    @property
    def passes(self) -> int:
        """Forward passes of one iteration."""
        return 1

    @abstractmethod
    def optimize(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Iterator[Tensor]:
        """Yield the perturbation (1, C, H, W) after each iteration, without end."""

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        wrapper.history[0] = 1.0  # only correctly classified images are attacked
        perturbed, last = images, min(self.iterations, wrapper.remaining // self.passes)
        perturbations = self.optimize(wrapper, images, labels, epsilon)
        with progress_bar("optimizing the perturbation", last) as advance:
            for iteration in range(1, last + 1):
                perturbation = next(perturbations)
                advance(1)
                if iteration % self.eval_every == 0 or iteration == last:
                    perturbed = (images + perturbation).clamp(*wrapper.bounds)
                    correct = predict_labels(wrapper.model, perturbed) == labels
                    wrapper.history[iteration] = correct.double().mean().item()
        return perturbed

    def sample_rows(self, labels: Tensor) -> Tensor:
        """Sample the images of one step."""
        return torch.randint(len(labels), (self.batch_size,)).to(labels)


class Universal(UniversalAttack):
    """Train a generator against the fixed model, then add one of its perturbations to every image.

    As in the paper, the generator is trained on the attacked images. The paper describes the loss as the difference
    between the logits of clean and perturbed images and also mentions random wrong labels; each is a loss here.
    The generator's output is scaled to epsilon: in L-infinity, every pixel changes by epsilon, and the gradient passes
    through the sign unchanged.

    Args:
        epsilon, norm, iterations, batch_size, eval_every: as in :class:`UniversalAttack`. Each image of a step has a
            perturbation of its own.
        loss: ``logit-difference`` maximizes the squared difference to the logits of the clean images, ``cross-entropy``
            minimizes the cross-entropy with a random wrong label for each image.
        learning_rate: learning rate of Adam.
    """

    def __init__(
        self, *, loss: str = "logit-difference", learning_rate: float = 0.002, **common: Unpack[UniversalSettings]
    ) -> None:
        super().__init__(**common)
        if loss not in GENERATOR_LOSSES:
            raise unknown_name("loss of Universal", loss, GENERATOR_LOSSES)
        self.loss, self.learning_rate = loss, learning_rate

    @property
    def passes(self) -> int:
        return 2 if self.loss == "logit-difference" else 1  # that of the clean images too

    def optimize(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Iterator[Tensor]:
        generator = PerturbationGenerator(wrapper.model.image_shape).to(images)
        optimizer = torch.optim.Adam(generator.parameters(), self.learning_rate)
        shift = torch.randint(1, wrapper.model.classes, labels.shape).to(labels)
        wrong = (labels + shift) % wrapper.model.classes
        while True:
            rows = self.sample_rows(labels)
            with torch.enable_grad():
                perturbations = epsilon * self.scaled(generator.train()(torch.rand(len(rows), LATENT).to(images)))
                candidates = (images[rows] + perturbations).clamp(*wrapper.bounds)
                logits = wrapper.view.read(wrapper.query(candidates))
                optimizer.zero_grad()
                if self.loss == "cross-entropy":
                    loss = F.cross_entropy(logits, wrong[rows])
                else:
                    with torch.no_grad():
                        clean = wrapper.view.read(wrapper.query(images[rows]))
                    loss = -F.mse_loss(logits, clean)
                loss.backward()
            optimizer.step()
            with torch.no_grad():
                yield epsilon * self.scaled(generator.eval()(torch.rand(1, LATENT).to(images)))

    def scaled(self, perturbations: Tensor) -> Tensor:
        """Scale perturbations to norm 1; in L-infinity every pixel has magnitude 1."""
        unit = self.norm.steepest(perturbations)
        # The sign has no gradient: it is replaced by that of the generator's own output.
        return perturbations + (unit - perturbations).detach() if self.norm.name == "linf" else unit


class UniversalPGD(UniversalAttack):
    """Projected gradient descent on one perturbation for all images: steps along the summed gradient of a batch.

    Args:
        epsilon, norm, iterations, batch_size, eval_every: as in :class:`UniversalAttack`.
        relative_step: step size as a fraction of epsilon.
    """

    def __init__(self, *, relative_step: float = 0.1, **common: Unpack[UniversalSettings]) -> None:
        super().__init__(**common)
        if relative_step <= 0:
            raise TorchcapsError(f"UniversalPGD needs a relative_step above 0, got {relative_step}")
        self.relative_step = relative_step

    def optimize(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Iterator[Tensor]:
        perturbation = torch.zeros_like(images[:1])
        while True:
            rows = self.sample_rows(labels)
            gradients, _ = wrapper.gradient((images[rows] + perturbation).clamp(*wrapper.bounds), labels[rows])
            step = self.relative_step * epsilon * self.norm.steepest(gradients.sum(0, keepdim=True))
            perturbation = self.norm.project(perturbation + step, epsilon)
            yield perturbation


attacks.add(
    AttackRecord("universal", "one perturbation for all images, from a trained generator", "chen2019", Universal)
)
attacks.add(
    AttackRecord("universal-pgd", "one perturbation for all images, by gradient steps", "Shafahi 2020", UniversalPGD)
)
