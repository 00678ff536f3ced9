"""How a checkpoint stores its weights, from `dtype` and `quantization_config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from archsim.importers.hf_config import Config, shown

DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}

_BESIDE = """
quant_method version zero_point backend do_fuse fuse_max_seq_len modules_to_fuse exllama_config
desc_act sym true_sequential static_groups damp_percent dataset model_name_or_path model_file_base_name
checkpoint_format tokenizer batch_size block_name_to_quantize cache_block_outputs max_input_length model_seqlen
module_name_preceding_first_block
pad_token_id use_cuda_fp16 use_exllama exllama_version is_marlin_format meta use_cache_quantization lm_head quantizer
activation_scheme fmt scale_fmt dequantize activation_scale_ub
format quantization_status global_compression_ratio kv_cache_scheme transform_config run_compressed
bnb_4bit_compute_dtype bnb_4bit_quant_storage llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight
llm_int8_threshold _load_in_4bit _load_in_8bit producer kv_cache_quant_algo use_matmul_with_fp8 disable_exllama
"""
BESIDE = frozenset(_BESIDE.split())
"""Keys of a quantization_config that leave the bytes of the weights as they are."""

IGNORED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
"""What the list of modules that stay as they were has been called."""


def weights(c: Config) -> tuple[dict[str, str], list[str]]:
    """Format per tensor class, and the names of modules that keep the default.

    Quantised are the matrices of the layers, not tables, norms and routers.
    """
    name = c.first("dtype", "torch_dtype")
    name = str(name).removeprefix("torch.") if name is not None else "bfloat16"
    if name not in DTYPES:
        raise c.error("torch_dtype", f"unknown {shown(name)}; known: {', '.join(DTYPES)}")
    result = {"default": DTYPES[name]}
    quantised = c.child("quantization_config")
    if quantised is None:
        return result, []
    method = str(quantised.get("quant_method"))
    reader = METHODS.get(method)
    if reader is None:
        raise quantised.error("quant_method", f"unknown {shown(method)}; known: {', '.join(METHODS)}")
    formats = reader(quantised)
    ignored = [str(m) for key in IGNORED for m in _list(quantised, key)]
    quantised.skip(*BESIDE & quantised.data.keys())
    return result | formats, ignored


def _list(q: Config, key: str) -> list[Any]:
    value = q.get(key) or []
    if not isinstance(value, list):
        raise q.error(key, "not a list of modules")
    return value


def _matrices(name: str) -> dict[str, str]:
    return {"linear": name, "expert": name}


def _named(q: Config, key: str, known: Mapping[Any, str], value: Any) -> str:
    """The format that a value stands for. Raises SpecError for a value that no format is known for."""
    found = known.get(value) if not isinstance(value, dict | list) else None
    if found is None:
        raise q.error(key, f"no format for {shown(value)}; known: {', '.join(map(str, known))}")
    return found


GROUPS = {
    "awq": {4: {128: "awq_int4", 64: "awq_int4_g64", 32: "awq_int4_g32"}},
    "gptq": {4: {128: "gptq_int4", 64: "gptq_int4_g64", 32: "gptq_int4_g32"}, 8: {128: "gptq_int8"}},
}
"""Method, bits and group size to format."""


def _grouped(q: Config) -> dict[str, str]:
    """AWQ and GPTQ: integers of some bits, with a scale and a zero point per group."""
    method = str(q.get("quant_method"))
    q.only("dynamic", {})
    q.only("modules_in_block_to_quantize", [])
    bits, group = q.first("bits", "w_bit"), q.first("group_size", "q_group_size")
    by_group = GROUPS[method].get(bits) if isinstance(bits, int) else None
    if by_group is None:
        raise q.error("bits", f"no format for {shown(bits)}; known: {', '.join(map(str, GROUPS[method]))}")
    return _matrices(_named(q, "group_size", by_group, 128 if group is None else group))


def _fp8(q: Config) -> dict[str, str]:
    """8-bit floats: one scale per tensor, or per tile of 128 x 128."""
    block = q.get("weight_block_size")
    if block is not None and block != [128, 128]:
        raise q.error("weight_block_size", f"no format for {shown(block)}; known: [128, 128]")
    return _matrices("fp8_block" if block else "fp8")


def _fbgemm(q: Config) -> dict[str, str]:
    """Meta's: 8-bit floats with a scale per output, in the modules that are not on the list."""
    return _matrices("fp8_channel")


def _bitsandbytes(q: Config) -> dict[str, str]:
    four, eight = bool(q.get("load_in_4bit")), bool(q.get("load_in_8bit"))
    kind, double = q.get("bnb_4bit_quant_type", "fp4"), bool(q.get("bnb_4bit_use_double_quant"))
    if four:
        known = {("nf4", True): "nf4", ("nf4", False): "nf4_single", ("fp4", False): "fp4_bnb"}
        if (kind, double) not in known:
            raise q.error("bnb_4bit_quant_type", f"no format for {shown(kind)}, double quantization {double}")
        return _matrices(known[kind, double])
    if not eight:
        raise q.error("load_in_4bit", "neither load_in_4bit nor load_in_8bit is true")
    return _matrices("int8")


def _mxfp4(q: Config) -> dict[str, str]:
    """gpt-oss: the experts alone."""
    return {"expert": "mxfp4"}


MODELOPT = {"FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel", "FP8_PB_WO": "fp8_block", "NVFP4": "nvfp4",
            "NVFP4_AWQ": "nvfp4", "W4A16_AWQ": "awq_int4"}  # fmt: skip


def _modelopt(q: Config) -> dict[str, str]:
    """TensorRT Model Optimizer: an algorithm by name, or groups as in compressed-tensors."""
    algorithm = q.get("quant_algo")
    q.only("quantized_layers", {})
    q.only("group_size", 16, 128)
    if algorithm is None:
        return _compressed(q)
    q.skip("config_groups")
    return _matrices(_named(q, "quant_algo", MODELOPT, algorithm))


def _compressed(q: Config) -> dict[str, str]:
    """compressed-tensors: one scheme for all linear layers."""
    groups = q.child("config_groups")
    sparse = q.get("sparsity_config")
    if sparse and sparse.get("format") not in (None, "dense"):
        raise q.error("sparsity_config", "sparse weights are not supported")
    if groups is None or not groups.data:
        raise q.error("config_groups", "missing")
    found: dict[str, Config] = {}
    for name in groups.data:
        group = groups.child(name)
        assert group is not None
        targets = group.get("targets") or ["Linear"]
        if targets != ["Linear"]:
            raise group.error("targets", f"{shown(targets)} is not supported; known: ['Linear']")
        activations = group.get("input_activations")
        group.skip("output_activations", "format")
        scheme = group.child("weights")
        if scheme is None:
            raise group.error("weights", "missing")
        found.setdefault(_scheme(scheme, bool(activations)), scheme)
    if len(found) > 1:
        raise q.error("config_groups", "several weight formats in one checkpoint are not supported")
    return _matrices(next(iter(found)))


def _scheme(s: Config, activations: bool) -> str:
    """The format of one group's weights."""
    s.skip("actorder", "observer", "observer_kwargs", "dynamic", "scale_dtype", "zp_dtype")
    bits, kind, size, strategy = s.get("num_bits"), s.get("type"), s.get("group_size"), s.get("strategy")
    block, symmetric = s.get("block_structure"), s.get("symmetric", True)
    by_strategy = {"tensor": "fp8", "channel": "fp8_channel", "block": "fp8_block", None: "fp8"}
    if kind == "float" and bits == 8:
        if block is not None and block != [128, 128]:
            raise s.error("block_structure", f"no format for {shown(block)}; known: [128, 128]")
        return "fp8_block" if block else _named(s, "strategy", by_strategy, strategy)
    if kind == "float" and bits == 4:
        return _named(s, "group_size", {16: "nvfp4", 32: "mxfp4", None: "nvfp4"}, size)
    if kind == "int" and bits == 4:
        plain = {128: "int4", 32: "int4_g32"}
        with_zeros = {128: "awq_int4", 64: "awq_int4_g64", 32: "awq_int4_g32"}
        return _named(s, "group_size", plain if symmetric else with_zeros, size)
    if kind == "int" and bits == 8 and strategy in (None, "channel"):
        return "w8a8" if activations else "int8"
    raise s.error("type", f"no format for {shown(kind)} of {shown(bits)} bits, strategy {shown(strategy)}")


METHODS: Mapping[str, Callable[[Config], dict[str, str]]] = {
    "awq": _grouped, "gptq": _grouped, "bitsandbytes": _bitsandbytes, "compressed-tensors": _compressed,
    "fbgemm_fp8": _fbgemm, "fp8": _fp8, "modelopt": _modelopt, "modelopt_fp4": _modelopt, "mxfp4": _mxfp4,
}  # fmt: skip
"""`quant_method` to its reader."""
