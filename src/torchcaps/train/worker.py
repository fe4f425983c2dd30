"""One of several processes that train a run: python -m torchcaps.train.worker RUN [PLUGIN ...]

Its exit codes are those of :mod:`torchcaps.train.processes`; an error is printed on standard output in one sentence.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from torchcaps.errors import TorchcapsError
from torchcaps.plugins import load_plugin
from torchcaps.runtime import tune_process
from torchcaps.train.distributed import LostProcessError
from torchcaps.train.loop import fit_run
from torchcaps.train.processes import FINISHED, LOST, REFUSED, STOPPED, Interrupted
from torchcaps.train.run_folder import open_run


def run_worker() -> int:
    """Train the run and return the exit code."""
    tune_process()
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    parent = os.getppid()
    try:
        for plugin in sys.argv[2:]:
            load_plugin(plugin)
        # If the process that started this one is gone, save and stop.
        fit_run(open_run(Path(sys.argv[1])), should_stop=lambda: os.getppid() != parent)
    except Interrupted:
        return STOPPED
    except TorchcapsError as error:
        print(error)
        return LOST if isinstance(error, LostProcessError) else REFUSED
    return FINISHED


if __name__ == "__main__":
    exit_code = run_worker()
    sys.stdout.flush()
    sys.stderr.flush()
    # All files are written. A normal exit would wait for lost connections, and threads of gloo that still hold tensors
    # while the interpreter is torn down would abort the process.
    os._exit(exit_code)
