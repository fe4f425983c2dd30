"""Write what was measured into docs/robustness.md: python scripts/robustness_page.py

What stands between the two marks is made from the files in results/robustness/; a test holds it to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs_parts.marks import table

from torchcaps.evaluate.report import notes, summary_table
from torchcaps.reproduce.spec import load_spec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "robustness.md"
MEASURED = ROOT / "results" / "robustness"
START, END = "<!-- measured: made by scripts/robustness_page.py -->", "<!-- end of measured -->"
SHOWN = ("0", "10", "30", "60", "120")  # iterations of the universal attack
COLUMNS = {"cnn-chen2019": "Baseline", "g-capsnet-fc": "FC G-CapsNets", "g-capsnet-conv": "Conv G-CapsNets"}
PLAIN = "convnet-avg"  # with what the capsule networks are compared
Result = dict[str, Any]


def universal(result: Result) -> str:
    """Accuracy by iteration of the universal attack."""
    rows = [
        [run["model"], f"{row['epsilon']:g}", *(f"{100 * row['history'][shown]:.1f}" for shown in SHOWN)]
        for run in result["runs"]
        for row in run["attacked"]["attacks"]
    ]
    images = result["runs"][0]["attacked"]["images"]
    return f"""### One perturbation for all images (chen2019, supplement 6.2)

A generator is trained against the fixed network; after each iteration one of its perturbations is added to {images:,}
test images of MNIST. The paper, which gives no epsilon: "all three networks' accuracy drop sharply after 100 attacking
iterations". Accuracy in % after so many iterations, laptop size:

{table(["model", "epsilon", *SHOWN], rows)}

![Accuracy against the iterations of the universal attack](images/universal.png)"""


def acgan(result: Result) -> str:
    """Error by epoch of the GAN, beside the paper's."""
    cells = load_spec("chen2019").tables["table3"].cells.values()
    published = {(cell.column, cell.row): cell.published for cell in cells}
    rows = [
        [
            run["model"],
            *(
                f"{100 * error:.2f} ({published[COLUMNS[run['model']], f'Epoch {epoch}']:g})"
                for epoch, error in run["tests"]["acgan"]["error_by_epoch"].items()
            ),
        ]
        for run in result["runs"]
    ]
    found = result["runs"][0]["tests"]["acgan"]
    settings, epochs = found["settings"], list(found["error_by_epoch"])
    return f"""### Digits that a GAN draws (chen2019, Table 3)

Error in % on {found["images"]:,} drawings after each epoch of an AC-GAN's training, and in brackets the paper's. Laptop
size: the networks are small, and an epoch of the GAN has {settings["train_images"]:,} digits in batches of
{settings["batch"]}.

{table(["model", *(f"epoch {epoch}" for epoch in epochs)], rows)}

![What the AC-GAN draws after each epoch](images/acgan.png)"""


def _kept(run: Result, epsilon: float) -> dict[str, float]:
    """Accuracy in % that a network keeps under each attack."""
    return {row["attack"]: 100 * row["accuracy"] for row in run["attacked"]["attacks"] if row["epsilon"] == epsilon}


def _held(attack: str, kept: dict[str, dict[str, float]]) -> str:
    """A line: which capsule networks keep more than the plain one."""
    bar = kept[PLAIN][attack]
    above = [f"{model} {found[attack]:.0f} %" for model, found in kept.items() if found[attack] > bar]
    return f"- Under {attack} {PLAIN} keeps {bar:.0f} %, and more than that: {', '.join(above) or 'none'}."


def five(result: Result) -> str:
    """Five networks under affine change, overlap and every attack, with the verdicts of the sanity checks."""
    columns, rows = summary_table(result["runs"])
    lines = [[str(cell) for cell in row] for row in rows]
    about = "\n".join(f"- {note}" for note in notes(result["runs"]))
    plain = next(run for run in result["runs"] if run["model"] == PLAIN)
    least = min(row["epsilon"] for row in plain["attacked"]["attacks"])
    kept = {run["model"]: _kept(run, least) for run in result["runs"]}
    held = "\n".join(_held(attack, kept) for attack in kept[PLAIN])
    return f"""### Five networks, affine change, overlap and attacks

Laptop size, trained on MNIST, one seed. Accuracy in %, for attacks by epsilon (pixels of [0, 1], largest change):

{table(list(columns), lines)}

{about}

hinton2018 claims that matrix capsules are more robust to white-box attacks than a plain network; chen2019 and gu2021
claim that capsules are not. Here, at epsilon {least:g}:

{held}

This is one seed of each network, and their accuracies on clean images are not matched.

![Accuracy against epsilon for five networks](images/five-attacks.png)"""


PARTS: dict[str, Callable[[Result], str]] = {"five": five, "universal": universal, "acgan": acgan}


def part(folder: Path = MEASURED) -> str:
    """What was measured, from the files in a folder."""
    files = {name: folder / name / "evaluation.json" for name in PARTS}
    return "\n\n".join(
        PARTS[name](json.loads(path.read_text(encoding="utf-8"))) for name, path in files.items() if path.is_file()
    )


def page() -> str:
    """The page with its part made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{before}{START}\n\n{part()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
