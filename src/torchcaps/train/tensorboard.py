"""TensorBoard: its event file, and two sheets at every validation, reconstructions and couplings."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data.preview import draw_rows
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.train.callbacks import Callback
from torchcaps.train.metrics import MetricRow

log = logging.getLogger(__name__)
SHOWN = 6  # images: the plain form of routing keeps all their votes


def open_tensorboard(folder: Path, step: int) -> TensorBoardWriter | None:
    """An event file for TensorBoard in a run's folder, or None where TensorBoard is not installed."""
    return TensorBoardWriter(folder / "tensorboard", step) if find_spec("tensorboard") else None


class TensorBoardWriter:
    """An event file of TensorBoard, written as events come.

    Where it cannot be written, one warning says so, and training goes on without it. TensorBoard's own writer works in
    a thread, whose errors end the training later and somewhere else.

    Args:
        folder: where the file goes.
        step: TensorBoard drops what earlier files have beyond this step.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self.folder = folder
        self._file: BinaryIO | None = None
        try:
            folder.mkdir(exist_ok=True)
            name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
            self._file = (folder / name).open("xb")
        except OSError as error:
            self._give_up(error)
        self._write(file_version="brain.Event:2", step=step + 1)
        self._write(session_log=SessionLog(status=SessionLog.START), step=step + 1)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Add a point to a curve."""
        from torch.utils.tensorboard import summary

        self._write(summary=summary.scalar(name, value), step=step)

    def add_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Add an image (H, W, 3)."""
        from torch.utils.tensorboard import summary

        self._write(summary=summary.image(name, image, dataformats="HWC"), step=step)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # every event was flushed when it was written
                self._file.close()

    def _write(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is None:
            return
        try:
            RecordWriter(self._file).write(Event(wall_time=time.time(), **content).SerializeToString())
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        log.warning("cannot write %s: %s. Training goes on without TensorBoard", self.folder, reason)
        self.close()
        self._file = None


class TensorBoardImages(Callback):
    """Writes two sheets of the same few validation images: their drawings, and the votes for the winning class.

    Args:
        board: what ``open_tensorboard`` gave.
        images: (K, C, H, W) in [0, 1].
    """

    def __init__(self, board: TensorBoardWriter, images: Tensor) -> None:
        self.board, self.images = board, images

    def on_validation(self, line: MetricRow, model: Model) -> None:
        images = self.images.to(next(model.parameters()).device)
        if model.decoder is not None:
            self._write("reconstructions", line.step, [("drawn", model.reconstruct(model(images)))])
        maps = coupling_maps(model, images)
        if maps:
            self._write("couplings", line.step, maps)

    def _write(self, name: str, step: int, rows: list[tuple[str, Tensor]]) -> None:
        shape = (self.images.shape[1], self.images.shape[2], self.images.shape[3])
        sheet = draw_rows(f"{name}, step {step}", [("image", self.images), *((t, r.cpu()) for t, r in rows)], shape)
        self.board.add_image(name, np.asarray(sheet), step)


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
