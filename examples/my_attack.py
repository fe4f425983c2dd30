"""An attack of your own in one file: random perturbations, of which the most harmful is kept."""

import torch
from torch import Tensor

from torchcaps.attacks import Attack, AttackRecord, ModelWrapper, attacks


class RandomSigns(Attack):
    """x + epsilon r with random signs r, for each image the best of several tries.

    Args:
        epsilon, norm: as in :class:`Attack`.
        tries: number of random perturbations.
    """

    norms = ("linf",)

    def __init__(self, *, epsilon: float | None = None, norm: str = "linf", tries: int = 20) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        self.tries = tries

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        best, smallest = images, torch.full((len(images),), torch.inf, device=images.device)
        for _ in range(min(self.tries, wrapper.remaining)):
            candidates = (images + epsilon * torch.randn_like(images).sign()).clamp(*wrapper.bounds)
            margins, _ = wrapper.margin(candidates, labels)  # negative: misclassified
            best = torch.where((margins < smallest)[:, None, None, None], candidates, best)
            smallest = torch.minimum(margins, smallest)
        return best


attacks.add(
    AttackRecord("random-signs", "random signs, the best of several tries", "yours", RandomSigns, white_box=False)
)
