"""The demo page in Chromium: mouse, touch and keyboard, light and dark, desktop and phone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from PIL import Image

from tests.demo.conftest import running
from tests.helpers.browser import FLAGS, find_chromium
from torchcaps.demo.app import create_app
from torchcaps.demo.guard import LOCAL_NAMES
from torchcaps.demo.served import ServedModel
from torchcaps.models import create_model
from torchcaps.train import resolve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = find_chromium()
LOUD = "NO CHROMIUM: the page was NOT tested. Install it (Debian: apt-get install chromium) or set TORCHCAPS_CHROMIUM"
if CHROMIUM is None:
    warnings.warn(LOUD, stacklevel=1)
pytestmark = [pytest.mark.process, pytest.mark.skipif(CHROMIUM is None, reason=LOUD)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """The open page, with the errors that it logged."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address, self.troubles = page, address, []  # type: ignore[var-annotated]
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda said: said.type in ("error", "warning") and self.troubles.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(address) or self.troubles.append(asked.url))

    def open(self, panel: str = "draw") -> Page:
        self.page.goto(f"{self.address}/#{panel}")
        self.page.wait_for_selector("body[data-ready]")
        return self.page


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    visit = Visit(page, address)
    yield visit
    page.close()
    assert not visit.troubles  # no error, and nothing from another host


def draw(page: Page, *strokes: list[tuple[float, float]]) -> None:
    """Draw strokes with the mouse; coordinates are fractions of the canvas."""
    frame = page.locator("#pad").bounding_box()
    assert frame
    for stroke in strokes:
        points = [(frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=6)
        page.mouse.up()


SEVEN = [(0.25, 0.2), (0.75, 0.2), (0.45, 0.85)]
ONE = [(0.5, 0.12), (0.5, 0.88)]


def until(page: Page, condition: str) -> None:
    """Wait until an expression is true. Playwright's own wait needs eval, which the page's policy forbids."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {condition}")


def wait_for_digit(page: Page, digit: str, title: str = "CapsNet") -> None:
    """Wait until a network predicts this digit."""
    said = page.locator(".panel:not([hidden])").get_by_role("article", name=title, exact=True).locator(".digit")
    said.filter(has_text=re.compile(f"^{digit}$")).wait_for()


def picture(page: Page, label: str) -> str:
    """The content of a canvas as a data URL."""
    return str(page.locator(f".panel:not([hidden]) canvas[aria-label^='{label}']").evaluate("each => each.toDataURL()"))


def wait_for_picture(page: Page, label: str, *, like: str | None = None, unlike: str | None = None) -> None:
    """Wait until a canvas shows this image, or another one."""
    for _ in range(200):
        shown = picture(page, label)
        if shown == like or (like is None and shown != unlike):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{label} did not change")


def test_draw_a_digit_and_read_the_answer(visit: Visit) -> None:
    page = visit.open()
    draw(page, SEVEN)
    for title in ("CapsNet", "AR CapsNet"):
        wait_for_digit(page, "7", title)
    until(page, "document.getElementById('live').textContent.includes('CapsNet: 7')")
    page.click("#clear")
    wait_for_digit(page, "\u2013")
    draw(page, ONE)
    wait_for_digit(page, "1")


def test_test_images_and_pictures(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="Test image: 4").first.click()
    wait_for_digit(page, "4")
    page.evaluate("""async () => {
        const canvas = new OffscreenCanvas(300, 200), context = canvas.getContext('2d');
        context.fillStyle = 'white'; context.fillRect(0, 0, 300, 200);
        context.lineWidth = 14; context.moveTo(150, 30); context.lineTo(150, 170); context.stroke();
        const file = new File([await canvas.convertToBlob()], 'one.png', { type: 'image/png' });
        const carried = new DataTransfer(); carried.items.add(file);
        document.dispatchEvent(new DragEvent('drop', { dataTransfer: carried, bubbles: true, cancelable: true }));
    }""")  # a photograph: dark ink on white paper
    wait_for_digit(page, "1")


def test_move_a_slider_and_see_the_picture_change(visit: Visit) -> None:
    page = visit.open("dimensions")
    until(page, "document.querySelector('.strip').width === 11 * 28")
    assert page.locator(".strip").count() == 16
    until(page, "document.getElementById('live').textContent.includes('reconstructed')")
    before = picture(page, "Reconstruction")
    page.get_by_role("slider", name="Dimension 3").focus()
    page.keyboard.press("End")
    wait_for_picture(page, "Reconstruction", unlike=before)
    page.get_by_role("button", name="Reset").locator("visible=true").click()
    wait_for_picture(page, "Reconstruction", like=before)
    page.locator(".panel:not([hidden]) .chip", has_text="8").click()
    until(page, "document.querySelector('.bench-top').textContent.includes('from capsule 8')")


def test_play_the_routing(visit: Visit) -> None:
    page = visit.open("routing")
    page.wait_for_selector("canvas[aria-label*='iteration 3']")
    last = picture(page, "Votes")
    page.get_by_role("button", name="Play").click()
    page.wait_for_selector("canvas[aria-label*='iteration 1']")
    assert picture(page, "Votes") != last
    page.wait_for_selector("canvas[aria-label*='iteration 3']")
    assert page.get_by_role("button", name="Play").is_visible()
    assert re.search(r"times an even share of 10.0 %", page.locator("#panel-routing .finding").inner_text())
    page.locator("#panel-routing .chip", has_text="Contribution").click()
    assert picture(page, "Votes") != last
    page.locator(".panel:not([hidden])").get_by_label("Network").select_option(label="Matrix capsules")
    page.get_by_role("heading", name="Vote distances").wait_for()


def test_transform_keeps_or_loses_the_answer(visit: Visit) -> None:
    page = visit.open("transform")
    wait_for_digit(page, "2")
    slider = page.get_by_role("slider", name="Rotate")
    slider.fill("90")
    until(page, "document.querySelector('.panel:not([hidden]) .mark').checkVisibility()")
    until(page, "/moved by [1-9]/.test(document.querySelector('.panel:not([hidden]) .card').textContent)")
    card = page.locator(".panel:not([hidden]) .card").first
    assert "Dimensions of capsule 2: before" in card.locator(".legend").inner_text()
    assert card.locator(".numbers span").all_inner_texts() == [str(number) for number in range(1, 17)]


def test_run_an_attack(visit: Visit) -> None:
    page = visit.open("attack")
    page.get_by_role("slider", name=re.compile("Epsilon")).fill("0.5")
    until(page, "document.querySelectorAll('.panel:not([hidden]) .fooled').length >= 2")
    page.locator(".chip", has_text="PGD").click()
    until(page, "document.querySelectorAll('.panel:not([hidden]) .fooled').length === 4")
    page.get_by_role("slider", name=re.compile("Epsilon")).fill("0")
    until(page, "document.querySelectorAll('.panel:not([hidden]) .fooled').length === 0")


def test_two_digits_are_taken_apart(visit: Visit) -> None:
    page = visit.open("pairs")
    page.get_by_role("button", name="Test image: 7 and 1").click()
    page.locator("#panel-pairs .finding").filter(has_text=re.compile(r"Predicts \d and \d")).wait_for()
    until(page, "document.querySelectorAll('.panel:not([hidden]) .winner').length === 2")
    first, second = (picture(page, label) for label in ("first", "second"))
    assert first != second
    page.get_by_role("tab", name="Draw").click()
    page.get_by_role("button", name="Test image: 4").first.wait_for()  # single digits again


def test_results_say_when_there_are_none(visit: Visit) -> None:
    page = visit.open("results")
    page.get_by_text("There are no results in the folder yet").wait_for()


def test_keyboard_only(visit: Visit) -> None:
    page = visit.open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the predictions"
    page.locator("#pad").focus()
    page.keyboard.press("Delete")
    for key in ["ArrowUp"] * 11 + [" "] + ["ArrowDown"] * 22 + [" "]:
        page.keyboard.press(key)
    wait_for_digit(page, "1")
    page.get_by_role("tab", name="Draw").focus()
    for name in ("Dimensions", "Routing"):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    assert page.get_by_role("tab", name="Results").evaluate("each => each === document.activeElement")
    unnamed = page.evaluate("""() => [...document.querySelectorAll('button, input, select, [tabindex]')]
        .filter((each) => !(each.ariaLabel || each.labels?.length || each.textContent.trim()))
        .map((each) => each.outerHTML)""")
    assert unnamed == []


def test_telephone(browser: Browser, address: str) -> None:
    """At 390 pixels nothing overflows, touch draws, and the prediction stays visible."""
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, color_scheme="dark")
    visit = Visit(page, address)
    for panel in ("draw", "dimensions", "routing", "transform", "attack", "pairs", "results"):
        visit.open(panel)
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, panel
    visit.open("draw")
    draw(page, ONE)
    wait_for_digit(page, "1")
    digit = page.locator(".panel:not([hidden]) .digit").first.bounding_box()
    assert digit
    assert digit["y"] + digit["height"] < 844
    small = page.evaluate("""() => [...document.querySelectorAll('button, select, .chip span, .button')]
        .filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect())
        .filter((frame) => frame.height < 40).length""")
    assert small == 0
    page.close()
    assert not visit.troubles


@pytest.fixture(scope="module")
def pictures_address() -> Iterator[str]:
    """A service with a color network for two classes, whose folder of images may not be read."""
    torch.manual_seed(0)
    model = create_model("capsnet", size="laptop", image_size=32, channels=3, classes=2, filters=8, types=2).eval()
    config = resolve(model="capsnet", data="cifar-10").model_copy(
        update={"data": "images:shapes", "class_names": ("red circle", "blue square"), "image_shape": (3, 32, 32)}
    )
    with running(create_app([ServedModel("shapes", model, config)], hosts=LOCAL_NAMES)) as address:
        yield address


def test_a_color_network_sees_the_drawing(browser: Browser, pictures_address: str) -> None:
    """The network gets what is on the pad, in the color of the pen, on white paper, in both themes."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    visit = Visit(page, pictures_address)
    visit.open()
    assert page.locator("#purpose").inner_text() == "Choose an image and see what capsule networks make of it."
    tabs = ["Predict", "Dimensions", "Routing", "Transform", "Attack", "Results"]  # no "Two digits"
    assert page.get_by_role("tab").all_inner_texts() == tabs
    assert "--images FOLDER" in page.locator("#samples").inner_text()
    assert not page.locator("#more").is_visible()
    pad, seen_box = page.locator("#pad").bounding_box(), page.locator("#seen").bounding_box()
    assert pad
    assert seen_box
    assert seen_box["x"] + seen_box["width"] <= pad["x"] + pad["width"] + 2, "the network input is below the pad"
    bar = "document.querySelector('.panel:not([hidden]) .fill').style.getPropertyValue('--part')"
    page.get_by_label("Pen color").fill("#ff0000")
    draw(page, [(0.5, 0.2), (0.5, 0.8)])
    until(page, f"Number({bar}) > 0")
    first = page.evaluate(bar)
    seen = """(x, y) => {
        const copy = new OffscreenCanvas(32, 32).getContext('2d', { willReadFrequently: true });
        copy.drawImage(document.getElementById('seen'), 0, 0);
        return [...copy.getImageData(x, y, 1, 1).data];
    }"""
    assert page.evaluate(f"({seen})(16, 16)") == pytest.approx([255, 0, 0, 255], abs=40)  # the edge is blurred
    assert page.evaluate(f"({seen})(2, 2)") == [255, 255, 255, 255]
    assert page.locator("#seen").evaluate("each => getComputedStyle(each).filter") == "none"
    page.get_by_label("Pen color").fill("#0000ff")
    draw(page, [(0.1, 0.5), (0.9, 0.5)])
    until(page, f"{bar} !== '{first}'")
    assert page.evaluate(f"({seen})(6, 16)") == pytest.approx([0, 0, 255, 255], abs=40)
    for panel in tabs[1:5]:
        page.get_by_role("tab", name=panel).click()
        page.wait_for_timeout(200)
        assert "digit" not in page.locator(".panel:not([hidden])").inner_text().lower(), panel
    page.close()
    assert not visit.troubles


def test_a_picture_is_shown_as_it_is(browser: Browser, pictures_address: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    visit = Visit(page, pictures_address)
    visit.open()
    page.evaluate("""async () => {
        const canvas = new OffscreenCanvas(300, 200), context = canvas.getContext('2d');
        context.fillStyle = 'rgb(10 200 30)'; context.fillRect(0, 0, 300, 200);
        const file = new File([await canvas.convertToBlob()], 'green.png', { type: 'image/png' });
        const carried = new DataTransfer(); carried.items.add(file);
        document.dispatchEvent(new DragEvent('drop', { dataTransfer: carried, bubbles: true, cancelable: true }));
    }""")
    until(
        page,
        """(() => {
        const copy = new OffscreenCanvas(32, 32).getContext('2d', { willReadFrequently: true });
        copy.drawImage(document.getElementById('seen'), 0, 0);
        return copy.getImageData(3, 3, 1, 1).data[1] === 200;
    })()""",
    )
    pad, frame = page.locator("#pad").bounding_box(), page.locator(".pad-frame").bounding_box()
    assert pad
    assert frame
    assert frame["height"] - pad["height"] <= 4, "no empty strip below the pad"
    for panel in ("draw", "dimensions", "routing", "transform", "attack"):
        page.locator(f"#tab-{panel}").click()
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, panel
    page.close()
    assert not visit.troubles


def test_an_image_unlike_the_training_images_is_marked(visit: Visit) -> None:
    page = visit.open()
    note = page.get_by_role("article", name="CapsNet", exact=True).locator(".unusual")
    page.get_by_role("button", name="Test image: 4").first.click()
    wait_for_digit(page, "4")
    assert not note.is_visible()
    draw(page, *([(0.1, y / 10), (0.9, y / 10)] for y in range(1, 10)))  # no digit
    note.wait_for()
    assert note.inner_text() == "Unlike the training images: do not trust this prediction."
    until(page, "document.getElementById('live').textContent.includes('unlike the training images')")


PASTED = """async () => {
    const canvas = new OffscreenCanvas(200, 300), context = canvas.getContext('2d');
    context.fillStyle = 'rgb(40 20 220)'; context.fillRect(0, 0, 200, 300);
    const carried = new DataTransfer();
    carried.items.add(new File([await canvas.convertToBlob()], 'blue.png', { type: 'image/png' }));
    document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: carried, bubbles: true }));
}"""


def test_a_picture_is_pasted_or_picked(browser: Browser, pictures_address: str, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    visit = Visit(page, pictures_address)
    visit.open()
    pixel = """(() => {
        const copy = new OffscreenCanvas(32, 32).getContext('2d', { willReadFrequently: true });
        copy.drawImage(document.getElementById('seen'), 0, 0);
        return [...copy.getImageData(3, 3, 1, 1).data].join(' ');
    })()"""
    page.evaluate(PASTED)
    until(page, f"{pixel} === '40 20 220 255'")
    Image.new("RGB", (90, 60), (210, 120, 30)).save(tmp_path / "orange.png")
    page.locator("input[type=file]").set_input_files(tmp_path / "orange.png")
    until(page, f"{pixel} === '210 120 30 255'")
    page.close()
    assert not visit.troubles


def test_themes(visit: Visit) -> None:
    page = visit.open()
    colours = set()
    for _ in range(3):
        page.click("#theme")
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
