"""Requests of a simulated run as a file, and as a timeline."""

from __future__ import annotations

import csv
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.predict.request_timeline import COLUMNS, request_rows, timeline

ASKED = ("simulate", "gpt2-small", "--hw", "t4", "--rate", "20", "--requests", "40", "--replications", "1",
         "--input-len", "64", "--output-len", "8")  # fmt: skip


@pytest.mark.slow
def test_rows_are_the_requests(archsim: Any, tmp_path: Path) -> None:
    """The file, `--format csv` and `to_rows` say the same, and its means are those of the answer."""
    path = tmp_path / "requests.csv"
    result = archsim(*ASKED, "--requests-out", str(path), "--json", "--warmup", "0")
    data = json.loads(result.out)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 40 and tuple(rows[0]) == COLUMNS
    ttft = [float(row["first_s"]) - float(row["arrival_s"]) for row in rows]
    assert sum(ttft) / 40 == pytest.approx(data["metrics"]["ttft_s"]["mean"]["value"], rel=1e-9)
    assert all(float(row["wait_s"]) >= 0 and float(row["last_s"]) >= float(row["first_s"]) for row in rows)
    assert archsim(*ASKED, "--format", "csv").out == path.read_text()


def test_a_file_that_exists_stays(archsim: Any, tmp_path: Path) -> None:
    """Before anything is simulated."""
    path = tmp_path / "requests.csv"
    path.write_text("mine")
    assert archsim(*ASKED, "--requests-out", str(path)).code == 2
    assert path.read_text() == "mine"
    assert archsim(*ASKED, "--requests-out", str(tmp_path / "x.txt")).code == 2


@pytest.mark.slow
def test_the_timeline_covers_every_request(archsim: Any, tmp_path: Path) -> None:
    """The parts of a request join from its arrival to its last token; times of one track do not overlap."""
    path = tmp_path / "run.json"
    assert archsim(*ASKED, "--timeline", str(path)).code == 0
    run = a.simulate("gpt2-small", "t4", rate=20, requests=40, replications=1, input_len="64", output_len="8")
    drawn = timeline(run.record, {})
    assert json.loads(path.read_text())["traceEvents"] == json.loads(json.dumps(drawn["traceEvents"]))
    spans = [event for event in drawn["traceEvents"] if event["ph"] == "X"]
    for row in request_rows(run.record):
        own = [event for event in spans if event["tid"] == row["id"] + 1]
        assert own[0]["ts"] == pytest.approx(row["arrival_s"] * 1e6)
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] == pytest.approx(after["ts"])
        assert own[-1]["ts"] + own[-1]["dur"] == pytest.approx(row["last_s"] * 1e6)
    few = timeline(run.record, {}, start_s=0.5, most=3)
    assert few["otherData"]["window"]["requests"] == 3


def test_every_replica_of_a_fleet_has_its_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running and waiting requests and blocks, as it was sampled; a trace has no more events than it may."""
    run = a.simulate(
        "gpt2-small", "t4", rate=40, requests=80, replications=1, input_len="64", output_len="8", replicas=3
    )
    drawn = timeline(run.record, {})["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in drawn if event["name"] == "process_name"}
    assert list(names.values()) == ["requests", "replica 0", "replica 1", "replica 2"]
    for pid, part in zip(list(names)[1:], run.record.parts, strict=True):
        mine = [event for event in drawn if event["ph"] == "C" and event["pid"] == pid and event["name"] == "running"]
        assert [event["args"]["running"] for event in mine] == part.samples.running and mine
    monkeypatch.setattr("archsim.predict.request_timeline.MOST_EVENTS", 200)
    fewer = timeline(run.record, {})["traceEvents"]
    assert 100 < len(fewer) <= 200 and {event["ph"] for event in fewer} == {"M", "X", "C"}


@pytest.mark.slow
def test_the_page_with_charts_needs_nothing_else(archsim: Any, tmp_path: Path) -> None:
    """One file: tables, three charts whose curves are the requests', no address that a browser would ask."""
    path = tmp_path / "run.html"
    assert archsim(*ASKED, "--html", str(path), "--slo", "ttft=1", "--warmup", "0").code == 0
    text = path.read_text("utf-8")
    assert text.count('class="chart"') == 3 and "connect-src 'none'" in text
    assert "Latency" in text and "service level" in text
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="', text)
    assert archsim(*ASKED, "--html", str(path)).code == 2
