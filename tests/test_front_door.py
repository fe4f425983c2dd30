"""``import torchcaps`` is fast, changes nothing in the process, and opens every public package."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import torchcaps

PROMISED = {
    "attacks": ("FGSM", "PGD", "AutoAttack"),
    "data": ("load_dataset",),
    "functional": ("squash", "safe_norm"),
    "layers": ("CapsuleLayer", "ConvTransform", "PrimaryCapsules"),
    "losses": ("margin_loss", "spread_loss"),
    "models": ("CapsNet", "MatrixCapsNet", "create_model"),
    "routing": ("DynamicRouting", "EMRouting", "AttentionRouting"),
}


def python(program: str) -> str:
    """Run a program in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_package_is_an_attribute_and_torch_is_imported_on_use() -> None:
    names = ", ".join(f"torchcaps.{name}" for name in PROMISED)
    program = f"import sys, torchcaps; print('torch' in sys.modules); {names}; print('torch' in sys.modules)"
    assert python(program).split() == ["False", "True"]


def test_import_changes_nothing_in_the_process() -> None:
    """Every look-up of a C function is recorded; importing torchcaps must not ask for mallopt."""
    watch = (
        "import ctypes, os; asked = []; find = ctypes.CDLL.__getattr__\n"
        "ctypes.CDLL.__getattr__ = lambda self, name: (asked.append(name), find(self, name))[1]\n"
        "before = dict(os.environ); import torchcaps\n"
        "print('mallopt' in asked, dict(os.environ) == before)\n"
        "torchcaps.tune_process(); print('mallopt' in asked, 'THP_MEM_ALLOC_ENABLE' in os.environ)\n"
    )
    called = str(sys.platform.startswith("linux"))
    assert python(watch).split() == ["False", "True", called, called]


@pytest.mark.parametrize("name", PROMISED)
def test_packages_export_their_classes_by_name(name: str) -> None:
    package = getattr(torchcaps, name)
    assert set(PROMISED[name]) <= set(package.__all__)
    assert all(getattr(package, each) for each in package.__all__)


@pytest.mark.parametrize("name", ["torchcaps", "torchcaps.analysis", "torchcaps.compare", "torchcaps.evaluate"])
def test_lazy_packages_export_what_they_list(name: str) -> None:
    package = import_module(name)
    assert all(getattr(package, each) is not None for each in package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'layer'"):
        torchcaps.layer  # noqa: B018
