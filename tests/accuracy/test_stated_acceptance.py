"""Acceptance of drafts from one row of each group, by its TPOT."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.accuracy.files import read_table
from archsim.accuracy.loaded import drafting_of, run_of_load
from archsim.accuracy.loaded_run import LoadedServers
from archsim.accuracy.stated_acceptance import StatedAcceptance, accepted_share, geometric
from archsim.base.errors import UsageError
from archsim.timing.calibration import default_store

HEAD = (
    "id,source,engine,engine_version,model,weights,device,tp,speculative,arrival,concurrency,n_requests,isl,osl,"
    "tpot_mean_ms\n"
)
ROW = "{},lab,vllm,0.33,qwen3-8b,bf16,h100,1,{},closed loop,{},{},64,16,{}\n"


def test_the_acceptance_gives_the_measured_time() -> None:
    """TPOT falls with what is accepted; beyond both ends none or all of it is."""

    def tpot_ms(share: float) -> float:
        return 20.0 / (1 + geometric("mtp", share).mean)

    found = accepted_share(10.0, tpot_ms)
    assert abs(tpot_ms(found) - 10.0) < 0.2 and geometric("mtp", found).drafts == 3
    assert accepted_share(50.0, tpot_ms) < 0.01 and accepted_share(1.0, tpot_ms) > 0.99


@pytest.mark.slow
def test_one_row_of_a_group_states_it_for_the_others(tmp_path: Path) -> None:
    """The first with a TPOT; the row itself is refused, and so are rows without any."""
    path = tmp_path / "runs.csv"
    rows = [ROW.format("a", "yes", 2, 16, ""), ROW.format("b", "yes", 2, 16, 5.0), ROW.format("c", "yes", 4, 16, 4.9),
            ROW.format("d", "none", 2, 16, 9.0)]  # fmt: skip
    path.write_text(HEAD + "".join(rows))
    table = read_table(path)
    stated, servers = StatedAcceptance(table), LoadedServers(default_store())
    questions = [table.question(row) for row in range(4)]
    assert [stated.states(row, questions[row]) for row in range(3)] == [False, True, False]
    first, third = (drafting_of(row, questions[row], servers, stated) for row in (0, 2))
    assert first == third and first.method == "eagle" and 0 < first.accepted[0] < 1
    run = run_of_load(questions[1], drafts=True)
    assert run.model == "qwen3-8b"
    with pytest.raises(UsageError, match="how many drafts"):
        drafting_of(1, questions[1], servers, stated)
    with pytest.raises(UsageError, match="how many drafts"):
        run_of_load(questions[1])
