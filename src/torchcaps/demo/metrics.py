"""What the service counts about itself, in the text format that Prometheus reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from torchcaps.demo.worker import Worker

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests by path and status, and how long they took. Used by the event loop's one thread only."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.within: Counter[tuple[str, float]] = Counter()
        self.dropped: Counter[str] = Counter()  # connections whose client kept the service waiting, by reason

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request; ``path`` is one of the service's own, so that nobody can fill the memory with names."""
        self.requests[path, status] += 1
        self.seconds[path] += seconds
        for bucket in BUCKETS:
            self.within[path, bucket] += seconds <= bucket

    def text(self, workers: Mapping[str, Worker]) -> str:
        """Everything, line by line."""
        lines = ["# TYPE torchcaps_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'torchcaps_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE torchcaps_request_seconds histogram")
        for path, total in sorted(self.seconds.items()):
            count = sum(number for (own, _), number in self.requests.items() if own == path)
            for bucket in BUCKETS:
                line = f'torchcaps_request_seconds_bucket{{path="{path}",le="{bucket}"}} {self.within[path, bucket]}'
                lines.append(line)
            lines.append(f'torchcaps_request_seconds_bucket{{path="{path}",le="+Inf"}} {count}')
            lines.append(f'torchcaps_request_seconds_sum{{path="{path}"}} {total:.6f}')
            lines.append(f'torchcaps_request_seconds_count{{path="{path}"}} {count}')
        lines.append("# TYPE torchcaps_connections_dropped_total counter")
        for reason, count in sorted(self.dropped.items()):
            lines.append(f'torchcaps_connections_dropped_total{{reason="{reason}"}} {count}')
        state = {
            "torchcaps_waiting": ("gauge", {name: worker.waiting for name, worker in workers.items()}),
            "torchcaps_batches_total": ("counter", {name: worker.batches for name, worker in workers.items()}),
            "torchcaps_answered_total": ("counter", {name: worker.worked for name, worker in workers.items()}),
        }
        for metric, (kind, values) in state.items():
            lines.append(f"# TYPE {metric} {kind}")
            lines += [f'{metric}{{model="{name}"}} {value}' for name, value in values.items()]
        memory = resident_bytes()
        if memory is not None:
            lines += ["# TYPE process_resident_memory_bytes gauge", f"process_resident_memory_bytes {memory}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Memory that this process holds, where the system tells it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * 4096
