from __future__ import annotations

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.layers import Decoder, PrimaryCapsules
from torchcaps.models import create_model


def count(**settings: object) -> int:
    with torch.device("meta"):
        model = create_model("capsnet", size="paper", **settings)  # type: ignore[arg-type]
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("pixels", "bare", "with_decoder"),
    [(28, 6_804_224, 8_215_568), (36, 9_425_664, 11_361_808), (40, 11_227_904, 13_475_648)],
)
def test_exact_parameter_counts(pixels: int, bare: int, with_decoder: int) -> None:
    assert count(image_size=pixels, decoder="none") == bare
    assert count(image_size=pixels) == with_decoder


def test_a_primary_capsule_is_made_of_channels_at_one_place() -> None:
    """Public code often cuts (C, H, W) straight into rows of eight, which groups neighboring pixels."""
    primary = PrimaryCapsules(3, types=4, size=8, kernel=3, stride=1, nonlinearity=lambda pose: pose)
    features = torch.randn(2, 3, 6, 7)
    maps, pose = primary.conv(features), primary(features).pose
    assert pose.shape == (2, 4, 5, 4, 8)
    for row, column, kind in [(0, 0, 0), (1, 4, 2), (3, 2, 3)]:
        torch.testing.assert_close(pose[:, row, column, kind], maps[:, 8 * kind : 8 * kind + 8, row, column])
    over_pixels = maps.reshape(2, -1, 8)
    assert not torch.allclose(pose.reshape(2, -1, 8), over_pixels)


def test_a_changed_place_changes_only_the_capsules_that_see_it() -> None:
    primary = PrimaryCapsules(3, types=4, size=8, kernel=3, stride=1, nonlinearity=squash)
    features = torch.randn(1, 3, 8, 8)
    changed = features.clone()
    changed[:, :, 0, 0] += 1
    differs = (primary(features).pose - primary(changed).pose).abs().amax((0, 3, 4)) > 0
    assert differs.nonzero().tolist() == [[0, 0]]


def test_scores_are_the_lengths_of_the_class_capsules() -> None:
    output = create_model("capsnet", size="laptop")(torch.rand(3, 1, 28, 28))
    torch.testing.assert_close(output.scores, output.pose.norm(dim=2))
    assert (output.logits.argsort() == output.scores.argsort()).all()


def test_reconstruction_uses_the_given_class_or_the_longest() -> None:
    model = create_model("capsnet", size="laptop").eval()
    output = model(torch.rand(3, 1, 28, 28))
    longest = output.scores.argmax(1)
    torch.testing.assert_close(model.reconstruct(output), model.reconstruct(output, longest))
    assert not torch.allclose(model.reconstruct(output), model.reconstruct(output, (longest + 1) % 10))


def test_conditional_decoder_sees_one_capsule_and_normal_sees_all() -> None:
    pose, labels = torch.randn(1, 10, 16), torch.tensor([3])
    other = pose.clone()
    other[:, 5] += 1
    for conditional in (True, False):
        decoder = Decoder(10, 16, (1, 28, 28), conditional=conditional)
        assert torch.equal(decoder(pose, labels), decoder(other, labels)) is conditional


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_size": 16}, "images of 16 pixels are too small for convolutions of 9x9 and 9x9: at least 17"),
        ({"routing": "dinamic"}, "did you mean 'dynamic'"),
        ({"decoder": "conditionl"}, "did you mean 'conditional'"),
        ({"filtrs": 3}, "did you mean 'filters'"),
        ({"classes": 1}, "2 classes are needed"),
        ({"types": 0}, "at least 1"),
        ({"routing_options": {"iteration": 3}}, "does not take these settings"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        create_model("capsnet", **settings)  # type: ignore[arg-type]


def test_smallest_possible_image_works() -> None:
    model = create_model("capsnet", size="laptop", image_size=17)
    assert model(torch.rand(2, 1, 17, 17)).scores.shape == (2, 10)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(TorchcapsError, match=r"built for images \(1, 28, 28\).*got a batch of shape \(2, 3, 28, 28\)"):
        create_model("capsnet", size="laptop")(torch.rand(2, 3, 28, 28))
