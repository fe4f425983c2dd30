"""Create pretrained weights from a run: python scripts/bundle_weights.py RUN TAG [--into FOLDER]

Writes ``<model>-<tag>/`` with config.yaml, weights.safetensors in half precision and card.json. The test accuracy in
the card is measured with the stored weights. A few test images are stored too, for use without the dataset.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from torchcaps.data import datasets
from torchcaps.environment import without_folders
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.clean import test_images
from torchcaps.files import atomic_path, make_folder, read_json, write_json, write_text
from torchcaps.pretrained.loading import ROOT, WEIGHTS, Card, file_hash, load_pretrained, samples_file
from torchcaps.train import RunConfig, RunFolder, evaluate_accuracy, load, open_run, training_splits
from torchcaps.train.run_images import write_error_reference

SAMPLES = 40  # images, the same number per class
LOOKED_AT = 1000  # test images to choose from


def bundle(run: RunFolder, tag: str, root: Path = ROOT) -> Card:
    """Write the directory of a pretrained network and return its card."""
    config = run.config()
    model = load(run.path)
    folder = make_folder(root / f"{config.model}-{tag}")
    half = {
        f"model.{name}": (value.half() if value.is_floating_point() else value).contiguous()
        for name, value in model.state_dict().items()
    }
    if not all(bool(value.isfinite().all()) for value in half.values()):
        raise TorchcapsError(f"{run.path} has weights that overflow half precision and cannot be bundled")
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(half, temporary)
    write_text(folder / "config.yaml", run.config_file.read_text(encoding="utf-8"))
    card = Card(
        model=config.model,
        tag=tag,
        data=config.data,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        test_accuracy=0.0,
        test_images=0,
        selection_split=config.stop_on,
        sha256=file_hash(folder / WEIGHTS),
        training=made_by(run),
        licence=datasets.get(config.data).licence,
    )
    stored = load_pretrained(card, root)
    write_error_reference(RunFolder(folder), stored, training_splits(config)[1])
    measured = evaluate_accuracy(stored, test_images(config))
    card = card.model_copy(update={"test_accuracy": measured.accuracy, "test_images": measured.images})
    write_samples(config, root)
    write_json(folder / "card.json", card.model_dump(mode="json"))
    return card


def made_by(run: RunFolder) -> dict[str, Any]:
    """Command, commit, versions and hardware of the run, without paths of this machine."""
    environment: dict[str, Any] = read_json(run.path / "environment.json")
    return environment | {"command": " ".join(map(without_folders, environment["command"].split()))}


def write_samples(config: RunConfig, root: Path) -> None:
    """Store the first test images, the same number per class if images have one label."""
    images = test_images(config)
    batch = images.batch(torch.arange(min(LOOKED_AT, len(images))))
    if batch.labels.ndim == 1:
        each = SAMPLES // len(config.class_names)
        chosen = torch.cat([(batch.labels == label).nonzero()[:each, 0] for label in range(len(config.class_names))])
    else:
        chosen = torch.arange(SAMPLES)
    target = samples_file(config.data, root)
    make_folder(target.parent)
    pixels = batch.images[chosen].mul(255).round().to(torch.uint8)
    with atomic_path(target) as temporary:
        save_file({"images": pixels, "labels": batch.labels[chosen].contiguous()}, temporary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("tag")
    parser.add_argument("--into", type=Path, default=ROOT)
    given = parser.parse_args()
    try:
        card = bundle(open_run(given.run), given.tag, given.into)
    except TorchcapsError as error:
        sys.exit(f"Error: {error}")
    print(f"{card.name}: {card.test_accuracy:.2%} on {card.test_images} test images, {card.parameters:,} parameters")


if __name__ == "__main__":
    main()
