"""How documentation commands are shortened for the tests, and which cannot be run, with the reason.

Commands run unchanged, with two exceptions: flags appended to training, testing and benchmark commands reduce their
budget, and datasets that would be downloaded are replaced by the generated dataset 'glyphs'.
"""

from __future__ import annotations

import re
import shlex

# Commands that no test can run, by a pattern.
NOT_RUN = {
    r"^make ": "make builds an environment; its commands are run one by one by the tests that they call",
    r"^pip install|^git clone|^npm ": "nothing is installed or fetched while tests run",
    r"^\. \.venv/bin/activate": "tests run inside the environment",
    r"--engine slurm|^srun|^sbatch": "needs a cluster: tests/slurm",
    r"--match familiar": "draws turntable's 24,300 images first, which takes minutes: tests/evaluate/test_viewpoint.py",
    r"^python scripts/docs_pages\.py": "tests/docs/test_made.py holds every page to what it makes",
    r"^python -m (tests|benchmarks)\.": "measures for minutes to hours; each has a small test of its own",
    r"--device cuda": "needs a GPU: tests/bench/test_claims.py runs the same case on the CPU",
    r"^tensorboard ": "runs until it is stopped, and belongs to another project",
}
FETCHED = "(mnist|mnist-40|fashion-mnist|cifar-10|smallnorb)"
TRAINED = ["--steps", "2", "--epochs", "1", "--train-images", "64", "--test-images", "32", "--size", "laptop"]
# Flags that shorten a command, by its name.
ADDED = {
    "train": TRAINED,
    "compare": [*TRAINED, "--seeds", "1", "--no-robustness"],
    "evaluate": ["--test-images", "8"],
    "explain": ["--only", "couplings"],
    "reproduce": ["--budget", "0s", "--jobs", "1"],
}
# The same for programs in examples/.
PROGRAMS = {"python examples/tune_routing.py": "--trials 1 --train-images 64"}
# Python: a set that is fetched becomes one that is drawn, and training becomes short.
PYTHON = {
    r'load_dataset\("mnist"': 'load_dataset("glyphs"',
    r"\bepochs=\d+": "epochs=1",
    r"load_digits\(": "small_digits(",
}


def why_not(command: str) -> str | None:
    """The reason why a command is not run."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), None)


def smaller(command: str) -> list[str]:
    """A torchcaps command as a list of arguments, with a small budget."""
    words = shlex.split(command)[1:]
    name = words[0]
    if name == "data":
        words = [re.sub(rf"^{FETCHED}$", "glyphs", word) for word in words]
    if name == "evaluate":
        words = ["affnist" if word == "affnist,multimnist" else word for word in words]
        if "--attack" in words:
            words += ["--epsilon", "0.1"]
    if name == "reproduce" and "--dry-run" in words:  # it times a step of each training, for which it needs the data
        return ["reproduce", "choi2019", "table3", "--cell", "random", "--dry-run"]
    if name == "train" and "--resume" in words:
        return words
    if name == "bench" and len(words) == 1:
        return ["bench", "step", "--models", "capsnet", "--size", "laptop", "--batch", "2", "--rounds", "1"]
    words += ADDED.get(name, [])
    own = any(word.startswith(("images:", "--images")) for word in words)
    return words + ["--data", "glyphs"] * (name in ("train", "compare") and not own)


def smaller_python(text: str) -> str:
    """A Python block with a small budget."""
    for pattern, instead in PYTHON.items():
        text = re.sub(pattern, instead, text)
    return text
