"""Write docs/performance.md from the result files: python scripts/performance_page.py"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "results" / "bench"


def page() -> str:
    step = json.loads((BENCH / "capsnet-step.json").read_text(encoding="utf-8"))
    malloc = json.loads((BENCH / "malloc.json").read_text(encoding="utf-8"))
    environment = step["environment"]
    ratio = step["ratio"]
    rows = "\n".join(
        f"| {name} | {1000 * job['plain_seconds']:.1f} | {1000 * job['tuned_seconds']:.1f} | {job['ratio']:.2f} |"
        for name, job in malloc["jobs"].items()
    )
    return f"""# Performance

This page is made by `scripts/performance_page.py` from the files in `results/bench/`; `make bench` measures anew.
Machine: {environment["processor"]}, {step["threads"]} thread, torch {environment["versions"]["torch"]}.

## CapsNet's step against its convolutions

Paper size, batch {step["batch"]}; forward, backward and Adam; interleaved in one process.

| | ms per step |
| --- | --- |
| the two convolutions alone | {1000 * step["seconds"]["convolutions"]:.0f} |
| CapsNet with decoder | {1000 * step["seconds"]["capsnet"]:.0f} |

Ratio: median {ratio["median"]:.3f} over {ratio["rounds"]} rounds, half of them between
{ratio["lower_quartile"]:.3f} and {ratio["upper_quartile"]:.3f}. Everything that makes it a capsule network (votes,
three rounds of routing, decoder, losses) is the part above 1.

## Keeping freed memory

glibc hands large blocks back to the system at every free, and the next tensor of that size pays for fresh pages.
torchcaps raises the thresholds when it is imported (`TORCHCAPS_MALLOC=0` leaves them alone). Processes with and without
took turns:

| job | as it comes, ms | tuned, ms | ratio |
| --- | --- | --- | --- |
{rows}
"""


if __name__ == "__main__":
    (ROOT / "docs" / "performance.md").write_text(page(), encoding="utf-8")
