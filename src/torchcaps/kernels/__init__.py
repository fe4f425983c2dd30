"""Fast CPU kernels. Each has a plain PyTorch definition elsewhere; tests compare the two."""

import os

# Where colorama is installed, numba replaces sys.stdout whenever it formats an error, as it does in every compilation.
# A compilation in one thread would then divert what another thread prints. numba reads this when it is imported.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
