"""The one error type that means "the user can mend this", and the sentences for an unknown name and a missing extra."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.util import find_spec

LONGEST = 100  # letters of a name in a sentence


class TorchcapsError(Exception):
    """A mistake outside the code: a wrong name, file, size or setting.

    The message is one or two sentences that say what was got, what was expected and what to do.
    The command line prints it without a traceback and exits with code 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> TorchcapsError:
    """Build the error for a name that is not in a list, with the nearest known one.

    >>> str(unknown_name("routing", "dinamic", ["dynamic", "em"]))
    "routing 'dinamic' is unknown: did you mean 'dynamic'? One of: dynamic, em"
    """
    names = sorted(known)
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."  # it may come from anybody's file
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return TorchcapsError(f"{kind} '{name}' is unknown: {hint}One of: {', '.join(names)}")


def need_extra(extra: str, purpose: str, *modules: str) -> None:
    """Go on if all these modules are installed, else say which extra brings them.

    >>> need_extra("export", "an ONNX file", "no_such_module")
    Traceback (most recent call last):
    torchcaps.errors.TorchcapsError: an ONNX file needs no_such_module: pip install 'torchcaps[export]'
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise TorchcapsError(f"{purpose} needs {' and '.join(missing)}: pip install 'torchcaps[{extra}]'")
