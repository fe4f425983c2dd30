"""Checkpoints as safetensors files: weights, optimizer state and counters, written atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path
from torchcaps.train.optimizers import state_names

FLOATS = ("F16", "BF16", "F32", "F64")  # the names in safetensors of the types that weights may have
Count = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
Amount = Annotated[float, Field(allow_inf_nan=False)]
UNSHARDED = (Tensor, nn.Parameter)  # torch.distributed.tensor, for the others, takes a second to import


@dataclass
class TrainingProgress:
    """Counters of a run. ``*_sum`` and ``seen`` belong to the next row of metrics."""

    step: Count = 0
    validated_at: Count = 0  # the step of the last validation
    best_accuracy: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] = -1.0
    best_step: Count = 0
    loss_sum: Amount = 0.0
    correct_sum: Count = 0
    seen: Count = 0
    seconds: Annotated[Amount, Field(ge=0)] = 0.0  # spent in training steps, over all sessions of the run
    core_seconds: Annotated[Amount, Field(ge=0)] = 0.0  # CPU time of these steps, all threads of the main process
    images: Count = 0  # trained on, over all sessions of the run


def save_weights(path: Path, model: nn.Module, *, write: bool = True, prefix: str = "model.") -> None:
    """Write the weights of a model atomically; every process must call this, and one of them writes."""
    _save(path, {f"{prefix}{name}": value for name, value in model.state_dict().items()}, {}, write)


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: Optimizer, progress: TrainingProgress, *, write: bool = True
) -> None:
    """Write a checkpoint atomically; every process must call this, and one of them writes."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in entries.items()}
    # JSON keeps every bit of a float.
    _save(path, tensors, {"progress": TypeAdapter(TrainingProgress).dump_json(progress).decode()}, write)


def _save(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], write: bool) -> None:
    contiguous = {name: full_tensor(value.detach()).cpu().contiguous() for name, value in tensors.items()}
    if not write:
        return
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports an error of the file system
            raise OSError(None, str(error)) from error


def check_weights(path: Path, model: nn.Module, *, prefix: str = "model.") -> None:
    """Compare the shapes and types in a file's header with those of a model, which may be on the meta device."""
    with _opened(path) as file:
        _check_header(path, file, model, prefix)


def load_weights(path: Path, model: nn.Module, *, prefix: str = "model.") -> None:
    """Load the weights of a file into a model of the same shape."""
    with _opened(path) as file:
        model_tensors = _read_tensors(path, file, model, prefix)
    _fill_model(model, model_tensors)


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> TrainingProgress:
    """Load a checkpoint into a model and its optimizer; return the counters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = state_names(optimizer)
    state: dict[int, dict[str, Tensor]] = {number: {} for number in range(len(parameters))}
    with _opened(path) as file:
        progress = _parse_progress(path, file)
        model_tensors = _read_tensors(path, file, model)
        for name in file.keys():  # noqa: SIM118
            kind, _, rest = name.partition(".")
            index, _, entry = rest.partition(".")
            if kind != "optimizer":
                continue
            number = int(index) if index.isdecimal() and len(index) < 10 else -1
            wanted = None if number not in state else () if entry == "step" else tuple(parameters[number].shape)
            if tuple(file.get_slice(name).get_shape()) != wanted or entry not in names[number]:
                raise TorchcapsError(f"{path} does not fit this optimizer: the state '{name[:100]}' is unexpected")
            _check_type(path, file, name, FLOATS)
            state[number][entry] = _read_finite(path, file, name, torch.float32)
        for number, entries in state.items():
            if entries and entries.keys() != names[number]:
                raise TorchcapsError(f"{path} does not fit this optimizer: the state {number} is incomplete")
    _fill_model(model, model_tensors)
    for number, parameter in enumerate(parameters):
        # A fused optimizer needs the same memory format for a parameter and its state.
        state[number] |= {
            name: torch.empty_like(parameter).copy_(distribute_like(parameter, value))
            for name, value in state[number].items()
            if value.ndim
        }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return progress


def read_progress(path: Path) -> TrainingProgress:
    """Read the counters of a checkpoint."""
    with _opened(path) as file:
        return _parse_progress(path, file)


def _parse_progress(path: Path, file: Any) -> TrainingProgress:
    try:
        progress = TypeAdapter(TrainingProgress).validate_json((file.metadata() or {}).get("progress", ""))
    except (ValidationError, ValueError) as error:  # ValueError: a number with thousands of digits
        raise TorchcapsError(f"{path} is not a checkpoint that can be resumed: its counters cannot be read") from error
    return progress


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file and check its header against its size; tensors are read on request."""
    if not path.is_file():
        raise TorchcapsError(f"{path} does not exist: the run has not saved anything yet")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: mmap failed
        raise TorchcapsError(f"{path} cannot be read: it is damaged or truncated ({error})") from error


def _read_tensors(path: Path, file: Any, model: nn.Module, prefix: str = "model.") -> dict[str, Tensor]:
    """Read the tensors of a model, after the header was checked: a file may claim any size."""
    _check_header(path, file, model, prefix)
    return {
        name: _read_finite(path, file, f"{prefix}{name}", value.dtype) for name, value in model.state_dict().items()
    }


def _check_header(path: Path, file: Any, model: nn.Module, prefix: str) -> None:
    state = model.state_dict()
    expected = {name: tuple(value.shape) for name, value in state.items()}
    names = [name.removeprefix(prefix) for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
    found = {name: tuple(file.get_slice(f"{prefix}{name}").get_shape()) for name in names}
    for name in [*expected, *found]:
        want, have = expected.get(name), found.get(name)
        if want is None or want != have:
            raise TorchcapsError(
                f"{path} does not fit this model: '{name[:100]}' should have shape {want}, the file has {have}"
            )
    for name, value in state.items():
        _check_type(path, file, f"{prefix}{name}", FLOATS if value.is_floating_point() else ("I64",))


def _check_type(path: Path, file: Any, name: str, allowed: tuple[str, ...]) -> None:
    found = file.get_slice(name).get_dtype()
    if found not in allowed:
        raise TorchcapsError(
            f"{path} does not fit: '{name[:100]}' should be of type {' or '.join(allowed)}, the file has {found}"
        )


def _read_finite(path: Path, file: Any, name: str, dtype: torch.dtype) -> Tensor:
    """Read one tensor as ``dtype``; raise an error if it has NaN or infinite values."""
    value: Tensor = file.get_tensor(name).to(dtype)
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise TorchcapsError(f"{path} has NaN or infinite values in '{name[:100]}': it is damaged")
    return value


def _fill_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = model.state_dict()
    model.load_state_dict({name: distribute_like(expected[name], value) for name, value in tensors.items()})


def all_finite(model: nn.Module) -> bool:
    """Whether every weight and buffer is finite."""
    values = (full_tensor(value) for value in model.state_dict().values() if value.is_floating_point())
    return all(bool(torch.isfinite(value).all()) for value in list(values))


def full_tensor(value: Tensor) -> Tensor:
    """Gather a tensor that is sharded over several processes; every process must call this."""
    if type(value) in UNSHARDED:
        return value
    from torch.distributed.tensor import DTensor

    return value.full_tensor() if isinstance(value, DTensor) else value


def distribute_like(pattern: Tensor, value: Tensor) -> Tensor:
    """Shard a tensor over the processes in the way of ``pattern``, if that is sharded."""
    if type(pattern) in UNSHARDED:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(pattern, DTensor):
        return value
    return distribute_tensor(value.to(pattern.device), pattern.device_mesh, pattern.placements)
