from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
import torchcaps
from torchcaps.errors import TorchcapsError
from torchcaps.train import fit_run, new_run, open_run, resolve
from torchcaps.train.checkpoint import TrainingProgress, load_checkpoint, load_weights, save_checkpoint, save_weights


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def test_round_trip(tmp_path: Path) -> None:
    model, optimizer = trained()
    progress = TrainingProgress(step=3, loss_sum=0.1 + 0.2, best_accuracy=1 / 3)
    save_checkpoint(tmp_path / "x.safetensors", model, optimizer, progress)
    other, fresh = trained(seed=1)
    assert load_checkpoint(tmp_path / "x.safetensors", other, fresh) == progress
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            assert torch.equal(value, fresh.state_dict()["state"][index][name])


def test_a_checkpoint_cut_short_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, model, optimizer, TrainingProgress())
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(TorchcapsError, match="damaged or truncated"):
            load_weights(path, model)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(TorchcapsError):
        load_weights(path, nn.Linear(2, 2))


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('executed')",)


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TorchcapsError, match="damaged or truncated"):
        load_weights(path, nn.Linear(2, 2))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_weights(tmp_path / "x.safetensors", nn.Linear(4, 3))
    with pytest.raises(TorchcapsError, match=r"'weight' should have shape \(2, 4\), the file has \(3, 4\)"):
        load_weights(tmp_path / "x.safetensors", nn.Linear(4, 2))
    with pytest.raises(TorchcapsError, match=r"'0\.weight'"):
        load_weights(tmp_path / "x.safetensors", nn.Sequential(nn.Linear(4, 3)))


def test_weights_alone_cannot_be_resumed_from(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_weights(tmp_path / "x.safetensors", model)
    with pytest.raises(TorchcapsError, match="not a checkpoint that can be resumed"):
        load_checkpoint(tmp_path / "x.safetensors", model, optimizer)


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("x")
    if kind == "empty":
        path.mkdir()
    with pytest.raises(TorchcapsError, match="so it is not a run"):
        open_run(path)


def test_a_run_without_weights_cannot_be_loaded(tmp_path: Path) -> None:
    run = new_run(resolve(model="tiny", data="glyphs"), tmp_path / "run")
    with pytest.raises(TorchcapsError, match="has not saved anything yet"):
        torchcaps.load(run.path)


LIMITED = """
import resource, signal, sys
from pathlib import Path
import tests.helpers.tiny_model
from torchcaps.errors import TorchcapsError
from torchcaps.train import fit_run, open_run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    fit_run(open_run(Path(sys.argv[1])))
except TorchcapsError as error:
    sys.exit(str(error))
"""


def test_a_write_that_fails_leaves_the_old_state_whole(tmp_path: Path) -> None:
    """The operating system refuses to let a file grow, as it does when the disk is full."""
    run = new_run(resolve(model="tiny", data="glyphs", train_images=100, epochs=1, batch_size=32), tmp_path / "run")
    fit_run(run)
    before = run.last.read_bytes()
    longer = run.config().model_copy(update={"epochs": 2})
    run.write_config(longer)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(run.path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert run.last.read_bytes() == before
    assert not list(run.path.rglob("*.tmp"))
    assert fit_run(run).step == 6
