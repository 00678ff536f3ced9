"""How a checkpoint stores its weights, from `dtype` and `quantization_config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from archsim.importers.hf.config import Config, quote_value
from archsim.importers.hf.groups import MODELOPT, compressed, format_for, matrices, mlx, modelopt
from archsim.importers.hf.ignored import Rule
from archsim.importers.hf.methods import autoround, bitnet, eetq, exl, hqq, quanto, quark, torchao

DTYPES = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "auto": "bf16"}
"""Names of dtypes in configs; "auto" says no more than a missing one."""

_BESIDE = """
quant_method version zero_point backend do_fuse fuse_max_seq_len modules_to_fuse exllama_config
desc_act sym true_sequential static_groups damp_percent dataset model_name_or_path model_file_base_name
checkpoint_format tokenizer batch_size block_name_to_quantize cache_block_outputs max_input_length model_seqlen
module_name_preceding_first_block
pad_token_id use_cuda_fp16 use_exllama exllama_version is_marlin_format meta use_cache_quantization quantizer
activation_scheme fmt store_dtype scale_fmt dequantize activation_scale_ub
format quantization_status global_compression_ratio kv_cache_scheme transform_config run_compressed
pack_dtype hyb_act act_group_aware offload_to_disk mse autoround_version
bnb_4bit_compute_dtype bnb_4bit_quant_storage llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight
llm_int8_threshold _load_in_4bit _load_in_8bit producer kv_cache_quant_algo use_matmul_with_fp8 disable_exllama
"""
BESIDE = frozenset(_BESIDE.split())
"""Keys of a quantization_config that leave the bytes of the weights as they are."""

IGNORED = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
    "skip_modules",
)
"""What the list of modules that stay as they were has been called."""


Read = tuple[dict[str, str], list[Rule]]
"""Format per tensor class, and rules for modules of their own."""


def weights(c: Config) -> Read:
    """Format per tensor class, and rules for the modules that keep the default or have a format of their own.

    Quantised are the matrices of the layers, not tables, norms and routers; by MLX tables as well, and with
    `lm_head: true` the output table (GPTQ and AWQ, vLLM's `lm_head_quantized`).
    """
    name = c.first("dtype", "torch_dtype")
    name = str(name).removeprefix("torch.") if name is not None else "bfloat16"
    if name not in DTYPES:
        raise c.error("torch_dtype", f"unknown {quote_value(name)}; known: {', '.join(DTYPES)}")
    result = {"default": DTYPES[name]}
    c.skip("expert_dtype")
    key = "quantization" if c.data.get("quantization") is not None else "quantization_config"
    c.skip("quantization", "quantization_config")
    held = c.data.get(key)
    if isinstance(held, Mapping) and not any(value is not None for value in held.values()):  # a mapping of nothing
        return result, []
    quantised = c.child(key)
    if quantised is None:
        return result, []
    quantised = _own_level(quantised)
    formats, rules = _reader(quantised)(quantised)
    if quantised.get("lm_head") and "linear" in formats:
        formats["head"] = formats["linear"]
    elif "lm_head" in quantised.data:
        quantised.only("lm_head", False, None)
    ignored = [(str(module), None) for key in IGNORED for module in _list(quantised, key)]
    if OF_EXPERTS in quantised.data:  # the list is about the experts' format, which no other module has
        ignored = []
    elif c.only("expert_dtype", "fp4", "bf16", "bfloat16") == "fp4":
        formats["expert"] = "mxfp4"
    quantised.skip(*BESIDE & quantised.data.keys())
    return result | formats, [*ignored, *rules]


CACHES = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}
"""Names of algorithms for caches to formats."""


def stated_cache(c: Config) -> dict[str, str] | None:
    """What the quantisation states of the KV cache, and by which method: an algorithm by name (TensorRT Model
    Optimizer), or bits and a kind of number (compressed-tensors, and Model Optimizer in its form). None where it
    states nothing, or what no format is known for.
    """
    held = c.data.get("quantization_config")
    if not isinstance(held, Mapping):
        return None
    method = "modelopt" if str(held.get("quant_method", "modelopt")).startswith("modelopt") else held["quant_method"]
    inner = held.get("quantization")
    own = {**held, **inner} if isinstance(inner, Mapping) else held
    scheme = own.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        floats = {8: "fp8", 4: "nvfp4"} if scheme.get("type") == "float" else {8: "int8"}
        name = floats.get(scheme["num_bits"]) if isinstance(scheme.get("num_bits"), int) else None
    else:
        name = CACHES.get(str(scheme or own.get("kv_cache_quant_algo")).upper())
    return {"format": name, "method": method} if name and method in ("modelopt", "compressed-tensors") else None


def _own_level(q: Config) -> Config:
    """The mapping that names the algorithm: Model Optimizer's own file has it one level further in."""
    inner = q.child("quantization") if "quant_algo" not in q.data else None
    if inner is None or "quant_algo" not in inner.data:
        return q
    q.skip(*BESIDE & q.data.keys())
    return inner


def _reader(q: Config) -> Callable[[Config], Read]:
    """The reader of a method; MLX writes none, but bits and the size of a group."""
    method = q.get("quant_method")
    if method is None and {"bits", "group_size"} <= q.data.keys():
        return mlx
    if method is None and "quant_algo" in q.data:
        return modelopt
    reader = METHODS.get(str(method))
    if reader is None:
        raise q.error("quant_method", f"unknown {quote_value(method)}; known: {', '.join(METHODS)}")
    return reader


def _list(q: Config, key: str) -> list[Any]:
    value = q.get(key) or []
    if not isinstance(value, list):
        raise q.error(key, "not a list of modules")
    return value


GROUPS = {
    "awq": {4: {128: "awq_int4", 64: "awq_int4_g64", 32: "awq_int4_g32"}},
    "gptq": {
        2: {128: "gptq_int2"},
        3: {128: "gptq_int3"},
        4: {128: "gptq_int4", 64: "gptq_int4_g64", 32: "gptq_int4_g32", -1: "gptq_int4_channel"},
        8: {128: "gptq_int8", 64: "gptq_int8_g64", 32: "gptq_int8_g32", -1: "gptq_int8_channel"},
    },
}
"""Method, bits and group size (-1: one group for all inputs) to format."""


def _grouped(q: Config) -> Read:
    """AWQ and GPTQ: integers of some bits, with a scale and a zero point per group."""
    usual = _group(q, q)
    blocks = q.get("modules_in_block_to_quantize") or []
    if not isinstance(blocks, list):
        raise q.error("modules_in_block_to_quantize", "not a list of modules")
    inside = [str(m) for block in blocks for m in (block if isinstance(block, list) else [block])]
    rules = _dynamic(q)
    if inside:
        return {}, [*rules, *((module, usual) for module in inside)]
    return matrices(usual), rules


def _group(q: Config, own: Config) -> str:
    """The format of bits and a group size, which one module may have of its own."""
    return _in_groups(q, own, str(q.get("quant_method")))


def _in_groups(q: Config, own: Config, method: str) -> str:
    bits, group = (own.first(*k) or q.first(*k) for k in (("bits", "w_bit"), ("group_size", "q_group_size")))
    by_group = GROUPS[method].get(bits) if isinstance(bits, int) else None
    if by_group is None:
        raise own.error("bits", f"no format for {quote_value(bits)}; known: {', '.join(map(str, GROUPS[method]))}")
    return format_for(own, "group_size", by_group, 128 if group is None else group)


def _dynamic(q: Config) -> list[Rule]:
    """GPTQModel's rules: `-:` modules stay as they are, `+:` modules have bits or groups of their own."""
    dynamic = q.child("dynamic")
    rules: list[Rule] = []
    for pattern in dynamic.data if dynamic is not None else ():
        assert dynamic is not None
        text = "re:" + pattern.removeprefix("-:").removeprefix("+:")
        own = dynamic.child(pattern)
        if pattern.startswith("-:") or own is None:
            rules.append((text, None))
        else:
            own.skip("desc_act", "sym", "damp_percent")
            rules.append((text, _group(q, own)))
    return rules


OF_EXPERTS = "moe_quant_algo"
"""Key of checkpoints in 8-bit floats whose experts have been quantised once more, by Model Optimizer."""


def _fp8(q: Config) -> Read:
    """8-bit floats: one scale per tensor, or per tile of 128 x 128; experts in a format of their own."""
    block = q.get("weight_block_size")
    if block is not None and block != [128, 128]:
        raise q.error("weight_block_size", f"no format for {quote_value(block)}; known: [128, 128]")
    formats = matrices("fp8_block" if block else "fp8")
    if OF_EXPERTS in q.data:
        q.skip("config_groups", "group_size", "quant_algo", "quantized_layers")
        formats["expert"] = format_for(q, OF_EXPERTS, MODELOPT, q.get(OF_EXPERTS))
    return formats, []


def _fbgemm(q: Config) -> Read:
    """Meta's: 8-bit floats with a scale per output, in the modules that are not on the list."""
    return matrices("fp8_channel"), []


def _bitsandbytes(q: Config) -> Read:
    four, eight = bool(q.get("load_in_4bit")), bool(q.get("load_in_8bit"))
    kind, double = q.get("bnb_4bit_quant_type", "fp4"), bool(q.get("bnb_4bit_use_double_quant"))
    if four:
        known = {("nf4", True): "nf4", ("nf4", False): "nf4_single", ("fp4", False): "fp4_bnb"}
        if (kind, double) not in known:
            raise q.error("bnb_4bit_quant_type", f"no format for {quote_value(kind)}, double quantization {double}")
        return matrices(known[kind, double]), []
    if not eight:
        raise q.error("load_in_4bit", "neither load_in_4bit nor load_in_8bit is true")
    return matrices("int8"), []


def _mxfp4(q: Config) -> Read:
    """gpt-oss: the experts alone."""
    return {"expert": "mxfp4"}, []


METHODS: Mapping[str, Callable[[Config], Read]] = {
    "awq": _grouped, "gptq": _grouped, "bitsandbytes": _bitsandbytes, "compressed-tensors": compressed,
    "fbgemm_fp8": _fbgemm, "fp8": _fp8, "modelopt": modelopt, "modelopt_fp4": modelopt, "mxfp4": _mxfp4,
    "quark": quark, "torchao": torchao, "eetq": eetq, "quanto": quanto, "hqq": hqq, "exl2": exl, "exl3": exl,
    "bitnet": bitnet,
    **dict.fromkeys(("auto-round", "intel/auto-round"), autoround(_in_groups)),
}  # fmt: skip
"""`quant_method` to its reader."""
