"""Plugins: Python files outside the package that register routings, models, losses and the like."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from torchcaps.errors import TorchcapsError

PREFIX = "torchcaps_plugin_"  # of the modules' names


def loaded_plugins() -> list[Path]:
    """The files that were loaded, for another process that must know the same names."""
    return [Path(str(module.__file__)) for name, module in sys.modules.items() if name.startswith(PREFIX)]


def load_plugin(path: str | Path) -> None:
    """Run a Python file, which registers what it brings.

    The file runs with all rights of the user who names it, like any program. torchcaps never loads one by itself: not
    from a run's folder, not from a dataset, not from the place where a command is started. A file that was loaded
    already is not run again.
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
    sys.modules[name] = module  # before it runs, so that its classes can be pickled and found
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # also Ctrl-C: half a plugin is none
        del sys.modules[name]
        if isinstance(error, TorchcapsError) or not isinstance(error, Exception):
            raise
        raise TorchcapsError(f"plugin '{path}' cannot be loaded: {type(error).__name__}: {error}") from error
