"""Plugins: Python files outside the package that register routings, models, losses, datasets or attacks."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from torchcaps.errors import TorchcapsError

PREFIX = "torchcaps_plugin_"  # of module names


def loaded_plugins() -> list[Path]:
    """Return the files of all loaded plugins, so that worker processes can load them too."""
    return [Path(str(module.__file__)) for name, module in sys.modules.items() if name.startswith(PREFIX)]


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
