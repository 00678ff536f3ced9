"""Errors of runs under load by what serves them and what waits."""

from __future__ import annotations

import pytest

from archsim.accuracy.loaded_errors import KINDS, kind_of, loaded_error

KNOWN = {"ttft_mean_ms": {"server": [0.4, 0.5], "server queued": [0.4, 1.4], "pools": [0.5, 2.4]}}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("server", (0.4, 0.5)),
        ("server queued", (0.4, 1.4)),
        ("pools queued", (0.5, 2.4)),  # that of one server would be narrower than that of pools that do not queue
        ("drafts queued", (0.4, 0.5)),
    ],
)
def test_a_kind_without_runs_has_the_errors_of_the_same_servers(kind: str, expected: tuple[float, float]) -> None:
    assert kind in KINDS and loaded_error(KNOWN, "ttft_mean_ms", kind) == expected


def test_a_metric_without_runs_has_no_error_beyond_its_steps() -> None:
    assert loaded_error(KNOWN, "tpot_p50_ms", "server") == (0.0, 0.0)


def test_drafts_are_no_part_of_first_tokens() -> None:
    waited = {"mean": 0.9, "p50": 0.1, "p99": 0.1}
    assert kind_of("ttft_mean_ms", waited, drafts=True) == "server queued"
    assert kind_of("ttft_p50_ms", waited, drafts=True) == "server"
    assert kind_of("tpot_mean_ms", waited, drafts=True) == "drafts"
    assert kind_of("tpot_mean_ms", waited, drafts=True, pools=True) == "pools"
