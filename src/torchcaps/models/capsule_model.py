"""The base class of capsule networks, their scores, and decoders by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from torchcaps.errors import unknown_name
from torchcaps.functional import HALF_PRECISION, log_odds, safe_norm
from torchcaps.layers import CapsuleStack, Decoder
from torchcaps.losses import one_hot
from torchcaps.models.base import Model, Output

TINY_SHARE = 1e-7  # added to each activation, so that the logarithm of its share is finite
DECODERS = ("conditional", "normal", "none")

Scoring = Callable[[Tensor], tuple[Tensor, Tensor]]


class CapsuleModel(Model):
    """A capsule network: convolutional features, primary capsules, and capsule layers up to one capsule per class.

    Args:
        image_shape, classes, preprocess, decoder: as in :class:`Model`.
        features: maps images (B, C, H, W) to feature maps.
        primary: maps feature maps to primary capsules.
        capsules: maps primary capsules to one capsule per class.
        score: maps poses (B, classes, D) to scores and logits; unused if the routing gives activations.
        score_activation: maps activations (B, classes) to scores and logits, if the routing gives them.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        features: nn.Module,
        primary: nn.Module,
        capsules: CapsuleStack,
        score: Scoring,
        score_activation: Scoring | None = None,
        decoder: Decoder | None = None,
        preprocess: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, classes, preprocess=preprocess, decoder=decoder)
        self.features, self.primary, self.capsules, self.score = features, primary, capsules, score
        self.score_activation = score_activation or activation_score

    def classify(self, images: Tensor) -> Output:
        capsules, votes = self.capsules(self.primary(self.features(images)))
        pose = capsules.pose.flatten(1, 3)  # (B, classes, D)
        read, values = self.score, pose
        if capsules.activation is not None:
            read, values = self.score_activation, capsules.activation.flatten(1)
        precise = values.float() if values.dtype in HALF_PRECISION else values
        scores, logits = (each.to(pose.dtype) for each in read(precise))
        return Output(scores, logits, pose, votes)

    def after_step(self, output: Output, labels: Tensor) -> None:
        if output.votes is not None:
            self.capsules.after_step(output.votes, one_hot(labels, self.classes))


def activation_score(activation: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of activations in [0, 1]: the activation, read as a probability."""
    return activation, log_odds(activation)


def activation_share(activation: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of activations as one distribution: their shares of the sum, and the logarithms of these.

    The cross-entropy of the logits is then the negative log-likelihood of the shares (hahn2019).
    """
    scores = activation + TINY_SHARE
    scores = scores / scores.sum(1, keepdim=True)
    return scores, scores.log()


def length_share(pose: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of capsules by their shares of all lengths, as in :func:`activation_share`."""
    return activation_share(safe_norm(pose))


def length_score(pose: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of squashed capsules: the score is the length, read as a probability."""
    scores = safe_norm(pose)
    return scores, log_odds(scores)


def unsquashed_length_score(pose: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of capsules without squash: the length, and the log-odds of the squashed length.

    The log-odds of |s|^2 / (1 + |s|^2) are 2 log |s|.
    """
    scores = safe_norm(pose)
    return scores, 2 * scores.clamp_min(1e-12).log()


def build_decoder(
    name: str, classes: int, size: int, image_shape: tuple[int, int, int], hidden: tuple[int, int]
) -> Decoder | None:
    """Build a decoder by name for class capsules of the given size; return None for ``none``."""
    if name not in DECODERS:
        raise unknown_name("decoder", name, DECODERS)
    if name == "none":
        return None
    return Decoder(classes, size, image_shape, hidden=hidden, conditional=name == "conditional")
