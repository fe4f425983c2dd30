"""One of several processes that train a run: python -m torchcaps.train.worker RUN [PLUGIN ...]

It ends with one of the codes in :mod:`torchcaps.train.processes`, and with one sentence on standard output if it must
end early.
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


def main() -> int:
    """Train; the exit code."""
    tune_process()
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    parent = os.getppid()
    try:
        for plugin in sys.argv[2:]:
            load_plugin(plugin)
        # Whoever started this process watches it. If it is gone, there is nobody to work for: save and stop.
        fit_run(open_run(Path(sys.argv[1])), should_stop=lambda: os.getppid() != parent)
    except Interrupted:
        return STOPPED
    except TorchcapsError as error:
        print(error)
        return LOST if isinstance(error, LostProcessError) else REFUSED
    return FINISHED


if __name__ == "__main__":
    ended_with = main()
    sys.stdout.flush()
    if ended_with == LOST:
        os._exit(LOST)  # an ordinary end would wait for the connections that are lost
    sys.exit(ended_with)
