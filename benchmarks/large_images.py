"""Training speed and memory at 128x128 RGB with 8 classes, one thread: python -m benchmarks.large_images [MODEL ...]

Each model runs in a process of its own, so that the peak of its memory is its own. A step is the objective of a
training run, its backward pass and the optimizer, on random images in batches of 32. Seconds are processor time, so
that a busy machine changes little. Results are written to results/large-images.json.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODELS = ("capsnet", "ar-capsnet", "matrix-capsnet", "convnet-avg")
SIDE, CLASSES, BATCH, STEPS, WARM_UP = 128, 8, 32, 12, 2
TARGET = Path("results/large-images.json")


def measure(name: str) -> dict[str, object]:
    """Measure one model in this process."""
    import torch

    from torchcaps import create_model, tune_process
    from torchcaps.train import resolve
    from torchcaps.train.objective import Objective
    from torchcaps.train.optimizers import make_optimizer

    tune_process()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = create_model(name, size="laptop", image_size=SIDE, channels=3, classes=CLASSES).train()
    config = resolve(model=name, data="glyphs")
    objective, optimizer = Objective(model, config), make_optimizer(model, config)
    images, labels = torch.rand(BATCH, *model.image_shape), torch.randint(CLASSES, (BATCH,))
    seconds = []
    for _ in range(WARM_UP + STEPS):
        began = time.process_time()
        loss, output = objective(images, labels, None, 0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.after_step(output, labels)
        seconds.append(time.process_time() - began)
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "images_per_second_median": BATCH / statistics.median(seconds[WARM_UP:]),
        "images_per_second_best": BATCH / min(seconds[WARM_UP:]),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "steps": STEPS,
    }


def main() -> None:
    """Measure each model in its own process and write the results."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2])))
        return
    from torchcaps.environment import describe_environment
    from torchcaps.files import write_json

    rows = []
    for name in sys.argv[1:] or MODELS:
        command = [sys.executable, "-m", "benchmarks.large_images", "--one", name]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(rows[-1])
    workload = {"image": [3, SIDE, SIDE], "classes": CLASSES, "batch": BATCH, "threads": 1}
    write_json(TARGET, {"workload": workload, "rows": rows, "environment": describe_environment()})


if __name__ == "__main__":
    main()
