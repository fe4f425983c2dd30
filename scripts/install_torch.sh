#!/bin/sh
# On Linux, install the pinned torch ahead of everything else, and where the machine has no NVIDIA GPU, its CPU build: the
# package index has only the one that brings gigabytes of CUDA. A CPU build that pip's own sources offer is taken first, then
# PyTorch's own index, then whatever there is. Elsewhere requirements/core.txt brings it, with its hash.
set -eu
python=$1
[ "$(uname)" = Linux ] || exit 0
wanted=$(sed -n 's/^torch==//p' constraints.txt)
install() { "$python" -m pip install --only-binary=:all: --disable-pip-version-check --quiet "$@"; } # no setup.py is ever run

if "$python" -c "import sys; from importlib.metadata import version; sys.exit(version('torch').split('+')[0] != '$wanted')" 2>/dev/null; then
    exit 0
fi
echo "installing torch $wanted"
if ! command -v nvidia-smi >/dev/null 2>&1; then
    install --no-deps "torch==$wanted+cpu" 2>/dev/null && exit 0
    index=https://download.pytorch.org/whl/cpu
    install --no-deps --timeout 10 --retries 0 --index-url $index "torch==$wanted" 2>/dev/null && exit 0
    echo "No NVIDIA GPU was found, but the CPU build of torch $wanted cannot be installed from $index. Installing the build of" \
        "the package index instead: it brings CUDA, about 4.8 GB. To avoid that, stop with Ctrl-C and make that address" \
        "reachable, or offer torch==$wanted+cpu in a package index that pip uses." >&2
fi
install -c constraints.txt "torch==$wanted"
