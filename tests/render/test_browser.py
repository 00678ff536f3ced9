"""Reports in a real browser: nothing is asked of others, nothing goes wrong, and axe finds nothing, light and dark."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from archsim import api

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "examples"
EXAMPLES = runpy.run_path(str(FOLDER / "make.py"))["EXAMPLES"]
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
DRAWN = "[...document.querySelectorAll('.chart')].every((one) => one.querySelector('.main-svg'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


def example(name: str) -> str:
    """An example of the repository with plotly.js in the page."""
    models, hw, options = EXAMPLES[name]
    with chdir(FOLDER):
        return api.report(list(models), hw, **options).html


def simulated() -> str:
    """A load."""
    from archsim.render.html.simulate import document
    from archsim.render.pages.simulate import page

    answer = api.simulate("llama3.2-1b", "l4", rate=4, slo="ttft=0.5,tpot=0.05", requests=200, replications=2)
    return document(answer, page(answer))


def surveyed() -> str:
    """The choices of the catalog by year."""
    from archsim.render.html.survey import document

    return document(api.survey())


PAGES: dict[str, Any] = {
    **{name: (lambda name=name: example(name)) for name in EXAMPLES}, "simulate": simulated, "survey": surveyed,
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_the_browser(browser: Any, tmp_path: Path, name: str) -> None:
    """Every chart is drawn, with everything unfolded; the only request is for the file; nothing is wider than it."""
    file = tmp_path / "page.html"
    file.write_text(PAGES[name](), "utf-8")
    for scheme in ("light", "dark"):
        tab = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme).new_page()
        said: list[str] = []
        tab.on("console", lambda message, said=said: said.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error, said=said: said.append(str(error)))
        tab.on("request", lambda asked, said=said: said.append(asked.url))
        tab.goto(file.as_uri())
        tab.evaluate(UNFOLD)
        for _ in range(300):
            if tab.evaluate(DRAWN):
                break
            tab.wait_for_timeout(100)
        assert tab.evaluate(DRAWN) and tab.evaluate("document.querySelectorAll('.chart .main-svg').length") > 0
        found = [(one["id"], one["nodes"][0]["html"][:200]) for one in axe.run(tab).response["violations"]]
        assert found == []
        assert [text for text in said if not text.startswith(("data:", "blob:"))] == [file.as_uri()]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1400
        tab.context.close()


SIDE_BY_SIDE = """[...document.querySelectorAll('.chart .xaxislayer-above')].flatMap((axis) => {
  const found = [...axis.querySelectorAll('.xtick text')].filter((one) => one.textContent);
  const rows = found.map((one) => [one.getBoundingClientRect(), one.textContent, one.getAttribute('transform')]);
  return rows.slice(1).filter(([place, , turned], i) => !/rotate\\([^0]/.test(turned) && place.left < rows[i][0].right)
    .map(([, text], i) => text)})"""
"""Labels of horizontal axes that begin before the one to their left has ended."""
CUT = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"


TOUCHING = """[...document.querySelectorAll('.chart')].flatMap((chart) => {
  const turned = (one) => /rotate\\([^0]/.test(one.getAttribute('transform') || '');
  const shown = [...chart.querySelectorAll('text')].filter((one) => one.textContent.trim() && !turned(one))
    .map((one) => [one.getBoundingClientRect(), one.textContent, one]).filter(([place]) => place.width > 0);
  return shown.flatMap(([a, text, one], i) => shown.slice(i + 1)
    .filter(([b, , other]) => !one.contains(other) && !other.contains(one)
      && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
    .map(([, words]) => `${text} | ${words}`))})"""
"""Pairs of words in a chart that stand on one another."""
CAPTIONS = """[...document.querySelectorAll('caption span')]
  .filter((one) => one.getBoundingClientRect().right > innerWidth)"""


PHONE: dict[str, Any] = {
    "attention-zoo-128k": PAGES["attention-zoo-128k"], "simulate": simulated, "survey": surveyed,
    "moe": lambda: api.report(["deepseek-v3", "llama3.1-70b"], "h200").html,
    "evolve": "evolve gpt2-small llama3-8b --hw h100 --format html",
    "sweep": "sweep llama3-8b mixtral-8x7b --hw h100,a100 --batch 1-64*2 --weights bf16,fp8 --format html",
}  # fmt: skip
"""Pages with long names and lines that end close together: what makes them, or the command that prints them."""


@pytest.mark.parametrize("name", PHONE)
def test_a_page_on_a_phone(browser: Any, tmp_path: Path, name: str, archsim_process: Any) -> None:
    """Words in charts do not stand on one another, captions end at the screen, and a table that goes on beyond it has a
    shade there.
    """
    file = tmp_path / "page.html"
    made = PHONE[name]
    file.write_text(archsim_process(made.split()).out if isinstance(made, str) else made(), "utf-8")
    tab = browser.new_context(viewport={"width": 390, "height": 900}).new_page()
    tab.goto(file.as_uri())
    for _ in range(300):
        if tab.evaluate(DRAWN):
            break
        tab.wait_for_timeout(100)
    assert tab.evaluate("document.querySelectorAll('.xaxislayer-above .xtick text').length") > 0
    assert tab.evaluate(SIDE_BY_SIDE) == [] and tab.evaluate(TOUCHING) == [] and tab.evaluate(f"{CAPTIONS}.length") == 0
    shades = tab.evaluate(f"{CUT}.map((one) => getComputedStyle(one).backgroundAttachment)")
    assert shades and all("scroll" in shade and "local" in shade for shade in shades)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.context.close()
