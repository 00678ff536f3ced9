"""`archsim advise`: every line is two estimates, a pair is two changes at once, a missing kernel is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import archsim as a

LOAD = {"devices": 1, "input_len": 32768 - 256, "output_len": 256}


@pytest.fixture(scope="module")
def advice() -> Any:
    """Llama 3 8B on a card, with pairs."""
    return a.advise("llama3-8b", "rtx-4090", context=32768, devices=1, pairs=True)


def again(change: Any) -> Any:
    """The estimate of a change, as one types it."""
    return a.estimate("llama3-8b", "rtx-4090", set=change.sets, **{**LOAD, **change.options})


@pytest.mark.slow
def test_every_line_is_two_estimates(advice: Any) -> None:
    """Figures of the changed model by itself, ratios to those of the model as it is."""
    base = a.estimate("llama3-8b", "rtx-4090", **LOAD)
    assert advice.base.values["tpot_s"] == base.metrics["tpot_s"] and len(advice.changes) >= 12
    for line in advice.changes:
        e = again(line.change)
        assert line.figures.values["tpot_s"] == e.metrics["tpot_s"]
        assert line.figures.values["memory_bytes"] == e.memory.needed
        assert line.ratios(advice.base)["tpot_s"] == e.metrics["tpot_s"] / base.metrics["tpot_s"]


@pytest.mark.slow
def test_a_pair_is_both_changes_at_once(advice: Any) -> None:
    """Its figures are those of both `--set` together; changes of the same field make no pair."""
    assert len(advice.pairs) >= 10
    for pair in advice.pairs[:3]:
        assert again(pair.change).metrics["tpot_s"] == pair.figures.values["tpot_s"]
        one, other = pair.change.name.split(" + ", 1)
        by_name = {line.change.name: line.change for line in advice.changes}
        if one in by_name and other in by_name:
            assert set(pair.change.sets) == {*by_name[one].sets, *by_name[other].sets}


@pytest.mark.slow
def test_gains_fall_and_caveats_are_there(advice: Any) -> None:
    """Best first; each line has a field of caveats, with sources where there are any."""
    ranks = [(line.by_bound, -line.gain) for line in advice.changes]
    assert ranks == sorted(ranks)
    for entry in advice.to_dict()["changes"]:
        assert isinstance(entry["caveats"], list) and entry["needs"] in ("training", "continued", "none")
        assert all(one["sources"] for one in entry["caveats"])
    assert sum(bool(entry["caveats"]) for entry in advice.to_dict()["changes"]) >= 10


@pytest.mark.slow
def test_a_missing_kernel_does_not_judge_an_architecture() -> None:
    """Latent attention with an engine whose kernel leaves a card idle is ranked by its bound, as the line says."""
    lines = a.advise("llama3-8b", "rtx-4090", context=131072, devices=1, engine="trtllm").changes
    (latent,) = [line for line in lines if "latent" in line.change.name]
    assert latent.kernel and latent.figures.missing == "mla_decode" and latent.gain > 0
    assert latent.figures.values["tpot_s"] > 2 * latent.figures.ideal_s
    assert not any(line.kernel for line in lines if line is not latent)
    assert lines[-1] is latent and latent.by_bound  # a group of its own, behind those that times rank


@pytest.mark.slow
def test_one_engines_kernel_is_no_evidence_about_latent_attention() -> None:
    """A100 has measured rows of one engine's latent decode alone, which reads the cache 40 times slower than memory: it
    does not judge the architecture, and other engines do not take it over.
    """
    own = a.advise("qwen3-30b-a3b", "a100-sxm-80gb", context=32768, devices=1, engine="trtllm")
    (latent,) = [line for line in own.changes if "latent" in line.change.name]
    assert latent.by_bound and latent.figures.missing == "mla_decode"
    assert latent.gain == 1 - latent.figures.ideal_s / own.base.ideal_s
    other = a.advise("qwen3-30b-a3b", "a100-sxm-80gb", context=32768, devices=1)
    (latent,) = [line for line in other.changes if "latent" in line.change.name]
    assert not latent.by_bound and latent.figures.values["tpot_s"] < 5 * latent.figures.ideal_s


@pytest.mark.slow
def test_memory_ranks_a_change_whose_kernel_is_missing() -> None:
    """Its bytes are exact: the bound of its time has no say."""
    lines = a.advise("llama3-8b", "rtx-4090", context=131072, devices=1, engine="trtllm", objective_of="memory").changes
    assert not any(line.by_bound for line in lines) and any(line.kernel for line in lines)


@pytest.mark.slow
def test_what_is_proposed_first_fits_and_was_measured(archsim: Any) -> None:
    """Neither a change that only its bound ranks nor one that does not fit, while another helps."""
    out = archsim("advise", "llama3-8b", "--hw", "rtx-4090", "--context", "128k", "--engine", "trtllm").out
    assert "Change, by bound" in out and "--devices 2" in out.rsplit("Try", 1)[1]
    out = archsim("advise", "deepseek-v2", "--hw", "a100-sxm-80gb", "--devices", "8", "--engine", "trtllm").out
    assert "the best change by its bound" in out and "\nChange, by bound" in out and "\nChange  " not in out


@pytest.mark.slow
def test_objectives_and_refusals(archsim: Any) -> None:
    """A cost needs a price; an encoder does not decode; `--json` is the object."""
    for args in (("llama3-8b", "--objective", "cost"), ("bert-base",)):
        assert archsim("advise", args[0], "--hw", "rtx-4090", *args[1:]).code == 2
    data = json.loads(archsim("advise", "llama3.2-1b", "--hw", "rtx-4090", "--objective", "cost", "--price", "0.4",
                              "--json").out)  # fmt: skip
    assert data["schema"] == "archsim.advise/1" and data["changes"][0]["effect"]["usd_per_m_output"] < 1
    out = archsim("advise", "llama3-8b", "--hw", "rtx-4090", "--context", "128k", "--engine", "trtllm").out
    assert "no `mla_decode` kernel" in out and "Published findings on quality" in out


@pytest.mark.slow
def test_the_page_is_short_and_says_what_it_leaves_out(archsim: Any) -> None:
    """Ten changes and the findings on them; all, in every measure, with `-v`."""
    command = ("advise", "llama3-8b", "--hw", "rtx-4090", "--context", "128k")
    short, full = archsim(*command, terminal=100).out, archsim(*command, "-v", terminal=100).out
    more = re.search(r"`-v` shows (\d+) more changes, .* context, parameters", short)
    assert more and len(short.splitlines()) < 60 < len(full.splitlines()) and "more changes" not in full
    table = short.split("\nChange ")[1].split("\n\n")[0]
    shown = [line for line in table.splitlines()[1:] if " % " in line]
    changes = a.advise("llama3-8b", "rtx-4090", context=131072).changes
    assert len(shown) + int(more[1]) == len(changes) and "parameters" in full
