"""Run every command and Python block of README and the documentation, page by page and in order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.doc_blocks import PAGES, ROOT, Block, blocks_in, inline_commands, typed_pages
from tests.helpers.doc_commands import NOT_RUN, PROGRAMS, smaller, smaller_python, why_not
from torchcaps.cli.main import app, main

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="only a clone has the documentation"),
]
# Pages with several comparisons, whose reports take long to draw, or with exports and searches: 'make test-slow'.
# tests/test_own_images_walk.py takes the path of docs/own-images.md.
SLOW = (
    "docs/all-routings.md",
    "docs/export.md",
    "docs/own-images.md",
    "docs/which.md",
    "docs/routings/index.md",
    "docs/routings/trainable.md",
    "docs/routings/uniform.md",
    "docs/models/aff-capsnet.md",
    "docs/models/capsnet-discriminative.md",
)
SERVED = ("demo", "serve")  # commands that run until they are stopped
Command = Callable[[str], None]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def marked(page: Path) -> Any:
    return pytest.param(page, marks=pytest.mark.slow if named(page) in SLOW else (), id=named(page))


@pytest.fixture
def command(reader: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command of a page; torchcaps runs in this process, because starting Python takes seconds."""

    def run(line: str) -> None:
        if not line.startswith("torchcaps "):
            line = " ".join([line, *(more for start, more in PROGRAMS.items() if line.startswith(start))])
            done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            return
        words = smaller(line)
        monkeypatch.setattr(sys, "argv", ["torchcaps", *words])
        code: Any = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
        said = capfd.readouterr()
        assert code == 0, f"{line}\nwas run as: torchcaps {' '.join(words)}\n{said.out}\n{said.err}"

    return run


@pytest.mark.parametrize("page", list(map(marked, typed_pages())))
def test_commands_of_a_page_run_in_order(page: Path, command: Command, reader: Path) -> None:
    names: dict[str, Any] = {"__name__": "__page__", "small_digits": small_digits}
    for block in blocks_in(page):
        if block.kind == "python":
            exec(compile(smaller_python(block.text), block.where, "exec"), names)
        elif block.kind == "sh":
            type_block(block, command)


def type_block(block: Block, command: Command) -> None:
    """Every command of a shell block; a block that starts something in the background is one program."""
    if re.search(r"&$", block.text, re.MULTILINE):
        run_with_background(block.text)
        return
    for line in block.commands():
        if why_not(line) is None:
            serve_for_a_moment(line) if line.split()[1:2] and line.split()[1] in SERVED else command(line)


def serve_for_a_moment(line: str) -> None:
    """Start a service on any free port, ask it how it is, stop it as Ctrl-C does."""
    call = [program(), *line.split()[1:], "--port", "0", *(["--no-browser"] if " demo" in line else [])]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert address, process.stderr.read() if process.stderr else line
            asked = ["curl", "-sf", "--retry", "20", "--retry-connrefused", f"{address[0]}/health"]
            assert subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def run_with_background(text: str) -> None:
    """A shell program on a port of its own; whatever it left running is ended with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = text.replace("8378", str(port)).replace("torchcaps ", f"{program()} ")
    with subprocess.Popen(
        ["bash", "-ec", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.wait(timeout=120) == 0
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            said = process.stdout.read() if process.stdout else ""
    assert "probabilities" in said, said


def program() -> str:
    return str(Path(sys.executable).with_name("torchcaps"))


def small_digits(**settings: Any) -> Any:
    """scikit-learn's digits, fewer of them."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(**settings)
    return images[:120], labels[:120]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_inside_sentences_exist(page: Path) -> None:
    """`torchcaps NAME --option` in a sentence: the command is there, and so is the option."""
    from typer.main import get_command

    for line in inline_commands(page):
        found: Any = get_command(app)
        words = line.split()[1:]
        while words and hasattr(found, "commands") and not words[0].startswith("-") and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        group = hasattr(found, "commands") and bool(words) and words[0][0].islower()
        assert not group, f"{named(page)}: there is no command '{words[0]}' in `{line}`"
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, f"{named(page)}: `{line}` has no option {word}"


def test_exceptions_exist_and_are_few() -> None:
    blocks = [block for page in typed_pages() for block in blocks_in(page) if block.kind == "sh"]
    lines = [line for block in blocks for line in block.commands()]
    left_out = [line for line in lines if why_not(line)]
    assert len(left_out) < len(lines) / 3, "most of what is typed must be run"
    assert all(reason for reason in NOT_RUN.values())
