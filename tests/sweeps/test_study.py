"""Simulated loads by the thousand: rows do not depend on how they are made, and a study goes on where it stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import OutputRefused, UsageError
from archsim.predict.served_engine import REACHES
from archsim.render.study_file import open_study
from archsim.serving.step_times import MOST_ENDS, StepTable
from archsim.sweeps.scenarios import (
    COLUMNS,
    MOST_SERVERS,
    MOST_TABLES,
    Scenario,
    Servers,
    by_server,
    crossed,
    parse_scenarios,
    tasks,
)
from archsim.sweeps.study import study

OPTIONS = {"requests": 40, "replications": 1, "input_len": 64, "output_len": 8}


def scenarios() -> list[Scenario]:
    return crossed(["gpt2-small"], ["t4", "l4"], {"rate": [2, 20], "seed": [0, 1]}, OPTIONS)


def test_a_row_is_what_simulate_answers() -> None:
    """Every figure; one that has no answer says why."""
    (row,) = [row for rows in study(scenarios()[:1]) for row in rows]
    data = a.simulate("gpt2-small", "t4", rate=2, seed=0, **OPTIONS).to_dict()  # type: ignore[arg-type]
    assert row["ttft_s_mean"] == data["metrics"]["ttft_s"]["mean"]["value"]
    assert row["tpot_s_mean_high"] == data["metrics"]["tpot_s"]["mean"]["high"]
    assert row["output_tokens_per_s"] == data["throughput"]["output_tokens_per_s"]["value"]
    assert (row["engine"], row["devices"], row["error"]) == ("generic", 1, None)
    ((refused,),) = study([Scenario.of("llama3.1-405b", "t4", {"rate": 1})])
    assert "does not fit" in refused["error"] and refused["ttft_s_mean"] is None


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"jobs": 2}, pytest.param({"ray": "local"}, marks=pytest.mark.slow)])
def test_rows_are_the_same_on_any_processes(how: dict[str, Any]) -> None:
    """Byte for byte, in the same order."""
    if "ray" in how:
        pytest.importorskip("ray")
    alone = [row for rows in study(scenarios()) for row in rows]
    others = [row for rows in study(scenarios(), **how) for row in rows]
    assert json.dumps(alone) == json.dumps(others)


def test_tasks_hold_one_server_and_every_scenario_once() -> None:
    many = crossed(["gpt2-small"], ["t4", "l4"], {"seed": list(range(30))}, {**OPTIONS, "requests": 10_000})
    pieces = list(tasks(many))
    assert [one for piece in pieces for one in piece] == many
    assert all(len({one.server for one in piece}) == 1 for piece in pieces)
    assert all(sum(one.requests for one in piece) <= 100_000 for piece in pieces)
    assert len({one.key for one in many}) == len(many)


def test_scenarios_of_one_server_follow_each_other() -> None:
    """Servers and their scenarios as they come, each once; so each server's tables are made once."""
    mixed = crossed(["gpt2-small"], ["t4", "l4"], {"rate": [2, 20]}, OPTIONS)
    mixed = [mixed[i] for i in (2, 0, 3, 1)]
    ordered = by_server(mixed)
    assert [mixed.index(one) for one in ordered] == [0, 2, 1, 3]
    assert len(list(tasks(ordered))) == 2 and len(list(tasks(mixed))) == 4


@pytest.mark.slow
def test_tables_do_not_grow_with_the_scenarios() -> None:
    """Of many servers and lengths only the last ones' are kept, and rows do not depend on what was kept."""
    lengths = [{"input_len": n, "output_len": 8} for n in (30, 60, 120, 250, 500)]
    many = [
        Scenario.of("gpt2-small", device, {**OPTIONS, "requests": 5, "rate": 2, **both})
        for both in lengths for device in ("t4", "l4", "a10")
    ]  # fmt: skip
    servers = Servers()
    rows = [servers.row(one) for one in many]
    assert len(servers.tables) == MOST_TABLES and len(servers.kept) <= MOST_SERVERS
    for tables in servers.tables.known.values():
        assert len(tables) <= REACHES
        for table in tables.known.values():
            assert isinstance(table, StepTable) and len(table._ends) <= MOST_ENDS
    again = Servers()
    found = {row["key"]: row for row in (again.row(one) for one in reversed(by_server(many)))}
    assert json.dumps(rows) == json.dumps([found[one.key] for one in many])
    assert all(row["error"] is None for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rows.csv", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rows.jsonl", "rows.parquet"))]
)
def test_a_study_goes_on_where_it_was_killed(archsim: Any, tmp_path: Path, name: str) -> None:
    """A line that was cut is simulated again, all others stay as they are; the end is that of an unbroken run."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    asked = ("simulate", "gpt2-small", "--hw", "t4,l4", "--rates", "2,20", "--requests", "40", "--replications", "1",
             "--input-len", "64", "--output-len", "8")  # fmt: skip
    path, whole = tmp_path / name, tmp_path / f"whole-{name}"
    assert archsim(*asked, "--out", str(whole)).code == 0
    assert archsim(*(word.replace("t4,l4", "t4") for word in asked), "--out", str(path)).code == 0
    if path.is_file():
        with path.open("a") as stream:
            stream.write(whole.read_text()[:90].replace("\n", ""))
    assert archsim(*asked, "--out", str(path)).code == 2
    result = archsim(*asked, "--out", str(path), "--resume")
    assert result.code == 0 and "2 scenarios in" in result.err and "2 were there" in result.err
    if path.is_file():
        assert path.read_bytes() == whole.read_bytes()
    else:
        assert len(list(path.glob("part-*.parquet"))) == 2


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A file of something else, with or without --resume."""
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n")
    for resume in (False, True):
        with pytest.raises((OutputRefused, UsageError)):
            open_study(path, COLUMNS, resume=resume)
    assert path.read_text() == "a,b\n1,2\n"
    with pytest.raises(UsageError, match="file extension of a study"):
        open_study(tmp_path / "x.txt", COLUMNS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "no JSON"),
        ("[]", "an object"),
        ('{"model": "gpt2"}', "`model` and `hw`"),
        ('{"model": "gpt2", "hw": "t4", "ratte": 3}', "ratte"),
    ],
)
def test_lines_that_are_no_scenarios(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        list(parse_scenarios(["", line], "file.jsonl"))
    assert "line 2" in caught.value.message


@pytest.mark.slow
def test_several_values_in_one_table(archsim: Any, tmp_path: Path) -> None:
    """A line a scenario, and a file of scenarios; what is for one load is refused."""
    words = ("gpt2-small", "--requests", "30", "--replications", "1", "--input-len", "64", "--output-len", "8")
    page = archsim("simulate", *words, "--hw", "t4", "--rates", "1-4*2").out
    assert "3 simulated loads" in page and page.count("tok/s") == 3
    found = csv.DictReader(
        archsim("simulate", *words, "--hw", "t4", "--rates", "0.5,1", "--format", "csv").out.splitlines()
    )
    assert [row["offered_rate_per_s"] for row in found] == ["0.5", "1.0"]
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps({"model": "gpt2-small", "hw": "t4", "rate": n, **OPTIONS}) for n in (1, 2)))
    assert "2 simulated loads" in archsim("simulate", "--scenarios", str(path)).out
    path.write_text('{"rate": 1}\n{"rate": 2, "requests": 20}')
    rows = archsim("simulate", *words, "--hw", "t4", "--scenarios", str(path), "--format", "csv").out
    assert [row["requests"] for row in csv.DictReader(rows.splitlines())] == ["30", "20"]
    missing = archsim("simulate", "--scenarios", str(path))
    assert missing.code == 2 and "line 1" in missing.err
    assert archsim("simulate", "--hw", "t4", "--rate", "1").code == archsim("simulate", "gpt2", "--rate", "1").code == 2
    assert archsim("simulate", *words, "--hw", "t4", "--rates", "1,2", "--rate", "3").code == 2
    assert archsim("simulate", *words, "--hw", "t4", "--rates", "1,2", "--find", "rate", "--slo", "ttft=1").code == 2


@pytest.mark.slow
def test_scenarios_in_any_order(archsim: Any, tmp_path: Path) -> None:
    """On stdout rows stand in the scenarios' order; a file has them server by server, resumed or not."""
    lines = [
        json.dumps({"model": "gpt2-small", "hw": hw, "rate": rate, **OPTIONS})
        for rate in (2, 20) for hw in ("t4", "l4")
    ]  # fmt: skip
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(lines))
    rows = json.loads(archsim("simulate", "--scenarios", str(many), "--json").out)["rows"]
    assert [(row["hw"], row["offered_rate_per_s"]) for row in rows] == [("t4", 2), ("l4", 2), ("t4", 20), ("l4", 20)]
    whole, path = tmp_path / "whole.csv", tmp_path / "rows.csv"
    assert archsim("simulate", "--scenarios", str(many), "--out", str(whole)).code == 0
    assert [row["hw"] for row in csv.DictReader(whole.read_text().splitlines())] == ["t4", "t4", "l4", "l4"]
    path.write_text("".join(whole.read_text().splitlines(keepends=True)[:2]))
    assert archsim("simulate", "--scenarios", str(many), "--out", str(path), "--resume").code == 0
    assert path.read_bytes() == whole.read_bytes()


def test_a_scenario_that_stands_twice_has_a_row_in_both_places(archsim: Any, tmp_path: Path) -> None:
    """Both rows of it stood at the second place."""
    many = tmp_path / "many.jsonl"
    rates = [2, 20, 2]
    many.write_text("\n".join(json.dumps({"model": "gpt2-small", "hw": "t4", "rate": n, **OPTIONS}) for n in rates))
    rows = json.loads(archsim("simulate", "--scenarios", str(many), "--json").out)["rows"]
    assert [row["offered_rate_per_s"] for row in rows] == rates
