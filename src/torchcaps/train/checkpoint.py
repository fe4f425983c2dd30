"""Where a run stands, in one safetensors file: weights, optimiser and counters change together or not at all."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path


@dataclass
class Progress:
    """Counters of a run. ``*_sum`` and ``seen`` belong to the line of metrics that is being made."""

    step: int = 0
    validated_at: int = 0  # the step of the last validation
    best_accuracy: float = -1.0
    best_step: int = 0
    loss_sum: float = 0.0
    correct_sum: int = 0
    seen: int = 0
    seconds: float = 0.0  # spent in training steps, over all starts of the run
    images: int = 0  # trained on, over all starts of the run


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's weights, whole or not at all."""
    _save(path, {f"model.{name}": value for name, value in model.state_dict().items()}, {})


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, progress: Progress) -> None:
    """Write everything that the run needs to go on, whole or not at all."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in entries.items()}
    # JSON keeps a float's every bit, so counters survive unchanged.
    _save(path, tensors, {"progress": TypeAdapter(Progress).dump_json(progress).decode()})


def _save(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    with atomic_path(path) as temporary:
        contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        try:
            save_file(contiguous, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports trouble of the file system
            raise OSError(None, str(error)) from error


def load_weights(path: Path, model: nn.Module) -> None:
    """Put saved weights into a model of the same shape."""
    tensors, _ = _read(path)
    _fill_model(path, model, tensors)


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> Progress:
    """Put model and optimiser back to where they stood."""
    tensors, metadata = _read(path)
    try:
        progress = TypeAdapter(Progress).validate_json(metadata.get("progress", ""))
    except ValidationError as error:
        raise TorchcapsError(f"{path} is no checkpoint to resume from: its counters cannot be read") from error
    if not all(math.isfinite(value) for value in asdict(progress).values()):
        raise TorchcapsError(f"{path} is no checkpoint to resume from: its counters are not finite")
    _fill_model(path, model, tensors)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        index, _, entry = rest.partition(".")
        if kind == "optimizer" and index.isdecimal():
            state.setdefault(int(index), {})[entry] = value
    groups = optimizer.state_dict()["param_groups"]
    for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        entries = state.get(number, {})
        if not {tuple(value.shape) for value in entries.values()} <= {(), tuple(parameter.shape)}:
            raise TorchcapsError(f"{path} does not fit this optimiser: its state {number} has another shape")
        # A fused optimiser goes through parameter and state side by side in memory: they must lie alike.
        alike = {name: torch.empty_like(parameter).copy_(value) for name, value in entries.items() if value.ndim}
        state[number] = entries | alike
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return progress


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise TorchcapsError(f"{path} is missing: the run has not saved anything yet")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise TorchcapsError(f"{path} cannot be read; it is damaged or cut short ({error})") from error


def _fill_model(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = model.state_dict()
    found = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    for name in [*expected, *found]:
        want, have = expected.get(name), found.get(name)
        if want is None or have is None or want.shape != have.shape:
            describe = [None if each is None else tuple(each.shape) for each in (want, have)]
            raise TorchcapsError(
                f"{path} does not fit this model: '{name}' should have shape {describe[0]}, the file has {describe[1]}"
            )
    model.load_state_dict(found)


def all_finite(model: nn.Module) -> bool:
    """Whether every weight and buffer is a number."""
    return all(bool(torch.isfinite(value).all()) for value in model.state_dict().values() if value.is_floating_point())
