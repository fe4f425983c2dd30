"""Universal: one perturbation for all images, produced by a trained generator.

chen2019, section 4.4 and supplement 6.2; after Moosavi-Dezfooli et al.: Universal adversarial perturbations, 2017,
https://arxiv.org/abs/1610.08401.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.attacks.base import Attack, AttackRecord, attacks, predict_labels
from torchcaps.attacks.model_wrapper import Bounds, ModelWrapper
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

LATENT = 100


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


class Universal(Attack):
    """Train a generator against the fixed model, then add one of its perturbations to every image.

    Each image is assigned a random wrong label, and the generator minimizes the cross-entropy with these labels. As in
    the paper, it is trained on the attacked images. ``history`` of the result is the accuracy under one perturbation by
    iteration.

    Args:
        epsilon, norm: as in :class:`Attack`.
        iterations: training steps of the generator.
        batch_size: images per step, each with its own perturbation.
        eval_every: iterations between two evaluations of the accuracy.
        learning_rate: learning rate of Adam.
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
        learning_rate: float = 0.002,
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        if min(iterations, eval_every) < 1 or batch_size < 2:
            raise TorchcapsError(
                "Universal needs iterations and eval_every of at least 1, and a batch_size of at least 2 for batch "
                f"normalization, got {iterations}, {eval_every} and {batch_size}"
            )
        self.iterations, self.batch_size, self.eval_every = iterations, batch_size, eval_every
        self.learning_rate = learning_rate

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        generator = PerturbationGenerator(wrapper.model.image_shape).to(images)
        optimizer = torch.optim.Adam(generator.parameters(), self.learning_rate)
        shift = torch.randint(1, wrapper.model.classes, labels.shape).to(labels)
        wrong = (labels + shift) % wrapper.model.classes
        wrapper.history[0] = 1.0  # only correctly classified images are attacked
        perturbed, last = images, min(self.iterations, wrapper.remaining)
        with progress_bar("training the generator", last) as advance:
            for iteration in range(1, last + 1):
                rows = torch.randint(len(images), (self.batch_size,)).to(labels)
                with torch.enable_grad():
                    perturbations = generator.train()(torch.rand(self.batch_size, LATENT).to(images))
                    candidates = self.add(images[rows], perturbations, epsilon, wrapper.bounds)
                    logits = wrapper.view.read(wrapper.query(candidates))
                    optimizer.zero_grad()
                    F.cross_entropy(logits, wrong[rows]).backward()
                optimizer.step()
                advance(1)
                if iteration % self.eval_every == 0 or iteration == last:
                    latent = torch.rand(1, LATENT).to(images)
                    with torch.no_grad():
                        perturbed = self.add(images, generator.eval()(latent), epsilon, wrapper.bounds)
                    correct = predict_labels(wrapper.model, perturbed) == labels
                    wrapper.history[iteration] = correct.double().mean().item()
        return perturbed

    def add(self, images: Tensor, perturbations: Tensor, epsilon: float, bounds: Bounds) -> Tensor:
        """Add perturbations, scaled to epsilon, to the images."""
        unit = perturbations if self.norm.name == "linf" else self.norm.steepest(perturbations)
        return (images + epsilon * unit).clamp(*bounds)


attacks.add(
    AttackRecord("universal", "one perturbation for all images, from a trained generator", "chen2019", Universal)
)
