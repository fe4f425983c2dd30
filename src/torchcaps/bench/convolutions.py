"""Where convolution through Fourier transforms wins, and where it does not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchcaps.bench.timing import threads
from torchcaps.kernels.measured import Case, measure
from torchcaps.progress import progress_bar

# The layers that models of this library have: name, channels in and out, side of the map, kernel, stride.
LAYERS = {
    "CapsNet's second, paper": (256, 256, 20, 9, 2),
    "CapsNet's second, laptop": (64, 64, 20, 9, 2),
    "CapsNet's second at 40 pixels": (256, 256, 32, 9, 2),
    "G-CapsNet's second of 7x7": (64, 128, 26, 7, 2),
    "LeNet's second": (20, 50, 12, 5, 1),
    "5x5 of many channels": (128, 128, 14, 5, 1),
    "3x3 of many channels": (128, 128, 14, 3, 1),
}
BATCHES = (8, 32, 128)
MODES = ("training", "attack", "inference")


def time_convolutions() -> list[dict[str, Any]]:
    """Seconds of both forms for each layer, batch and mode, on one thread."""
    rows: list[dict[str, Any]] = []
    with threads(1), progress_bar("convolutions", len(LAYERS) * len(BATCHES) * len(MODES)) as advance:
        for name, (inputs, outputs, size, kernel, stride) in LAYERS.items():
            for batch in BATCHES:
                for mode in MODES:
                    case = Case(batch, inputs, outputs, size, kernel, stride, mode, 1)
                    seconds = measure(case)
                    ratio = seconds["spectral"] / seconds["pytorch"]
                    rows.append({"layer": name, **asdict(case), "seconds": seconds, "ratio": ratio})
                    advance(1)
    return rows
