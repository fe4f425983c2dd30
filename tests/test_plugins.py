from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import Command
from tests.helpers.small_models import SmallNet, answered
from torchcaps.attacks import attacks, create_attack
from torchcaps.data import datasets, load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, nonlinearities
from torchcaps.models import create_model
from torchcaps.models.registry import routing_rows
from torchcaps.plugins import PREFIX, load_plugin, loaded_plugins
from torchcaps.routing import routings
from torchcaps.testing import check_routing

EXAMPLE = Path(__file__).parent.parent / "examples" / "my_routing.py"
ATTACK = EXAMPLE.with_name("my_attack.py")
SQUASH = EXAMPLE.with_name("my_squash.py")
DATASET = EXAMPLE.with_name("my_dataset.py")


@pytest.fixture(autouse=True)
def remove_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove what a test's plugins register."""
    for registry in (attacks, datasets, nonlinearities, routings):
        monkeypatch.setattr(registry, "_records", dict(registry._records))
    yield
    for name in [name for name in sys.modules if name.startswith(PREFIX)]:
        del sys.modules[name]


def test_the_example_is_short_and_works_at_once() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 40
    load_plugin(EXAMPLE)
    load_plugin(EXAMPLE)  # a second time does nothing
    record = routings.get("consensus")
    check_routing(record.build, any_child_order=record.any_child_order, any_parent_order=record.any_parent_order)
    assert "consensus" in [row.name for row in routing_rows()]
    model = create_model("capsnet", size="laptop", routing="consensus", routing_options={"sharpness": 2.0})
    assert model(torch.rand(2, 1, 28, 28)).scores.shape == (2, 10)


def test_a_squash_of_ones_own_is_one_file(torchcaps_command: Command) -> None:
    assert len(SQUASH.read_text().splitlines()) < 20
    known = "exponential, exponential-relu, none, relu-exponential, relu-squash, squash"
    with pytest.raises(TorchcapsError, match=rf"'tanh-squash' is unknown: .*One of: {known}"):
        create_model("capsnet", nonlinearity="tanh-squash")
    load_plugin(SQUASH)
    model = create_model("capsnet", size="laptop", nonlinearity="tanh-squash")
    output = model(torch.rand(2, 1, 28, 28))
    assert output.pose is not None
    torch.testing.assert_close(output.scores, output.pose.norm(dim=2))
    assert CapsuleLayer.dense(4, 8, 3, 6, nonlinearity="tanh-squash").nonlinearity is model.primary.nonlinearity
    small = ["--data", "glyphs", "--train-images", "50", "--test-images", "20", "--steps", "2", "--device", "cpu"]
    own = ["--set", "nonlinearity=tanh-squash", "--set", "filters=8", "--set", "types=2", "--set", "decoder=none"]
    trained = torchcaps_command("train", "capsnet", "--plugin", str(SQUASH), *small, *own, "--out", "run")
    assert trained.returncode == 0, trained.stderr


names = itertools.count()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:", "cannot be loaded: SyntaxError"),
        ("import no_such_package", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        (EXAMPLE.read_text().replace("consensus", "dynamic"), "routing 'dynamic' is already registered"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_told_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / f"plugin_{next(names)}.py"
    file.write_text(text)
    for _ in range(2):  # a failed plugin is not taken for a loaded one
        with pytest.raises(TorchcapsError, match=message):
            load_plugin(file)


def test_a_file_that_is_stopped_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugin(tmp_path / "stopped.py")
    assert tmp_path / "stopped.py" not in loaded_plugins()


def test_only_existing_python_files_are_plugins(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "missing.py", Path(__file__).parent.parent / "pyproject.toml"):
        with pytest.raises(TorchcapsError, match="should be an existing Python file"):
            load_plugin(wrong)


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twin_plugin.py").write_text("")
    load_plugin(tmp_path / "one" / "twin_plugin.py")
    with pytest.raises(TorchcapsError, match=r"two plugins are called 'twin_plugin\.py'"):
        load_plugin(tmp_path / "two" / "twin_plugin.py")


def test_nothing_is_loaded_unasked(tmp_path: Path) -> None:
    """A Python file that lies where a command is started is not run."""
    for name in ("my_routing.py", "plugin.py", "torchcaps_plugin.py"):
        (tmp_path / name).write_text("raise SystemExit('a plugin was run unasked')")
    program = "import torchcaps.models, torchcaps.routing, torchcaps.plugins"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_the_commands_take_it_like_any_other(torchcaps_command: Command) -> None:
    plugin = ["--plugin", str(EXAMPLE)]
    small = [
        "--data",
        "glyphs",
        "--train-images",
        "100",
        "--test-images",
        "50",
        "--batch-size",
        "25",
        "--device",
        "cpu",
    ]
    own = ["--set", "routing=consensus", "--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]
    trained = torchcaps_command("train", "capsnet", *plugin, *small, *own, "--steps", "3", "--out", "run")
    assert trained.returncode == 0, trained.stderr
    resumed = torchcaps_command("train", "--resume", "run", *plugin)
    assert resumed.returncode == 0, resumed.stderr
    assert torchcaps_command("evaluate", "run", *plugin).returncode == 0
    without = torchcaps_command("evaluate", "run")
    assert without.returncode == 2
    assert "routing 'consensus' is unknown" in without.stderr
    assert f"it was trained with the plugin {EXAMPLE}, which is not loaded: pass --plugin {EXAMPLE}" in without.stderr


def test_an_attack_in_one_file_keeps_the_guarantees_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "_records", dict(attacks._records))
    assert len(ATTACK.read_text().splitlines()) < 40
    load_plugin(ATTACK)
    model = SmallNet()
    images, labels = answered(model, 20)
    result = create_attack("random-signs", tries=50)(model, images, labels, epsilon=0.2, budget=40)
    assert result.success[1:].any()
    assert (result.images - images).abs().max() <= 0.2 + 1e-6
    assert result.queries <= 40 * 20


def test_the_commands_take_an_attack_of_one_s_own(torchcaps_command: Command) -> None:
    plugin = ["--plugin", str(ATTACK)]
    listed = torchcaps_command("attacks", "--json", *plugin)
    assert '"random-signs"' in listed.stdout, listed.stderr
    small = ["--data", "glyphs", "--train-images", "50", "--test-images", "20", "--steps", "2", "--size", "laptop"]
    assert torchcaps_command("train", "lenet", *small, "--out", "run").returncode == 0
    call = ["evaluate", "run", "--attack", "random-signs", "--test-images", "10", "--epsilon", "0.3"]
    evaluated = torchcaps_command(*call, *plugin)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "random-signs" in evaluated.stdout
    without = torchcaps_command(*call)
    assert without.returncode == 2
    assert "attack 'random-signs' is unknown" in without.stderr


def test_the_example_dataset_is_opened_by_name() -> None:
    assert len(DATASET.read_text().splitlines()) < 40
    load_plugin(DATASET)
    record = datasets.get("stripes")
    for split, count in record.splits.items():
        images = load_dataset("stripes", split)
        assert (len(images), images.shape, images.class_names) == (count, record.shape, record.class_names)
    batch = load_dataset("stripes").batch(torch.arange(6))
    assert batch.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert 0 <= float(batch.images.min()) < float(batch.images.max()) <= 1


def test_the_commands_take_a_dataset_of_a_plugin(torchcaps_command: Command) -> None:
    plugin = ["--plugin", str(DATASET)]
    small = ["--train-images", "100", "--test-images", "50", "--batch-size", "25", "--device", "cpu", "--steps", "2"]
    own = ["--set", "filters=8", "--set", "types=2", "--set", "hidden=[16, 16]"]
    trained = torchcaps_command("train", "capsnet", "--data", "stripes", *plugin, *small, *own, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert torchcaps_command("evaluate", "run", *plugin).returncode == 0
    without = torchcaps_command("evaluate", "run")
    assert without.returncode == 2
    assert "dataset 'stripes' is unknown" in without.stderr


def test_a_run_remembers_its_plugin_and_does_not_load_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.helpers.small_runs import small_run
    from torchcaps.train import open_run

    file = tmp_path / "remembered_plugin.py"
    file.write_text("VALUE = 1")
    load_plugin(file)
    run = small_run(tmp_path / "run", steps=1)
    assert [Path(each["path"]) for each in run.plugins() if "remembered" in each["path"]] == [file]
    open_run(run.path)
    assert "remembered" not in caplog.text, "it is loaded"
    file.write_text("VALUE = 2")
    open_run(run.path)
    assert "the plugin remembered_plugin.py has changed since the run was trained" in caplog.text
    monkeypatch.delitem(sys.modules, "torchcaps_plugin_remembered_plugin")
    open_run(run.path)
    assert f"trained with the plugin {file}, which is not loaded: pass --plugin {file}" in caplog.text
    assert "torchcaps_plugin_remembered_plugin" not in sys.modules
