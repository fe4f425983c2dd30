"""The exception for user errors, and the messages for unknown names and missing extras."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from inspect import Parameter, signature

LONGEST = 100  # longest name shown in a message


class TorchcapsError(Exception):
    """A user error: a wrong name, file, size or setting.

    The message says what was given, what was expected and what to do. The command line prints it without a traceback
    and exits with code 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> TorchcapsError:
    """Build the error for an unknown name, with the closest known name as a suggestion.

    >>> str(unknown_name("routing", "dinamic", ["dynamic", "em"]))
    "routing 'dinamic' is unknown: did you mean 'dynamic'? One of: dynamic, em"
    """
    names = sorted(known)
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."  # may come from an untrusted file
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f": did you mean '{nearest[0]}'?" if nearest else "."
    return TorchcapsError(f"{kind} '{name}' is unknown{hint} One of: {', '.join(names)}")


def wrong_settings(
    kind: str, name: str, build: Callable[..., object], given: Iterable[str], error: TypeError
) -> TorchcapsError:
    """Build the error for settings that a registered class or function does not take.

    >>> str(wrong_settings("routing", "mine", lambda shape, *, scale=1: None, ["scal"], TypeError()))
    "routing 'mine' does not take these settings: setting 'scal' is unknown: did you mean 'scale'? One of: scale"
    """
    parameters = signature(build).parameters.values()
    known = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY or each.default is not each.empty]
    unknown = [each for each in given if each not in known]
    reason = str(error)
    if unknown:
        reason = str(unknown_name("setting", unknown[0], known)) if known else "it has none"
    return TorchcapsError(f"{kind} '{name}' does not take these settings: {reason}")


def need_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise an error that names the extra to install if one of these modules is missing.

    >>> need_extra("export", "an ONNX file", "no_such_module")
    Traceback (most recent call last):
    torchcaps.errors.TorchcapsError: an ONNX file needs no_such_module: run pip install -e '.[export]' in your clone
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise TorchcapsError(f"{purpose} needs {' and '.join(missing)}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return how to install optional dependencies. torchcaps is installed from its repository, not from PyPI."""
    return f"run pip install -e '.[{extra}]' in your clone"
