"""What TensorBoard shows beside curves: what a model draws, and where its couplings lead, at every validation."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data.preview import draw_rows
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.train.callbacks import Callback
from torchcaps.train.metrics import Line

SHOWN = 6  # images: the plain form of routing keeps all their votes


def open_board(folder: Path, step: int) -> Any:
    """A writer for TensorBoard that drops what lies beyond a step, or None where TensorBoard is not installed."""
    if not find_spec("tensorboard"):
        return None
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


class BoardFigures(Callback):
    """Writes two sheets of the same few validation images: their drawings, and the votes for the winning class.

    Args:
        board: what ``open_board`` gave.
        images: (K, C, H, W) in [0, 1].
    """

    def __init__(self, board: Any, images: Tensor) -> None:
        self.board, self.images = board, images

    def on_validation(self, line: Line, model: Model) -> None:
        images = self.images.to(next(model.parameters()).device)
        if model.decoder is not None:
            self._write("reconstructions", line.step, [("drawn", model.reconstruct(model(images)))])
        maps = coupling_maps(model, images)
        if maps:
            self._write("couplings", line.step, maps)

    def _write(self, name: str, step: int, rows: list[tuple[str, Tensor]]) -> None:
        shape = (self.images.shape[1], self.images.shape[2], self.images.shape[3])
        sheet = draw_rows(f"{name}, step {step}", [("image", self.images), *((t, r.cpu()) for t, r in rows)], shape)
        self.board.add_image(name, np.asarray(sheet), step, dataformats="HWC")


def coupling_maps(model: Model, images: Tensor) -> list[tuple[str, Tensor]]:
    """How much each place gives to the winning class, in every iteration: (K, C, H, W), the brightest place at 1.

    Nothing for a model without capsule layers.
    """
    from torchcaps.analysis import inspect_layers, vote_maps  # only where somebody looks

    try:
        output, layers = inspect_layers(model, images)
    except TorchcapsError:
        return []
    winners = output.scores.argmax(1)
    found = []
    for iteration in range(max(len(layer.couplings) for layer in layers)):
        lowest = vote_maps(layers, winners, iteration)[0].abs().unsqueeze(1)  # some couplings are of any sign
        brightness = lowest / lowest.amax((2, 3), keepdim=True).clamp_min(torch.finfo().tiny)
        whole = F.interpolate(brightness, size=images.shape[2:], mode="nearest")
        found.append((f"votes, iteration {iteration + 1}", whole.expand_as(images)))
    return found
