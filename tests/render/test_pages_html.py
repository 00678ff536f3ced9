"""The HTML that commands write: one file that needs nothing else, for eyes and for screen readers."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archsim import api
from archsim.ledger.survey import Adoption
from archsim.render.command_line import try_section
from archsim.render.figures.curves import front
from archsim.render.figures.shares import PATTERNS, shares_by_year
from archsim.render.figures.steps import step_chart
from archsim.render.figures.theme import SERIES
from archsim.render.html.difference import document as difference_document
from archsim.render.html.page import document, grid, section_html
from archsim.render.html.sweep_charts import sweep_title
from archsim.render.page import Cell, Page, Section, bar, row
from archsim.render.pages.diff import page as difference_page
from archsim.render.pages.survey import few, leading_choice

COMMANDS = {
    "compare": "compare gpt2-small gpt2-medium llama3-8b --hw t4,h100 --format html",
    "compare ranges": "compare gpt2-small gpt2-medium --hw t4 --batch 1,8 --format html",
    "diff": "diff llama2-70b deepseek-v3 --format html",
    "evolve": "evolve gpt2-small tinyllama-1.1b --orders 2 --format html",
    "sweep": "sweep gpt2-small llama3-8b --hw t4,h100 --batch 1-64*2 --format html",
    "survey": "survey --html FILE --plotlyjs inline",
    "survey to stdout": "survey --format html",
    "claims": "claims --html FILE",
    "claims to stdout": "claims --format html",
}


class Seen(HTMLParser):
    """Tags with their attributes, headings and names of regions."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Every element that begins."""
        self.tags.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module", params=COMMANDS)
def html(request: pytest.FixtureRequest, archsim_process: Any, tmp_path_factory: Any) -> str:
    """The page of a command."""
    path: Path = tmp_path_factory.mktemp("html") / "page.html"
    words = [str(path) if word == "FILE" else word for word in COMMANDS[request.param].split()]
    result = archsim_process(words)
    assert result.code == 0, result.err
    return path.read_text("utf-8") if path.exists() else result.out


@pytest.mark.slow
def test_nothing_is_loaded(html: str) -> None:
    """The policy forbids everything but the page's own scripts by their hashes, and no element asks for anything."""
    assert "default-src 'none'" in html
    found = Seen(html)
    running = [attrs for attrs in found.of("script") if attrs.get("type") != "application/json"]
    assert len(running) == (2 if 'id="charts"' in html else 0)
    assert not [attrs for _, attrs in found.tags if {"src", "srcset", "xlink:href"} & attrs.keys()]
    assert not re.search(r"url\((?!#)|@import", re.sub(r"<script>.*?</script>", "", html, flags=re.S))


@pytest.mark.slow
def test_headings_and_regions(html: str) -> None:
    """One first heading, no level left out, every table in a region of its own name, every picture named."""
    found = Seen(html)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    names = [attrs["aria-label"] for attrs in found.of("div") if attrs.get("role") == "region"]
    assert len(names) == len(found.of("table"))
    assert len(set(names)) == len(names)
    assert all(attrs.get("scope") for attrs in found.of("th"))
    assert "<th></th>" not in html
    assert not re.search(r"<th[^>]*></th>", html)
    for attrs in found.of("svg"):
        assert attrs.get("aria-label") or attrs.get("aria-hidden") == "true"
    assert len(found.of("figcaption")) == len(found.of("figure"))


@pytest.mark.parametrize(
    ("other", "changes", "marked", "drawn"),
    [
        ("llama3-8b", (), "≠ 32 query heads", 2), ("gpt2-small", ("layers.repeat=40",), "≠ 40 layers", 2),
        ("gpt2-small", (), "", 0),
    ],
)  # fmt: skip
def test_a_difference_is_drawn(other: str, changes: tuple[str, ...], marked: str, drawn: int) -> None:
    """Both architectures, marked where they differ; nothing for two that are the same."""
    answer = api.diff("gpt2-small", other, set=changes)
    text = difference_document(answer, difference_page(answer))
    assert len(re.findall('class="plan"', text)) == drawn
    assert text.count('role="img" aria-label="Structure of ') == drawn
    assert marked in text and ("≠" in text) is (drawn > 0)


def test_tables_of_pages() -> None:
    """A first column of words names its rows, numbers do not; bars are drawn; no empty column is kept."""
    text = grid("n", ("", "x", ""), (row("a", "1", bar(0.5)), row("  b", Cell("2", "bad"), bar(0))), "lrl")
    assert '<th scope="row">a</th><td>1</td>' in text
    assert '<tr class="sub">' in text
    assert '<td class="bad">2</td>' in text
    assert text.count("<rect") == 1
    assert "<th scope=row" not in grid("n", (), (row("1", "a"),), "rl")
    assert grid("n", ("", "x"), (row("", "1"),), "lr").count("<td") == 1


def test_commands_stand_below_what_they_are_for() -> None:
    html = section_html(try_section([("archsim list models", "models, `<all>` of them")]))
    assert "<table" not in html and "<pre>archsim list models</pre>" in html
    assert html.index("&lt;all&gt;") < html.index("<pre>")


def test_text_of_a_page_is_escaped() -> None:
    """Wherever it stands."""
    evil = "<script>\x1b"
    section = Section(title=evil, rows=(row(evil, evil),), header=(evil,), aside=evil, below=(evil,))
    made = document(Page(head=(evil, evil), notes=(evil,), sections=(section,)))
    assert "<script" not in made
    assert "\x1b" not in made


# ---------------------------------------------------------------------- pictures
def test_steps_stand_on_zero_and_meet_both_ends() -> None:
    """First and last bar begin at zero, each step where the one before ended; other steps are counted."""
    steps: list[tuple[str, dict[str, float]]] = [("a", {"params": 3e9}), ("b", {"params": 0}), ("c", {"params": -1e9})]
    chart = step_chart("params", "parameters", steps, ("A", "B"), 2e9, "k")
    assert chart is not None
    (trace,) = chart.traces
    assert trace["base"] == [0, 2, 4, 0] and trace["x"] == [2, 3, 1, 4]
    assert chart.finding == "2.000 B to 4.000 B, most of all by a (+3.000 B); 1 other step changes nothing."
    assert step_chart("params", "parameters", [("b", {"params": 0})], ("A", "B"), 2e9, "k") is None


def test_every_value_of_a_year_has_a_pattern() -> None:
    """As many patterns as colours, all different."""
    assert len(PATTERNS) == len(set(PATTERNS)) == SERIES


def test_a_pattern_lies_on_the_colour_of_its_value() -> None:
    """plotly draws a pattern on nothing unless it is told what is below: the bars would be as the paper."""
    values = dict.fromkeys("ABCD", (1, 2))
    chart = shares_by_year(["2020", "2021"], [4, 8], values, key="norm", title="Norm", finding="")
    marks = [trace["marker"] for trace in chart.traces]
    assert len({mark["color"] for mark in marks}) == len(values)
    assert all(mark["pattern"]["bgcolor"] == mark["color"] != mark["pattern"]["fgcolor"] for mark in marks)


@pytest.mark.parametrize(
    ("designs", "values", "finding"),
    [
        ((2, 20, 4), {"A": (2, 5, 0), "B": (0, 15, 4)}, "B in 15 of 20 designs of 2021, the most frequent choice "
         "every year since 2021"),
        ((2, 20, 4), {"A": (2, 15, 1), "B": (0, 5, 3)}, "A in 15 of 20 designs of 2021"),
        ((0, 2, 0), {"A": (0, 2, 0)}, "A in 2 of 2 designs of 2021, the most frequent choice every year since 2021"),
    ],
)  # fmt: skip
def test_findings(designs: tuple[int, ...], values: dict[str, tuple[int, ...]], finding: str) -> None:
    """What leads in the last year with enough designs, and since when."""
    one = Adoption(choice="norm", years=("2020", "2021", "2022"), designs=designs, values=values)
    assert leading_choice(one) == finding
    assert few(one) == values


def test_front() -> None:
    """What no other point beats in both rates, the fastest user first."""
    points = [(1.0, 5.0, ()), (2.0, 4.0, ()), (1.5, 3.0, ()), (2.0, 1.0, ()), (3.0, 1.0, ())]
    assert [point[:2] for point in front(points)] == [(3.0, 1.0), (2.0, 4.0), (1.0, 5.0)]
    assert front([]) == []


@pytest.mark.parametrize("more", [(), ("--json",), ("--out", "x.csv")])
def test_a_plot_goes_with_any_layout(more: tuple[str, ...], archsim: Any, tmp_path: Path) -> None:
    """`--plot` writes the page beside what else is asked for, and nothing over a file that exists."""
    path = tmp_path / "p.html"
    more = tuple(str(tmp_path / word) if "." in word else word for word in more)
    words = ("sweep", "gpt2-small", "--hw", "t4", "--batch", "1-8*2", "--plot", str(path),
             "--plotlyjs", "cdn")  # fmt: skip
    assert archsim(*words, *more).code == 0
    text = path.read_text("utf-8")
    assert "<h1>gpt2-small on t4</h1>" in text and "4 points: 1 structure" in text
    shown = json.loads(re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)[0])
    assert sum(len(trace["x"]) for trace in shown["charts"]["throughput"]["data"]) > 3
    assert archsim(*words, *more).code == 2


def test_a_sweep_is_named_after_what_is_swept() -> None:
    """Models and devices, or how many where they are many."""
    swept = api.sweep(["gpt2-small", "gpt2-medium"], ["t4", "l4", "a10", "h100", "a100-80gb"], batch="1")
    assert sweep_title(swept) == "gpt2-small, gpt2-medium on 5 devices"
