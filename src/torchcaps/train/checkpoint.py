"""Where a run stands, in one safetensors file: weights, optimiser and counters change together or not at all."""

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
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path

# What the optimisers of this library remember of a weight.
ENTRIES: dict[type[Optimizer], set[str]] = {
    optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    optim.RMSprop: {"step", "square_avg"},
}
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors names the types that weights may have
Count = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
Amount = Annotated[float, Field(allow_inf_nan=False)]
ORDINARY = (Tensor, nn.Parameter)  # not spread over processes; what knows of those takes a second to import


@dataclass
class TrainingProgress:
    """Counters of a run. ``*_sum`` and ``seen`` belong to the line of metrics that is being made."""

    step: Count = 0
    validated_at: Count = 0  # the step of the last validation
    best_accuracy: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] = -1.0
    best_step: Count = 0
    loss_sum: Amount = 0.0
    correct_sum: Count = 0
    seen: Count = 0
    seconds: Annotated[Amount, Field(ge=0)] = 0.0  # spent in training steps, over all starts of the run
    images: Count = 0  # trained on, over all starts of the run


def save_weights(path: Path, model: nn.Module, *, write: bool = True, prefix: str = "model.") -> None:
    """Write a model's weights, whole or not at all; of several processes, all call this and one writes."""
    _save(path, {f"{prefix}{name}": value for name, value in model.state_dict().items()}, {}, write)


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: Optimizer, progress: TrainingProgress, *, write: bool = True
) -> None:
    """Write everything that the run needs to go on, whole or not at all; all processes call this and one writes."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in entries.items()}
    # JSON keeps a float's every bit, so counters survive unchanged.
    _save(path, tensors, {"progress": TypeAdapter(TrainingProgress).dump_json(progress).decode()}, write)


def _save(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], write: bool) -> None:
    contiguous = {name: full_tensor(value.detach()).cpu().contiguous() for name, value in tensors.items()}
    if not write:
        return
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports trouble of the file system
            raise OSError(None, str(error)) from error


def check_weights(path: Path, model: nn.Module, *, prefix: str = "model.") -> None:
    """Compare the shapes and types that a file's header states with a model's, which may be on the meta device."""
    with _opened(path) as file:
        _check_header(path, file, model, prefix)


def load_weights(path: Path, model: nn.Module, *, prefix: str = "model.") -> None:
    """Put saved weights into a model of the same shape."""
    with _opened(path) as file:
        model_tensors = _fitting(path, file, model, prefix)
    _fill_model(model, model_tensors)


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> TrainingProgress:
    """Put model and optimiser back to where they stood."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {number: {} for number in range(len(parameters))}
    with _opened(path) as file:
        progress = _parse_progress(path, file)
        model_tensors = _fitting(path, file, model)
        for name in file.keys():  # noqa: SIM118
            kind, _, rest = name.partition(".")
            index, _, entry = rest.partition(".")
            if kind != "optimizer":
                continue
            number = int(index) if index.isdecimal() and len(index) < 10 else -1
            wanted = None if number not in state else () if entry == "step" else tuple(parameters[number].shape)
            if tuple(file.get_slice(name).get_shape()) != wanted or entry not in ENTRIES[type(optimizer)]:
                raise TorchcapsError(
                    f"{path} does not fit this optimiser: its state '{name[:100]}' should not be there"
                )
            _check_type(path, file, name, FLOATS)
            state[number][entry] = _read_finite(path, file, name, torch.float32)
        for number, entries in state.items():
            if entries and entries.keys() != ENTRIES[type(optimizer)]:
                raise TorchcapsError(f"{path} does not fit this optimiser: its state {number} is incomplete")
    _fill_model(model, model_tensors)
    for number, parameter in enumerate(parameters):
        # A fused optimiser goes through parameter and state side by side in memory: they must lie alike.
        state[number] |= {
            name: torch.empty_like(parameter).copy_(distribute_like(parameter, value))
            for name, value in state[number].items()
            if value.ndim
        }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return progress


def read_progress(path: Path) -> TrainingProgress:
    """The counters of a checkpoint."""
    with _opened(path) as file:
        return _parse_progress(path, file)


def _parse_progress(path: Path, file: Any) -> TrainingProgress:
    try:
        progress = TypeAdapter(TrainingProgress).validate_json((file.metadata() or {}).get("progress", ""))
    except (ValidationError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise TorchcapsError(f"{path} is no checkpoint to resume from: its counters cannot be read") from error
    return progress


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file. Its header is checked against its size here; tensors are read when they are asked for."""
    if not path.is_file():
        raise TorchcapsError(f"{path} is missing: the run has not saved anything yet")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: more than can be mapped
        raise TorchcapsError(f"{path} cannot be read; it is damaged or cut short ({error})") from error


def _fitting(path: Path, file: Any, model: nn.Module, prefix: str = "model.") -> dict[str, Tensor]:
    """The tensors of a model. The header is compared before anything is read: a file may claim to be huge."""
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
    """One tensor in the type that it will have; NaN or infinity in it is refused."""
    value: Tensor = file.get_tensor(name).to(dtype)
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise TorchcapsError(f"{path} holds weights that are no finite numbers, in '{name[:100]}': it is damaged")
    return value


def _fill_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = model.state_dict()
    model.load_state_dict({name: distribute_like(expected[name], value) for name, value in tensors.items()})


def all_finite(model: nn.Module) -> bool:
    """Whether every weight and buffer is a number."""
    values = (full_tensor(value) for value in model.state_dict().values() if value.is_floating_point())
    return all(bool(torch.isfinite(value).all()) for value in list(values))


def full_tensor(value: Tensor) -> Tensor:
    """A tensor with all its parts, where these are spread over several processes; all of them must ask."""
    if type(value) in ORDINARY:
        return value
    from torch.distributed.tensor import DTensor

    return value.full_tensor() if isinstance(value, DTensor) else value


def distribute_like(pattern: Tensor, value: Tensor) -> Tensor:
    """A whole tensor spread over the processes as the pattern is, if it is."""
    if type(pattern) in ORDINARY:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(pattern, DTensor):
        return value
    return distribute_tensor(value.to(pattern.device), pattern.device_mesh, pattern.placements)
