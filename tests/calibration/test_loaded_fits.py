"""The front end and the first step of a benchmark, fitted on runs that were made with known ones."""

from __future__ import annotations

import csv
from math import hypot, log
from pathlib import Path
from typing import Any

import pytest

from archsim.accuracy.files import Table, read_table
from archsim.accuracy.loaded import require_load, run_of_load, settings_of
from archsim.accuracy.loaded_errors import kind_of, known_errors, loaded_error
from archsim.accuracy.loaded_run import LoadedServers, printed_figures
from archsim.accuracy.stated_load import load_of
from archsim.base.errors import UsageError
from archsim.calibration.loaded_fits import (
    Held,
    LogError,
    error_beyond_steps,
    front_of,
    intervals_of,
    loaded_points,
    refit_loaded,
    stated_front,
    with_pools,
    workers_of,
)
from archsim.engines.overhead import FirstToken, FirstUse, FrontWork, front_work_of
from archsim.serving.observe import measure
from archsim.timing.calibration import default_store

TRUE = FrontWork(30e-3, 4e-6, 16, 0.8)
ROW: dict[str, Any] = {
    "engine": "vllm", "engine_version": "0.12.0", "model": "llama3-8b", "device": "h100-sxm", "n_devices": 1, "tp": 1,
    "arrival": "closed loop", "osl": 16, "lengths": "", "source": "lab",
}  # fmt: skip
METRICS = ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p50_ms", "output_tok_s")


def made(path: Path, front: FrontWork) -> Table:
    """A table of runs as they are with a front end."""
    rows = [ROW | {"id": str(10 * n + k), "concurrency": n, "isl": isl}
            for n in (1, 2, 4) for k, isl in enumerate((256, 4096))]  # fmt: skip
    servers = LoadedServers(default_store())
    for row in rows:
        server, requests = servers.ready(run_of_load(row), load_of(row), settings_of(row))
        row |= printed_figures(measure(server.run(requests, front)))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return read_table(path)


@pytest.mark.slow
def test_a_known_front_end_is_fitted(tmp_path: Path) -> None:
    points = loaded_points([made(tmp_path / "loaded.csv", TRUE)], default_store())
    front = front_of(points)
    assert len(points) == 6
    assert front.request_s == pytest.approx(TRUE.request_s, rel=0.1)
    assert front.token_s == pytest.approx(TRUE.token_s, rel=0.3)
    assert front.first_use_s == pytest.approx(TRUE.first_use_s, rel=0.1)
    document: dict[str, Any] = {"engines": {}, "composition": {"interval": [0.1, 0.1]}}
    groups = refit_loaded(document, points, lambda line: None)["groups"]
    own = document["engines"]["vllm"]
    assert front_work_of(own, FirstToken(), "NVIDIA").request_s == pytest.approx(TRUE.request_s, rel=0.1)
    assert document["composition"]["interval"] == [0.1, 0.1]
    assert set(document["composition"]["loaded"]) == set(METRICS)
    assert set(document["composition"]["loaded"]["tpot_p50_ms"]) == {"server"}
    assert {group["metric"] for group in groups} == set(METRICS)
    assert all(group["median"] < 0.05 and group["left_out"] is None for group in groups)


def test_an_engine_without_runs_has_the_front_end_of_the_closed_form() -> None:
    assert front_work_of({}, FirstToken(front_s=0.05)).request_s == 0.05
    fronts = {name: {"request_us": 1e3 * n, "token_us": 0, "workers": 1, "first_use_ms": 0, "runs": n}
              for n, name in ((20, "AMD"), (5, "NVIDIA"))}  # fmt: skip
    for vendor, milliseconds in (("AMD", 20), ("NVIDIA", 5), ("Intel", 20)):
        assert front_work_of({"front_end": fronts}, FirstToken(), vendor).request_s == pytest.approx(
            1e-3 * milliseconds
        )


def test_errors_of_a_kind_without_runs_are_those_of_the_first_that_has_some() -> None:
    engines = {"composition": {"loaded": {"ttft_mean_ms": {"server": [0.3, 0.4], "server queued": [0.9, 0.9]}}}}
    assert loaded_error(known_errors(engines), "ttft_mean_ms", "server queued") == (0.9, 0.9)
    assert loaded_error(known_errors(engines), "ttft_mean_ms", "pools") == (0.3, 0.4)
    assert loaded_error(known_errors({}), "ttft_mean_ms", "server") == (0.0, 0.0)


def test_kinds_say_what_is_known_before_a_run_is_measured() -> None:
    """A first wave makes the mean of a closed loop wait, and not its median."""
    waited = {"mean": 0.7, "p50": 0.1, "p99": 0.9}
    asked = ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "output_tok_s")
    kinds = [kind_of(metric, waited) for metric in asked]
    assert kinds == ["server queued", "server", "server queued", "server", "server"]
    assert kind_of("ttft_mean_ms", waited, drafts=True) == "server queued"  # drafts come after first tokens
    assert kind_of("tpot_mean_ms", waited, drafts=True) == "drafts"
    assert kind_of("tpot_mean_ms", waited, drafts=True, pools=True) == "pools"


def test_a_line_before_the_front_end_is_waiting_and_its_own_work_is_not() -> None:
    """50 requests at once, each 0.2 s in one worker: the median waits for some 24 others. One alone waits for none."""
    servers = LoadedServers(default_store())
    for count, least, most in ((50, 0.8, 1.0), (1, 0.0, 0.1)):
        row = ROW | {"id": "1", "arrival": "all at once", "n_requests": count, "isl": 64}
        server, requests = servers.ready(run_of_load(row), load_of(row), settings_of(row))
        front = FrontWork(0.2, 0.0, 1)
        waited = server.waited(requests, front, measure(server.run(requests, front)))
        assert least <= waited["p50"] <= most


class Told:
    """A run of an engine whose figure is off by some factor, and whose first tokens wait or do not."""

    def __init__(self, engine: str, factor: float, waited: float = 0.0) -> None:
        self.engine, self.waited = engine, waited
        self.measured, self.spans = {"ttft_mean_ms": 100 * factor}, {"ttft_mean_ms": (0.0, 0.0)}

    def simulated(self, front: FrontWork) -> dict[str, float]:
        return {"ttft_mean_ms": 100.0}

    def kind(self, metric: str, front: FrontWork) -> str:
        return kind_of(metric, {"mean": self.waited, "p50": self.waited, "p99": self.waited})


def held(*points: Told) -> Any:
    """Runs behind a front end of their own."""
    return [Held(point, FrontWork(0.0)) for point in points]  # type: ignore[arg-type]


def test_runs_whose_requests_wait_do_not_widen_the_interval_of_those_that_do_not() -> None:
    near = [Told("a", 1 + k / 100) for k in range(-9, 10)]
    far = [Told("a", 2.0 + k / 10, waited=1.0) for k in range(-9, 10)]
    both = intervals_of(held(*near, *far))["ttft_mean_ms"]
    assert both["server"] == intervals_of(held(*near))["ttft_mean_ms"]["server"]
    assert max(both["server"]) < 0.1
    assert both["server queued"] == pytest.approx([0.0, log(2.75)], abs=0.05)


def test_what_the_ends_of_steps_hold_already_is_not_added_again() -> None:
    """Nine tenths of what was measured lie below each upper end, whatever part of it the steps explain."""
    figures = [LogError(k / 100, 0.3, 0.3 if k % 2 else 0.6) for k in range(-100, 101)]
    below, above = error_beyond_steps(figures)
    assert sum(one.error > hypot(one.above, above) for one in figures) / len(figures) == pytest.approx(0.1, abs=0.01)
    assert sum(-one.error > hypot(one.below, below) for one in figures) / len(figures) == pytest.approx(0.1, abs=0.01)
    assert error_beyond_steps([LogError(0.1, 0.3, 0.3)] * 5) == [0.0, 0.0]


def test_rows_whose_figures_deny_their_load_are_left_out() -> None:
    """By Little's law: 1 request a second that takes 8 s is 8 in flight, not 100."""
    row = {"arrival": "all at once, at most 512 in flight", "n_requests": 100, "isl": 1000, "osl": 100}
    measured = {"output_tok_s": 100.0, "ttft_mean_ms": 1000.0, "tpot_mean_ms": 70.0}
    with pytest.raises(UsageError, match=r"8 requests in flight .Little's law., its load 100"):
        require_load(row, measured)
    require_load(row, measured | {"output_tok_s": 1000.0})
    require_load(row | {"arrival": "all at once"}, measured)
    require_load(row, {"output_tok_s": 100.0})


@pytest.mark.slow
def test_workers_are_those_with_which_runs_that_are_sent_at_once_are_off_least(tmp_path: Path) -> None:
    """Of requests that wait in one line before the engine; without such runs, as many as usual."""
    true = FrontWork(50e-3, 0.0, 2)
    rows = [ROW | {"id": str(n), "arrival": "all at once", "n_requests": n, "isl": 64} for n in (20, 30, 40, 50, 60)]
    servers = LoadedServers(default_store())
    for row in rows:
        server, requests = servers.ready(run_of_load(row), load_of(row), settings_of(row))
        row |= printed_figures(measure(server.run(requests, true)))
    path = tmp_path / "loaded.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    points = loaded_points([read_table(path)], default_store())
    assert all(point.together for point in points)
    assert workers_of(true._replace(workers=16), points) == 2
    assert workers_of(FrontWork(50e-3, 0.0, 16), points[:2]) == 16


class Waiting:
    """A run with pools: its requests wait in a line for 4 others in the median, and for 12 in the mean."""

    def __init__(self, wait_s: float, line_s: float, scale: float = 1.0, *, ranks: bool = True) -> None:
        self.measured = {name: scale * value + 1e3 * wait_s for name, value in self._firsts(line_s).items()}
        self.measured["ttft_p99_ms"] += 700
        self.ranks, self.figures, self.family = ranks, self.measured, ("lab", "")

    @staticmethod
    def _firsts(line_s: float) -> dict[str, float]:
        return {"ttft_p50_ms": 100 + 4e3 * line_s, "ttft_mean_ms": 100 + 12e3 * line_s, "ttft_p99_ms": 300}

    def simulated(self, front: FrontWork) -> dict[str, float]:
        return self._firsts(front.line_s)


def test_what_pools_add_is_a_wait_and_a_line_where_runs_tell_it() -> None:
    front = FrontWork(30e-3)
    points: Any = [Waiting(0.0501, 0.02) for _ in range(6)]
    assert with_pools(front, points) == front._replace(pools_s=0.0501, line_s=0.02)
    assert with_pools(front, points, FrontWork(0.0, line_s=0.0)).line_s == 0.0
    assert with_pools(front, points[:4]) == front
    alone: Any = [Waiting(0.0, 0.0, ranks=False) for _ in range(6)]
    assert with_pools(front, alone).pools_first_use_s == pytest.approx(0.7, rel=0.02)
    scattered: Any = [Waiting(0.0, 0.0, scale) for scale in (0.02, 0.1, 8.0, 40.0, 90.0)]
    assert with_pools(front, scattered) == front


def test_the_first_step_is_that_of_the_format_and_the_version() -> None:
    """What was fitted of them comes back from the file; others have the usual one; pools have their own."""
    uses = (FirstUse("fp8_block", "0.5.6", 1.0), FirstUse("fp8_block", "0.5.9", 3.0), FirstUse("mxfp4", "0.5.6", 20.0))
    front = FrontWork(0.03, first_use_s=0.5, pools_first_use_s=0.25, first_uses=uses)
    stated = stated_front(front, [], "AMD")
    assert stated["first_uses_ms"] == {"fp8_block": {"0.5.6": 1000.0, "0.5.9": 3000.0}, "mxfp4": {"0.5.6": 20000.0}}
    read = front_work_of({"front_end": {"AMD": stated}}, FirstToken(), "AMD")
    assert read.first_uses == uses
    asked = [("fp8_block", "0.5.8"), ("fp8_block", "0.5.12"), ("fp8_block", ""), ("mxfp4", "0.5.9"), ("bf16", "0.5.9")]
    assert [read.of(*each, pools=False).first_use_s for each in asked] == [1.0, 3.0, 3.0, 20.0, 0.5]
    assert read.of("fp8_block", "0.5.9", pools=True).first_use_s == 0.25
    assert read._replace(pools_first_use_s=None).of("mxfp4", "", pools=True).first_use_s == 20.0
