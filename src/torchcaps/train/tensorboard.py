"""TensorBoard: the event file, and images of reconstructions and couplings at every validation."""

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

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.train.callbacks import Callback
from torchcaps.train.metrics import MetricRow

log = logging.getLogger(__name__)
SHOWN = 6  # images; the plain routing keeps the votes of all of them in memory


def open_tensorboard(path: Path, step: int) -> TensorBoardWriter | None:
    """Create an event file in a run directory; None if TensorBoard is not installed."""
    return TensorBoardWriter(path / "tensorboard", step) if find_spec("tensorboard") else None


class TensorBoardWriter:
    """An event file of TensorBoard. Every event is written at once.

    If the file cannot be written, training continues without it after one warning. TensorBoard's own writer runs in a
    thread, whose errors would end the training later.

    Args:
        folder: the directory of the event file.
        step: TensorBoard ignores events of earlier files after this step.
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
        """Write a point of a curve."""
        from torch.utils.tensorboard import summary

        self._write(summary=summary.scalar(name, value), step=step)

    def add_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Write an image (H, W, 3)."""
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
        log.warning("cannot write %s: %s. Training continues without TensorBoard", self.folder, reason)
        self.close()
        self._file = None


class TensorBoardImages(Callback):
    """Writes the reconstructions and couplings of the same few validation images to TensorBoard.

    Args:
        writer: the event file.
        images: (K, C, H, W) in [0, 1].
    """

    def __init__(self, writer: TensorBoardWriter, images: Tensor) -> None:
        self.writer, self.images = writer, images

    def on_validation(self, row: MetricRow, model: Model) -> None:
        images = self.images.to(next(model.parameters()).device)
        if model.decoder is not None:
            self._write("reconstructions", row.step, [("drawn", model.reconstruct(model(images)))])
        maps = coupling_maps(model, images)
        if maps:
            self._write("couplings", row.step, maps)

    def _write(self, name: str, step: int, rows: list[tuple[str, Tensor]]) -> None:
        from torchcaps.data.preview import draw_rows

        shape = (self.images.shape[1], self.images.shape[2], self.images.shape[3])
        sheet = draw_rows(f"{name}, step {step}", [("image", self.images), *((t, r.cpu()) for t, r in rows)], shape)
        self.writer.add_image(name, np.asarray(sheet), step)


def coupling_maps(model: Model, images: Tensor) -> list[tuple[str, Tensor]]:
    """Map the coupling of every position to the predicted class, for each iteration: (K, C, H, W) with maximum 1.

    Empty for a model without capsule layers.
    """
    from torchcaps.analysis.couplings import vote_maps
    from torchcaps.analysis.inspection import inspect_layers

    try:
        output, layers = inspect_layers(model, images)
    except TorchcapsError:
        return []
    winners = output.scores.argmax(1)
    found = []
    for iteration in range(max(len(layer.couplings) for layer in layers)):
        lowest = vote_maps(layers, winners, iteration)[0].abs().unsqueeze(1)  # some couplings are negative
        brightness = lowest / lowest.amax((2, 3), keepdim=True).clamp_min(torch.finfo().tiny)
        resized = F.interpolate(brightness, size=images.shape[2:], mode="nearest")
        found.append((f"votes, iteration {iteration + 1}", resized.expand_as(images)))
    return found
