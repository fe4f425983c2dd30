"""File formats: correct content from a valid file, and a clear error for any other."""

from __future__ import annotations

import contextlib
import gzip
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.helpers import dataset_files
from torchcaps.data.datasets.affnist import read_affnist
from torchcaps.data.datasets.cifar10 import read_records
from torchcaps.data.datasets.mnist import read_split
from torchcaps.data.datasets.smallnorb import read_toys
from torchcaps.data.io.formats import read_idx, read_matrix, read_struct
from torchcaps.errors import TorchcapsError

numbers = np.random.default_rng(0)
PICTURES = numbers.integers(0, 256, (3, 5, 4)).astype("u1")
AFFNIST = {
    "image": numbers.integers(0, 256, (1600, 3)).astype("u1"),
    "label_int": np.array([[3.0, 1.0, 9.0]]),
}

# name: (a good file's bytes, the reader)
READERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "idx": (dataset_files.idx_bytes(PICTURES), lambda path: read_idx(path, 3)),
    "idx.gz": (gzip.compress(dataset_files.idx_bytes(PICTURES)), lambda path: read_idx(path, 3)),
    "matrix": (dataset_files.matrix_bytes(PICTURES[None].copy()), lambda path: read_matrix(path, 4)),
    "matrix.gz": (gzip.compress(dataset_files.matrix_bytes(PICTURES[None].copy())), lambda path: read_matrix(path, 4)),
    "cifar.bin": (
        dataset_files.cifar_bytes(np.array([1, 9]), numbers.integers(0, 256, (2, 3, 32, 32)).astype("u1")),
        lambda path: read_records([path]),
    ),
    "affnist.mat": (dataset_files.mat_bytes("affNISTdata", AFFNIST), read_affnist),
    "plain.mat": (dataset_files.mat_bytes("affNISTdata", AFFNIST, packed=False), read_affnist),
}


@pytest.fixture(params=READERS)
def good(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes, Callable[[Path], object]]:
    content, reader = READERS[request.param]
    path = tmp_path / request.param
    path.write_bytes(content)
    return path, content, reader


def refused(reader: Callable[[Path], object], path: Path) -> None:
    with pytest.raises(TorchcapsError) as caught:
        reader(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


def test_good_file_is_read(good: tuple[Path, bytes, Callable[[Path], object]]) -> None:
    path, _, reader = good
    reader(path)


@pytest.mark.parametrize("keep", [0, 1, 3, 7, 11, 60, -1])
def test_short_file_is_refused(good: tuple[Path, bytes, Callable[[Path], object]], keep: int) -> None:
    path, content, reader = good
    path.write_bytes(content[: keep if keep >= 0 else len(content) + keep])
    refused(reader, path)


def test_missing_file_is_refused(good: tuple[Path, bytes, Callable[[Path], object]]) -> None:
    path, _, reader = good
    path.unlink()
    refused(reader, path)


def test_swapped_file_is_refused(good: tuple[Path, bytes, Callable[[Path], object]]) -> None:
    path, content, reader = good
    for other, _ in READERS.values():
        if other[:4] != content[:4] and not (path.suffix == ".mat" and other[:10] == content[:10]):
            path.write_bytes(other)
            refused(reader, path)


def test_folder_instead_of_file_is_refused(good: tuple[Path, bytes, Callable[[Path], object]]) -> None:
    path, _, reader = good
    path.unlink()
    path.mkdir()
    refused(reader, path)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_is_read_or_refused(name: str, tmp_path: Path, data: st.DataObject) -> None:
    content, reader = READERS[name]
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        # Headers decide most, so they are hit as often as all the rest.
        place = data.draw(st.integers(0, min(260, len(damaged) - 1)) | st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(bytes(damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]))
    with contextlib.suppress(TorchcapsError):  # any other error fails the test
        reader(path)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400))
@example(content=b"")
def test_random_bytes_are_refused(name: str, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TorchcapsError):
        READERS[name][1](path)


def huge_headers() -> dict[str, tuple[bytes, Callable[[Path], object]]]:
    most = (1 << 31) - 1
    element = dataset_files.element
    matrix = (
        element("<", 6, struct.pack("<II", 2, 0))
        + element("<", 5, struct.pack("<2i", 1, 1))
        + element("<", 1, b"affNISTdata")
        + element("<", 5, struct.pack("<i", 32), small=True)
        + element("<", 1, b"image".ljust(32, b"\0"))
    )
    big = (
        element("<", 6, struct.pack("<II", 9, 0))
        + element("<", 5, struct.pack("<2i", most, most))
        + element("<", 1, b"")
    )
    array = element("<", 14, big + struct.pack("<II", 2, most))
    header = b"MATLAB 5.0".ljust(124) + b"\0\1IM"
    bomb = zlib.compress(b"\0" * (1 << 22))
    return {
        "idx": (bytes([0, 0, 8, 3]) + struct.pack(">3I", most, 1, 1), lambda path: read_idx(path, 3)),
        "idx.gz": (
            gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 1 << 16, 1 << 15, 1)),
            lambda path: read_idx(path, 3),
        ),
        "idx-product": (bytes([0, 0, 8, 3]) + struct.pack(">3I", *[4294967295] * 3), lambda path: read_idx(path, 3)),
        "matrix": (struct.pack("<Ii4i", 0x1E3D4C54, 4, most, most, most, most), lambda path: read_matrix(path, 4)),
        "negative": (struct.pack("<Ii4i", 0x1E3D4C55, 4, -1, -1, 2, 2), lambda path: read_matrix(path, 4)),
        "mat": (header + element("<", 14, matrix + array), read_affnist),
        "mat-claims": (header + struct.pack("<II", 14, most), read_affnist),
        "mat-zeros": (header + struct.pack("<II", 15, len(bomb)) + bomb, read_affnist),
    }


@pytest.mark.parametrize("name", huge_headers())
def test_hostile_header_costs_no_memory(name: str, tmp_path: Path) -> None:
    content, reader = huge_headers()[name]
    path = tmp_path / name
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), limits[1]))  # not even address space
    try:
        refused(reader, path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_idx_content(tmp_path: Path) -> None:
    path = dataset_files.pack(tmp_path / "a.gz", dataset_files.idx_bytes(PICTURES))
    assert torch.equal(read_idx(path, 3), torch.from_numpy(PICTURES))


def test_idx_of_another_dimension_is_refused(tmp_path: Path) -> None:
    path = dataset_files.pack(tmp_path / "a", dataset_files.idx_bytes(PICTURES))
    with pytest.raises(TorchcapsError, match="0 0 8 1, found 0 0 8 3"):
        read_idx(path, 1)


def test_labels_of_digits_are_checked(tmp_path: Path) -> None:
    dataset_files.write_digits(tmp_path)
    dataset_files.pack(tmp_path / "train-labels-idx1-ubyte.gz", dataset_files.idx_bytes(np.full(60, 10)))
    with pytest.raises(TorchcapsError, match="labels run from 10 to 10, but there are 10 classes"):
        read_split("train", tmp_path, tuple("0123456789"))
    dataset_files.pack(tmp_path / "train-labels-idx1-ubyte.gz", dataset_files.idx_bytes(np.zeros(59)))
    with pytest.raises(TorchcapsError, match="60 images but 59 labels"):
        read_split("train", tmp_path, tuple("0123456789"))


def test_cifar_planes(tmp_path: Path) -> None:
    image = np.zeros((3, 32, 32), dtype="u1")
    image[0, 0, 1], image[1, 2, 0], image[2, 31, 31] = 10, 20, 30
    path = tmp_path / "a.bin"
    path.write_bytes(dataset_files.cifar_bytes(np.array([4]), image[None]))
    images = read_records([path, path])
    assert len(images) == 2
    batch = images.batch(torch.tensor([1]))
    assert batch.labels.tolist() == [4]
    assert (batch.images[0] * 255).round().nonzero().tolist() == [[0, 0, 1], [1, 2, 0], [2, 31, 31]]


@pytest.mark.parametrize("packed", [True, False])
def test_toys(tmp_path: Path, packed: bool) -> None:
    arrays = dataset_files.write_toys(tmp_path, "toys", packed=packed)
    found = read_toys(tmp_path, "toys")
    assert found["labels"].tolist() == arrays["cat"].tolist()
    assert found["azimuth"].tolist() == [20 * (number % 18) for number in range(12)]
    assert found["elevation"].tolist() == [30 + 5 * (number % 9) for number in range(12)]
    assert found["images"].shape == (12, 2, 4, 4)
    square = arrays["dat"][7, 1, 2:4, 4:6].astype(int)
    assert found["images"][7, 1, 1, 2].item() == (square.sum() + 2) // 4


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("cat", np.zeros(11, "<i4"), "do not belong together"),
        ("cat", np.full(12, 5, "<i4"), "categories must be 0 to 4"),
        ("info", np.full((12, 4), 99, "<i4"), "factor is out of range"),
        ("info", np.zeros((12, 3), "<i4"), "do not belong together"),
        ("dat", np.zeros((12, 1, 8, 8), "u1"), "expected bytes"),
        ("dat", np.zeros((12, 2, 7, 8), "u1"), "expected bytes"),
        ("dat", np.zeros((12, 2, 8), "u1"), "has 3 dimensions"),
    ],
)
def test_toys_that_do_not_fit_are_refused(tmp_path: Path, kind: str, array: np.ndarray, message: str) -> None:
    dataset_files.write_toys(tmp_path, "toys")
    dataset_files.pack(tmp_path / f"toys-{kind}.mat.gz", dataset_files.matrix_bytes(array))
    with pytest.raises(TorchcapsError, match=message):
        read_toys(tmp_path, "toys")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("packed", [True, False])
def test_matlab_struct(tmp_path: Path, order: str, packed: bool) -> None:
    fields = {"image": PICTURES[0], "other": np.array([[1.5, -2.0]]), "few": np.array([[7, 300]]).astype("u2")}
    path = tmp_path / "a.mat"
    path.write_bytes(dataset_files.mat_bytes("thing", fields, order=order, packed=packed))
    found = read_struct(path, "thing", ("image", "few", "other"))
    assert torch.equal(found["image"], torch.from_numpy(PICTURES[0]))
    assert found["few"].tolist() == [[7, 300]]
    assert found["other"].tolist() == [[1.5, -2.0]]
    with pytest.raises(TorchcapsError, match="no such variable"):
        read_struct(path, "things", ("image",))
    with pytest.raises(TorchcapsError, match="'label' is missing, there are: image, other, few"):
        read_struct(path, "thing", ("label",))


def test_matlab_agrees_with_scipy(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io", reason="scipy writes the file that this test reads")
    for compression in (True, False):
        scipy_io.savemat(tmp_path / "a.mat", {"affNISTdata": AFFNIST, "more": 1}, do_compression=compression)
        found = read_struct(tmp_path / "a.mat", "affNISTdata", ("image", "label_int"))
        assert np.array_equal(found["image"].numpy(), AFFNIST["image"])
        assert np.array_equal(found["label_int"].numpy(), AFFNIST["label_int"])


def test_affnist_columns_become_images(tmp_path: Path) -> None:
    path = tmp_path / "test.mat"
    image = np.zeros((40, 40), dtype="u1")
    image[3, 17] = 200  # row 3, column 17
    path.write_bytes(
        dataset_files.mat_bytes(
            "affNISTdata", {"image": image.reshape(-1, 1, order="F"), "label_int": np.array([[5.0]])}
        )
    )
    batch = read_affnist(path).batch(torch.tensor([0]))
    assert batch.labels.tolist() == [5]
    assert batch.images.nonzero().tolist() == [[0, 0, 3, 17]]


def test_names_of_fields_make_no_long_sentence(tmp_path: Path) -> None:
    fields = {f"{number:03}" + "x" * 20: np.zeros((1, 1), "u1") for number in range(200)}
    path = tmp_path / "long.mat"
    path.write_bytes(dataset_files.mat_bytes("affNISTdata", fields, packed=False))
    refused(read_affnist, path)
