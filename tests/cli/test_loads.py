"""`sweep` and `compare` with a load or a service level: rows are those of `simulate`."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.comparison.loaded import LoadComparison
from archsim.render.pages.loads import verdict
from archsim.sweeps.load_columns import holds, load_column, load_condition
from archsim.sweeps.scenarios import COLUMNS

BASE = ("--input-len", "64", "--output-len", "8", "--requests", "40", "--replications", "1")


@pytest.mark.slow
def test_a_sweep_over_rates_keeps_what_meets_a_condition(archsim: Any) -> None:
    """On the percentile of the simulated requests; each row equals `simulate`."""
    result = archsim("sweep", "gpt2-small", "--hw", "t4,l4", "--rate", "2,20", *BASE, "--format", "json")
    rows = json.loads(result.out)["rows"]
    assert [(row["hw"], row["offered_rate_per_s"]) for row in rows] == [
        ("t4", 2), ("t4", 20), ("l4", 2), ("l4", 20)]  # fmt: skip
    own = a.simulate("gpt2-small", "l4", rate=20, input_len="64", output_len="8", requests=40, replications=1).to_dict()
    assert rows[-1]["ttft_s_p50"] == own["metrics"]["ttft_s"]["p50"]["value"]
    limit = sorted(row["ttft_s_p50"] for row in rows)[1]
    some = archsim("sweep", "gpt2-small", "--hw", "t4,l4", "--rate", "2,20", *BASE, "--where",
                   f"ttft_s.p50 <= {limit} and hw in ('t4', 'l4')", "--json")  # fmt: skip
    assert json.loads(some.out)["rows"] == [row for row in rows if row["ttft_s_p50"] <= limit]


@pytest.mark.slow
def test_compare_says_which_server_holds_more(archsim: Any, tmp_path: Path) -> None:
    """The largest number of requests in flight that `simulate --find` finds for each."""
    line = ("--slo", "tpot=0.003,p=50", "--length-spread", "0.8", *BASE)
    found = json.loads(archsim("compare", "gpt2-small", "--hw", "t4,l4", *line, "--json").out)
    own = [
        json.loads(archsim("simulate", "gpt2-small", "--hw", hw, "--find", "concurrency", *line, "--json").out)["found"]
        for hw in ("t4", "l4")
    ]
    sizes = [one["concurrency"]["value"] for one in own]
    assert [one["largest_concurrency"] for one in found["candidates"]] == sizes
    assert found["order"] == sorted((0, 1), key=lambda i: -sizes[i]) and found["candidates"][0]["ratio"] == 1
    page = archsim("compare", "gpt2-small", "--hw", "t4,l4", *line).out
    assert "requests in flight" in page.splitlines()[0]


@pytest.mark.slow
def test_several_replicas_make_a_study(archsim: Any) -> None:
    """As a range too."""
    result = archsim("simulate", "gpt2-small", "--hw", "t4", "--rate", "20", "--replicas", "1-3+1", *BASE, "--json")
    assert [row["devices"] for row in json.loads(result.out)["rows"]] == [1, 2, 3]


def test_the_better_of_two_and_of_none() -> None:
    """More is better of loads, less of times; intervals that overlap are said to."""

    def rows(name: str, *values: float | None, **more: object) -> list[dict[str, Any]]:
        base = dict.fromkeys(COLUMNS) | {"hw": "x", "devices": 1} | more
        return [{**base, "model": f"m{i}", name: value} for i, value in enumerate(values)]

    answer = LoadComparison(rows("largest_rate_per_s", 4.0, 6.0, None))
    assert answer.order == [1, 0] and answer.ratio(1) == 1.5 and answer.ratio(2) is None and answer.overlap is None
    assert verdict(answer) == "m1 holds 1.50x as many requests/s as m0"
    assert LoadComparison(rows("tpot_s_mean", 4.0, 6.0)).order == [0, 1]
    near = rows("largest_concurrency", 8, 9, largest_concurrency_low=7, largest_concurrency_high=10)
    assert LoadComparison(near).overlap
    assert verdict(LoadComparison(near)) == "m1 holds 12 % more requests in flight than m0; their intervals overlap"
    assert verdict(LoadComparison(rows("tpot_s_mean", 4.0, 4.4))) == "m0 is 10 % faster than m1 by TPOT"
    assert verdict(LoadComparison(rows("tpot_s_mean", 4.0, 4.001))) == "m0 is as fast as m1 by TPOT"
    assert verdict(LoadComparison(rows("tpot_s_mean", None))) == "no candidate has an answer"
    missed = LoadComparison(rows("goodput_requests_per_s", 0.0, 0.0))
    assert verdict(missed) == "no candidate meets the service level at this load"
    assert verdict(LoadComparison(rows("goodput_requests_per_s", 0.0, 2.0))).startswith("only m1 meets")


def test_a_load_of_one_request_that_misses_is_what_is_told(archsim: Any) -> None:
    """The smallest load is one request, whatever the search began with; both ends of a page are singular for one."""
    line = ("simulate", "gpt2-small", "--hw", "t4", "--find", "concurrency", "--input-len", "64", "--output-len", "8",
            "--requests", "40", "--replications", "1", "--slo")  # fmt: skip
    missed = archsim(*line, "ttft=0.00001,p=50")
    assert missed.code == 1 and "with 1 request in flight" in missed.out + missed.err
    page = archsim(*line, "ttft=0.004,p=50").out
    assert "  1 request in flight" in page


def test_conditions_over_simulated_loads() -> None:
    row = dict.fromkeys(COLUMNS) | {"ttft_s_p99": 0.4, "ttft_s_mean": 0.2, "stationary": True, "hw": "h100"}
    for text, truth in (("ttft_s.p99 < 0.5", True), ("ttft_s < 0.1", False), ("stationary and hw == 'h100'", True),
                        ("e2e_s.p90 < 9", False)):  # fmt: skip
        assert holds(load_condition(text), row) is truth
    assert not holds(load_condition("ttft_s.p99 < 0.5"), row | {"error": "does not fit"})
    assert load_column("tpot_s").name == "tpot_s_mean"
    with pytest.raises(UsageError, match="no column of simulated loads is named"):
        load_condition("ttft_s.p98 < 1 and fits")


@pytest.mark.parametrize(("words", "said"), [
    (["sweep", "gpt2-small", "--hw", "t4", "--rate", "2", "--batch", "2"], "--batch"),
    (["sweep", "gpt2-small", "--hw", "t4", "--rate", "2", "--concurrency", "2"], "not both"),
    (["sweep", "gpt2-small", "--hw", "t4", "--rate", "2", "--pareto", "ttft_s"], "--pareto"),
    (["sweep", "gpt2-small", "--hw", "t4", "--requests", "20"], "--requests"),
    (["compare", "gpt2-small", "--hw", "t4", "--rate", "2"], "nothing to compare"),
    (["compare", "gpt2-small", "--hw", "t4,l4", "--slo", "speed=1"], "is not a target"),
    (["compare", "gpt2-small", "--hw", "t4,l4", "--rate", "2,3"], "one `--rate`"),
    (["compare", "gpt2-small", "--hw", "t4,l4", "--rate", "2", "--find", "rate"], "--find"),
    (["compare", "gpt2-small", "--hw", "t4,l4", "--slo", "tpot=0"], "slo"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(archsim: Any, words: list[str], said: str) -> None:
    result = archsim(*words)
    assert result.code in (1, 2) and said in result.err + result.out and "Traceback" not in result.err


@pytest.mark.slow
def test_a_report_shows_which_server_holds_more(archsim: Any, tmp_path: Path) -> None:
    """One file with the verdict, the chart and the table of `compare`; what does not go with loads is refused."""
    words = ("gpt2-small", "--hw", "t4,l4", "--slo", "tpot=0.05", "--requests", "60", "--replications", "1",
             "--input-len", "64", "--output-len", "8")  # fmt: skip
    path = tmp_path / "loads.html"
    told = archsim("report", *words, "--out", str(path))
    compared = json.loads(archsim("compare", *words, "--json").out)
    assert told.code == 0 and "requests in flight" in told.out and "loads.html" in told.out
    assert json.loads(archsim("report", *words, "--out", str(path), "--force", "--json").out) == compared
    text = path.read_text()
    assert told.out.splitlines()[0] in unescape(text) and "load" in text and text.count("<table") == 2
    assert archsim("report", *words, "--out", str(path)).code == 2
    refused = archsim("report", *words, "--out", str(tmp_path / "x.html"), "--light")
    assert refused.code == 2 and "--light" in refused.err and not (tmp_path / "x.html").exists()
    alone = archsim("report", "gpt2-small", "--hw", "t4", "--jobs", "2", "--out", str(tmp_path / "x.html"))
    assert alone.code == 2 and "--slo" in alone.err


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        "compare gpt2-small --hw t4,l4 --rate 2 --requests 40 --replications 1",
        "sweep gpt2-small --hw t4 --rate 2,4 --requests 40 --replications 1",
        "sweep gpt2-small --hw h100 --phase train --devices 1 --micro-batch 1 --seq-len 256 --zero 0,1",
    ],
)
def test_html_is_html(words: str, archsim: Any) -> None:
    """`--format html` of simulated loads and training runs is a page, as of every other answer of the command."""
    result = archsim(*words.split(), "--format", "html")
    assert result.code == 0 and result.out.startswith("<!doctype html>") and "gpt2-small" in result.out
