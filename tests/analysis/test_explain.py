"""explain: files that it writes, explainers that do not apply, and the selection of images."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps import analysis
from torchcaps.analysis.explain import EXPLANATIONS, explain
from torchcaps.analysis.explanation import read_image, select_images
from torchcaps.analysis.figures import map_sheet
from torchcaps.analysis.style import dark_png, figure_style, new_figure
from torchcaps.data import TensorImages, load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model

SMALL = {"size": "laptop", "filters": 8, "types": 2, "hidden": (16, 16)}


def coloured(count: int = 12, channels: int = 3, size: int = 32, classes: int = 3) -> TensorImages:
    images = torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8)
    return TensorImages(images, torch.arange(count) % classes, tuple("abcdefghij"[:classes]))


def test_a_capsule_model_is_explained(tmp_path: Path) -> None:
    model = create_model("capsnet", **SMALL)
    report = explain(model, load_dataset("glyphs", "test"), tmp_path, other=model, sample=3, title="tiny <capsnet>")
    assert set(report["explanations"]) == set(EXPLANATIONS) - {"votes"}
    assert report["skipped"] == {"votes": "DynamicRouting has no means of votes: vote distances need EM routing"}
    assert json.loads((tmp_path / "explain.json").read_text()) == json.loads(json.dumps(report))
    assert report["environment"]["command"]
    files = [file for each in report["explanations"].values() for file in each["files"]]
    for file in files:
        with Image.open(tmp_path / file) as picture:
            assert min(picture.size) > 100
    assert {path.name for path in tmp_path.iterdir()} == {*files, "explain.json", "index.html"}
    page = (tmp_path / "index.html").read_text()
    assert page.count("<img ") == len(files) + len(report["predictions"])
    assert page.count("<source media='(prefers-color-scheme: dark)'") == len(files)
    assert page.index("Prediction: ") < page.index("True label: ") < page.index("<h2>Couplings</h2>")
    assert page.index("<h2>Couplings</h2>") == page.index("<h2>"), "votes come first"
    assert [each["true_label"] for each in report["predictions"]] == list("0123456789")
    assert [file for file in files if "perturbation" in file] == ["perturbation.png"], "one range"
    assert "tiny &lt;capsnet&gt;" in page
    assert not re.findall(r"""(?:src|href)=['"](?!data:)""", page), "the page must need nothing from elsewhere"
    assert report["explanations"]["decoding"]["data"]["mean_squared_error"].keys() == {
        "other decoder",
        "other model",
        "own decoder",
    }


def test_a_figure_for_dark_pages_has_bright_text_and_no_background() -> None:
    with figure_style():
        figure = new_figure(3, 3)
        axes = figure.add_subplot()
        axes.set(title="WWWWWW", xlabel="MMMMMM", ylabel="HHHHHH")
    with Image.open(io.BytesIO(dark_png(figure))) as picture:
        pixels = np.asarray(picture.convert("RGBA")).astype(int)
    drawn = pixels[..., 3] == 255
    assert (pixels[..., 3] == 0).mean() > 0.5
    assert drawn.sum() > 100
    assert pixels[drawn][:, :3].max(1).min() > 50, "nothing dark on a dark page"


def test_a_vote_map_is_labeled_with_class_and_score() -> None:
    maps = [[torch.rand(4, 4).numpy()]]
    figure = map_sheet(torch.rand(1, 1, 8, 8), ["cat\n0.96"], ["iteration 1"], maps, [(0, 8, 8, 0)])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["cat\n0.96"]


def test_em_routing_on_color_images(tmp_path: Path) -> None:
    model = create_model(
        "matrix-capsnet", size="laptop", filters=4, types=(2, 2, 2), channels=3, image_size=32, classes=3
    )
    report = explain(model, coloured(), tmp_path, picture="4", only=["couplings", "votes", "entropy", "dead"])
    assert not report["skipped"]
    assert report["about"].startswith("Shown: image 4.")
    assert report["explanations"]["votes"]["files"] == ["votes-0-zoomed.png", "votes-0-whole.png"]
    assert len(report["explanations"]["couplings"]["data"]["classes"]) == 3, "one image: the best three classes"
    assert len(report["explanations"]["couplings"]["data"]["maps"]) == 3, "iterations"


def test_a_model_without_capsules(tmp_path: Path) -> None:
    report = explain(create_model("convnet-avg", size="laptop"), load_dataset("glyphs", "test"), tmp_path, sample=2)
    assert not report["explanations"]
    assert set(report["skipped"]) == set(EXPLANATIONS)
    assert all("ConvNetAvg has no" in reason or "--decoder" in reason for reason in report["skipped"].values())


def test_plain_units_are_perturbed_without_couplings(tmp_path: Path) -> None:
    model = create_model("convnet-cr", size="laptop", filters=8, hidden=(16, 16))
    only = ["perturbation", "couplings"]
    report = explain(model, load_dataset("glyphs", "test"), tmp_path, picture="0", only=only)
    assert report["explanations"]["perturbation"]["data"]["range"] == "gu2021-units"
    (change,) = report["explanations"]["perturbation"]["data"]["change"]
    assert change["image"] == "image 0"
    assert len(change["by_dimension"]) == 16
    assert set(report["skipped"]) == {"couplings"}


def test_images_of_each_class_or_one(tmp_path: Path) -> None:
    model, images = create_model("capsnet", **SMALL), load_dataset("glyphs", "test")
    assert select_images(model, images, None).names == list("0123456789")
    torch.testing.assert_close(select_images(model, images, "7").images, images.batch(torch.tensor([7])).images)
    with pytest.raises(TorchcapsError, match="there is no image 1000: the dataset has images 0 to 999"):
        select_images(model, images, "1000")
    with pytest.raises(TorchcapsError, match=r"nowhere\.png is neither a file nor a number"):
        select_images(model, images, "nowhere.png")
    with pytest.raises(TorchcapsError, match="has 10 classes but the dataset has 3"):
        select_images(model, coloured(), None)
    with pytest.raises(TorchcapsError, match=r"expects images \(1, 28, 28\)"):
        select_images(model, coloured(classes=10), None)
    larger = coloured(channels=1, size=40, classes=10)
    torch.testing.assert_close(
        select_images(model, larger, "3").images, larger.batch(torch.tensor([3])).images[..., 6:34, 6:34]
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16", "CMYK"])
def test_a_picture_of_any_size_and_mode(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "picture.tiff"
    Image.new(mode, (57, 33), color=1 if mode in ("L", "P", "1", "I;16") else None).save(path)
    for shape in ((1, 28, 28), (3, 32, 32)):
        image = read_image(path, shape)
        assert image.shape == (1, *shape)
        assert 0 <= float(image.min()) <= float(image.max()) <= 1


def test_a_broken_picture_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    with pytest.raises(TorchcapsError, match=r"broken\.png cannot be read: .*Use a PNG or JPEG image"):
        read_image(broken, (1, 28, 28))
    huge = tmp_path / "huge.pgm"
    huge.write_bytes(b"P5\n60000 60000\n255\n")
    with pytest.raises(TorchcapsError, match=r"huge\.pgm claims 60000x60000 pixels|cannot be read"):
        read_image(huge, (1, 28, 28))
    with pytest.raises(TorchcapsError, match="grayscale or RGB"):
        read_image(broken, (2, 32, 32))


def test_an_unknown_explanation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TorchcapsError, match="explanation 'copuling' is unknown: did you mean 'couplings'"):
        explain(create_model("capsnet", **SMALL), load_dataset("glyphs", "test"), tmp_path, only=["copuling"])
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_imported_only_to_draw() -> None:
    """Training imports the analysis package for TensorBoard, and must not pay for matplotlib."""
    modules = ", ".join(f"torchcaps.analysis.{path.stem}" for path in Path(analysis.__file__).parent.glob("[!_]*.py"))
    check = f"import sys, {modules}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
