"""What a comparison on a user's own pictures begins with, and what it says about them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image

from torchcaps.data import TensorImages, datasets
from torchcaps.data.datasets.image_folder import FAMILY, TEST_SHARE, completed, fit_folder, open_named, parse_name
from torchcaps.data.preview import contact_sheet

# Two capsule networks that learn from few pictures, the first of them without its routing, and a plain network.
MODELS = ("capsnet", "capsnet:routing=uniform", "ar-capsnet", "convnet-avg")
IMAGES_SEEN = 8000  # by each model in all epochs, where nobody says how many: a minute or two on one core
EPOCHS = range(5, 41)
SHEET_COLUMNS, SHEET_CLASSES = 8, 40


@dataclass(frozen=True)
class ImageFolderSummary:
    """Rows of a table (class, training, test), a paragraph, what to be careful about, and files that were left out."""

    rows: list[tuple[str, str, str]]
    words: str
    warnings: list[str]
    skipped: tuple[str, ...]


def is_own_images(data: str) -> bool:
    """Whether a dataset's name is that of a user's own pictures."""
    return data.partition(":")[0] == FAMILY


def display_name(data: str) -> str:
    """A dataset's name as a heading has it: of own pictures, only where they lie."""
    return parse_name(data.partition(":")[2])[0] if is_own_images(data) else data


def default_epochs(data: str) -> int:
    """More passes over fewer pictures, within bounds."""
    fitting = IMAGES_SEEN // datasets.get(data).splits["train"]
    return min(max(fitting, EPOCHS.start), EPOCHS.stop - 1)


def preview_sheet(data: str) -> Image.Image:
    """A contact sheet of some training pictures of each class, at the size and in the colors that a model sees."""
    images = open_named(data.partition(":")[2]).train
    names = images.class_names[:SHEET_CLASSES]
    places = [(images.labels == label).nonzero().flatten()[:SHEET_COLUMNS] for label in range(len(names))]
    chosen = torch.cat(places)
    some = f", the first {len(names)} of {len(images.class_names)} classes" * (len(names) < len(images.class_names))
    title = f"{display_name(data)}: pictures as a network sees them, {'x'.join(map(str, images.shape))}{some}"
    shown = TensorImages(images.images[chosen], images.labels[chosen], names)
    return contact_sheet(shown, title, columns=SHEET_COLUMNS)


def summarize_images(data: str) -> ImageFolderSummary:
    """Which pictures there are, how they are divided and to which size they are brought."""
    text = data.partition(":")[2]
    folder, balance = open_named(text), open_named(text).balance
    root, chosen = completed(text)
    fit = fit_folder(root)
    as_fitted = {"size": fit.size, "grey": int(fit.grey)}
    asked = {name: value for name, value in parse_name(text)[1].items() if as_fitted.get(name, value) != value}
    reason = "as asked" if asked else fit.reason
    words = (
        f"{len(folder.train) + len(folder.test)} pictures of {len(balance.names)} classes, brought to "
        f"{chosen['size']}x{chosen['size']} pixels in {'grey' if chosen['grey'] else 'colour'} ({reason}). "
        f"{len(folder.test)} of them, {TEST_SHARE:.0%} of each class chosen by seed {chosen.get('seed', 0)}, are held "
        "out for the test: the same ones every time."
    )
    rows = [
        (name, str(train), str(test))
        for name, train, test in zip(balance.names, balance.train, balance.test, strict=True)
    ]
    return ImageFolderSummary(rows, words, balance.warnings(), folder.skipped)
