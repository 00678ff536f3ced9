"""Kernels of blocks beside plain attention and products: bounds, order in every extent, and what a fit finds again."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.spec.load import load_hardware, load_model
from archsim.timing.classes import attention_modules
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import Fitted, bounded_kernel_seconds, default_constants, kernel_seconds
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import timer

V4 = {"batch": 8, "seq_kv": 9000, "heads": 32, "head_dim": 512, "hidden": 7168}
M3 = {"batch": 8, "seq_kv": 9000, "heads": 32, "head_dim": 128, "hidden": 6144, "topk": 2048}
"""Blocks of DeepSeek-V4 and MiniMax-M3."""

CALLS: dict[str, dict[str, float]] = {
    "attn_encoder": {"batch": 2, "seq_q": 1000, "seq_kv": 1000, "heads": 16, "kv_heads": 16, "head_dim": 72},
    "mla_bmm": {"m": 64, "n": 512, "k": 128, "heads": 16},
    "conv1d_prefill": {"m": 2000, "n": 8192, "k": 4, "batch": 2, "seq_q": 1000},
    "conv1d_decode": {"m": 32, "n": 8192, "k": 4, "batch": 32, "seq_q": 1},
    "gdn_prefill": {"batch": 2, "seq_q": 1000, "heads": 32, "kv_heads": 16, "head_dim": 128},
    "gdn_decode": {"batch": 64, "seq_q": 1, "heads": 32, "kv_heads": 16, "head_dim": 128},
    "kda_prefill": {"batch": 2, "seq_q": 1000, "heads": 32, "kv_heads": 32, "head_dim": 128},
    "kda_decode": {"batch": 64, "seq_q": 2, "heads": 32, "kv_heads": 32, "head_dim": 128},
    "mhc_pre": {"m": 512, "k": 4, "hidden": 4096},
    "mhc_post": {"m": 512, "k": 4, "hidden": 4096},
    "mlp": {"m": 64, "hidden": 7168, "inter": 2048},
    "moe_dispatch": {"m": 64, "topk": 8, "hidden": 7168, "n_gpus": 8},
    "moe_combine": {"m": 64, "topk": 8, "hidden": 7168, "n_gpus": 8},
    "moe_wideep": {"m": 512, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "tp": 1, "ep": 16},
    "moe_mega": {"m": 64, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "ep": 8},
    "dsa_logits": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "heads": 32, "head_dim": 128},
    "csa_logits": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "heads": 64, "head_dim": 128},
    "dsa_topk": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "topk": 2048},
    "csa_topk": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "topk": 512},
    "dsa_attn": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "heads": 64, "head_dim": 576, "topk": 2048},
    "hca_attn": {"batch": 2, "seq_q": 4, "seq_kv": 9000, "heads": 64, "head_dim": 512},
    "mla_module_prefill": {"batch": 2, "seq_q": 900, "seq_kv": 900, "heads": 32, "hidden": 7168},
    "mla_module_decode": {"batch": 32, "seq_kv": 3000, "heads": 32, "hidden": 7168},
    "dsa_module_prefill": {"batch": 2, "seq_q": 900, "seq_kv": 9000, "heads": 32, "hidden": 7168, "topk": 2048},
    "dsa_module_decode": {"batch": 32, "seq_kv": 9000, "heads": 32, "hidden": 6144, "topk": 2048},
    "hca_module_prefill": {**V4, "seq_q": 900},
    "hca_module_decode": V4,
    "csa_module_prefill": {**V4, "seq_q": 900, "topk": 1024},
    "csa_module_decode": {**V4, "topk": 1024},
    "msa_module_prefill": {**M3, "seq_q": 900},
    "msa_module_decode": M3,
}
"""A plausible call of each class."""

FEW = ("k", "experts", "topk", "ep", "n_gpus")
"""Extents that have few values."""

DEVICES = ("h100-sxm", "a100-sxm", "l40s", "b200-sxm", "mi300x")
FAST = settings(max_examples=80, deadline=None)


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def call(op: str, kernel: str = "", **changes: float) -> KernelCall:
    """The plausible call with other extents."""
    return MODELS[op].prepare(KernelCall(op, "bf16", "bf16", kernel, {**CALLS[op], **changes}))


def time(of: KernelCall, at: DeviceRates) -> float:
    """Seconds by the formula with the usual constants, before any bound is applied."""
    model = MODELS[of.kernel_class]
    return float(kernel_seconds(model, of, at, default_constants(model)))


@FAST
@given(st.sampled_from(sorted(CALLS)), st.sampled_from(DEVICES), st.floats(0.05, 50), st.data())
def test_never_below_the_bound(op: str, device: str, factor: float, data: st.DataObject) -> None:
    """Even if every constant is at its most favourable end."""
    name = data.draw(st.sampled_from(sorted(set(CALLS[op]) - {"n_gpus"})))
    of, model, at = call(op, **{name: max(1, round(CALLS[op][name] * factor))}), MODELS[op], machine(device)
    best = Fitted(constants={n: c.low if "_" in n else c.high for n, c in model.constants.items()})
    assert bounded_kernel_seconds(model, of, at, best) >= max(model.bound(of, at)) * (1 - 1e-9)


@FAST
@given(st.sampled_from(sorted(CALLS)), st.sampled_from(DEVICES), st.floats(1, 8), st.data())
def test_more_work_takes_no_less(op: str, device: str, factor: float, data: st.DataObject) -> None:
    """In every extent but those that only share the same work out, and but the hidden size of a whole block, which
    tells the model that a table's row is of and with it the widths that the table does not state.
    """
    shared = {"kv_heads", "seq_kv", "tp", "ep", "n_gpus", "topk"} | ({"hidden"} if "_module_" in op else set())
    name = data.draw(st.sampled_from(sorted(set(CALLS[op]) - shared)))
    more = {name: round(CALLS[op][name] * factor)}
    if name == "seq_q" and "seq_kv" in CALLS[op]:
        more["seq_kv"] = more["seq_q"] + CALLS[op]["seq_kv"] - CALLS[op]["seq_q"]
    assert time(call(op, **more), machine(device)) >= time(call(op), machine(device)) * (1 - 1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", sorted(CALLS))
def test_constants_are_found_again(op: str) -> None:
    """Shapes far apart, timed by known constants, give those times again at shapes between them."""
    model, at, rng = MODELS[op], machine("h100-sxm"), np.random.default_rng(0)
    names = [name for name in model.dims if name not in FEW]
    scale = {name: np.exp(rng.uniform(-2.5, 2.5, 400)) for name in names}
    dims = {name: np.maximum(np.round(CALLS[op][name] * scale.get(name, np.ones(400))), 1.0) for name in CALLS[op]}
    if "seq_kv" in dims:
        dims["seq_kv"] = np.maximum(dims["seq_kv"], dims.get("seq_q", 1))
    true = {n: min(max(c.usual * 1.3, c.low), c.high) for n, c in model.constants.items()}
    of = model.prepare(KernelCall(op, "bf16", "bf16", "", dims))
    seconds = model.formula(of, at, true)
    group = Group(key=Key(op, "H100-SXM", "bf16", "bf16", "", ""), rows=np.arange(400), dims=of.dims, seconds=seconds)
    found = fitting.fit_constants(model, group.take(np.arange(0, 400, 2)), at)
    there = group.take(np.arange(1, 400, 2))
    rest = np.abs(np.log(model.formula(there.call, at, found) / there.seconds))
    assert np.median(rest) < 0.02 and np.quantile(rest, 0.9) < 0.06


@pytest.mark.parametrize("device", ["h100-sxm", "b200-sxm"])
def test_entries_of_new_tokens_are_gathered_one_sequence_after_another(device: str) -> None:
    """1,024 sequences of four new tokens take DeepSeek-V4's attention over entries of 128 tokens five to six times as
    long as one prompt of 4,096; a decode step gathers nothing (tables of vLLM 0.24).
    """
    clock = timer(load_hardware(device), "vllm")

    def us(batch: int, new: int) -> float:
        dims = {"batch": batch, "seq_q": new, "seq_kv": 516 if new == 4 else 4096, "heads": 64, "head_dim": 512}
        return clock.time(KernelCall("hca_attn", "bf16", "fp8", "", dims)).expected * 1e6

    assert 4 < us(1024, 4) / us(1, 4096) < 7
    assert us(1024, 4) > 8 * us(1024, 1)


@pytest.mark.parametrize("op", sorted(CALLS))
def test_rows_of_a_table_and_single_calls_agree(op: str) -> None:
    """Arrays and numbers go through one formula."""
    extents = {name: np.array([value, value * 2]) for name, value in CALLS[op].items()}
    together = time_of_rows(op, extents)
    for row in range(2):
        alone = time(call(op, **{name: float(values[row]) for name, values in extents.items()}), machine("h100-sxm"))
        assert together[row] == pytest.approx(alone, rel=1e-12)


def time_of_rows(op: str, extents: dict[str, np.ndarray]) -> np.ndarray:
    """Seconds of several calls at once."""
    model = MODELS[op]
    of = model.prepare(KernelCall(op, "bf16", "bf16", "", extents))
    return np.asarray(kernel_seconds(model, of, machine("h100-sxm"), default_constants(model)))


def _latent(name: str) -> Any:
    """The attention of a model's last layers."""
    return load_model(name).layers[-1].attention


def test_widths_of_latent_blocks_are_those_of_the_catalog() -> None:
    """Rows of whole blocks state neither ranks nor head sizes; GLM-5 and DeepSeek-V3 have specs that do."""
    glm, deepseek = (_latent(name) for name in ("glm-5", "deepseek-v3"))
    assert (glm.q_rank, glm.d_nope, glm.d_v, glm.indexer.n_heads) == attention_modules.GLM
    assert attention_modules.DEEPSEEK[:3] == (deepseek.q_rank, deepseek.d_nope, deepseek.d_v)
    for each in (glm, deepseek):
        assert (each.kv_rank, each.d_rope) == (attention_modules.LATENT, attention_modules.ROTARY)
    assert glm.indexer.d_head == attention_modules.INDEX_WIDTH


@pytest.mark.slow
def test_widths_of_compressed_and_block_sparse_blocks_are_those_of_transformers() -> None:
    """DeepSeek-V4 Flash, DeepSeek-V3.2 and MiniMax-M3 have no spec yet; transformers states their configurations."""
    models = pytest.importorskip("transformers.models")
    if not all(hasattr(models, name) for name in ("deepseek_v4", "deepseek_v32", "minimax_m3_vl")):
        pytest.skip("transformers without these models")
    flash = models.deepseek_v4.DeepseekV4Config()
    hca = MODELS["hca_module_decode"]
    call = KernelCall("hca_module_decode", dims={"hidden": float(flash.hidden_size)})
    assert isinstance(hca, attention_modules.HcaModulePrefill) and hca.query_rank(call) == flash.q_lora_rank
    assert flash.num_attention_heads // flash.o_groups == attention_modules.GROUP_HEADS
    assert flash.o_lora_rank == attention_modules.GROUP_RANK
    assert attention_modules.CsaModulePrefill.index_heads == flash.index_n_heads
    assert flash.index_head_dim == attention_modules.INDEX_WIDTH and flash.sliding_window == attention_modules.WINDOW
    sparse = models.deepseek_v32.DeepseekV32Config()
    own = (sparse.q_lora_rank, sparse.qk_nope_head_dim, sparse.v_head_dim, sparse.index_n_heads)
    assert own == attention_modules.DEEPSEEK
    text = models.minimax_m3_vl.MiniMaxM3VLTextConfig()
    assert text.num_attention_heads // text.num_key_value_heads == attention_modules.SHARING
    assert text.index_block_size == attention_modules.BLOCK
