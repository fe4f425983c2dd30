#!/bin/sh
# Install the pinned torch, and where the machine has no NVIDIA GPU, its CPU build: the other one brings gigabytes of CUDA.
# A CPU build that pip's own sources offer is taken first, then PyTorch's own index, then whatever there is.
set -eu
python=$1
wanted=$(sed -n 's/^torch==//p' constraints.txt)
install() { "$python" -m pip install --disable-pip-version-check --quiet "$@"; }

if "$python" -c "import sys; from importlib.metadata import version; sys.exit(version('torch').split('+')[0] != '$wanted')" 2>/dev/null; then
    exit 0
fi
echo "installing torch $wanted"
if [ "$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null 2>&1; then
    install "torch==$wanted+cpu" 2>/dev/null && exit 0
    install --timeout 10 --retries 0 --index-url https://download.pytorch.org/whl/cpu "torch==$wanted" 2>/dev/null && exit 0
fi
install "torch==$wanted"
