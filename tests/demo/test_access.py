"""Access control: tokens, and which images of this machine the service may show."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from PIL import Image

from tests.demo.conftest import running
from tests.helpers import tiny_model  # noqa: F401  (registers the model)
from tests.helpers.browser import FLAGS, find_chromium
from torchcaps.demo.app import create_app
from torchcaps.demo.served import ServedModel, load_run_models
from torchcaps.demo.server import is_loopback
from torchcaps.errors import TorchcapsError
from torchcaps.train import RunFolder, resolve
from torchcaps.train.checkpoint import save_weights

TOKEN = "correct-horse-battery"


def ask(app: object, path: str, **settings: object) -> httpx.Response:
    """One GET request without a socket."""

    async def scene() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path, **settings)  # type: ignore[arg-type]

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (None, 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer \u00e9\u00e9", 401),
    ],
)
def test_the_token_opens_the_service(shipped: list[ServedModel], sent: str | None, status: int) -> None:
    app = create_app(shipped[:1], token=TOKEN)
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    for path in ("/api/models", "/metrics", "/api/results", "/nowhere"):
        answer = ask(app, path, headers=headers)
        assert answer.status_code == (404 if path == "/nowhere" and status == 200 else status), path
        assert answer.headers["x-content-type-options"] == "nosniff"
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text


def test_public_assets_need_no_token(shipped: list[ServedModel]) -> None:
    app = create_app(shipped[:1], token=TOKEN)
    for path in ("/", "/page/main.js", "/docs", "/openapi.json", "/health"):
        assert ask(app, path).status_code == 200, path


@pytest.mark.parametrize("command", ["serve", "demo"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "anyone who can reach 0.0.0.0"),
        (["--token", "short"], "at least 16"),
        (["--token", "with spaces and more spaces"], "letters, digits"),
        (["--token", TOKEN, "--no-auth"], "not both"),
    ],
)
def test_beyond_loopback_a_token_is_needed(command: str, options: list[str], words: str) -> None:
    from typer.testing import CliRunner

    from torchcaps.cli.main import app

    done = CliRunner().invoke(app, [command, "--host", "0.0.0.0", "--port", "0", *options], env={"TORCHCAPS_TOKEN": ""})
    assert done.exit_code != 0
    assert isinstance(done.exception, TorchcapsError | SystemExit)
    assert words in str(done.exception) + done.output.replace("\n", " ")


def test_which_addresses_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.2", "example.org", ""))


def test_the_token_may_come_from_the_environment() -> None:
    call = [str(Path(sys.executable).with_name("torchcaps")), "serve", "--host", "127.0.0.1", "--port", "0"]
    environment = os.environ | {"TORCHCAPS_TOKEN": TOKEN}
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", said)
            assert address
            assert TOKEN not in said
            with httpx.Client(base_url=address[0], timeout=60) as client:
                assert client.get("/api/models").status_code == 401
                assert client.get("/api/models", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        finally:
            process.kill()


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
def test_the_page_asks_for_the_token(shipped: list[ServedModel]) -> None:
    from playwright.sync_api import sync_playwright

    with running(create_app(shipped, token=TOKEN)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.goto(address)
        page.get_by_label("Token").fill("a wrong one")
        page.keyboard.press("Enter")
        page.get_by_text("The token is wrong").wait_for()
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready]")
        page.get_by_role("button", name="Test image: 4").first.click()
        said = page.get_by_role("article", name="CapsNet", exact=True).locator(".digit")
        said.filter(has_text=re.compile("^4$")).wait_for()
        page.reload()  # it is remembered until the tab is closed
        page.wait_for_selector("body[data-ready]")
        assert not page.get_by_label("Token").is_visible()
        browser.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """An image folder with two classes."""
    for number in range(8):
        target = tmp_path / "private" / ("cat" if number % 2 else "dog") / f"{number}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), 200).save(target)
    return tmp_path / "private"


def foreign_run(folder: Path, data: str) -> Path:
    """An untrusted run directory that names a dataset on this machine."""
    run = RunFolder(folder)
    (run.path / "checkpoints").mkdir(parents=True)
    config = resolve(model="tiny", data="glyphs").model_copy(update={"data": data})
    run.config_file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    save_weights(run.best, config.build_model())
    return folder


@pytest.mark.parametrize("settings", ["", ",size=28,grey=1"])
def test_a_run_does_not_decide_which_folder_is_shown(tmp_path: Path, pictures: Path, settings: str) -> None:
    run = foreign_run(tmp_path / "run", f"images:{pictures}{settings}")
    read_before = {path: path.stat().st_atime_ns for path in pictures.rglob("*.png")}
    app = create_app(load_run_models([run]))
    answer = ask(app, "/api/samples", params={"model": "run"})
    assert answer.status_code == 422
    assert "--images" in answer.json()["detail"]
    everything = answer.text + ask(app, "/api/models").text
    assert str(tmp_path) not in everything
    assert {path: path.stat().st_atime_ns for path in pictures.rglob("*.png")} == read_before


def test_a_folder_that_the_user_names_is_shown(tmp_path: Path, pictures: Path) -> None:
    run = foreign_run(tmp_path / "run", f"images:{pictures}/../private,size=28,grey=1")
    (tmp_path / "link").symlink_to(pictures)
    app = create_app(load_run_models([run], images=[tmp_path / "link"]))
    answer = ask(app, "/api/samples", params={"model": "run"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["images"]["shape"] == [2, 1, 28, 28]


def test_a_named_folder_opens_no_other(tmp_path: Path, pictures: Path) -> None:
    run = foreign_run(tmp_path / "run", f"images:{pictures},size=28,grey=1")
    with pytest.raises(TorchcapsError, match="none of the runs was trained on the images in"):
        load_run_models([run], images=[pictures / "cat"])


@pytest.mark.parametrize("data", ["{folder}", "images:", "images", "nothing-known"])
def test_unknown_names_reveal_nothing_about_this_machine(tmp_path: Path, pictures: Path, data: str) -> None:
    run = foreign_run(tmp_path / "run", data.format(folder=pictures))
    app = create_app(load_run_models([run]))
    answer = ask(app, "/api/samples", params={"model": "run"})
    assert answer.status_code == 422
    assert str(tmp_path) not in answer.text + ask(app, "/api/models").text
