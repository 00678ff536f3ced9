"""Charts show what results say: sums, names, colours, and nothing of plotly's own markup from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from archsim import api
from archsim.base.errors import UsageError
from archsim.render.figures import bars, curves, roofline, theme
from archsim.render.figures.chart import Chart, legend_height

HOSTILE = "<b>@ink</b> %{x} <a href='javascript:alert(1)'>"


@pytest.fixture(scope="module")
def cases() -> list[bars.Case]:
    """Two models on one device; one name is hostile."""
    return [
        bars.Case(label, api.estimate(model, "h100", batch=4))
        for label, model in (("small", "gpt2-small"), (HOSTILE, "gpt2-medium"))
    ]


@pytest.fixture(scope="module")
def charts(cases: list[bars.Case]) -> list[Chart]:
    """Every kind of chart."""
    rates = [
        curves.RateCurve(c.label, [r for b in (1, 8) if (r := curves.rate_of(api.estimate(m, "h100", batch=b)))], 8)
        for c, m in zip(cases, ("gpt2-small", "gpt2-medium"), strict=True)
    ]
    contexts = [curves.ContextCurve(c.label, [(512, 1e8), (1024, 2e8)], 3e8) for c in cases]
    return [
        bars.memory_bars(cases), bars.time_bars(cases, "prefill"), bars.time_bars(cases, "decode"),
        curves.throughput_latency(rates), curves.cache_growth(contexts, 4), curves.largest_batches(contexts, (512, 4)),
        curves.time_growth(contexts, 4), roofline.roofline(cases[0].estimate.hardware, cases),
    ]  # fmt: skip


def named(chart: Chart, kind: str) -> list[dict[str, Any]]:
    """The traces of one kind."""
    return [trace for trace in chart.traces if trace["type"] == kind]


def test_memory_bars_add_up_to_what_is_needed(charts: list[Chart], cases: list[bars.Case]) -> None:
    """The pieces of a bar are the whole memory."""
    for i, case in enumerate(cases):
        pieces = sum(trace["x"][i] for trace in named(charts[0], "bar"))
        assert pieces == pytest.approx(float(case.estimate.memory.needed) / 1e9, rel=1e-12)


def test_time_bars_add_up_to_the_expected_time(charts: list[Chart], cases: list[bars.Case]) -> None:
    """The parts of a step are the whole step, in the unit of the axis."""
    for chart, phase in ((charts[1], "prefill"), (charts[2], "decode")):
        unit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[chart.layout["xaxis"]["title"]["text"].split()[0]]
        for i, case in enumerate(cases):
            pieces = unit * sum(trace["x"][i] for trace in named(chart, "bar"))
            assert pieces == pytest.approx(float(getattr(case.estimate, phase).expected_s), rel=1e-9)


def test_the_height_has_room_for_every_name(charts: list[Chart]) -> None:
    """Bars are as high in every chart, whatever its legend takes above them."""
    for chart in charts[:3]:
        names = [str(trace["name"]) for trace in chart.traces]
        assert chart.layout["height"] - legend_height(names) == 2 * bars.ROW + 66


def test_an_axis_of_less_than_a_decade_has_more_than_one_label() -> None:
    """6 to 12 ms: 6, 7, 8, 9 and 10, not 10 alone."""
    near = curves.time_growth([curves.ContextCurve("a", [(1024, 6e-3), (131072, 12e-3)], 0.0)], 1)
    far = curves.time_growth([curves.ContextCurve("a", [(1024, 6e-3), (131072, 12e-1)], 0.0)], 1)
    assert (near.layout["yaxis"]["dtick"], far.layout["yaxis"]["dtick"]) == ("D1", "D2")


def test_more_parts_than_colours_are_joined() -> None:
    """The smallest parts become one, and the sum stays."""
    case = bars.Case("x", api.estimate("deepseek-v3", "h200", batch=8))
    chart = bars.time_bars([case], "decode")
    pieces = named(chart, "bar")
    assert len(pieces) <= theme.SERIES and case.estimate.decode is not None
    assert sum(t["x"][0] for t in pieces) * 1e-3 == pytest.approx(float(case.estimate.decode.expected_s), rel=1e-9)


def test_every_chart_is_one_that_plotly_takes(charts: list[Chart]) -> None:
    """plotly itself checks names and values; ids differ, tables have as many cells as titles."""
    assert len({chart.key for chart in charts}) == len(charts)
    for chart in charts:
        drawn = chart.figure("dark")
        assert len(drawn.data) == len(chart.traces) and drawn.layout.title.text
        assert all(len(row) == len(chart.table.head) for row in chart.table.rows) and chart.table.rows
        assert chart.finding.endswith(".")


def _colours(value: Any, key: str = "") -> list[str]:
    if isinstance(value, dict):
        return [found for name, one in value.items() for found in _colours(one, name)]
    if isinstance(value, list):
        return [found for one in value for found in _colours(one, key)]
    return [value] if key.endswith("color") and isinstance(value, str) else []


def test_colours_are_those_of_the_theme(charts: list[Chart]) -> None:
    """No name of a colour is left, light and dark differ, and a text that looks like one stays."""
    for chart in charts:
        light, dark = chart.spec("light"), chart.spec("dark")
        assert not [c for c in _colours(light) + _colours(dark) if not c.startswith(("#", "rgba("))]
        assert _colours(light) != _colours(dark)
    assert theme.coloured({"text": "@ink", "color": "@ink"}, "light") == {"text": "@ink", "color": "#1b1f24"}


def test_names_from_outside_are_text(charts: list[Chart]) -> None:
    """plotly reads a few tags in texts: a name brings none, and no template of numbers."""
    shown = [str(chart.spec(titled=True)) for chart in charts]
    assert all("&lt;b&gt;@ink&lt;/b&gt;" in text and "<a " not in text for text in shown)
    assert not any("hovertemplate" in text for text in shown)


def test_batches_beside_marks_stand_apart() -> None:
    """Where a mark of an earlier curve has its batch, a later one has none; far from it it has."""
    rates = [curves.Rate(batch, 100 / batch, 100.0 * batch, 1.0, 1.0, "measured") for batch in (1, 8)]
    near = [rate._replace(user=1.01 * rate.user) for rate in rates]
    far = [rate._replace(user=0.5 * rate.user, device=0.3 * rate.device) for rate in rates]
    made = curves.throughput_latency([curves.RateCurve(name, found, 1) for name, found in
                                      (("a", rates), ("b", near), ("c", far))])  # fmt: skip
    texts = [trace["text"] for trace in made.traces if trace["mode"] == "lines+markers+text"]
    assert texts == [["1", "8"], ["", ""], ["1", "8"]]


def test_a_front_is_what_no_other_beats() -> None:
    """From the fastest for a user on, each gives more of a device."""
    assert curves.front([(1, 9), (2, 5), (2, 4), (3, 5), (3, 5), (4, 1)]) == [(4, 1), (3, 5), (1, 9)]


# ---------------------------------------------------------------------- who imports plotly, and what a browser draws
@pytest.mark.slow
@pytest.mark.parametrize("words", ["estimate gpt2-small --hw t4", "count gpt2-small", "fit gpt2-small --hw t4"])
def test_plotly_is_not_imported_by_answers_in_text(words: str) -> None:
    """Charts and pages cost nothing where none is made."""
    code = (
        "import sys\nfrom archsim.cli.main import run\n"
        f"sys.argv = ['archsim', *{words.split()!r}]\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('plotly', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_draws_every_chart_and_says_nothing(tmp_path: Path) -> None:
    """Opened from disk, offline, no script fails, the policy refuses nothing, and every chart is there."""
    path = tmp_path / "r.html"
    api.report("llama3.2-1b", "h100").write(path)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
               "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
               f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and not re.findall(r"CONSOLE.*", done.stderr)
    charts = path.read_text("utf-8").count('class="chart"')
    assert charts >= 8 and done.stdout.count('class="chart js-plotly-plot"') == charts


@pytest.mark.slow
def test_answers_have_figures(cases: list[bars.Case]) -> None:
    """The first chart, one by its name, and a word where there is none."""
    answer = cases[0].estimate
    assert "Decode" in answer.figure().layout.title.text
    assert answer.figure("memory", theme="dark").layout.paper_bgcolor == theme.DARK["paper"]
    with pytest.raises(UsageError, match="no chart of Estimate is named 'x'"):
        answer.figure("x")
    with pytest.raises(UsageError, match="no theme"):
        answer.figure(theme="blue")
    with pytest.raises(UsageError, match="has no chart"):
        api.count("gpt2-small").figure()
    assert api.sweep("gpt2-small", "t4", batch="1,8").figure().layout.title.text
    assert api.survey().figure("attention").layout.title.text == "<b>Attention</b>"


@pytest.mark.slow
def test_a_validation_has_a_figure_for_each_metric() -> None:
    """Its marks are the rows that have both figures."""
    answer = api.validate(limit=60)
    found = answer.figure()
    marks = [trace for trace in found.data if trace.mode == "markers"]
    assert 4 <= sum(len(trace.x) for trace in marks) <= answer.rows.scored.sum()
    assert found.layout.title.text
