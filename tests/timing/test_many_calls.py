"""Many calls that differ in extents alone are timed as one table, with the answers of one after another."""

from __future__ import annotations

import pytest

from archsim import api, load_model
from archsim.base.errors import ArchsimError
from archsim.graph.step import Step
from archsim.predict.estimate import pricer_for
from archsim.spec.model import Model
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import MANY, Timer

MODELS = ("llama3-8b", "qwen3-30b-a3b", "deepseek-v3", "gemma3-27b", "falcon-mamba-7b", "qwen3-next-80b-a3b")
"""Dense, experts, latent attention, windows, a recurrence, linear attention."""


def calls_of(name: str, device: str, engine: str) -> list[KernelCall]:
    """Every kernel call of a decode step and of a prompt."""
    pricer, calls = pricer_for(api.estimate(name, device, engine=engine)), list[KernelCall]()
    each = Timer.each

    def noted(self: Timer, asked: list[KernelCall]) -> list[object]:
        calls.extend(asked)
        return each(self, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Timer, "each", noted)
        for step in (Step.decode(3, 700), Step.prefill(1, 900)):
            pricer._rank_time(step)
    return calls


def widened(call: KernelCall, by: float) -> KernelCall:
    """A call whose largest extent is so many times as large."""
    sizes = {name: value for name, value in call.dims.items() if isinstance(value, (int, float)) and value > 1}
    name = max(sizes, key=lambda each: sizes[each], default=None)
    return call if name is None else call._replace(dims={**call.dims, name: round(sizes[name] * by)})


@pytest.mark.sampled(12)
@pytest.mark.parametrize("engine", ("generic", "vllm", "sglang", "trtllm"))
@pytest.mark.parametrize("device", ("h100", "mi300x", "rtx-4090"))
@pytest.mark.parametrize("name", MODELS)
def test_a_table_of_calls_takes_what_they_take_one_by_one(name: str, device: str, engine: str) -> None:
    """Every class of kernels that the models call, of many widths."""
    try:
        calls = calls_of(name, device, engine)
    except ArchsimError as error:
        pytest.skip(str(error))
    pricer = pricer_for(api.estimate(name, device, engine=engine))
    many = [widened(call, 1 + i / 7) for call in calls for i in range(MANY + 3)]
    alone, together = Timer(**fresh(pricer.timer)), Timer(**fresh(pricer.timer))
    for call, one, other in zip(many, [alone.once(call) for call in many], together.each(many), strict=True):
        assert other[:4] == pytest.approx(one[:4], rel=1e-9), call
        assert other.evidence == one.evidence, call


def test_a_table_of_calls_holds_what_else_the_engine_runs() -> None:
    """All-reduces that also do the norm up to a size, and caches in FP8 that another architecture's kernels convert:
    tables were timed by the engine's own fits alone.
    """
    sums = [KernelCall("engine_all_reduce", dims={"n_gpus": 8, "bytes": 2.0**17 * i}) for i in range(1, MANY + 3)]
    dims = {"heads": 32, "kv_heads": 8, "head_dim": 128, "batch": 1}
    caches = [KernelCall("attn_decode", kv_dtype="fp8", dims={**dims, "seq_kv": 500.0 * i}) for i in range(1, MANY + 3)]
    for engine, device, calls in (("vllm", "b200", sums), ("sglang", "rtx-pro-6000", caches)):
        timer = pricer_for(api.estimate("llama3-8b", device, engine=engine)).timer
        alone, together = Timer(**fresh(timer)), Timer(**fresh(timer))
        for one, other in zip(map(alone.once, calls), together.each(calls), strict=True):
            assert other[:4] == pytest.approx(one[:4], rel=1e-9)


def fresh(timer: Timer) -> dict[str, object]:
    """A timer without anything remembered."""
    names = ("device", "machine", "engine", "version", "store", "own", "all_reduce")
    return {name: getattr(timer, name) for name in names} | {"memo": {}, "lattices": {}}


@pytest.mark.slow
def test_layers_of_as_many_widths_are_not_timed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that are timed alone stay as few however many distinct layers a model has."""
    alone: list[KernelCall] = []
    time = Timer.time
    monkeypatch.setattr(Timer, "time", lambda self, call: (alone.append(call), time(self, call))[1])
    api.estimate(distinct_layers(40), "h100")
    few = len(alone)
    api.estimate(distinct_layers(160), "h100")
    assert len(alone) - few <= few > 0


def distinct_layers(n: int) -> Model:
    """A decoder in which no two layers are equal."""
    layers = [
        {
            "norm": {"kind": "rmsnorm"},
            "attention": {"kind": "gqa", "n_heads": 8, "n_kv_heads": 8, "d_head": 64},
            "ffn": {"kind": "swiglu", "d_ff": 1024 + 16 * i + n},
        }
        for i in range(n)
    ]
    ends = {"final_norm": {"kind": "rmsnorm"}, "head": {"tied": False}, "weights": {"default": "bf16"}}
    return load_model({"name": f"many{n}", "d_model": 512, "vocab_size": 1000, "layers": layers, **ends})
