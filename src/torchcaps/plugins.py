"""Plugins: Python files outside the package that register routings, models, losses, datasets or attacks."""

from __future__ import annotations

import hashlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError

PREFIX = "torchcaps_plugin_"  # of module names


def loaded_plugins() -> list[Path]:
    """Return the files of all loaded plugins, so that worker processes can load them too."""
    return [Path(str(module.__file__)) for name, module in sys.modules.items() if name.startswith(PREFIX)]


def describe_plugins() -> list[dict[str, str]]:
    """Return path and SHA-256 of all loaded plugins, for the record of a run."""
    return [
        {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in loaded_plugins()
        if path.is_file()
    ]


def missing_plugins(recorded: Any) -> list[str]:
    """Return a sentence for each recorded plugin that is not loaded or has changed; nothing is loaded here."""
    now = {Path(each["path"]).name: each["sha256"] for each in describe_plugins()}
    said = []
    for each in recorded if isinstance(recorded, list) else ():
        if not isinstance(each, dict) or not isinstance(each.get("path"), str):
            continue
        name = Path(each["path"]).name
        if name not in now:
            said.append(
                f"it was trained with the plugin {each['path']}, which is not loaded: pass --plugin {each['path']}"
            )
        elif now[name] != each.get("sha256"):
            said.append(f"the plugin {name} has changed since the run was trained")
    return said


def load_plugin(path: str | Path) -> None:
    """Execute a Python file that registers its own components; a file that is already loaded is not executed again.

    The file runs with all permissions of the user, like any program. torchcaps never loads a plugin on its own, neither
    from a run directory, a dataset nor the working directory.
    """
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise TorchcapsError(f"plugin '{path}' should be an existing Python file such as my_routing.py")
    name = f"{PREFIX}{file.stem}"
    if name in sys.modules:
        if sys.modules[name].__file__ == str(file):
            return
        raise TorchcapsError(f"two plugins are called '{file.name}': rename one of them")
    spec = spec_from_file_location(name, file)
    assert spec is not None  # a .py file always has one
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # before execution, as in a normal import
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # including KeyboardInterrupt
        del sys.modules[name]
        if isinstance(error, TorchcapsError) or not isinstance(error, Exception):
            raise
        raise TorchcapsError(f"plugin '{path}' cannot be loaded: {type(error).__name__}: {error}") from error
