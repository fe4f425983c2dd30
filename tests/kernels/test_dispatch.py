"""Kernels in several threads, and in a process forked after they ran."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from torchcaps.kernels.dispatch import kernel_choice, on_threads, use_kernels
from torchcaps.models import create_model

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def test_a_choice_is_local_to_its_thread() -> None:
    """The blocks of two threads overlap: the first is left while the second still runs."""
    inside, left = threading.Barrier(3), threading.Barrier(3)

    def first() -> list[str]:
        with use_kernels("plain"):
            inside.wait(timeout=30)
            found = [kernel_choice()]
        left.wait(timeout=30)
        return [*found, kernel_choice()]

    def second() -> list[str]:
        with use_kernels("fast"):
            inside.wait(timeout=30)
            left.wait(timeout=30)
            found = [kernel_choice()]
        return [*found, kernel_choice()]

    with ThreadPoolExecutor(2) as threads:
        answers = threads.submit(first), threads.submit(second)
        inside.wait(timeout=30)
        here = [kernel_choice()]
        left.wait(timeout=30)
        assert answers[0].result() == ["plain", "auto"]
        assert answers[1].result() == ["fast", "auto"]
    assert [*here, kernel_choice()] == ["auto", "auto"]


def test_choices_nest() -> None:
    with use_kernels("plain"):
        with contextlib.suppress(ZeroDivisionError), use_kernels("fast"):
            assert kernel_choice() == "fast"
            raise ZeroDivisionError
        assert kernel_choice() == "plain"
    assert kernel_choice() == "auto"


def forked(work: Callable[[], bool]) -> bool:
    """Whether ``work`` is true in a forked process, which gets 30 seconds."""
    process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if work() else 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads in the parent
        process.start()
    process.join(30)
    process.kill()  # only if it hangs
    return process.exitcode == 0


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@needs_fork
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["capsnet", "matrix-capsnet", "ar-capsnet"])
def test_a_fork_after_use_computes_the_same_on_one_thread(name: str, threads: int, two_threads: None) -> None:
    """Whatever number of threads the parent has used."""
    torch.set_num_threads(threads)
    model, images = create_model(name, size="laptop").eval(), torch.rand(8, 1, 28, 28)

    def step() -> list[torch.Tensor]:
        scores = model(images).scores
        return [scores, *torch.autograd.grad(scores.sum(), list(model.capsules.parameters()))]

    def same() -> bool:
        pairs = zip(step(), before, strict=True)
        return all(torch.allclose(found, wanted, rtol=1e-4, atol=1e-5) for found, wanted in pairs)

    def same_on_one_thread() -> bool:
        torch.set_num_threads(1)  # on more, OpenMP waits for threads that were not copied
        return same()

    with use_kernels("fast"):
        before = step()
        assert forked(same_on_one_thread)
        assert same(), "and the parent goes on"


@needs_fork
def test_a_fork_starts_its_own_threads(two_threads: None) -> None:
    """The parent's pool has no threads in the child, where work handed to it would wait forever."""
    shares = [(0, 2), (2, 4)]
    assert on_threads(lambda first, last: (first, last), 4) == shares
    assert forked(lambda: on_threads(lambda first, last: (first, last), 4) == shares)
