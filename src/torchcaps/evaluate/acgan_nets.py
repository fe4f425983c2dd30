"""The two networks of an AC-GAN for digits: one draws a digit of a wanted class, the other judges what it is shown.

Chen, Crandall, Su: Generalized Capsule Networks with Trainable Routing Procedure, 2019, section 4.2, after Odena, Olah,
Shlens: Conditional Image Synthesis with Auxiliary Classifier GANs, 2017, https://arxiv.org/abs/1610.09585.

The paper gives the shapes of all maps, and neither kernels nor strides. From (3, 3) to (7, 7) a kernel of 5 at stride 1
leads; the two doublings have the same kernel at stride 2. The judge has kernels of 3, every other one at stride 2.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

CLASSES = 10
LATENT = 100
SLOPE = 0.2  # of the leaky ReLUs
DROPPED = 0.3


class Generator(nn.Module):
    """Latent vectors and classes to images.

    The class enters as a learned vector by which the latent one is multiplied, number by number: what goes into the
    fully connected layer has the paper's 100 numbers, and nothing can be drawn of a class without the latent vector.
    With ten of the numbers for the class alone, the others were soon ignored, and all drawings of a digit became one.

    Shapes: (B, 100) and (B,) to (B, 1, 28, 28) in (0, 1).
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_class = nn.Embedding(CLASSES, LATENT)
        self.layers = nn.Sequential(
            nn.Linear(LATENT, 384 * 3 * 3),
            nn.ReLU(),
            nn.Unflatten(1, (384, 3, 3)),
            nn.ConvTranspose2d(384, 192, 5),
            nn.ReLU(),
            nn.BatchNorm2d(192),
            nn.ConvTranspose2d(192, 96, 5, stride=2, padding=2, output_padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(96),
            nn.ConvTranspose2d(96, 1, 5, stride=2, padding=2, output_padding=1),
            nn.Sigmoid(),
        )

    def forward(self, latent: Tensor, labels: Tensor) -> Tensor:
        drawn: Tensor = self.layers(latent * self.of_class(labels))
        return drawn


class Discriminator(nn.Module):
    """Whether an image is real, and what it shows: (B, 1, 28, 28) to logits (B,) and (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise((1, 32, 64, 128, 256))):
            convolution = nn.Conv2d(before, after, 3, stride=1 if number % 2 else 2, padding=1)
            layers += [convolution, nn.LeakyReLU(SLOPE), nn.Dropout(DROPPED)]
        self.layers = nn.Sequential(*layers, nn.Flatten())  # (B, 256 * 7 * 7)
        self.real, self.shown = nn.Linear(256 * 7 * 7, 1), nn.Linear(256 * 7 * 7, CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.layers(2 * images - 1)  # around zero, as the first convolution likes it
        return self.real(seen).squeeze(1), self.shown(seen)


class ACGAN(nn.Module):
    """Both, so that they are saved and optimised together.

    They begin after Glorot, with biases of zero. A vector of a class is then small enough to be turned around within an
    epoch, and no bias drowns what it makes of the latent vector.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = Generator(), Discriminator()
        for name, value in self.named_parameters():
            if value.ndim > 1:
                nn.init.xavier_normal_(value)
            elif name.endswith("bias"):
                nn.init.zeros_(value)
