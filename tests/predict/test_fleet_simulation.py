"""`archsim simulate` of several replicas: JSON, the smallest fleet, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

import archsim
from archsim.base.errors import AnswerNo, UsageError
from archsim.counts.workload import Workload
from archsim.engines.overhead import ServerFlags
from archsim.predict.served_engine import ServerRequest, serve
from archsim.spec.load import load_hardware, load_model

SMALL = ("gpt2-small", "h100")
LOAD: dict[str, Any] = {"rate": 400.0, "requests": 300, "input_len": "uniform:200-400", "output_len": 20}


def text(**options: Any) -> str:
    """The JSON of a load on a server."""
    return json.dumps(archsim.simulate(*SMALL, **{**LOAD, "replications": 2, **options}).to_dict())


@pytest.mark.slow
def test_one_replica_is_the_server_alone_and_a_seed_repeats_a_fleet() -> None:
    """Byte for byte."""
    assert text() == text(replicas=1, router="round-robin")
    for router in ("two-choices", "random"):
        assert (
            text(replicas=3, router=router)
            == text(replicas=3, router=router)
            != text(replicas=3, router=router, seed=1)
        )


@pytest.mark.slow
def test_json_says_what_each_replica_did() -> None:
    """Requests and tokens add up; devices are those of all replicas."""
    found = json.loads(text(replicas=3, router="least-requests", router_delay=0.001))
    assert found["hardware"]["devices"] == 3 * json.loads(text())["hardware"]["devices"]
    assert found["fleet"] == {
        "replicas": 3,
        "router": "least-requests",
        "router_delay_s": 0.001,
        "decode": None,
        "autoscale": None,
    }
    rows = found["replicas"]
    assert [one["replica"] for one in rows] == [0, 1, 2] and sum(one["requests"] for one in rows) == 300
    assert sum(one["output_tokens"] for one in rows) == 300 * 20
    assert abs(sum(one["utilisation"] for one in rows) / 3 - found["state"]["utilisation"]) < 0.05
    each, whole = (
        found["throughput"][name]["value"] for name in ("output_tokens_per_s_per_device", "output_tokens_per_s")
    )
    assert each == pytest.approx(whole / 3)
    assert found["metrics"]["ttft_s"]["mean"]["value"] > 0.001 + found["metrics"]["ttft_engine_s"]["mean"]["value"] / 2


@pytest.mark.slow
def test_the_smallest_fleet_holds_the_load_and_one_fewer_does_not() -> None:
    """In every replication; what is shown is that fleet."""
    load: dict[str, Any] = {**LOAD, "rate": 3000.0, "requests": 1500, "replications": 1}
    found = archsim.simulate(*SMALL, **load, find="replicas", slo="ttft=0.05,tpot=0.004,p=95")
    assert found.found is not None and found.found.size is not None
    fewest = int(found.found.size.value)
    assert fewest > 1 and found.server.fleet.replicas == fewest and found.observed.met
    one_fewer = archsim.simulate(*SMALL, **load, replicas=fewest - 1, slo="ttft=0.05,tpot=0.004,p=95")
    assert not one_fewer.observed.met
    assert found.to_dict()["found"]["replicas"]["value"] == fewest  # type: ignore[index,call-overload]


def test_fleets_that_cannot_be_are_refused() -> None:
    """With what to write instead."""
    for options, words in (({"replicas": "1-4"}, "one number"), ({"replicas": 0}, "replicas"),
                           ({"router": "best"}, "no rule"), ({"router_delay": -1.0}, "router-delay"),
                           ({"find": "replicas"}, "service level")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            archsim.simulate(*SMALL, **{**LOAD, **options})
    with pytest.raises(AnswerNo, match="2 replicas do not meet"):
        archsim.simulate(
            *SMALL, **{**LOAD, "requests": 1200}, find="replicas", replicas=2, slo="tpot=0.00001", replications=1
        )


@pytest.mark.slow
def test_pools_for_prompts_and_answers() -> None:
    """Both pools are in the JSON; a slow link shows in TTFT, not in the gaps after the first token."""
    load: dict[str, Any] = {**LOAD, "rate": 2.0, "router": "least-requests"}
    fast, slow = (json.loads(text(**load, disaggregate="1:2", kv_link=link)) for link in ("50 GB/s", "1 GB/s"))
    assert [(one["pool"], one["replica"]) for one in fast["replicas"]] == [("prefill", 0), ("decode", 0), ("decode", 1)]
    assert fast["hardware"]["devices"] == 3 and fast["fleet"]["decode"]["replicas"] == 2
    assert fast["replicas"][0]["requests"] == sum(one["requests"] for one in fast["replicas"][1:]) == 300
    assert fast["replicas"][0]["output_tokens"] == 300
    ttft, gap = ([found["metrics"][name]["mean"]["value"] for found in (fast, slow)] for name in ("ttft_s", "tpot_s"))
    assert gap[0] == pytest.approx(gap[1], rel=0.02)
    size = 2 * 12 * 768 * 2 * 300  # bytes of keys and values of 300 tokens of gpt2-small
    assert ttft[1] - ttft[0] == pytest.approx(size / 1e9 - size / 50e9, rel=0.2)
    alone = json.loads(text(**load, disaggregate="1:2", kv_link="50 GB/s"))
    assert alone == fast
    wide = archsim.simulate(*SMALL, **load, disaggregate="1:1", decode_plan="tp=2", decode_hw="a100-80gb", kv_link=1e9)
    assert wide.server.decode is not None and wide.server.decode.server.plan.tp == 2 and wide.server.devices == 3


@pytest.mark.slow
def test_a_cache_that_is_sent_by_layers_is_on_its_way_while_the_prompt_runs() -> None:
    """What is left to send is what the prompt's time did not suffice for, and at least the last layer."""
    load: dict[str, Any] = {**LOAD, "rate": 2.0, "requests": 40, "input_len": 300, "disaggregate": "1:1"}
    size = 2 * 12 * 768 * 2 * 300  # bytes of keys and values of 300 tokens of gpt2-small

    def firsts(link: str) -> tuple[float, float]:
        found = (json.loads(text(**load, kv_link=link, kv_transfer=way)) for way in ("after", "layers"))
        after, layers = (one["metrics"]["ttft_s"]["mean"]["value"] for one in found)
        return after, layers

    after, layers = firsts("100 GB/s")
    assert 0 < after - layers <= size / 100e9 * 11 / 12 * 1.001
    after, layers = firsts("1 MB/s")
    assert 0 < after - layers < 0.1 * after
    with pytest.raises(UsageError, match="kv-transfer"):
        text(**load, kv_transfer="now")


def test_pools_that_cannot_be_are_refused() -> None:
    """With what to write instead."""
    for options, words in (({"disaggregate": "3"}, "as 1:3"), ({"disaggregate": "0:2"}, "as 1:3"),
                           ({"kv_link": "50 GB/s"}, "belongs to"), ({"kv_transfer": "layers"}, "belongs to"),
                           ({"disaggregate": "1:1", "kv_link": "x"}, "kv-link"),
                           ({"disaggregate": "1:1", "decode_plan": "tp=x"}, "decode-plan"),
                           ({"disaggregate": "1:1", "replicas": 2}, "leave out")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            archsim.simulate(*SMALL, **{**LOAD, **options})  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_best_ratio_holds_more_than_those_beside_it() -> None:
    """Of four devices; what is shown is that fleet at its largest rate."""
    load: dict[str, Any] = {"requests": 400, "input_len": 800, "output_len": 8, "replications": 1}
    found = archsim.simulate(*SMALL, **load, find="ratio", disaggregate="1:3", slo="ttft=0.02,tpot=0.01,p=90")
    assert found.found is not None and found.found.ratio is not None
    rates = found.found.ratios
    assert max(rates, key=lambda ratio: rates[ratio]) == found.found.ratio and len(rates) >= 2
    fleet = found.server.fleet
    assert f"{fleet.replicas}:{fleet.decode_replicas}" == found.found.ratio and found.server.devices == 4
    assert found.to_dict()["found"]["ratio"] == found.found.ratio  # type: ignore[index,call-overload]
    for options in ({"disaggregate": "1:3", "rate": 3.0}, {}):
        with pytest.raises(UsageError, match="ratio"):
            archsim.simulate(*SMALL, find="ratio", slo="ttft=0.02", **options)


@pytest.mark.slow
def test_replicas_of_a_rule_are_in_the_json() -> None:
    """How many there were over time, and tokens per second of the devices that were there."""
    options: dict[str, Any] = {"rate": 300.0, "duration": 60.0, "rate_profile": "0:1,20:8,40:1", "input_len": 200,
                               "output_len": 20, "replications": 1}  # fmt: skip
    found = archsim.simulate(*SMALL, **options, autoscale="1-6:requests=10,delay=1,every=2,down=5").to_dict()
    state, series = found["state"], found["series"]
    assert 1 < state["replicas"]["mean"] < state["replicas"]["max"] <= 6  # type: ignore[index,call-overload,operator]
    assert len(series["replicas"]) == len(series["t_s"]) and max(series["replicas"]) > 1  # type: ignore[index,call-overload,arg-type]
    assert found["fleet"]["autoscale"] == "1 to 6 by requests = 10"  # type: ignore[index,call-overload]
    with pytest.raises(UsageError, match="leave out"):
        archsim.simulate(*SMALL, **options, autoscale="1-6:requests=10", replicas=2)


def test_flags_of_a_server_reach_its_scheduler() -> None:
    """Prompts wait 20 steps for others, below 0.9 of the 8,192 tokens of a step; not where nothing is said."""
    model, hardware, load = load_model("llama3.1-8b"), load_hardware("h100-sxm"), Workload(batch=1)
    plain, waiting = (
        serve(model, hardware, ServerRequest(engine="trtllm", flags=flags), load).policy
        for flags in (ServerFlags(), ServerFlags(wait_steps=20, wait_share=0.9))
    )
    assert plain.wait_steps == 0 and (waiting.wait_steps, waiting.wait_tokens) == (20, 7373)
    assert waiting.pools.places == 1  # of a server for answers, requests on their way hold places
