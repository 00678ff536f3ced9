"""`archsim validate`: what it prints and writes, its exit codes, and the files that come with archsim."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from accuracy import tables as t
from conftest import ROOT

import archsim as package
from archsim.accuracy.rows import Rows
from archsim.accuracy.runs import DEFINITIONS, METRICS
from archsim.accuracy.validation import Validation
from archsim.render.html.validate import MOST, document
from archsim.render.page import plural
from archsim.render.pages.accuracy import accuracy
from archsim.render.pages.validate import NOUNS, page

RUNS = sorted((ROOT / "reports" / "runs").glob("*.yaml"))
ROWS = [row for path in RUNS for row in yaml.safe_load(path.read_text("utf-8"))["rows"]]

FIGURES = ("median_ape", "mape", "p90_ape", "time_weighted_error", "bias", "coverage_80")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small kernel table."""
    rows = [t.kernel(op, time_us=50.0 + i, device=d) for i, op in enumerate(t.EXTENTS) for d in ("H100-SXM", "L40S")]
    return t.write(tmp_path / "kernels.csv", [*rows, t.kernel(device="abacus")])


@pytest.mark.slow
def test_json_is_the_contract_and_the_python_object(table: Path, archsim: Callable[..., Any]) -> None:
    """Keys, types, no NaN; `to_dict` equals `--json`; the same bytes each time."""
    first, again = (archsim("validate", str(table), "--json") for _ in range(2))
    assert (first.code, first.err) == (0, "")
    assert first.out == again.out
    told = json.loads(first.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert told == json.loads(json.dumps(package.validate(table).to_dict()))
    assert (told["schema"], told["kind"]) == ("archsim.validate/1", "kernels")
    assert set(told["rows"][0]) == {"id", "metric", "measured", "predicted", "low", "high", "evidence"}
    assert set(told["refused"][0]) == {"id", "metric", "reason"}
    assert told["summary"]["refused"] == len(told["refused"]) == 1
    assert all(isinstance(told["summary"][name], float) for name in FIGURES)
    assert {"op", "device", "engine", "regime", "evidence"} <= told["summary"]["by"].keys()
    assert all(isinstance(told["summary"]["naive"][name], float) for name in FIGURES[:-1])


@pytest.mark.slow
def test_page_shows_errors_worst_rows_and_refusals(table: Path, archsim: Callable[..., Any]) -> None:
    """In at most 100 columns."""
    result = archsim("validate", str(table))
    assert result.code == 0
    for words in ("By op", "By device", "By regime", "Worst", "Refused", "roofline", "no device named `abacus`"):
        assert words in result.out
    assert max(map(len, result.out.splitlines())) <= 100


@pytest.mark.sampled(2)
@pytest.mark.parametrize("most", ["0.000001", "0%"])
def test_a_median_error_above_the_limit_is_a_no(most: str, table: Path, archsim: Callable[..., Any]) -> None:
    """Exit code 1 with the answer on stdout and the reason on stderr; 0 inside the limit."""
    result = archsim("validate", str(table), "-q", "--max-median-ape", most)
    assert result.code == 1
    assert result.out.startswith("kernels: ")
    assert "median error" in result.err
    assert archsim("validate", str(table), "-q", "--max-median-ape", "1000").code == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--max-median-ape", "low"), 2),
        (("--max-median-ape", "-1"), 2),
        (("--by", "colour"), 2),
        (("--limit", "0"), 2),
        (("--format", "csv"), 0),
        (("--format", "md", "--by", "dtype,bound"), 0),
        (("--limit", "5"), 0),
    ],
)
def test_options(args: tuple[str, ...], code: int, table: Path, archsim: Callable[..., Any]) -> None:
    """Each is used, or refused as a usage error."""
    assert archsim("validate", str(table), *args).code == code


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("none.csv", 3, "no such file"), ("notes.txt", 3, "notes.txt"), ("no-such-model", 2, "no model named")],
)
def test_what_is_nothing_known(name: str, code: int, says: str, tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """An invalid file, or a model that nobody knows."""
    (tmp_path / "notes.txt").write_text("hello\n")
    result = archsim("validate", str(tmp_path / name) if "." in name else name)
    assert (result.code, result.out) == (code, "")
    assert says in result.err


@pytest.mark.slow
def test_a_folder_of_several_kinds(table: Path, archsim: Callable[..., Any]) -> None:
    """One answer for each kind."""
    t.write(table.parent / "runs.json", [t.run()], "json")
    told = json.loads(archsim("validate", str(table.parent), "--json").out)
    assert told["schema"] == "archsim.validations/1"
    assert [answer["kind"] for answer in told["answers"]] == ["kernels", "runs"]
    assert told == json.loads(json.dumps(package.validate(table.parent).to_dict()))


class Links(HTMLParser):
    """Every attribute that could fetch something, and the tags that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count and collect."""
        self.tags[tag] += 1
        self.fetched += [
            v or "" for k, v in attrs if k in ("src", "href", "data", "action") and not (v or "").startswith("#")
        ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOUNS)
def test_what_is_counted_has_a_plural(kind: Any) -> None:
    """`request times`, not `latencys`."""
    assert not re.search("[^aeiou]ys|ss$", plural(2, NOUNS[kind]))


def test_html_stands_alone(table: Path, tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """No script, no request, a policy that forbids both, one plot for each class of four points or more."""
    out = tmp_path / "page.html"
    hostile = t.write(
        tmp_path / "h.csv", [t.kernel(time_us=50 + i, engine="<script>alert(1)</script>") for i in range(5)]
    )
    assert archsim("validate", str(hostile), "--html", str(out), "-q", "--force").code == 0
    text = out.read_text("utf-8")
    links = Links()
    links.feed(text)
    assert links.fetched == []
    assert links.tags["script"] == 3 and "<script>alert(1)" not in text
    assert "default-src 'none'" in text
    assert links.tags["figure"] == 1
    shown = json.loads(re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)[0])
    (chart,) = shown["charts"].values()
    assert len(chart["data"][-1]["x"]) == 5 and "&lt;script&gt;" in chart["data"][-1]["hovertext"][0]
    assert "prefers-color-scheme" in text
    assert archsim("validate", str(hostile), "--html", str(out), "-q", "--force").code == 0
    assert out.read_text("utf-8") == text


def test_html_of_many_rows_is_small() -> None:
    """Points are sampled: at most MOST of them, and 3 MB."""
    count = 20_000
    said = np.random.default_rng(0).lognormal(3, 2, count)
    rows = Rows(
        ids=[str(i) for i in range(count)], metrics=["time_us"] * count, measured=said * 1.1, predicted=said,
        low=said, high=said, naive=said, evidence=["datasheet"] * count,
        labels={"op": ["gemm" if i % 3 else "moe" for i in range(count)], "device": ["H100-SXM"] * count},
        counted=np.ones(count, bool), titles=["gemm H100-SXM m 4096 n 4096 k 4096"] * count,
        peers=np.full(count, -1),
    )  # fmt: skip
    text = document([Validation(kind="kernels", rows=rows, files=("k.csv",))], "cdn")
    assert text.count("gemm H100-SXM") <= MOST + 100
    assert len(text.encode()) <= 3_000_000
    assert "2,500 of 6,667 points" in text


# ------------------------------------------------------------------------------- archsim's own runs
def test_runs_are_cited_facts() -> None:
    """At least 60 on at least 8 devices; each with id, definition, date and a page that anyone can open."""
    assert len(ROWS) >= 60
    assert len({row["device"] for row in ROWS} - {"any"}) >= 8
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch(r"https://[\w.-]+/\S+", row["source"]), row["id"]
        assert row["date"] and row["metric"] in METRICS and row["definition"] in DEFINITIONS, row["id"]
        assert isinstance(row["value"], (int, float)) and row["value"] > 0, row["id"]


@pytest.mark.slow
def test_every_own_run_is_predicted(archsim_process: Callable[..., Any]) -> None:
    """Without an argument the run list is validated, wherever one stands; none is refused."""
    told = json.loads(archsim_process(["validate", "--json"], cwd=Path("/")).out)
    assert told["kind"] == "runs"
    assert told["refused"] == []
    assert {row["id"] for row in told["rows"]} == {row["id"] for row in ROWS}


def test_runs_are_listed(archsim_process: Callable[..., Any]) -> None:
    """By `archsim list runs`, as files of archsim."""
    listed = archsim_process(["list", "runs"], cwd=Path("/")).out
    assert all(path.name in listed for path in RUNS)
    assert str(ROOT) not in listed


@pytest.mark.slow
def test_the_accuracy_page_is_what_the_code_says() -> None:
    """`archsim validate --write-report reports/accuracy.md --force` makes it anew."""
    text = accuracy([package.validate()])
    assert (ROOT / "reports" / "accuracy.md").read_text("utf-8") == text


@pytest.mark.slow
def test_own_runs_have_every_table() -> None:
    """Errors by metric, device, engine and regime, and the worst rows."""
    titles = [section.title for section in page(package.validate()).sections]
    assert {"By metric", "By device", "By engine", "By regime", "Worst"} <= set(titles)


# ------------------------------------------------------------------------------- others' measurements
@pytest.mark.skipif("ARCHSIM_MEASURED" not in os.environ, reason="ARCHSIM_MEASURED names a folder of measured tables")
def test_measured_tables_leave_no_row_out() -> None:
    """Of a folder of tables, every row of a known metric is predicted, with the interval around the prediction."""
    found: Any = package.validate(os.environ["ARCHSIM_MEASURED"])
    for answer in getattr(found, "answers", (found,)):
        assert [refused for refused in answer.refused if "no metric named" not in refused.reason] == []
        rows = answer.rows
        assert (rows.low <= rows.predicted).all() and (rows.predicted <= rows.high).all()
