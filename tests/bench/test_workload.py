from __future__ import annotations

import pytest
import torch
from torch import nn

from torchcaps.bench.workload import FORMS, ConvolutionFloor, NetSpec, Workload, forms_for, use_pytorch_convolutions
from torchcaps.errors import TorchcapsError
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models import create_model, models

TINY = NetSpec("capsnet", "laptop", 2, options={"filters": 8, "types": 2, "hidden": (8, 8)})


@pytest.mark.parametrize("name", [name for name in models.names() if name != "tiny"])  # a helper of other tests
def test_the_floor_is_the_convolutions_of_the_model(name: str) -> None:
    net = NetSpec(name, "laptop", 1)
    model = net.create()
    floor = ConvolutionFloor(model)
    ours, theirs = ([part for part in each.modules() if isinstance(part, nn.Conv2d)] for each in (model, floor))
    assert {type(conv) for conv in theirs} == {nn.Conv2d}
    assert isinstance(floor.layers[-1], nn.Conv2d)
    used: list[tuple[torch.Size, torch.Size]] = []
    for conv in (*ours, *theirs):
        conv.register_forward_pre_hook(lambda conv, given: used.append((conv.weight.shape, given[0].shape)))
    images, _ = net.images_and_labels()
    with torch.no_grad(), use_kernels("plain"):
        model.eval()(images)
        count = len(used)
        floor(images)
    assert count > 0
    assert used[:count] == used[count:], "the same kernels on the same maps as in the model"


def test_own_convolutions_are_pytorchs_with_the_same_result() -> None:
    model = create_model("capsnet", size="laptop", filters=8, types=2).eval()
    images = torch.rand(2, 1, 28, 28)
    before = model(images).scores
    use_pytorch_convolutions(model)
    assert {type(part) for part in model.modules() if isinstance(part, nn.Conv2d)} == {nn.Conv2d}
    torch.testing.assert_close(model(images).scores, before)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "compiled"])
def test_every_form_trains_and_infers(form: str) -> None:
    subject = Workload(TINY, form)
    learned = next(subject.network.parameters())
    before = learned.detach().clone()
    subject.train_step()
    assert not torch.equal(learned, before)
    after = learned.detach().clone()
    subject.infer()
    assert torch.equal(learned, after)
    assert not subject.network.training


def test_a_step_updates_discriminative_routing() -> None:
    subject = Workload(NetSpec("capsnet-l2", "laptop", 2, options=TINY.options), "torchcaps")
    couplings = dict(subject.model.named_buffers())["capsules.layers.0.routing.couplings"]
    before = couplings.clone()
    subject.train_step()
    assert not torch.equal(couplings, before)


def test_forms_for_each_network() -> None:
    assert forms_for(TINY, compiled=False) == ["torchcaps", "plain", "straightforward", "convolutions"]
    assert forms_for(NetSpec("lenet"), compiled=True) == ["torchcaps", "plain", "compiled", "convolutions"]
    with pytest.raises(TorchcapsError, match="did you mean 'plain'"):
        Workload(TINY, "plane")
