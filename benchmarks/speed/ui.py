"""How fast the page of `archsim ui` answers: updates on the server alone, and the first page and drags in Chromium.

    python benchmarks/speed/ui.py [--browser] [--updates N]

Bars, on two quiet cores: first page 2 s; 150 ms for an update after a change, as the browser sees it. Every update is
another load, so that nothing is found in a cache but what stays the same while one drags: models, plans, curves.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

CASES = {
    "llama3.1-8b": "model=llama3.1-8b&hw=h100-sxm",
    "deepseek-v3, 8 devices": "model=deepseek-v3&hw=h200-sxm&devices=8",
    "four candidates": (
        "model=llama3.1-8b&hw=h100-sxm&model2=qwen3-30b-a3b&hw2=mi300x&model3=gpt-oss-20b&hw3=l40s"
        "&model4=llama3.1-70b&hw4=h200-sxm"
    ),
}

STAMPS = """
const stamps = window.stamps = {}, places = {answer: "#cards .card", chart: "#prefill-chart .bars"};
function look() {
  for (const [name, place] of Object.entries(places)) {
    if (!stamps[name] && document.querySelector(place)) stamps[name] = performance.now();
  }
  if (!stamps.chart) requestAnimationFrame(look);
}
look();
"""
"""Notes when the first answer and the charts in sight are on the page, in milliseconds since it was asked for."""


def updates(query: str, count: int) -> list[float]:
    """Seconds of each update on the server, from the request to the JSON of the answer."""
    from dash._utils import to_json
    from flask import Flask

    from archsim.ui.answers import Answers
    from archsim.ui.callbacks import answer_request
    from archsim.ui.choices import choices
    from archsim.ui.idle import collect_when_idle
    from archsim.ui.uploads import Uploads

    collect_when_idle(Flask("updates"))
    known, answers, found = choices(built_in=True), Answers(Uploads()), []
    for i in range(count + 3):
        started = time.perf_counter()
        to_json(answer_request({"query": f"{query}&input-len={1000 + 7 * i}", "theme": "light"}, known, answers))
        found.append(time.perf_counter() - started)
    return found[3:]


def browse(count: int) -> None:
    """First page and drags in headless Chromium, of the command itself in a process of its own."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    with running() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for name, query in CASES.items():
            page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            page.add_init_script(STAMPS)
            page.goto(f"{address}/?{query}")
            page.wait_for_function("() => window.stamps && window.stamps.chart", timeout=60_000)
            answered, first = (page.evaluate(f"() => window.stamps.{name}") / 1e3 for name in ("answer", "chart"))
            page.wait_for_timeout(1500)
            page.focus("#input-len-slider")
            times = [drag(page) for _ in range(count)]
            print(f"{name}: answer {answered:.2f} s, first page {first:.2f} s; update in the browser {line(times)}")
        browser.close()


def drag(page: Page) -> float:
    """Seconds from a step of the slider to its answer, drawn."""
    before = page.evaluate("window.archsimUpdate.query")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("before => window.archsimUpdate.query !== before", arg=before)
    return float(page.evaluate("window.archsimUpdate.took")) / 1e3


@contextmanager
def running() -> Iterator[str]:
    """`archsim ui` on a free port; its address."""
    command = [sys.executable, "-m", "archsim", "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[0-9.:]+", server.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            server.terminate()


def line(times: list[float]) -> str:
    """Median and the slowest."""
    return f"median {1e3 * statistics.median(times):.0f} ms, slowest of {len(times)} {1e3 * max(times):.0f} ms"


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--browser", action="store_true", help="also in headless Chromium")
    parser.add_argument("--updates", type=int, default=20, help="of each case")
    asked = parser.parse_args()
    for name, query in CASES.items():
        print(f"{name}: update on the server {line(updates(query, asked.updates))}")
    if asked.browser:
        browse(min(asked.updates, 12))


if __name__ == "__main__":
    main()
