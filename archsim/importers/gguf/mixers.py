"""Recurrent mixers of a GGUF layer, from their tensors: state spaces, gated delta nets, short convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from archsim.importers.gguf.layers import Layers

Doc = JsonObject

CHUNK = 256
"""Tokens of a chunk in prefill, which no key states: the default of every Mamba-2 model in transformers."""


def mixer(layers: Layers, i: int) -> Doc | None:
    """The mixer of a layer, told by the tensors that only this kind has; None without one."""
    found = next((read for sign, read in KINDS if _has(layers, i, sign)), None)
    return None if found is None else found(layers, i)


def _has(layers: Layers, i: int, sign: str) -> bool:
    return f"blk.{i}.{sign}" in layers.tensors


def _mamba(layers: Layers, i: int) -> Doc:
    """Mamba: dt, B and C from one projection."""
    taps, inner = layers.shape(i, "ssm_conv1d")
    rank = layers.shape(i, "ssm_dt")[0]
    state = (layers.shape(i, "ssm_x")[1] - rank) // 2
    block: Doc = {"kind": "mamba", "d_inner": inner, "d_state": state, "d_conv": taps, "dt_rank": rank}
    if norm := layers.norm(f"blk.{i}.ssm_dt_norm"):
        block["inner_norm"] = norm
    elif layers.keys.get("ssm.dt_b_c_rms"):
        block["inner_norm"] = {"kind": "rmsnorm", "affine": False}
    return block | _conv_bias(layers, i)


def _mamba2(layers: Layers, i: int) -> Doc:
    """Mamba-2: heads, groups and states from the keys; they have to fit the projection."""
    taps, mixed = layers.shape(i, "ssm_conv1d")
    keys = layers.keys
    inner, heads = keys.count("ssm.inner_size"), keys.count("ssm.time_step_rank")
    groups, state = keys.count("ssm.group_count"), keys.count("ssm.state_size")
    if inner % heads or mixed != inner + 2 * groups * state:
        raise _misfit(i, f"{heads} heads, {groups} groups and {state} states")
    block: Doc = {
        "kind": "mamba2", "n_heads": heads, "d_head": inner // heads, "d_state": state, "n_groups": groups,
        "d_conv": taps, "chunk": CHUNK,
    }  # fmt: skip
    if norm := layers.norm(f"blk.{i}.ssm_norm"):
        block["norm"] = norm
    return block | _conv_bias(layers, i)


def _delta_net(layers: Layers, i: int) -> Doc:
    """Gated delta net: key heads are groups, value heads the time steps' rank."""
    keys = layers.keys
    value, heads = keys.count("ssm.inner_size"), keys.count("ssm.time_step_rank")
    groups, d_key = keys.count("ssm.group_count"), keys.count("ssm.state_size")
    taps, mixed = layers.shape(i, "ssm_conv1d")
    if value % heads or heads % groups or mixed != value + 2 * groups * d_key:
        raise _misfit(i, f"{groups} and {heads} heads of {d_key}")
    return {
        "kind": "gated_delta_net", "n_key_heads": groups, "n_value_heads": heads, "d_key": d_key,
        "d_value": value // heads, "d_conv": taps,
    }  # fmt: skip


def _short_conv(layers: Layers, i: int) -> Doc:
    """LFM2's gated convolution."""
    taps, width = layers.shape(i, "shortconv.conv")
    bias = {"bias": True} if layers.has(i, "shortconv.in_proj", "bias") else {}
    return {"kind": "short_conv", "d_inner": width, "d_conv": taps} | bias


def _conv_bias(layers: Layers, i: int) -> Doc:
    return {} if layers.has(i, "ssm_conv1d", "bias") else {"conv_bias": False}


def _misfit(i: int, what: str) -> SpecError:
    return SpecError(f"layer {i}: {what} do not fit the tensor {quote('ssm_conv1d')}", code="E110")


KINDS: tuple[tuple[str, Callable[[Layers, int], Doc]], ...] = (
    ("shortconv.conv.weight", _short_conv), ("ssm_x.weight", _mamba), ("ssm_ba.weight", _delta_net),
    ("ssm_beta.weight", _delta_net), ("ssm_in.weight", _mamba2),
)  # fmt: skip
"""A tensor that only one kind of mixer has -> its reader."""
