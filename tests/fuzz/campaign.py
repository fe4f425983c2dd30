"""Fuzz every reader with damaged files: only TorchcapsError may be raised, and memory must not grow."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.mutate import damage
from tests.fuzz.readers import Reader, readers
from tests.fuzz.structure import change_structure, has_structure
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_json
from torchcaps.progress import progress_bar

SECONDS = 20  # of the processor; a reader that takes longer hangs
PATIENCE = 300  # seconds by the clock, for one that waits for something; a busy machine must not look like that
LONGEST = 2_000  # letters of a message that somebody can still read
MOST_MEGABYTES = 500  # by which the process may grow over a whole campaign
IN_HAND = "in-hand.txt"
COUNTS = "counts.json"


@dataclass
class Outcome:
    """Counts of the outcomes of one reader."""

    read: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)  # seed and error of each input that broke the promise
    megabytes: float = 0.0  # by which its inputs made the process's largest size larger


class HungError(Exception):
    """A reader did not return."""


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise HungError(f"took more than {SECONDS} seconds of the processor, or {PATIENCE} by the clock")

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE)}
    before = {number: signal.signal(number, give_up) for number in clocks}
    for clock, seconds in clocks.values():
        signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        for number, (clock, _) in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


def try_input(reader: Reader, path: Path, content: bytes, outcome: Outcome, seed: str) -> None:
    path.write_bytes(content)
    try:
        with time_limit():
            reader.read(path)
        outcome.read += 1
    except TorchcapsError as error:
        outcome.refused += 1
        if len(str(error)) > LONGEST:
            outcome.wrong.append(f"{seed}: a message of {len(str(error))} letters")
    except BaseException as error:  # SystemExit too: a file must not be able to end the program
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.wrong.append(f"{seed}: {type(error).__name__}: {str(error)[:200]}")


def broken(reader: Reader, goods: list[bytes], seed: str) -> bytes:
    """A damaged file for a reader; where the structure is known, every second one still parses."""
    if has_structure(reader.file) and random.Random(seed).random() < 0.5:
        return change_structure(reader.good, reader.file, seed)
    return damage(reader.good, goods, seed, text=reader.text)


def largest_size() -> float:
    """Peak memory of the process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(inputs: int, seed: int, folder: Path) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Run inputs through all readers; return outcomes, time and memory.

    The input in hand is named in the file IN_HAND: if the process dies, that is what it died of.
    """
    logging.disable(logging.WARNING)
    everyone = readers(folder)
    goods = [reader.good for reader in everyone.values()]
    found = {name: Outcome() for name in everyone}
    for reader in everyone.values():  # once, so that what is loaded at first use is not taken for growth
        with contextlib.suppress(TorchcapsError):
            (folder / reader.file).write_bytes(reader.good)
            reader.read(folder / reader.file)
    before, began = largest_size(), time.perf_counter()
    with progress_bar("damaged files", inputs) as advance:
        for number in range(inputs):
            name = list(everyone)[number % len(everyone)]
            reader, key = everyone[name], f"{seed}/{name}/{number}"
            content = broken(reader, goods, key)
            (folder / IN_HAND).write_text(key, encoding="utf-8")
            so_far = largest_size()
            try_input(reader, folder / reader.file, content, found[name], key)
            found[name].megabytes += largest_size() - so_far
            advance(1)
    grown = largest_size() - before
    logging.disable(logging.NOTSET)
    return found, {"megabytes_grown": round(grown, 1), "seconds": round(time.perf_counter() - began, 1)}


def exit_with_parent() -> None:
    """Wait for the end of the process that started this one, and exit: a killed program leaves nothing running."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work(inputs: int, seed: int, folder: Path) -> None:
    """Run the campaign in a separate process, so that a crash can be reported."""
    faulthandler.enable()  # a decoder in C that dies should say where
    threading.Thread(target=exit_with_parent, daemon=True).start()
    found, cost = run(inputs, seed, folder)
    readers = {
        name: {
            "read": each.read,
            "refused": each.refused,
            "wrong": len(each.wrong),
            "megabytes_grown": round(each.megabytes, 1),
        }
        for name, each in found.items()
    }
    wrong = [line for each in found.values() for line in each.wrong]
    if cost["megabytes_grown"] > MOST_MEGABYTES:
        wrong.append(f"memory grew by {cost['megabytes_grown']} MB, more than {MOST_MEGABYTES}")
    write_json(folder / COUNTS, {"inputs": inputs, "seed": seed, "readers": readers, "wrong": wrong, **cost})
