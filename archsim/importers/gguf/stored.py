"""Which tensors of a GGUF file make up each weight of a model, and so the format that each is stored in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.importers.gguf.reader import TensorInfo

TABLES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tables that are computed, not learned."""

FIXED = "layer_output_scale.weight"
"""A factor on a layer's output, which is set rather than learned."""

MATRICES = {
    "attention.w_q": ("attn_q", "attn_qkv"), "attention.w_k": ("attn_k", "attn_qkv"),
    "attention.w_v": ("attn_v", "attn_qkv"), "attention.w_o": ("attn_output", "attn_o"),
    "attention.w_q_down": ("attn_q_a",),
    "attention.w_q_nope": ("attn_q_b", "attn_q"), "attention.w_q_rope": ("attn_q_b", "attn_q"),
    "attention.w_kv_down": ("attn_kv_a_mqa",), "attention.w_k_rope": ("attn_kv_a_mqa",),
    "attention.w_uk": ("attn_k_b", "attn_kv_b"), "attention.w_uv": ("attn_v_b", "attn_kv_b"),
    "per_layer.w_gate": ("inp_gate",), "per_layer.w_up": ("proj",),
    "ffn.w_up": ("ffn_up",), "ffn.w_gate": ("ffn_gate", "ffn_up"), "ffn.w_down": ("ffn_down",),
    "cross_attention.w_q": ("cross_attn_q",), "source.w_k": ("cross_attn_k",), "source.w_v": ("cross_attn_v",),
    "cross_attention.w_o": ("cross_attn_o",),
    "attention.w_gate": ("attn_gate", "attn_q"), "mixer.w_x": ("ssm_in", "shortconv.in_proj"),
    "mixer.w_z": ("attn_gate", "ssm_in"), "mixer.w_B": ("ssm_x", "ssm_in", "shortconv.in_proj"),
    "mixer.w_C": ("ssm_x", "ssm_in", "shortconv.in_proj"), "mixer.w_dt": ("ssm_dt", "ssm_in"),
    "mixer.w_dt_down": ("ssm_x",), "mixer.w_out": ("ssm_out", "shortconv.out_proj"), "mixer.w_o": ("ssm_out",),
    "mixer.w_q": ("attn_qkv", "ssm_in"), "mixer.w_k": ("attn_qkv", "ssm_in"), "mixer.w_v": ("attn_qkv", "ssm_in"),
    "mixer.w_beta": ("ssm_beta", "ssm_ba"), "mixer.w_decay": ("ssm_alpha", "ssm_ba"),
    "moe.w_up": ("ffn_up_exps", "ffn_gate_up_exps"), "moe.w_down": ("ffn_down_exps",),
    "moe.w_gate": ("ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"),
    "shared.w_up": ("ffn_up_shexp",), "shared.w_gate": ("ffn_gate_shexp", "ffn_up_shexp"),
    "shared.w_down": ("ffn_down_shexp",), "moe.w_router": ("ffn_gate_inp",),
    "moe.w_shared_gate": ("ffn_gate_inp_shexp",),
}  # fmt: skip
"""End of a weight's name -> tensors of a layer that may hold it; what is not here are vectors."""

OUTSIDE = {
    "embedding.tokens": "token_embd",
    "embedding.positions": "position_embd",
    "embedding.token_types": "token_types",
    "head.w_logits": "output",
    "per_layer.tokens": "per_layer_token_embd",
    "per_layer.w_context": "per_layer_model_proj",
}


def file_name(name: str, layer: int) -> str | None:
    """The tensor of a GGUF file that usually holds a weight of a layer; None for vectors and what has no usual name."""
    if name in OUTSIDE:
        return f"{OUTSIDE[name]}.weight"
    usual = MATRICES.get(".".join(name.split(".")[-2:]))
    return None if usual is None else f"blk.{layer}.{usual[0]}.weight"


_LAYER = re.compile(r"blk\.(\d{1,6})\.")


_EXPERT = re.compile(r"(blk\.\d{1,6}\.ffn_(?:gate|up|down))\.(\d{1,5})\.weight")


def stack_layers(tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
    """The tensors with experts that stand one by one, as files before 2024 have them, put together.

    Raises SpecError where those of a layer differ.
    """
    rest, experts = list[TensorInfo](), dict[str, list[TensorInfo]]()
    for tensor in tensors:
        found = _EXPERT.fullmatch(tensor.name)
        (experts.setdefault(found[1], []) if found else rest).append(tensor)
    for name, own in experts.items():
        if len({(t.shape, t.format) for t in own}) > 1:
            raise SpecError(f"the experts of {quote(name)} are not all stored in the same format", code="E110")
        shape = (*own[0].shape, len(own))
        rest.append(TensorInfo(f"{name}_exps.weight", shape, own[0].format, sum(t.bytes for t in own)))
    return rest


def formats_by_weight(document: JsonObject, tensors: Sequence[TensorInfo]) -> dict[str, str]:
    """Format per weight in the words of `spec.format.stored`, "default" for vectors.

    Raises SpecError where the model that was read is not the one that the file holds.
    """
    from archsim.base.number import product
    from archsim.spec.load import model_from
    from archsim.spec.stored_weights import stored_weights

    _, weights = stored_weights(model_from(document))
    named, used = {t.name: t for t in tensors}, set[str]()
    result: dict[str, str] = {}
    for weight in weights:
        found = [named[name] for name in _names(weight.tensor.name, weight.layers, named)]
        if found:
            result[weight.tensor.name] = join_formats(Counter(t.format for t in found))
            used |= {t.name for t in found}
    own = sum(int(product(w.tensor.axes.values())) * len(w.layers) for w in weights)
    count = sum(map(_times, document["layers"]))
    learned = [t for t in tensors if not (t.name in TABLES or t.name.endswith(FIXED) or _ahead(t.name, count))]
    _same(own, sum(t.elements for t in learned), learned, used)
    sizes = Counter[str]()
    for tensor in learned:
        if tensor.name not in used:
            sizes[tensor.format or "fp32"] += tensor.elements
    usual = Counter[str]()
    for tensor in learned:
        usual[tensor.format] += tensor.elements if tensor.name in used else 0
    main = {"linear": usual.most_common(1)[0][0]} if usual else {}
    return {"default": join_formats(sizes) if sizes else "fp32", **main, **result}


def _names(name: str, layers: Sequence[int], named: dict[str, TensorInfo]) -> Iterator[str]:
    """The tensors that hold a weight, one for each layer."""
    if name in OUTSIDE:
        yield from [f"{OUTSIDE[name]}.weight"] if f"{OUTSIDE[name]}.weight" in named else []
        return
    end = ".".join(name.split(".")[-2:])
    two = "enc.blk.0.attn_q.weight" in named  # of T5's sides each counts its layers from 0
    side = (
        "" if not two else "enc." if name.startswith("encoder.") or "dec.blk.0.attn_q.weight" not in named else "dec."
    )
    first = min(layers, default=0) if side == "dec." else 0
    for layer in layers:
        options = [f"{side}blk.{layer - first}.{short}.weight" for short in MATRICES.get(end, ())]
        yield from [option for option in options if option in named][:1]


def join_formats(counts: Counter[str]) -> str:
    """Copies in their formats, as text."""
    if len(counts) == 1:
        return next(iter(counts))
    return "+".join(f"{n}*{fmt}" for fmt, n in sorted(counts.items()))


def _ahead(name: str, layers: int) -> bool:
    """Whether a tensor belongs to modules that predict further tokens: layers behind the last."""
    found = _LAYER.match(name)
    return found is not None and int(found[1]) >= layers


def _times(layer: JsonObject) -> int:
    inner = layer.get("layers")
    return int(layer.get("repeat", 1)) * (sum(map(_times, inner)) if inner else 1)


def _same(own: int, stored: int, tensors: Sequence[TensorInfo], used: set[str]) -> None:
    """The model must have exactly the file's parameters."""
    if own == stored:
        return
    odd = [t.name for t in tensors if t.name not in used and len(t.shape) > 1]
    listed = ", ".join(quote(name, 60) for name in odd[:4])
    more = f"; not understood: {listed}" if odd else ""
    raise SpecError(
        f"the file holds {stored:,} parameters, the model read from it {own:,}{more}", code="E110",
        hints=["the architecture has parts that archsim does not read from GGUF files yet: write a spec"],
    )  # fmt: skip
