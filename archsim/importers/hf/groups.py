"""Quantised checkpoints whose config names groups of modules: compressed-tensors, TensorRT Model Optimizer, MLX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archsim.importers.hf.config import Config, quote_value
from archsim.importers.hf.ignored import Rule

Read = tuple[dict[str, str], list[Rule]]


def matrices(name: str) -> dict[str, str]:
    """A format for the matrices of the layers."""
    return {"linear": name, "expert": name}


def format_for(q: Config, key: str, known: Mapping[Any, str], value: object) -> str:
    """The format that a value stands for. Raises SpecError for a value that no format is known for."""
    found = known.get(value) if not isinstance(value, dict | list) else None
    if found is None:
        raise q.error(key, f"no format for {quote_value(value)}; known: {', '.join(map(str, known))}")
    return found


# ---------------------------------------------------------------------- TensorRT Model Optimizer
MODELOPT = {"FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel", "FP8_PB_WO": "fp8_block", "NVFP4": "nvfp4",
            "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4_w4a16", "W4A16_AWQ": "awq_int4",
            "W4A8_AWQ": "w4a8_g128", "W8A8_SQ_PER_CHANNEL": "w8a8", "W8A16": "int8", "MXFP8": "mxfp8",
            "MXFP4": "mxfp4"}  # fmt: skip

MIXED = "MIXED_PRECISION"
"""The algorithm of checkpoints whose modules are listed one by one."""


def modelopt(q: Config) -> Read:
    """An algorithm by name, one for each listed module, or groups as in compressed-tensors."""
    algorithm = q.get("quant_algo")
    q.only("group_size", 16, 32, 128)
    q.skip("has_zero_point", "pre_quant_scale", "awq_block_size")
    listed = q.child("quantized_layers")
    if listed is not None and listed.data:
        q.skip("config_groups")
        return ({} if algorithm == MIXED else _algorithm(q)), _listed_kinds(listed)
    if algorithm is None and (q.get("config_groups") or not _states_cache(q)):
        return compressed(q)
    if algorithm is None:
        return {}, []
    q.skip("config_groups")
    return _algorithm(q), []


def _states_cache(q: Config) -> bool:
    """Whether the KV cache is quantised; with no algorithm for weights, it alone is."""
    return bool(q.get("kv_cache_quant_algo") or q.get("kv_cache_scheme"))


def _algorithm(q: Config) -> dict[str, str]:
    return matrices(format_for(q, "quant_algo", MODELOPT, q.get("quant_algo")))


def _listed_kinds(layers: Config) -> list[Rule]:
    rules: list[Rule] = []
    for module in layers.data:
        own = layers.child(module)
        if own is None:
            raise layers.error(module, "missing")
        own.only("group_size", 16, 128)
        own.skip("awq_block_size", "has_zero_point", "pre_quant_scale")
        rules.append((module, format_for(own, "quant_algo", MODELOPT, own.get("quant_algo"))))
    return rules


# ---------------------------------------------------------------------- compressed-tensors
def compressed(q: Config) -> Read:
    """Groups of modules, each with a scheme: all linear layers, or those that names and patterns mean."""
    groups = q.child("config_groups")
    sparse = q.get("sparsity_config")
    if sparse and sparse.get("format") not in (None, "dense"):
        raise q.error("sparsity_config", "sparse weights are not supported")
    _check_dense(q)
    if groups is None or not groups.data:
        raise q.error("config_groups", "missing")
    usual: dict[str, Config] = {}
    rules: list[Rule] = []
    for name in groups.data:
        group = groups.child(name)
        assert group is not None
        fmt, scheme = _group(group)
        targets = [str(target) for target in group.get("targets") or ["Linear"]]
        if "Linear" in targets:
            usual.setdefault(fmt, scheme)
        rules += [(target, fmt) for target in targets if target != "Linear"]
    if len(usual) > 1:
        raise q.error("config_groups", f"several weight formats, each given for all linear layers: {', '.join(usual)}")
    return (matrices(next(iter(usual))) if usual else {}), rules


SPARSE = ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")
"""Formats of compressed-tensors that leave out weights that are zero."""


def _check_dense(q: Config) -> None:
    """Raises SpecError for a format that does not keep every weight."""
    if q.get("format") in SPARSE:
        raise q.error("format", f"{quote_value(q.get('format'))}: sparse weights are not supported")


def _group(group: Config) -> tuple[str, Config]:
    """The format of a group, and its scheme."""
    activations = group.get("input_activations")
    group.skip("output_activations")
    _check_dense(group)
    scheme = group.child("weights")
    if scheme is None:
        raise group.error("weights", "missing")
    return _scheme(scheme, bool(activations)), scheme


FLOAT8 = {"tensor": "fp8", "channel": "fp8_channel", "block": "fp8_block", None: "fp8"}
FLOAT4 = {16: "nvfp4", 32: "mxfp4", None: "nvfp4"}
PLAIN = {128: "int4", 64: "int4_g64", 32: "int4_g32", -1: "int4_channel", None: "int4_channel"}
WITH_ZEROS = {128: "awq_int4", 64: "awq_int4_g64", 32: "awq_int4_g32"}
EIGHT = {128: "int8_g128", 64: "int8_g64", 32: "int8_g32"}
"""Strategy, or size of a group, to format."""


def _scheme(s: Config, activations: bool) -> str:
    """The format of one group's weights."""
    s.skip("actorder", "observer", "observer_kwargs", "dynamic", "scale_dtype", "zp_dtype")
    bits, kind, size, strategy = s.get("num_bits"), s.get("type"), s.get("group_size"), s.get("strategy")
    block, symmetric = s.get("block_structure"), s.get("symmetric", True)
    if kind == "float" and bits == 8:
        if block is not None and block != [128, 128]:
            raise s.error("block_structure", f"no format for {quote_value(block)}; known: [128, 128]")
        if strategy == "group" and not block:
            return format_for(s, "group_size", {32: "mxfp8"}, size)
        return "fp8_block" if block else format_for(s, "strategy", FLOAT8, strategy)
    if kind == "float" and bits == 4:
        return format_for(s, "group_size", FLOAT4, size)
    if kind == "int" and bits == 4:
        if size is None and strategy not in (None, "channel"):
            raise s.error("strategy", f"no format for {quote_value(strategy)} of 4 bits")
        return format_for(s, "group_size", PLAIN if symmetric else WITH_ZEROS, size)
    if kind == "int" and bits == 8 and strategy in (None, "channel"):
        return "w8a8" if activations else "int8"
    if kind == "int" and bits == 8 and strategy == "group":
        return format_for(s, "group_size", EIGHT, size)
    raise s.error(
        "type", f"no format for {quote_value(kind)} of {quote_value(bits)} bits, strategy {quote_value(strategy)}"
    )


# ---------------------------------------------------------------------- MLX
MLX_BITS = (2, 3, 4, 5, 6, 8)
MLX_GROUPS = {64: "", 32: "_g32", 128: "_g128"}
MLX_MODES = {"mxfp4": "mxfp4", "nvfp4": "nvfp4", "mxfp8": "mxfp8"}


def mlx(q: Config) -> Read:
    """mlx-lm: bits and a group size for every matrix, tables included; modules by name have their own, or none
    (https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/utils.py).
    """
    usual = _mlx_format(q, q)
    rules: list[Rule] = []
    for module, value in q.data.items():
        if module in ("bits", "group_size", "mode", "quant_method"):
            continue
        if isinstance(value, bool):
            q.skip(module)
            rules += [] if value else [(module, None)]
        elif isinstance(value, Mapping):
            own = q.child(module)
            assert own is not None
            rules.append((module, _mlx_format(own, q)))
    return {**matrices(usual), "embedding": usual, "head": usual}, rules


def _mlx_format(own: Config, q: Config) -> str:
    """The format of a mode, or of bits and a group size."""
    mode = own.get("mode") or q.get("mode") or "affine"
    bits, group = own.first("bits") or q.first("bits"), own.first("group_size") or q.first("group_size")
    if mode != "affine" and not ("mode" not in own.data and own is not q and "bits" in own.data):
        return format_for(own, "mode", MLX_MODES, mode)
    if bits not in MLX_BITS:
        raise own.error("bits", f"no format for {quote_value(bits)}; known: {', '.join(map(str, MLX_BITS))}")
    if not isinstance(group, int) or group not in MLX_GROUPS:
        raise own.error("group_size", f"no format for {quote_value(group)}; known: {', '.join(map(str, MLX_GROUPS))}")
    return f"mlx_{bits}bit{MLX_GROUPS[group]}"
