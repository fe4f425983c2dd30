"""Responses of the service compared with direct calls of the library."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.demo.conftest import decoded, rows
from torchcaps.analysis import inspect_layers, perturb_dimensions, vote_maps
from torchcaps.data import TensorImages
from torchcaps.data.transforms import rotation, warp
from torchcaps.demo import results, service
from torchcaps.demo.app import create_app
from torchcaps.demo.results import read_results
from torchcaps.demo.served import ServedModel, load_run_models
from torchcaps.demo.service import Worker
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_json
from torchcaps.reproduce import results as reproduce_results
from torchcaps.reproduce.spec import list_papers

Digits = tuple[Tensor, list[int]]
NAME = "capsnet-mnist-laptop"


def ask(client: httpx.Client, path: str, **question: object) -> dict[str, object]:
    wanted = {"include": ["scores", "pose", "image"]} if path == "predict" else {}
    answer = client.post(f"/api/{path}", json={"model": NAME} | wanted | question)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_models_are_described(client: httpx.Client, shipped: list[ServedModel]) -> None:
    listed = {each["name"]: each for each in client.get("/api/models").json()}
    assert list(listed) == [each.name for each in shipped]
    assert listed[NAME]["pose_size"] == 16
    assert listed[NAME]["draws"]
    assert listed[NAME]["test_accuracy"] > 0.97
    assert not listed["convnet-avg-mnist-laptop"]["routes"]
    assert listed["ar-capsnet-mnist-laptop"]["reach"] == pytest.approx(0.25 * 16**0.5)  # choi2019's range


@pytest.mark.parametrize("name", [NAME, "matrix-capsnet-mnist-laptop", "ar-capsnet-mnist-laptop"])
def test_predicts_as_the_model_does(
    client: httpx.Client, shipped: list[ServedModel], digits: Digits, name: str
) -> None:
    """Concurrent requests are batched, and each gets its own response."""
    images, labels = digits
    model = next(each.model for each in shipped if each.name == name)
    with torch.no_grad():
        expected = model(images)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda image: ask(client, "predict", model=name, image=rows(image)), images))
    scores, poses = (torch.tensor([each[key] for each in answers]) for key in ("scores", "pose"))
    torch.testing.assert_close(scores, expected.scores, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(poses, expected.pose, atol=1e-3, rtol=1e-3)
    assert sum(each["label"] == label for each, label in zip(answers, labels, strict=True)) >= 36  # of 40


def test_noise_is_unlike_the_training_images(client: httpx.Client, digits: Digits) -> None:
    noise = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))
    odd = ask(client, "predict", model="capsnet-mnist-laptop", image=rows(noise))
    assert odd["unusual"] is True
    assert odd["reconstruction_percentile"] == 100
    usual = [ask(client, "predict", model="capsnet-mnist-laptop", image=rows(image)) for image in digits[0][:10]]
    assert sum(each["unusual"] for each in usual) <= 1
    plain = ask(client, "predict", model="convnet-avg-mnist-laptop", image=rows(noise))
    assert "unusual" not in plain, "it has no decoder"


def test_transform_is_the_librarys(client: httpx.Client, digits: Digits) -> None:
    image = digits[0][7]
    answer = ask(client, "predict", image=rows(image), transform={"rotate": 30, "shift_x": 2})
    turned = warp(image.unsqueeze(0), rotation(torch.tensor([30.0])), torch.tensor([[2.0, 0.0]]))[0]
    torch.testing.assert_close(decoded(answer["image"]), turned, atol=0.003, rtol=0)


def test_other_sizes_are_put_in_the_middle(client: httpx.Client) -> None:
    answer = ask(client, "predict", image=[[1.0] * 10] * 10)
    seen = decoded(answer["image"])[0]
    assert seen[9:19, 9:19].min() == 1
    assert seen.sum() == 100
    for side in (27, 29, 128):
        seen = decoded(ask(client, "predict", image=[[1.0] * side] * side)["image"])
        assert seen.shape == (1, 28, 28)
        assert seen.sum() == min(side, 28) ** 2


def test_draws_what_the_decoder_draws(client: httpx.Client, capsnet: ServedModel, digits: Digits) -> None:
    image = digits[0][12]
    with torch.no_grad():
        output = capsnet.model(image.unsqueeze(0))
        expected = capsnet.model.reconstruct(output)
    label, pose = int(output.scores.argmax()), output.pose[0].tolist()
    drawn = decoded(ask(client, "reconstruct", pose=pose, label=label)["images"])
    torch.testing.assert_close(drawn, expected, atol=0.003, rtol=0)
    swept = decoded(ask(client, "reconstruct", pose=pose, label=label, sweep={"reach": 0.25, "steps": 11})["images"])
    torch.testing.assert_close(swept, perturb_dimensions(capsnet.model, image), atol=0.003, rtol=0)


def test_routing_is_what_inspection_finds(client: httpx.Client, capsnet: ServedModel, digits: Digits) -> None:
    image = digits[0][3]
    answer = ask(client, "routing", image=rows(image), label=5)
    _, layers = inspect_layers(capsnet.model, image.unsqueeze(0))
    expected = torch.stack([vote_maps(layers, torch.tensor([5]), number)[0][0] for number in range(3)])
    torch.testing.assert_close(torch.tensor(answer["maps"]), expected, atol=1e-4, rtol=1e-3)
    assert answer["label"] == 5
    assert answer["share"][0] == pytest.approx(0.1, abs=1e-3)  # shared out equally at first
    assert answer["even_share"] == pytest.approx(0.1)
    torch.testing.assert_close(torch.tensor(answer["even_map"]), expected[0], atol=1e-4, rtol=1e-3)
    assert answer["distances"] is None


def test_em_routing_returns_vote_distances(client: httpx.Client, digits: Digits) -> None:
    found = ask(client, "routing", model="matrix-capsnet-mnist-laptop", image=rows(digits[0][3]))["distances"]
    assert len(found["mean"]) == len(found["weights"])
    assert found["mean"][-1] < found["mean"][0]  # votes gather


def test_even_share_is_the_mean_over_all_classes(client: httpx.Client, digits: Digits) -> None:
    """Not a tenth: strides leave out some positions at the border."""
    image = rows(digits[0][3])
    found = [ask(client, "routing", model="matrix-capsnet-mnist-laptop", image=image, label=each) for each in range(10)]
    assert sum(each["share"][-1] for each in found) / 10 == pytest.approx(found[0]["even_share"], rel=1e-3)
    attention = ask(client, "routing", model="ar-capsnet-mnist-laptop", image=image)
    assert attention["share"] is attention["even_map"] is attention["even_share"] is None


def test_prediction_names_the_class_and_returns_no_image(client: httpx.Client, digits: Digits) -> None:
    answer = client.post("/api/predict", json={"model": NAME, "image": rows(digits[0][4])}).json()
    judged = {"reconstruction_percentile", "unusual"}
    assert set(answer) == {"model", "label", "class_name", "probability", "probabilities"} | judged
    assert answer["class_name"] == str(answer["label"])
    shares = answer["probabilities"]
    assert answer["probability"] == max(shares.values()) == shares[answer["class_name"]]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)


def png(image: Tensor) -> bytes:
    stream = io.BytesIO()
    Image.fromarray((image[0] * 255).round().byte().numpy()).save(stream, "PNG")
    return stream.getvalue()


def test_an_uploaded_file_is_an_image(client: httpx.Client, digits: Digits) -> None:
    image = digits[0][4]
    expected = client.post("/api/predict", json={"model": NAME, "image": rows(image)}).json()
    answer = client.post("/api/predict", files={"image": ("4.png", png(image))}, data={"model": NAME})
    assert answer.status_code == 200, answer.text
    assert answer.json()["probability"] == pytest.approx(expected["probability"], abs=1e-3)
    for form, words in (
        ({"files": {"picture": png(image)}}, "'picture'"),
        ({"files": {"image": b"no image"}, "data": {"model": NAME}}, "cannot be read"),
        ({"files": {"image": b""}, "data": {"model": NAME}}, "no image"),
        ({"files": {"image": png(image)}, "data": {"model": "other"}}, "other"),
        ({"content": b"--x", "headers": {"content-type": "multipart/form-data"}}, "boundary"),
        ({"content": b"--x\r\nhello", "headers": {"content-type": "multipart/form-data; boundary=x"}}, "form"),
    ):
        answer = client.post("/api/predict", **form)
        assert answer.status_code in (404, 422), answer.text
        assert words in answer.json()["detail"]


def test_a_single_model_needs_no_name(client: httpx.Client, shipped: list[ServedModel], digits: Digits) -> None:
    answer = client.post("/api/predict", json={"image": rows(digits[0][4])})
    assert answer.status_code == 422
    assert f"several: {NAME}" in answer.json()["detail"]
    app = create_app(shipped[:1], page=False)

    async def scene() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            upload = client.post("/api/predict", files={"image": png(digits[0][4])})
            routing = client.post("/api/routing", json={"image": rows(digits[0][4])})
            return [await upload, await routing, await client.get("/")]

    *answers, index = asyncio.run(scene())
    assert [each.json()["model"] for each in answers] == [shipped[0].name] * 2
    assert index.json()["documentation"] == "/docs"


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_attack_stays_within_epsilon(client: httpx.Client, digits: Digits, attack: str) -> None:
    image = digits[0][20]
    answer = ask(client, "attack", image=rows(image), attack=attack, epsilon=0.3)
    assert answer["largest"] <= 0.3 + 1e-6
    assert (decoded(answer["image"]) - image).abs().max() <= 0.3 + 0.003
    changed = max(range(10), key=answer["after"].__getitem__) != answer["label"]
    assert answer["fooled"] == changed
    assert answer["after"][answer["label"]] < answer["before"][answer["label"]]


def test_state_of_the_service(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    ask(client, "predict", image=[[0.0] * 28] * 28)
    text = client.get("/metrics").text
    assert 'torchcaps_requests_total{path="/api/predict",status="200"}' in text
    assert f'torchcaps_waiting{{model="{NAME}"}} 0' in text
    client.get("/no/such/path")
    assert "/no/such/path" not in client.get("/metrics").text


def test_wrong_names_and_values_are_reported(client: httpx.Client) -> None:
    image = [[0.0] * 28] * 28
    answer = client.post("/api/predict", json={"model": "capsnet-mnist-labtop", "image": image})
    assert answer.status_code == 404
    assert "did you mean 'capsnet-mnist-laptop'?" in answer.json()["detail"]
    for path, question, words in (
        ("predict", {"image": [[0.0] * 28] * 27}, "square"),
        ("predict", {"image": [[0.0] * 28] * 27 + [[0.0] * 9]}, "same length"),
        ("predict", {"image": [[2.0] * 28] * 28}, "pixels in [0, 1]"),
        ("predict", {"image": image, "extra": 1}, "extra"),
        ("predict", {"image": image, "transform": {"scale": 0}}, "scale"),
        ("routing", {"image": image, "label": 10}, "no class 10"),
        ("routing", {"image": image, "model": "convnet-avg-mnist-laptop"}, "no capsule layers"),
        ("attack", {"image": image, "epsilon": 2}, "epsilon"),
        ("attack", {"image": image, "attack": "../../etc"}, "fgsm"),
        ("reconstruct", {"pose": [[0.0] * 16] * 9, "label": 1}, "10 rows of 16"),
        ("reconstruct", {"pose": [[0.0] * 16] * 10, "label": 1, "model": "matrix-capsnet-mnist-laptop"}, "no decoder"),
    ):
        answer = client.post(f"/api/{path}", json={"model": NAME} | question)
        assert answer.status_code == 422, (path, words, answer.text)
        assert words in answer.json()["detail"]


def test_a_full_queue_is_reported(shipped: list[ServedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "Worker", partial(Worker, queue_size=0))
    app = create_app(shipped[:1])

    async def scene() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.post("/api/predict", json={"model": shipped[0].name, "image": [[0.0] * 28] * 28})

    answer = asyncio.run(scene())
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "too many requests are waiting" in answer.json()["detail"]


def test_results_of_a_folder(tmp_path: Path) -> None:
    assert read_results(tmp_path) == []
    cell = {"paper": "gu2021", "table": "table1", "cell": "capsnet-affnist", "profile": "laptop", "measure": "affine"}
    rest = {"unit": "%", "published": 79.0, "fingerprint": "x", "environment": {}}
    for seed, value in enumerate((90.0, 92.0)):
        target = tmp_path / "gu2021" / "table1" / f"capsnet-affnist-laptop-seed{seed}.json"
        write_json(target, cell | rest | {"seed": seed, "value": value})
    (paper,) = read_results(tmp_path)
    assert paper.paper == "gu2021"
    shown = [each for row in paper.tables[0].rows for each in row.cells if each and each.ours.startswith("91.00")]
    assert [each.paper for each in shown] == ["79"]


def test_results_are_read_once_without_blocking(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, digits: Digits, results_folder: Path
) -> None:
    """While twelve clients wait for slow results, another request is answered."""
    gate, reads = threading.Event(), []

    def slow_gather(*arguments: Any) -> Any:
        reads.append(arguments)
        gate.wait(20)
        return gather(*arguments)

    gather = reproduce_results.gather_results
    monkeypatch.setattr(reproduce_results, "gather_results", slow_gather)
    monkeypatch.setattr(results, "FRESH_SECONDS", 0)
    (results_folder / "new.json").write_text("{}")
    stream = io.BytesIO()
    Image.fromarray((digits[0][4][0] * 255).byte().numpy()).save(stream, "PNG")
    picture = base64.b64encode(stream.getvalue()).decode()
    with ThreadPoolExecutor(12) as pool:
        visitors = [pool.submit(client.get, "/api/results") for _ in range(12)]
        try:
            while not reads:
                time.sleep(0.01)
            time.sleep(0.2)  # until all of them wait
            answer = client.post("/api/predict", json={"model": NAME, "image": picture}, timeout=5)
            assert answer.status_code == 200
        finally:
            gate.set()
        assert [each.result().json() for each in visitors] == [[]] * 12
    assert client.get("/api/results").json() == []
    assert len(reads) == len(list_papers())  # once
    (results_folder / "newer.json").write_text("{}")
    client.get("/api/results")
    assert len(reads) == 2 * len(list_papers())  # again, since a file came


def test_test_images_that_a_run_keeps_are_offered(capsnet: ServedModel) -> None:
    config = capsnet.config.model_copy(update={"data": "images:gone"})
    kept = TensorImages(torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([0, 1]), config.class_names)
    assert not ServedModel("own", capsnet.model, config).info.samples
    run = ServedModel("own", capsnet.model, config, kept=kept)
    assert run.info.samples
    assert run.samples.labels == [[0], [1]]


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "run").mkdir(parents=True)
        (tmp_path / parent / "run" / "config.yaml").write_text("model: capsnet")
    with pytest.raises(TorchcapsError, match="two run directories are called 'run'"):
        load_run_models([tmp_path / "a" / "run", tmp_path / "b" / "run"])
