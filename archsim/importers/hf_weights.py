"""How a checkpoint stores its weights, from `dtype` and `quantization_config`."""

from __future__ import annotations

from typing import Any

from archsim.importers.hf_config import Config

KNOWN = "awq, bitsandbytes, compressed-tensors, fp8, gptq, modelopt, mxfp4"
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def weights(c: Config) -> dict[str, str]:
    """Format per tensor class. Quantised are the matrices of the layers, not tables, norms and routers."""
    name = c.first("dtype", "torch_dtype")
    name = str(name).removeprefix("torch.") if name is not None else "bfloat16"
    if name not in DTYPES:
        raise c.error("torch_dtype", f"unknown {name!r}; known: {', '.join(DTYPES)}")
    result = {"default": DTYPES[name]}
    quantised = c.child("quantization_config")
    if quantised is None:
        return result
    method = quantised.get("quant_method")
    quantised.skip(*quantised.data)
    formats = _formats(quantised, str(method))
    return result | formats


def _formats(q: Config, method: str) -> dict[str, str]:
    if method == "mxfp4":
        return {"expert": "mxfp4"}
    if method == "fp8":
        return _matrices("fp8_block" if q.get("weight_block_size") else "fp8")
    if method in ("awq", "gptq"):
        bits, group = q.get("bits", 4), q.get("group_size", 128)
        size = f"_g{group}" if bits == 4 and isinstance(group, int) and group > 0 else ""
        return _matrices(f"{method}_int{bits}{size}")
    if method in ("compressed-tensors", "modelopt") or "config_groups" in q.data:
        return _compressed(q)
    if method == "bitsandbytes":
        return _matrices("nf4" if q.get("load_in_4bit") else "int8")
    raise q.error("quant_method", f"unknown {method!r}; known: {KNOWN}")


def _compressed(q: Config) -> dict[str, str]:
    """One scheme for all groups; experts alone where the attention is on the list of exceptions."""
    groups: dict[str, Any] = q.get("config_groups") or {}
    schemes = [group.get("weights") or {} for group in groups.values()]
    if any(scheme != schemes[0] for scheme in schemes):
        raise q.error("config_groups", "several weight formats in one checkpoint are not supported")
    spec = schemes[0] if schemes else {}
    bits, kind, size = spec.get("num_bits"), spec.get("type"), spec.get("group_size")
    if kind == "float" and bits == 8:
        name = "fp8_block" if spec.get("block_structure") else "fp8"
    elif kind == "int" and bits == 4:
        name = "int4_g32" if size == 32 else f"gptq_int4_g{size}"
    elif kind == "int" and bits == 8:
        name = "w8a8_int8"
    elif kind == "float" and bits == 4:
        name = "nvfp4"
    else:
        raise q.error("config_groups", f"unknown weight format: {kind} of {bits} bits")
    experts_only = any("_attn" in str(pattern) for pattern in q.get("ignore") or ())
    return {"expert": name} if experts_only else _matrices(name)


def _matrices(name: str) -> dict[str, str]:
    return {"linear": name, "expert": name}
