"""The site builds with strict links, and what is made for it is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from archsim.cli.app import COMMANDS
from archsim.spec.catalog import names

ROOT = Path(__file__).resolve().parents[2]
DRAWN = [entry.name for entry in names("models") if entry.status is None]
COOKBOOK = (ROOT / "docs/cookbook.md").read_text("utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)], cwd=ROOT, text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_every_command_and_model_has_its_place(site: Path) -> None:
    """One page for each command, one drawing for each model, and drawings below the commands that write them."""
    for name in COMMANDS:
        text = (site / "commands" / name / "index.html").read_text("utf-8")
        assert f"archsim {name}" in text
    assert {path.stem for path in (site / "gallery").glob("*.svg")} == set(DRAWN)
    assert "63,082,496 parameters" in (site / "figures/story/transformer.svg").read_text("utf-8")


def test_pages_say_what_the_repository_says(site: Path) -> None:
    """Accuracy tables, citation and glossary are those of this version; no mark of the tests is left."""
    row = next(line for line in (ROOT / "reports/accuracy.md").read_text("utf-8").splitlines() if line[:6] == "| all ")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert re.search(r"\s*".join(f"<td[^>]*>{re.escape(cell)}</td>" for cell in cells), page(site, "accuracy"))
    assert "@software{archsim" in words(page(site, "citation"))
    assert not re.search(r"<!-- (only|exit|not compared|generated)", page(site, "cookbook") + page(site, "errors"))


class Outside(HTMLParser):
    """Addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag loads."""
        given = dict(attrs)
        loaded = given.get("src") or (given.get("href") if tag == "link" and given.get("rel") == "stylesheet" else None)
        if loaded and "//" in loaded:
            self.found.append(loaded)


@pytest.mark.parametrize("name", ["", "cookbook", "story", "gallery", "reference", "commands/estimate"])
def test_a_page_asks_no_other_server(site: Path, name: str) -> None:
    """Fonts, scripts and pictures are the site's own."""
    reader = Outside()
    reader.feed(page(site, name))
    assert reader.found == []


def test_pages_can_be_heard(site: Path) -> None:
    """The search has a name, and no heading of a table is empty."""
    for name in ("", "accuracy", "cookbook"):
        text = page(site, name)
        assert 'role="dialog" aria-label="Search"' in text and not re.search(r"<th[^>]*></th>", text), name


def test_the_cookbook_answers_twenty_questions() -> None:
    """Each by a command whose output is compared and holds a figure."""
    parts = re.split(r"^## ", COOKBOOK, flags=re.M)[1:]
    assert [part.split(".")[0] for part in parts] == [str(n) for n in range(1, 21)]
    for part in parts:
        assert part.split("\n")[0].endswith("?")
        compared = re.findall(r"(<!-- not compared -->\n)?```console\n(.*?)^```", part, flags=re.M | re.S)
        shown = "".join(re.sub(r"^\$.*\n", "", body, flags=re.M) for skipped, body in compared if not skipped)
        assert re.search(r"\d", shown), part.split("\n")[0]


def page(site: Path, name: str) -> str:
    """The HTML of one page."""
    return (site / name / "index.html").read_text("utf-8")


def words(text: str) -> str:
    """The text of a page without tags."""
    return re.sub(r"<[^>]+>", "", text)
