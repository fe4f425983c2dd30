"""python -m tests.slurm: all tests marked ``slurm`` on a Slurm of one node, to results/reliability/slurm.json"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

from tests.reliability import RESULTS, provenance
from tests.slurm.cluster import ask, one_node, what_is_missing
from torchcaps.files import write_json


class Counter:
    """Counts outcomes for the page on reliability."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slurm", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "slurm.json")
    parser.add_argument("tests", nargs="*", default=["tests/slurm", "tests/reproduce/test_engines.py"])
    asked = parser.parse_args()
    if reason := what_is_missing():
        print(f"Slurm is NOT tested: {reason}", file=sys.stderr)
        return 2
    made_by, counter = provenance(), Counter()
    with tempfile.TemporaryDirectory(prefix="torchcaps-slurm-") as name:
        Path(name).chmod(0o755)  # munge wants to see that nobody else writes there
        with one_node(Path(name)):
            version = ask("sinfo", "--version").split()[-1]
            code = pytest.main(["-m", "slurm", "-v", "--durations=0", *asked.tests], plugins=[counter])
    report = {"passed": len(counter.passed), "failed": len(counter.failed), "tests": counter.passed + counter.failed}
    write_json(asked.out, report | {"slurm": version} | made_by)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
