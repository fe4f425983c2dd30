"""Fast CPU kernels. Each has a plain PyTorch definition elsewhere; tests compare the two."""

import os

# Where colorama is installed, numba replaces sys.stdout while it formats errors, which it does during every compilation.
# A compilation in a thread would then divert what another thread prints. Read when numba is imported.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
