"""Attention over compressed entries and mixed streams are calls of their own classes, with the graph's extents."""

from __future__ import annotations

import numpy as np
import pytest

from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import mesh_of
from archsim.graph.kernels import kernels_with_edges, traffics
from archsim.graph.passes.shard import shard
from archsim.graph.step import Step
from archsim.spec.load import load_hardware, load_model
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan
from archsim.timing.classes.call import KernelCall
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import CallRules, lower_to_calls
from archsim.timing.kernel_timer import timer
from archsim.timing.step_pricer import StepPricer, engine_overheads

CONTEXT, BATCH = 8192, 8


def _calls(tp: int = 1) -> list[KernelCall]:
    """Of a decode step of DeepSeek-V4 Flash."""
    model, machine = load_model("deepseek-v4-flash"), DeviceRates(load_hardware("h100-sxm"))
    step = step_for(model, BATCH, 1, CONTEXT - 1, CONTEXT)
    formats = choose_formats(model, None, None, engine="generic")
    graph = shard(formats.apply(lower(model, step)), mesh_of(tp, 1, 1))
    kernels = [kernel for kernel, _ in kernels_with_edges(graph)]
    found = lower_to_calls(kernels, traffics(graph, machine.cache_bytes), CallRules(step, machine))
    return [call for fused in found for call in fused.main]


def test_places_are_those_of_the_window_and_the_entries() -> None:
    """A window of 128 tokens alone, with the 512 best entries of 4 tokens, or with all of 128 tokens."""
    attention = [call for call in _calls() if call.kernel_class == "hca_attn"]
    assert {call.dims["places"] for call in attention} == {128, 128 + 512, 128 + CONTEXT // 128}
    assert all(call.dims["pairs"] == BATCH * call.dims["places"] for call in attention)


def test_indexers_score_all_entries_and_choose_the_best() -> None:
    """One entry for 4 tokens, 64 index heads of 128."""
    logits, choice = (next(c for c in _calls() if c.kernel_class == name) for name in ("csa_logits", "csa_topk"))
    assert logits.dims["pairs"] == BATCH * CONTEXT / 4 and logits.dims["seq_kv"] == CONTEXT
    assert (logits.dims["heads"], logits.dims["head_dim"], choice.dims["topk"]) == (64, 128, 512)


def test_a_site_is_half_of_what_tables_time() -> None:
    """Tables hold both sites of a layer; a graph's call is of one, on every rank."""
    clock = timer(load_hardware("h100-sxm"), "vllm 0.24.0")
    site = next(call for call in _calls(8) if call.kernel_class == "mhc_pre")
    assert (site.dims["m"], site.dims["k"], site.dims["hidden"]) == (BATCH, 4, 4096)
    layer = site._replace(dims={"m": BATCH, "k": 4, "hidden": 4096})
    assert abs(clock.time(site).expected / clock.time(layer).expected - 0.5) < 1e-6


def test_more_places_take_longer() -> None:
    """Time of attention rises with what is kept."""
    clock = timer(load_hardware("h100-sxm"), "vllm 0.24.0")
    heavy = sorted((c for c in _calls() if c.kernel_class == "hca_attn"), key=lambda c: float(c.dims["places"]))
    assert clock.time(heavy[0]).expected < clock.time(heavy[-1]).expected


@pytest.mark.slow
def test_prompts_without_a_compressed_entry_are_priced_with_longer_ones() -> None:
    """Prompts of an array of lengths take what each takes alone, also those shorter than an entry."""
    model = load_model("deepseek-v4-flash")
    formats = choose_formats(model, None, None, engine="generic")
    pricer = StepPricer.of(model, load_hardware("h100-sxm"), formats, engine_overheads(), Plan(tp=2))
    lengths = np.array([1, 2, 3, 5, 64, 500])
    together = np.asarray(pricer.price(Step.prefill(1, lengths)).expected_s)
    alone = [pricer.price(Step.prefill(1, int(n))).expected_s for n in lengths]
    assert np.allclose(together, alone, rtol=1e-9)
    assert (np.diff(together) >= 0).all()
