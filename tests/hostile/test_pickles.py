"""Pickles are never loaded, whatever their file name."""

from __future__ import annotations

import ast
import io
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

import torchcaps
from tests.fuzz.readers import readers
from tests.helpers import tiny_model  # noqa: F401  (registers the model)
from torchcaps.errors import TorchcapsError
from torchcaps.train import RunFolder, fit_run, new_run, resolve

SOURCE = Path(torchcaps.__file__).parent


class Program:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def forms(path: Path) -> dict[str, bytes]:
    """The program as a plain pickle, as torch's new and old files, and hidden behind a safetensors header."""
    plain = pickle.dumps(Program(path))
    new, old = io.BytesIO(), io.BytesIO()
    torch.save(Program(path), new)
    torch.save(Program(path), old, _use_new_zipfile_serialization=False)
    return {"plain": plain, "torch": new.getvalue(), "old": old.getvalue(), "hidden": b"\2" + bytes(7) + b"{}" + plain}


def test_the_program_would_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Program(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("form", ["plain", "torch", "old", "hidden"])
def test_no_reader_runs_a_pickle(tmp_path: Path, form: str) -> None:
    content = forms(tmp_path / "ran")[form]
    lenient = {"metrics", "kept tensors"}  # leave out what they cannot read, and go on
    for name, reader in readers(tmp_path).items():
        path = tmp_path / reader.file
        path.write_bytes(content)
        if name in lenient:
            reader.read(path)
        else:
            with pytest.raises(TorchcapsError):
                reader.read(path)
        assert not (tmp_path / "ran").exists(), name


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
@pytest.mark.parametrize("form", ["plain", "torch", "old", "hidden"])
def test_a_strangers_run_with_a_pickle_is_refused(tmp_path: Path, name: str, form: str) -> None:
    run = new_run(resolve(model="tiny", data="glyphs", train_images=50, epochs=1, device="cpu"), tmp_path / "run")
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints" / name).write_bytes(forms(tmp_path / "ran")[form])
    # A file that nobody asked for is not looked at.
    for suffix in (".ckpt", ".pt", ".pkl", ".py"):
        (run.path / f"model{suffix}").write_bytes(forms(tmp_path / "ran")[form])
    with pytest.raises(TorchcapsError):
        use(run, name)
    assert not (tmp_path / "ran").exists()


def use(run: RunFolder, name: str) -> object:
    return fit_run(run) if name.startswith("last") else torchcaps.load(run.path)


def test_a_zip_of_pickles_is_no_wheel(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("package/inside.bin", pickle.dumps(Program(tmp_path / "ran")))
    reader = readers(tmp_path)["zip"]
    (tmp_path / reader.file).write_bytes(stream.getvalue())
    with pytest.raises(TorchcapsError, match="truncated"):
        reader.read(tmp_path / reader.file)
    assert not (tmp_path / "ran").exists()


FORBIDDEN = {
    ("pickle", "load"), ("pickle", "loads"), ("torch", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
    ("yaml", "safe_load"), ("os", "system"), ("np", "load"), ("numpy", "load"), ("marshal", "loads"),
    ("shelve", "open"),
}  # fmt: skip


# yaml.safe_load is safe, but knows aliases: the specs of the papers, which come with the package, use them.
ALLOWED = {("reproduce/spec.py", "safe_load")}


def test_the_source_never_calls_what_could_run_a_file() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            if isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), where
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                called = (node.func.value.id, node.func.attr)
                if (path.relative_to(SOURCE).as_posix(), node.func.attr) not in ALLOWED:
                    assert called not in FORBIDDEN, where
                assert node.func.attr not in ("extractall",), where
            assert not any(word.arg == "shell" for word in node.keywords), where
