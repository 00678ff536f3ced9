"""Pieces that the families of Hugging Face configs share: heads, norms, positions, experts, the frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.pattern import Entry, stack

Doc = JsonObject

ACTIVATIONS = {
    "relu": "relu", "relu2": "relu2", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu"}


def rmsnorm(c: Config, key: str = "rms_norm_eps", **more: object) -> Doc:
    """An RMSNorm with the config's epsilon."""
    return {"kind": "rmsnorm", "eps": c.number(key)} | more


def layernorm(c: Config, key: str = "layer_norm_eps", **more: object) -> Doc:
    """A LayerNorm with the config's epsilon."""
    return {"kind": "layernorm", "eps": c.number(key)} | more


def activation(c: Config, *keys: str) -> str:
    """The name here of the config's activation function."""
    name = c.first(*keys)
    if name not in ACTIVATIONS:
        raise c.error(keys[0], f"unknown activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def glu(act: str, d_ff: int, **more: object) -> Doc:
    """A gated feed-forward layer."""
    named = {} if act in ("silu", "gelu", "relu") else {"activation": act}
    return {"kind": GATED.get(act, "glu"), **named, "d_ff": d_ff} | more


def mlp(act: str, d_ff: int, bias: bool) -> Doc:
    """A feed-forward layer of two matrices."""
    return {"kind": "mlp", "activation": act, "d_ff": d_ff} | ({"bias": True} if bias else {})


def heads(n_heads: int, n_kv_heads: int, d_head: int, **more: object) -> Doc:
    """Softmax attention by its number of key/value heads."""
    if n_kv_heads == n_heads:
        return {"kind": "mha", "n_heads": n_heads, "d_head": d_head} | more
    if n_kv_heads == 1:
        return {"kind": "mqa", "n_heads": n_heads, "d_head": d_head} | more
    return {"kind": "gqa", "n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_head": d_head} | more


def attention(c: Config, **more: object) -> Doc:
    """Attention of a decoder in the naming that began with LLaMA; without key/value heads it is MHA."""
    n_heads = c.count("num_attention_heads")
    n_kv_heads = c.count("num_key_value_heads", default=n_heads)
    return heads(n_heads, n_kv_heads, head_dim(c, n_heads)) | more


def head_dim(c: Config, n_heads: int) -> int:
    """The explicit head size, else an even share of the width."""
    return c.count("head_dim", default=c.count("hidden_size") // n_heads)


def moe(n_experts: int, top_k: int, expert: Doc, router: Doc | None = None, **more: object) -> Doc:
    """A mixture of experts."""
    routed = {"kind": "moe", "n_experts": n_experts, "top_k": top_k, "expert": expert}
    return routed | {k: v for k, v in more.items() if v is not None} | ({"router": router} if router else {})


# ---------------------------------------------------------------------- rotary positions
def rope(c: Config, d_head: int, layer_type: str | None = None, **more: object) -> Doc:
    """Rotary positions from `rope_parameters` (for all layers or per layer type) or the older keys."""
    theta, partial, scaling = _rope_parameters(c, layer_type)
    result: Doc = {"kind": "rope", "theta": _whole(theta)}
    if partial is not None and int(d_head * partial) != d_head:
        dim = int(d_head * partial)
        result["dim"] = dim + dim % 2  # frequencies come in pairs: an odd width has one more
    return result | more | ({"scaling": scaling} if scaling else {})


def _rope_parameters(c: Config, layer_type: str | None) -> tuple[float, float | None, Doc | None]:
    """Base, share of the head that is rotated, and stretching, as transformers 5 fills them in
    (`convert_rope_params_to_dict`): what `rope_parameters` lacks comes from the older keys beside it, then from the
    class's own base, not from the defaults of a file without any.
    """
    default: JsonMapping = c.defaults.get("rope_parameters") or {}
    by_kind = False
    if layer_type is not None and layer_type in default:
        default, by_kind = default[layer_type], True
    c.skip("rope_parameters", "rope_scaling")
    given = next((c.child(key) for key in ("rope_scaling", "rope_parameters") if c.data.get(key)), None)
    if given is not None and layer_type in given.data:
        given.skip("full_attention", "sliding_attention", "original_max_position_embeddings", "rope_type")
        given = given.child(layer_type)  # type: ignore[arg-type]
    base, share = default.get("rope_theta"), default.get("partial_rotary_factor")
    if given is None:
        given = Config(default, {})
    else:
        given.defaults, base = {}, c.defaults.get("partial_theta", base)
        share = None if by_kind else share  # classes state a share apart from `rope_parameters`, but not by kind
    found = []
    for key, fallback in (("rope_theta", base), ("partial_rotary_factor", share)):
        stated = given.get(key), c.data.get(key), c.get(key), fallback
        found.append(next((value for value in stated if value is not None), None))
    theta, partial = found
    return 10000.0 if theta is None else theta, partial, rope_scaling(given)


LOCAL_GLOBAL = ("full_attention", "sliding_attention")

SCALINGS = {"linear": "linear", "dynamic": "ntk", "yarn": "yarn", "deepseek_yarn": "yarn", "llama3": "llama3",
            "longrope": "longrope", "su": "longrope"}  # fmt: skip
SCALING_FIELDS = {
    "factor": "factor", "original_max_position_embeddings": "original_max", "beta_fast": "beta_fast",
    "beta_slow": "beta_slow", "low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor",
    "mscale": "mscale", "mscale_all_dim": "mscale_all_dim", "attention_factor": "attention_factor",
    "truncate": "truncate", "short_factor": "short_factor", "long_factor": "long_factor",
}  # fmt: skip


def rope_scaling(c: Config) -> Doc | None:
    """How the rotary frequencies are stretched, or None."""
    kind = c.first("rope_type", "type")
    if c.get("mrope_section"):
        c.skip("interleaved")  # older name of `mrope_interleaved`
    c.skip("mrope_section", "mrope_interleaved", "max_position_embeddings", "llama_4_scaling_beta",
           "extrapolation_factor", "attn_factor", "finetuned", "alpha")  # fmt: skip
    if kind in (None, "default", "mrope", "proportional"):
        return None
    if kind not in SCALINGS:
        raise c.error("rope_type", f"unknown scaling {kind!r}; known: {', '.join(SCALINGS)}")
    result: Doc = {"kind": SCALINGS[kind]}
    for key, field in SCALING_FIELDS.items():
        value = c.get(key)
        if value is not None:
            result[field] = _whole(value)
    return result


def _whole(value: object) -> Any:
    """A float without a fraction as the integer it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ---------------------------------------------------------------------- the frame
def head(c: Config, **more: object) -> Doc:
    """The output side."""
    return {"tied": bool(c.get("tie_word_embeddings"))} | more


def decoder(
    c: Config, entries: Sequence[Entry], final_norm: Doc | None, *, output: Doc | None = None,
    embedding: Doc | None = None, context: str = "max_position_embeddings", width: str = "hidden_size",
) -> Doc:  # fmt: skip
    """A decoder-only document from its layers."""
    doc: Doc = {"d_model": c.count(width), "vocab_size": c.count("vocab_size")}
    if isinstance(c.get(context), int):
        doc["max_context"] = c.count(context)
    if embedding:
        doc["embedding"] = embedding
    if final_norm:
        doc["final_norm"] = final_norm
    return doc | stack(entries) | {"head": output if output is not None else head(c)}


def layer_types(
    c: Config, n: int, default: Sequence[str], known: Sequence[str] = LOCAL_GLOBAL, *,
    key: str = "layer_types", renamed: Mapping[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """The kind of attention of every layer: the truth where the config has it."""
    given = c.listed(key, n)
    if given is None:
        return list(default)
    found = [(renamed or {}).get(str(t), str(t)) for t in given]
    for kind in found:
        if kind not in known:
            raise c.error(key, f"unknown layer type {kind!r}; known: {', '.join(known)}")
    return found


def every_layer(doc: Doc, change: Callable[[Doc], Doc]) -> Doc:
    """The document with what all layers share and every layer changed, those inside of groups too."""

    def changed(layer: Doc) -> Doc:
        if "layers" in layer:
            return layer | {"layers": [changed(one) for one in layer["layers"]]}
        return change(layer)

    own = {"layer": change(doc["layer"])} if "layer" in doc else {}
    return doc | own | {"layers": [changed(layer) for layer in doc["layers"]]}


def every(n: int, step: int, yes: str, no: str, last: bool = False) -> list[str]:
    """`yes` in every `step`-th of n layers, `no` in the others. last: counted back from the last layer."""
    return [yes if (n - 1 - i if last else i + 1) % step == 0 else no for i in range(n)]


def sliding(window: int) -> Doc:
    """A causal sliding window."""
    return {"kind": "sliding", "window": window}
