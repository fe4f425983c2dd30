"""Reproduction results for the page: claims with verdicts, and tables with our values and the paper's."""

from __future__ import annotations

import asyncio
import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from torchcaps.demo.schemas import Message
from torchcaps.errors import TorchcapsError

FRESH_SECONDS = 2.0  # until the folder is checked again

# Importing torchcaps.reproduce takes a fifth of the start time of the service, so it is imported when results are
# requested.
if TYPE_CHECKING:
    from torchcaps.reproduce.results import PaperEvidence


class ShownClaim(Message):
    """A claim of a paper and its verdict."""

    statement: str
    source: str
    profile: str
    verdict: str
    tests: list[str]


class ShownCell(Message):
    """Our value and the paper's, as text."""

    ours: str
    paper: str


class ShownRow(Message):
    """A row of a table; a missing cell is null."""

    name: str
    cells: list[ShownCell | None]


class ShownTable(Message):
    """A table of a paper with our values."""

    title: str
    profile: str
    columns: list[str]
    rows: list[ShownRow]
    caption: str


class PaperResults(Message):
    """Results for one paper."""

    paper: str
    title: str
    claims: list[ShownClaim]
    tables: list[ShownTable]


class ResultsReader:
    """Reads a folder of results in its own thread, and again only when a file has changed."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="results")
        self._reading: asyncio.Future[bytes] | None = None
        self._read_at = -math.inf
        self._files: frozenset[tuple[str, int, int]] | None = None
        self._found: bytes | TorchcapsError = b"[]"

    async def read(self) -> bytes:
        """Return the results as JSON. Concurrent requests share one read."""
        if self.folder is None:
            return b"[]"
        loop = asyncio.get_running_loop()
        if self._reading is None or (self._reading.done() and loop.time() > self._read_at + FRESH_SECONDS):
            self._read_at = loop.time()
            self._reading = loop.run_in_executor(self._pool, self._read, self.folder)
        return await asyncio.shield(self._reading)  # a client that disconnects does not cancel it for the others

    def stop(self) -> None:
        """Start no more reads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, folder: Path) -> bytes:
        files = frozenset(_describe(path) for path in folder.rglob("*.json"))
        if files != self._files:
            self._files = files
            try:
                self._found = TypeAdapter(list[PaperResults]).dump_json(read_results(folder))
            except TorchcapsError as error:  # a damaged file: keep the error until a file changes
                self._found = error
        if isinstance(self._found, TorchcapsError):
            raise TorchcapsError(str(self._found))
        return self._found


def _describe(path: Path) -> tuple[str, int, int]:
    """Return the name, modification time and size of a file."""
    with contextlib.suppress(OSError):  # removed in the meantime
        stat = path.stat()
        return str(path), stat.st_mtime_ns, stat.st_size
    return str(path), 0, 0


def read_results(folder: Path) -> list[PaperResults]:
    """Return the results of every paper that has any."""
    from torchcaps.reproduce.report import describe_comparison, judge_paper
    from torchcaps.reproduce.results import gather_results
    from torchcaps.reproduce.spec import list_papers, load_spec

    shown = []
    for name in list_papers():
        evidence = gather_results(load_spec(name), folder)
        if not any(each.has_results() for each in evidence):
            continue
        claims = [
            ShownClaim(
                statement=each.claim.statement,
                source=each.claim.source,
                profile=profile,
                verdict=each.verdict,
                tests=[f"{result.statement}: {describe_comparison(result)}" for result in each.comparisons],
            )
            for profile, each in judge_paper(evidence)
            if each.measured
        ]
        tables = [table for each in evidence for table in _tables(each)]
        shown.append(PaperResults(paper=name, title=evidence[0].spec.title, claims=claims, tables=tables))
    return shown


def _tables(paper: PaperEvidence) -> list[ShownTable]:
    """Return the tables that have results."""
    from torchcaps.reproduce.tables import build_table

    shown = []
    for name, table in paper.spec.tables.items():
        printed = build_table(paper, name) if paper.has_results(f"{name}/{cell}" for cell in table.cells) else None
        if printed is None:
            continue
        rows = [
            ShownRow(name=row, cells=[ShownCell(ours=cell.ours, paper=cell.paper) if cell else None for cell in cells])
            for row, cells in printed.rows.items()
        ]
        title = f"{name}: {table.title}"
        shown.append(
            ShownTable(title=title, profile=paper.profile, columns=printed.columns, rows=rows, caption=printed.caption)
        )
    return shown
