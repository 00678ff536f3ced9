"""Quantised checkpoints of AMD Quark, torchao, AutoRound, EETQ and Quanto: their schemes as formats.

Keys as in quark 0.10 (`quark.torch.export`), torchao's `AOBaseConfig` serialisation, auto-round 0.8 and transformers'
`EetqConfig` and `QuantoConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from archsim.importers.hf.config import Config, quote_value
from archsim.importers.hf.groups import FLOAT4, PLAIN, WITH_ZEROS, Read, format_for, matrices
from archsim.importers.hf.ignored import Rule

# ---------------------------------------------------------------------- Quark
FLOAT8 = {"per_tensor": "fp8", "per_channel": "fp8_channel", "per_group": "mxfp8"}
INTEGER8 = {"per_tensor": "int8", "per_channel": "int8"}


def quark(q: Config) -> Read:
    """One scheme for all linear layers, and schemes of modules by name or pattern."""
    q.skip("export", "algo_config", "kv_cache_quant_config", "kv_cache_post_rope", "quant_mode", "softmax_quant_spec",
           "version", "kv_cache_group")  # fmt: skip
    q.only("layer_type_quant_config", {})
    whole, own = q.child("global_quant_config"), q.child("layer_quant_config")
    if whole is None:
        raise q.error("global_quant_config", "missing")
    rules: list[Rule] = []
    for name in own.data if own is not None else ():
        scheme = own.child(name) if own is not None else None
        rules.append((name, None if scheme is None else _quark_scheme(scheme)))
    rules += [(str(name), None) for name in q.get("exclude") or ()]
    usual = _quark_scheme(whole)
    return (matrices(usual) if usual is not None else {}), rules


def _quark_scheme(scheme: Config) -> str | None:
    """The format of one scheme's weights; None where they are not quantised."""
    scheme.skip("output_tensors", "bias", "target_device")
    weight, activations = scheme.child("weight"), scheme.get("input_tensors")
    if weight is None:
        return None
    weight.skip("is_dynamic", "ch_axis", "symmetric", "round_method", "scale_type", "observer_cls", "scale_format",
                "mx_element_dtype", "scale_calculation_mode", "is_scale_quant", "zero_point_type")  # fmt: skip
    kind, scheme_name, size = weight.get("dtype"), weight.get("qscheme"), weight.get("group_size")
    if kind in ("fp8_e4m3", "fp8_e5m2"):
        return format_for(weight, "qscheme", FLOAT8, scheme_name)
    if kind == "fp4":
        return format_for(weight, "group_size", FLOAT4, size)
    if kind in ("fp6_e2m3", "fp6_e3m2"):
        return "mxfp6"
    if kind in ("int8", "uint8"):
        return "w8a8" if activations else format_for(weight, "qscheme", INTEGER8, scheme_name)
    if kind in ("int4", "uint4"):
        return format_for(weight, "group_size", PLAIN if weight.get("symmetric", True) else WITH_ZEROS, size)
    raise weight.error("dtype", f"no format for {quote_value(kind)}")


# ---------------------------------------------------------------------- torchao
def torchao(q: Config) -> Read:
    """A scheme for all linear layers, by the name of its class or by torchao's older names."""
    q.skip("quant_type_kwargs", "untie_embedding_weights")
    q.only("include_input_output_embeddings", False)
    kind = q.get("quant_type")
    if kind == "int4_weight_only":
        sizes = q.get("quant_type_kwargs") or {}
        return matrices(format_for(q, "quant_type_kwargs", ASYMMETRIC, sizes.get("group_size", 128))), []
    if isinstance(kind, str):
        return matrices(format_for(q, "quant_type", TORCHAO, kind)), []
    held = q.child("quant_type")
    scheme = held.child("default") if held is not None else None
    if held is None or scheme is None or len(held.data) != 1:
        raise q.error("quant_type", "only one `default` scheme is supported")
    scheme.skip("_version", "_data")
    name = scheme.get("_type")
    data = scheme.data.get("_data")
    sizes = dict(data) if isinstance(data, Mapping) else {}
    return matrices(_torchao_scheme(scheme, str(name), sizes)), []


TORCHAO = {"int8_weight_only": "int8", "int8_dynamic_activation_int8_weight": "w8a8",
           "float8_weight_only": "fp8_channel", "Int8WeightOnlyConfig": "int8",
           "Int8DynamicActivationInt8WeightConfig": "w8a8", "Float8WeightOnlyConfig": "fp8_channel"}  # fmt: skip
"""Schemes of 8 bits whose scales are one for each output."""


def _torchao_scheme(scheme: Config, name: str, sizes: Mapping[str, object]) -> str:
    if name == "Float8DynamicActivationFloat8WeightConfig":
        return "fp8_channel" if "PerRow" in str(sizes.get("granularity")) else "fp8"
    if name in ("Int8DynamicActivationInt4WeightConfig", "Int8DynamicActivationIntxWeightConfig"):
        inner = sizes.get("weight_granularity")
        held = inner.get("_data") if isinstance(inner, Mapping) else sizes
        kind = str(sizes.get("weight_dtype") or "int4")
        if "int4" not in kind:
            raise scheme.error("_data.weight_dtype", f"no format for {quote_value(kind)}; known: int4")
        size = held.get("group_size") if isinstance(held, Mapping) else None
        return format_for(scheme, "_data.group_size", PLAIN, size)
    if name == "Int4WeightOnlyConfig":
        return format_for(scheme, "_data.group_size", ASYMMETRIC, sizes.get("group_size", 128))
    return format_for(scheme, "_type", TORCHAO, name)


ASYMMETRIC = {128: "int4_asym", 64: "int4_asym_g64", 32: "int4_asym_g32"}
"""Size of a group to format, of 4 bits with a scale and a zero point of 16 bits each."""


# ---------------------------------------------------------------------- HQQ
def hqq(q: Config) -> Read:
    """4-bit integers whose scales and zero points are not quantised themselves, in the modules not on the list."""
    held = q.child("quant_config")
    own = held.child("weight_quant_params") if held is not None else None
    if held is None or own is None:
        raise q.error("quant_config", "no `weight_quant_params`, which hqq has for all linear layers")
    for key in ("scale_quant_params", "zero_quant_params"):
        held.only(key)
    held.skip("offload_meta")
    own.skip("axis", "channel_wise", "optimize", "round_zero", "view_as_float", "packing")
    own.only("nbits", 4)
    return matrices(format_for(own, "group_size", ASYMMETRIC, own.get("group_size"))), []


# ---------------------------------------------------------------------- BitNet
def bitnet(q: Config) -> Read:
    """Three values: four weights to a byte, or 16 bits that are rounded whenever they are used (online)."""
    q.only("linear_class", "bitlinear", "autobitlinear")
    q.skip("use_rms_norm", "rms_norm_eps")
    packed = q.only("quantization_mode", "offline", "online") != "online"
    return (matrices("bitnet_2bit=1*2bit@int8") if packed else {}), []


# ---------------------------------------------------------------------- ExLlama
def exl(q: Config) -> Read:
    """EXL2 and EXL3: an average of bits in the layers, and bits of the output table."""
    q.skip("calibration", "out_scales", "tensor_storage")
    name, average, head = q.get("quant_method"), Fraction(str(q.number("bits"))), q.count("head_bits", default=6)
    low, copies = int(average), average.denominator
    high = average.numerator - low * copies
    if not 1 <= low <= 8 or copies > 1000:
        raise q.error("bits", f"no format for {quote_value(q.get('bits'))}: not 1 to 8 bits per weight")
    parts = "+".join(f"{n}*{bits}bit" for n, bits in ((copies - high, low), (high, low + 1)) if n)
    return {**matrices(f"{name}_{float(average):g}bpw={parts}@fp16"), "head": f"{name}_{head}bpw=1*{head}bit@fp16"}, []


# ---------------------------------------------------------------------- 8 bits by row
def eetq(q: Config) -> Read:
    """8-bit integers with a scale for each output."""
    q.only("weights", "int8")
    return matrices("int8"), []


def quanto(q: Config) -> Read:
    """8-bit integers or floats with a scale for each output."""
    known = {"int8": "int8", "float8": "fp8_channel"}
    return matrices("w8a8" if q.get("activations") == "int8" else format_for(q, "weights", known, q.get("weights"))), []


# ---------------------------------------------------------------------- AutoRound
FLOATS = {"mx_fp": {32: "mxfp4"}, "nv_fp": {16: "nvfp4"}, "fp": {32: "mxfp4"}}
"""Kinds of 4-bit floats, and size of a group, to format."""


def autoround(grouped: Callable[[Config, Config, str], str]) -> Callable[[Config], Read]:
    """The reader of AutoRound's configs. grouped: the format of bits and a group size, packed as GPTQ or AWQ does."""

    def read(q: Config) -> Read:
        q.skip("autoround_version", "iters", "low_gpu_mem_usage", "nsamples", "seqlen", "amp", "enable_quanted_input",
               "lr", "minmax_lr", "enable_minmax_tuning", "scale_dtype", "gradient_accumulate_steps", "act_bits",
               "act_group_size", "act_sym", "act_dynamic", "act_data_type", "super_bits", "super_group_size",
               "to_quant_block_names", "supported_types", "quant_block_list", "static_kv_dtype",
               "static_attention_dtype", "enable_norm_bias_tuning", "train_bs")  # fmt: skip
        packing, kind = str(q.first("packing_format", "backend") or ""), str(q.get("data_type") or "int")
        if kind != "int":
            q.skip("bits", "sym")
            known = FLOATS.get(kind.split("4")[0], {})
            return matrices(format_for(q, "group_size", known, q.get("group_size"))), []
        method = "awq" if "awq" in packing else "gptq"
        rules: list[Rule] = []
        extra = q.child("extra_config")
        for name in extra.data if extra is not None else ():
            own = extra.child(name) if extra is not None else None
            if own is None:
                continue
            own.skip(
                "sym", "data_type", "scale_dtype", *(key for key in own.data if key.startswith(("act_", "super_")))
            )
            plain = own.get("bits") is not None and own.get("bits") >= PLAIN_BITS
            rules.append((name, None if plain else grouped(q, own, method)))
        return matrices(grouped(q, q, method)), rules

    return read


PLAIN_BITS = 16
"""Bits of weights that are left as they were."""
