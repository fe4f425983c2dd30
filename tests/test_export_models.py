"""Exported files of every registered model give PyTorch's output for any batch size."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from torchcaps.export import FORMATS, trace
from torchcaps.models import Model, create_model, models

# A file takes seconds to make. By default there are ONNX files of one model for each routing, and files of torch.export
# of every model but those that are another one with other numbers; 'make test-slow' has all.
EACH_ROUTING = ("capsnet", "g-capsnet-fc", "ar-capsnet", "aff-capsnet", "matrix-capsnet", "capsnet-l2")
EACH_ROUTING += ("sr-capsnet", "efficient-capsnet", "vb-capsnet-tiny", "inverted-capsnet-560k")
OTHER_NUMBERS = ("-cifar10", "-affnist", "-68k", "-560k", "vb-capsnet")  # vb-capsnet-tiny stays


def cases() -> list[Any]:
    def marks(name: str, form: str) -> Any:
        quick = name in EACH_ROUTING if form == "onnx" else not name.endswith(OTHER_NUMBERS)
        return () if quick else pytest.mark.slow

    pairs = [(record.name, form) for record in models for form in FORMATS]
    return [pytest.param(*pair, marks=marks(*pair), id="-".join(pair)) for pair in pairs]


@lru_cache(maxsize=1)  # both files of a model are made from one graph
def traced(name: str) -> tuple[Model, ExportedProgram]:
    channels, side, _ = models.get(name).image
    torch.manual_seed(0)
    model = create_model(name, size="laptop", image_size=side, channels=channels)
    if name == "vb-capsnet":  # its scores are normalized by statistics of the training
        for _ in range(20):
            model.train()(torch.rand(4, *model.image_shape))
    return model.eval(), trace(model.eval())


@pytest.mark.parametrize(("name", "form"), cases())
def test_files_give_the_output_of_the_model(name: str, form: str, tmp_path: Path) -> None:
    """The model runs with its fused kernels, the file with the plain implementation."""
    model, program = traced(name)
    answer = FORMATS[form].write(program, tmp_path / f"model{FORMATS[form].suffix}", {})
    for count in (1, 3):
        images = torch.rand(count, *model.image_shape)
        with torch.no_grad():
            output, found = model(images), answer(images)
        assert output.scores.std() > 1e-4, "scores that are all alike would hide a wrong answer"
        wanted = torch.cat((output.logits.softmax(1), output.scores), 1)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
