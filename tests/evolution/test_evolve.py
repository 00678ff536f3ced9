"""A path from one architecture to another: exact, without a catch-all step, whatever the order."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from archsim import api
from archsim.base.errors import UsageError
from archsim.counts.count import count
from archsim.evolution.evolve import Evolution, evolve
from archsim.evolution.figures import TRAINING, ArchitectureCost, ArchitectureFigures
from archsim.evolution.mix import ArchitectureMix
from archsim.evolution.normal_form import tree
from archsim.predict.estimate import estimate
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware, load_model, model_from
from archsim.spec.model import Model

LOOPED = ("nanbeige4.2-3b",)
"""Models whose layers run several times, which are refused."""

MODELS = sorted({path.stem for path in Path("specs/models").resolve().glob("[a-z]*.yaml")} - {*LOOPED})
UNUSUAL = (
    "qwen3.5-397b-a17b", "minimax-text-01", "mamba-2.8b", "deepseek-v3", "glm-5", "llama4-scout",
    "gpt-oss-20b", "trinity-mini", "phi-3-small-8k", "opt-350m", "bloom-3b", "gpt-neox-20b", "grok-2", "falcon-40b",
    "gemma3-27b", "olmo2-7b", "gpt3-125m", "gpt2-xl", "llama3-8b", "deepseek-v2", "command-r-plus", "smollm3-3b",
)  # fmt: skip
"""Hybrids, experts, latents, windows, shared caches, other norms and positions."""

EXACT = ("params", "active_params", "weight_bytes", "flops_per_token", "kv_bytes", "state_bytes")
TIMES = ("decode_s", "prefill_s")
ORDERS = ("story", "reverse", "random:1", "random:2")


@cache
def pairs(n: int) -> list[tuple[str, str, str]]:
    """Pairs that are drawn once and for all, two thirds of them among the unusual models."""
    draw = random.Random(20)
    decoders = [name for name in MODELS if load_model(name).architecture == "decoder" and "3n" not in name]
    found = [("gemma3n-e4b", "llama3-8b", "reverse"), ("gpt2-xl", "gemma3n-e2b", "story")]  # slow: shared caches
    for i in range(n):
        pool = UNUSUAL if i % 3 else decoders
        found.append((draw.choice(pool), draw.choice(UNUSUAL), ORDERS[i % len(ORDERS)]))
    return found


@pytest.fixture(scope="module")
def h100() -> Hardware:
    """A device that kernels were fitted on."""
    return load_hardware("h100-sxm")


def check(e: Evolution) -> None:
    """Steps add up in every figure, follow one another, and each of them changes something by name."""
    before = e.first
    for step in e.steps:
        assert step.before == before
        before = step.after
        assert step.decisions
        assert all(e.change(step).split(": ")[0] not in ("", "rest", "other") for _ in step.decisions)
    for name in (*EXACT, *TIMES):
        first, last = getattr(e.first, name), getattr(e.last, name)
        deltas = [step.delta[name] for step in e.steps]
        if first is None:
            assert all(delta is None for delta in deltas)
        elif name in EXACT:
            assert sum(deltas) == last - first
        else:
            assert sum(deltas) == pytest.approx(last - first, rel=1e-12, abs=1e-12 * abs(last))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(62))
def test_any_pair_of_decoders(number: int) -> None:
    """Steps add up and end at B as `count` has it, for pairs of every kind, in several orders."""
    a, b, order = pairs(60)[number]
    one, two = load_model(a), load_model(b)
    e = evolve(one, two, context_len=1024, order=order)
    check(e)
    counted = count(two, input_len=1024)
    last = e.steps[-1].after if e.steps else e.last
    assert (last.params, last.active_params, last.kv_bytes) == (counted.total, counted.active, counted.kv_bytes)
    assert (last.weight_bytes, last.state_bytes) == (counted.weight_bytes, counted.state_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b"),
    [("gpt2-xl", "llama3-8b"), ("llama2-70b", "deepseek-v3"), ("gemma3-4b", "minimax-text-01"),
     ("bert-base", "deberta-base"), ("t5-base", "mt5-small"), ("bart-base", "llama3.2-1b")],
)  # fmt: skip
@pytest.mark.parametrize("order", ["story", "reverse"])
def test_times_too(a: str, b: str, order: str, h100: Hardware) -> None:
    """With a device the times add up as well, and both ends are what `estimate` says."""
    one, two = load_model(a), load_model(b)
    e = evolve(one, two, h100, context_len=2048, order=order)
    check(e)
    for model, costs in ((one, e.first), (two, e.steps[-1].after)):
        own = estimate(model, h100, devices=1, input_len=2048, output_len=1)
        assert costs.prefill_s == pytest.approx(own.prefill.expected_s, rel=1e-12)
        if own.decode is None:
            assert costs.decode_s is None
        else:
            assert costs.decode_s == pytest.approx(own.decode.expected_s, rel=1e-12)


@pytest.mark.slow
def test_normal_form_changes_no_figure() -> None:
    """Models taken apart layer by layer and written anew cost what they cost."""
    price = ArchitectureCost(context_len=512)
    for name in (*UNUSUAL, *MODELS[::4], "gemma3n-e4b"):
        model = load_model(name)
        mixer = ArchitectureMix(model, model)
        assert mixer.decisions == ()
        again = Model.model_validate(mixer.document(()))
        assert price(again) == price(model), name
        assert [tree(one) for one in again.towers] == [tree(one) for one in model.towers], name  # as many layers


@pytest.mark.slow
def test_grouping_changes_no_time(h100: Hardware) -> None:
    """Layers grouped anew take the time that they took."""
    price = ArchitectureCost(context_len=8192, hardware=h100)
    for name in (*UNUSUAL, "gemma3n-e2b", "gemma3n-e4b"):
        model = load_model(name)
        own, anew = price(model), price(Model.model_validate(ArchitectureMix(model, model).document(())))
        assert anew.decode_s == pytest.approx(own.decode_s, rel=1e-12), name
        assert anew.prefill_s == pytest.approx(own.prefill_s, rel=1e-12), name


def steps_of(e: Evolution) -> dict[str, dict[str, Any]]:
    """Decision -> what its step changes."""
    return {step.decisions[0]: step.delta for step in e.steps if len(step.decisions) == 1}


def test_gpt2_to_llama3_by_hand() -> None:
    """Steps whose size can be written down: the position table goes, the vocabulary grows, the output matrix parts."""
    steps = steps_of(evolve(load_model("gpt2-xl"), load_model("llama3-8b")))
    assert steps["position"]["params"] == -1024 * 1600
    assert steps["vocabulary"]["params"] == (128256 - 50257) * 1600
    assert steps["tying"]["params"] == 128256 * 1600
    assert steps["biases"]["params"] == -48 * (3 * 1600 + 1600 + 6400 + 1600)
    assert steps["gating"]["params"] == 48 * 1600 * 6400
    assert steps["heads"]["kv_bytes"] == 8192 * 48 * 2 * (32 - 25) * 64 * 2
    assert steps["sharing"]["kv_bytes"] == 8192 * 48 * 2 * (8 - 32) * 128 * 2
    assert steps["width"]["params"] == (4096 - 1600) * (2 * 128256 + 2 * 32 + 1 + 32 * (2 * 4096 + 2 * 1024 + 3 * 6400))


def test_llama2_to_deepseek_by_hand() -> None:
    """A latent of 512 + 64 in place of 8 keys and values of 128, in 80 layers."""
    steps = steps_of(evolve(load_model("llama2-70b"), load_model("deepseek-v3")))
    assert steps["latent"]["kv_bytes"] == 8192 * 80 * 2 * (512 + 64 - 2 * 8 * 128)
    assert steps["shared_experts"]["params"] == (80 - 3) * 3 * 8192 * 2048
    assert steps["format"]["params"] == 0
    assert steps["format"]["weight_bytes"] < 0


def small(**fields: Any) -> Model:
    """A little decoder, with other fields of its layers where given."""
    attention = {"kind": "gqa", "n_heads": 6, "n_kv_heads": 3, "d_head": 16} | fields.pop("attention", {})
    ffn = {"kind": "swiglu", "d_ff": 64} | fields.pop("ffn", {})
    layer = {"repeat": 4, "norm": {"kind": "rmsnorm"}, "attention": attention, "ffn": ffn}
    return model_from({"name": "small", "d_model": 32, "vocab_size": 100, "layers": [layer], **fields})


def test_what_is_impossible_alone_is_one_step() -> None:
    """8 heads do not share 3 keys, nor 6 heads 4: both change together, and the step names both."""
    e = evolve(small(), small(attention={"n_heads": 8, "n_kv_heads": 4}))
    assert [step.decisions for step in e.steps] == [("heads", "sharing")]
    assert "attention heads: 6 → 8" in e.change(e.steps[0])
    assert "shared key/value heads: 3 → 4" in e.change(e.steps[0])
    check(e)


def test_a_decision_waits_until_it_is_possible() -> None:
    """25 heads cannot share 8 keys: sharing comes after the heads whatever the order says."""
    names = [s.decisions[0] for s in evolve(load_model("gpt2-xl"), load_model("llama3-8b"), order="sharing").steps]
    assert names.index("sharing") > names.index("heads")


def test_decisions_that_come_first() -> None:
    """`--order` with names puts these first, and keeps the story behind them."""
    a, b = load_model("gpt2-xl"), load_model("llama3-8b")
    story = [s.decisions[0] for s in evolve(a, b).steps]
    asked = [s.decisions[0] for s in evolve(a, b, order="format,width").steps]
    assert asked == ["format", "width", *(name for name in story if name not in ("format", "width"))]


@pytest.mark.parametrize("order", ["stroy", "random:x", "experts", ""])
def test_orders_that_mean_nothing(order: str) -> None:
    """An unknown order, or a decision in which the two do not differ, is a usage error that lists what there is."""
    with pytest.raises(UsageError) as found:
        evolve(load_model("gpt2-xl"), load_model("llama3-8b"), order=order)
    assert any("decisions here" in hint for hint in found.value.hints)


def test_attribution_of_two_is_the_mean_of_both_orders() -> None:
    """With two decisions, each gets the mean of what it changes first and what it changes second."""
    e = evolve(small(), small(d_model=40, ffn={"d_ff": 96}), orders=2)
    assert e.attribution is not None
    assert e.attribution.complete
    alone = 3 * 4 * 32 * (96 - 64)
    second = 3 * 4 * 40 * (96 - 64)
    assert e.attribution.shares["d_ff"]["params"] == (alone + second) // 2


@pytest.mark.slow
@pytest.mark.parametrize("orders", [1, 3, 6])
def test_attribution_adds_up(orders: int, h100: Hardware) -> None:
    """Shares are whole numbers where the figures are, and add up to the difference; a seed gives the same again."""
    a, b = load_model("gpt2-xl"), load_model("mixtral-8x7b")
    e = evolve(a, b, h100, context_len=1024, orders=orders, seed=7)
    assert e.attribution is not None
    for name in EXACT:
        values = [share[name] for share in e.attribution.shares.values()]
        assert all(isinstance(value, int) for value in values)
        assert sum(values) == getattr(e.last, name) - getattr(e.first, name)
    for name in TIMES:
        total = sum(share[name] for share in e.attribution.shares.values())
        assert total == pytest.approx(getattr(e.last, name) - getattr(e.first, name), rel=1e-12, abs=1e-12)
    assert evolve(a, b, h100, context_len=1024, orders=orders, seed=7).to_dict() == e.to_dict()


def test_a_changed_spec() -> None:
    """`set` makes the second model: the step is that field's, and undoing it is the way back."""
    e = api.evolve("llama3-8b", "llama3-8b", None, set=["attention.n_kv_heads=1"], orders=0)
    assert [step.decisions for step in e.steps] == [("sharing",)]
    assert e.steps[0].delta["kv_bytes"] == 8192 * 32 * 2 * 128 * (1 - 8) * 2
    back = api.evolve("llama3-8b", "llama3-8b", None, set_from=["attention.n_kv_heads=1"], orders=0)
    assert back.steps[0].delta["kv_bytes"] == -e.steps[0].delta["kv_bytes"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("model", "change", "decision"),
    [
        ("llama3-8b", "d_model=4032", "width"), ("llama3-8b", "vocab_size=999", "vocabulary"),
        ("llama3-8b", "max_context=999", "context"), ("llama3-8b", "norm.eps=1e-7", "norm_type"),
        ("llama3-8b", "head.softcap=30.0", "logits"), ("llama3-8b", "attention.softcap=30.0", "attention_extras"),
        ("llama3-8b", "attention.qkv_bias=true", "biases"), ("llama3-8b", "ffn.bias=true", "biases"),
        ("llama3-8b", "ffn.d_ff=999", "d_ff"), ("llama3-8b", "head.tied=true", "tying"),
        ("olmo2-7b", "attention.qk_norm.eps=1e-7", "qk_norm"), ("llama3-8b", "weights.default=fp16", "format"),
        ("llama3-8b", "attention.position.theta=999.0", "rope"), ("gpt2-xl", "embedding.scale=2.0", "embedding"),
        ("gpt2-xl", "embedding.positions.max=999", "context"),
        ("mixtral-8x7b", "ffn.router={score: sigmoid}", "router"),
        ("mixtral-8x7b", "ffn.expert.d_ff=999", "expert_width"), ("mixtral-8x7b", "ffn.top_k=3", "top_k"),
        ("mixtral-8x7b", "ffn.n_experts=9", "expert_count"), ("mamba-2.8b", "mixer.d_state=17", "mixer_sizes"),
        ("t5-base", "attention.position.buckets=33", "position"),
        ("deepseek-v2", "attention.kv_rank=500", "latent_sizes"),
        ("bert-base", "pooler=false", "pooler"), ("bert-base", "embedding.token_types=3", "segments"),
    ],
)  # fmt: skip
def test_one_field_is_one_decision(model: str, change: str, decision: str) -> None:
    """A single changed field is a single step under the decision that it belongs to, and undone is the way back."""
    before, after = load_model(model), load_model(model, [change])
    there, back = evolve(before, after, context_len=64), evolve(after, before, context_len=64)
    assert [step.decisions for step in there.steps] == [step.decisions for step in back.steps] == [(decision,)]
    assert "→" in there.change(there.steps[0])
    assert (there.first, there.last) == (back.last, back.first)


def test_a_name_that_implies_a_format() -> None:
    """`-FP8` is a step of its own."""
    e = api.evolve("llama3-8b", "llama3-8b-FP8", None, orders=0)
    assert [step.decisions for step in e.steps] == [("format",)]
    assert e.steps[0].delta["weight_bytes"] < 0


def test_the_same_architecture() -> None:
    """No step where nothing differs, whatever the names."""
    e = evolve(load_model("deepseek-v3"), load_model("deepseek-r1"), orders=4)
    assert e.steps == ()
    assert e.attribution is None
    assert e.first == e.last


@pytest.mark.slow
@pytest.mark.parametrize("order", ["story", "reverse", "random:3"])
@pytest.mark.parametrize(
    ("a", "b"), [("bert-base", "gpt2-xl"), ("transformer-base", "roberta-base"), ("mamba-2.8b", "deberta-base")]
)
def test_an_encoder_and_a_decoder(a: str, b: str, order: str, h100: Hardware) -> None:
    """Where one end makes no tokens there is no decode time; all else adds up, and `count` has the ends."""
    one, two = load_model(a), load_model(b)
    e = evolve(one, two, h100, context_len=500, order=order, orders=2)
    check(e)
    for model, costs in ((one, e.first), (two, e.last)):
        counted = count(model, input_len=500)
        assert (costs.params, costs.kv_bytes) == (counted.total, counted.kv_bytes)
        assert costs.decode_s is None
        assert isinstance(costs.flops_per_token, int)
    assert any("no decode step" in note.text for note in e.assumptions)
    assert "stacks" in {name for step in e.steps for name in step.decisions}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("a", "b", "decision", "words"),
    [
        ("gpt2-xl", "llama3-8b", "position", "position encoding: learned positions → rope"),
        ("gpt2-xl", "llama3-8b", "norm_type", "norm: layernorm → rmsnorm, bias yes → no"),
        ("llama2-70b", "deepseek-v3", "latent", "latent attention: gqa → mla of 576 per token"),
        ("llama2-70b", "deepseek-v3", "experts",
         "experts: swiglu → 256 experts of 2,048, 8 per token, in 58 of 61 layers"),
        ("llama2-70b", "deepseek-v3", "format", "format: bf16 → bf16, linear and expert in fp8_block"),
        ("transformer-base", "deepseek-v3", "stacks", "encoder and decoder: encoder-decoder → decoder"),
        ("mamba-2.8b", "qwen3.5-397b-a17b", "mixing", "token mixing: mamba → gated delta net / gqa"),
        ("glm-4.5", "minimax-m2", "router", "router: scale 2.5 → 1, in 59 of 62 layers"),
        ("deepseek-v3", "minimax-m2", "mtp", "multi-token prediction: 1 module → 3 modules"),
        ("llama3-8b", "gemma3n-e2b", "cache_sharing",
         "caches shared by layers: none → layer 19 / layer 20, in 10 of 30 layers"),
    ],
)  # fmt: skip
def test_words(a: str, b: str, decision: str, words: str) -> None:
    """A step says what changes, from what to what, and in how many layers where not in all."""
    e = evolve(load_model(a), load_model(b), context_len=256)
    assert words in {e.change(step) for step in e.steps if step.decisions == (decision,)}


@pytest.mark.slow
def test_every_step_says_from_what_to_what() -> None:
    """Also where blocks differ only inside, such as two routers or two prediction modules."""
    for a, b, order in pairs(60)[2:]:
        e = evolve(load_model(a), load_model(b), context_len=16, order=order)
        assert all("→" in part for step in e.steps for part in e.change(step).split(" + ")), (a, b)


def test_the_contract() -> None:
    """The object has the keys of `archsim.evolve/1`."""
    data = api.evolve("gpt2-xl", "llama3-8b", orders=2, context_len=1024).to_dict()
    assert data["schema"] == "archsim.evolve/1"
    assert data["from"]["name"] == "gpt2-xl"
    assert data["to"]["params"] == 8030261248
    for step in data["steps"]:
        assert step["change"]
        assert {"params", "flops_per_token", "kv_bytes", "decode_s", "prefill_s"} <= step["delta"].keys()
    assert set(data["from"]) == {"name", *ArchitectureFigures._fields} - {*TRAINING}
