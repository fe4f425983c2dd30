"""How loops are compiled: once, kept on disk, without the interpreter's lock.

Sums may be taken in another order, as vector instructions need, and a product may be joined with a sum; nothing is
assumed of the numbers themselves, so what is not finite stays so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import njit

_njit = partial(
    njit,
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "reassoc", "nsz", "arcp"},
    no_cfunc_wrapper=True,
)
compiled: Any = _njit()
inner: Any = _njit(no_cpython_wrapper=True)  # for compiled loops to call: a way in from Python takes long to compile
