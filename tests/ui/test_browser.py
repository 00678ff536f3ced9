"""The page in a real browser: first page, dragging, links, themes, the keyboard, and what axe finds."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("dash")

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
TWO = "?model=gpt2-small&hw=t4&model2=gpt2-medium&hw2=rtx-4090&batch=2"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of the page on a free port."""
    from archsim.ui.server import Site, make_app, make_server

    server = make_server(make_app(Site()), port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A tab; it fails the test where it says anything on its console or asks another server."""
    tab = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    tab.set_default_timeout(60_000)
    said: list[str] = []
    tab.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(str(error)))
    own = (address, "data:", "blob:")
    tab.on("request", lambda asked: None if asked.url.startswith(own) else said.append(asked.url))
    yield tab
    tab.context.close()
    assert not [text for text in said if "422" not in text]  # a refused upload is one


def until(page: Any, holds: str) -> None:
    """Wait until a JavaScript expression holds; the page's policy lets no script wait for it in the page."""
    for _ in range(600):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{holds} does not hold")


def sentence(page: Any) -> str:
    """The verdict."""
    return str(page.text_content("#sentence"))


def test_a_link_shows_its_candidates(page: Any, address: str) -> None:
    """The controls stand where the link says, and the address is the canonical one."""
    page.goto(address + "/" + TWO + "&nonsense=1")
    page.wait_for_selector("#cards .card:nth-child(2)")
    assert "nonsense" in page.text_content("#findings") and sentence(page).startswith("Too close to call: A")
    shown = [page.input_value(f'[data-slot="{i}"][data-field="model"]') for i in (0, 1)]
    assert shown == ["gpt2-small", "gpt2-medium"] and page.input_value("#batch") == "2"
    assert page.url.endswith("model2=gpt2-medium&hw2=rtx-4090&engine2=vllm&input-len=2048&output-len=256&batch=2")
    page.wait_for_selector("#memory-chart .bars")
    until(page, "document.querySelectorAll('.chart:not([hidden]) .main-svg').length >= 6")
    until(page, "[...document.images].length == 2 && [...document.images].every((one) => one.naturalWidth > 0)")


def test_dragging_changes_the_answer_and_the_link(page: Any, address: str) -> None:
    """Each key moves the slider; what is shown last is what `estimate` says of where it stands."""
    from archsim import api
    from archsim.base.units import format_seconds

    page.goto(f"{address}/?model=gpt2-small&hw=t4")
    page.wait_for_selector("#cards .card")
    page.focus("#input-len-slider")
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    until(page, "location.search.includes('input-len=724')")
    expected = api.estimate("gpt2-small", "t4", engine="vllm", input_len=724).metrics["ttft_s"]
    until(page, f"document.querySelector('.card').textContent.includes('{format_seconds(expected)}')")


def test_candidates_come_and_go(page: Any, address: str) -> None:
    """Another one begins as a copy; one that is removed takes its colour along."""
    page.goto(f"{address}/?model=gpt2-small&hw=t4")
    page.wait_for_selector("#cards .card")
    page.click("#add")
    page.wait_for_selector("#cards .card:nth-child(2)")
    assert page.evaluate("document.activeElement.dataset.field") == "model"
    page.fill('[data-slot="1"][data-field="model"]', "gpt2-medium")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.card')[1].textContent.includes('gpt2-medium')")
    page.click('[data-remove="0"]')
    until(page, "document.querySelectorAll('.card').length == 1")
    assert "gpt2-medium" in page.text_content(".card") and "model2" not in page.url


def test_a_file_becomes_a_model(page: Any, address: str, tmp_path: Any) -> None:
    """A spec is uploaded and answered; what is none is refused beside the control."""
    page.goto(address + "/?model=gpt2-small&hw=t4")
    page.wait_for_selector("#cards .card")
    spec = tmp_path / "mine.yaml"
    spec.write_text("extends: gpt2-small\nname: mine\n")
    page.set_input_files("#file", spec)
    until(page, "document.querySelector('.card').textContent.includes('mine')")
    assert "upload-" in page.url
    spec.write_text("layers: !!python/object:os.system id")
    page.set_input_files("#file", spec)
    until(page, "document.querySelector('#upload-message').textContent.includes('is not supported')")
    assert page.text_content("#upload-message").startswith("mine.yaml: ") and "mine" in page.text_content(".card")


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")])
def test_axe_finds_nothing(browser: Any, address: str, width: int, scheme: str) -> None:
    """And nothing is wider than the screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    tab.goto(address + "/" + TWO.replace("batch=2", "rate=2"))
    tab.wait_for_selector("#load-panel td", timeout=60_000)
    tab.wait_for_selector("#memory-chart .bars")
    found = [(one["id"], one["nodes"][0]["html"][:200]) for one in axe.run(tab).response["violations"]]
    assert found == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('#load-panel .scroll')].some((one) => one.scrollWidth > one.clientWidth)"
    assert width < 1400 or not tab.evaluate(cut)  # the verdict of the load stands in the last column
    colour = tab.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 19, 24)")
    tab.context.close()
