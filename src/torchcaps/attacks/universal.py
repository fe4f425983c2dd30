"""Universal: a generator that draws perturbations, each of which shall spoil all images at once.

chen2019, section 4.4 and supplement 6.2; after Moosavi-Dezfooli et al.: Universal adversarial perturbations, 2017,
https://arxiv.org/abs/1610.08401.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.attacks.base import Attack, AttackRecord, attacks, predict_labels
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

LATENT = 100


class PerturbationGenerator(nn.Module):
    """Latent vectors (N, 100) in [0, 1] to perturbations (N, C, H, W) in (-1, 1).

    Three deconvolutions, batch normalisation after each. The paper gives no widths: 64 and 32 maps here.
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, self.height, self.width = image_shape
        start = (-(-self.height // 4), -(-self.width // 4))  # doubled twice, then cut to the image
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
        drawn: Tensor = self.layers(latent[:, :, None, None])
        return drawn[:, :, : self.height, : self.width]


class Universal(Attack):
    """Train the generator against the fixed model, then add one of its draws to every image.

    Each image is given a random wrong label, and the generator minimises the cross-entropy of the answers with those:
    over many images that means away from whatever the clean answer was. The paper trains on the images that it attacks,
    and so does this. ``history`` is the accuracy that one draw leaves, by iteration.

    Args:
        norm: ``linf`` or ``l2``.
        iterations: training steps of the generator, one batch of images each.
        batch: images in a step, each with a draw of its own.
        measured: iterations between two measurements of the accuracy.
        learning_rate: of Adam.
    """

    all_views = False
    all_images = True

    def __init__(
        self,
        *,
        norm: str = "linf",
        iterations: int = 120,
        batch: int = 64,
        measured: int = 10,
        learning_rate: float = 0.002,
    ) -> None:
        super().__init__(norm=norm)
        if min(iterations, measured) < 1 or batch < 2:
            raise TorchcapsError(
                "the universal attack needs at least 1 iteration, measured every 1 or more, and a batch of 2 for its "
                f"normalisation, got {iterations}, {measured} and {batch}"
            )
        self.iterations, self.batch, self.measured, self.learning_rate = iterations, batch, measured, learning_rate

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        generator = PerturbationGenerator(wrapper.model.image_shape).to(images)
        optimizer = torch.optim.Adam(generator.parameters(), self.learning_rate)
        shift = torch.randint(1, wrapper.model.classes, labels.shape).to(labels)
        wrong = (labels + shift) % wrapper.model.classes
        wrapper.history[0] = 1.0  # only what is answered rightly comes here
        moved, last = images, min(self.iterations, wrapper.left)
        with progress_bar("training the generator", last) as advance:
            for iteration in range(1, last + 1):
                rows = torch.randint(len(images), (self.batch,)).to(labels)
                with torch.enable_grad():
                    drawn = generator.train()(torch.rand(self.batch, LATENT).to(images))
                    answers = wrapper.view.read(wrapper.query(self.spread(images[rows], drawn, epsilon)))
                    optimizer.zero_grad()
                    F.cross_entropy(answers, wrong[rows]).backward()
                optimizer.step()
                advance(1)
                if iteration % self.measured == 0 or iteration == last:
                    latent = torch.rand(1, LATENT).to(images)
                    with torch.no_grad():
                        moved = self.spread(images, generator.eval()(latent), epsilon)
                    wrapper.history[iteration] = (predict_labels(wrapper.model, moved) == labels).double().mean().item()
        return moved

    def spread(self, images: Tensor, drawn: Tensor, epsilon: float) -> Tensor:
        """Images with perturbations added, as large as epsilon allows."""
        sized = drawn if self.norm.name == "linf" else self.norm.steepest(drawn)
        return (images + epsilon * sized).clamp(0, 1)


attacks.add(
    AttackRecord("universal", "one perturbation for all images, from a trained generator", "chen2019", Universal)
)
