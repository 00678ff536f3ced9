"""Which tensors of a GGUF file make up each weight of a model, and so the format that each is stored in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.importers.gguf_reader import TensorInfo

TABLES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tables that are computed, not learned."""

MATRICES = {
    "attention.w_q": ("attn_q", "attn_qkv"), "attention.w_k": ("attn_k", "attn_qkv"),
    "attention.w_v": ("attn_v", "attn_qkv"), "attention.w_o": ("attn_output",), "attention.w_q_down": ("attn_q_a",),
    "attention.w_q_nope": ("attn_q_b", "attn_q"), "attention.w_q_rope": ("attn_q_b", "attn_q"),
    "attention.w_kv_down": ("attn_kv_a_mqa",), "attention.w_k_rope": ("attn_kv_a_mqa",),
    "attention.w_uk": ("attn_k_b", "attn_kv_b"), "attention.w_uv": ("attn_v_b", "attn_kv_b"),
    "ffn.w_up": ("ffn_up",), "ffn.w_gate": ("ffn_gate", "ffn_up"), "ffn.w_down": ("ffn_down",),
    "moe.w_up": ("ffn_up_exps",), "moe.w_gate": ("ffn_gate_exps", "ffn_up_exps"), "moe.w_down": ("ffn_down_exps",),
    "shared.w_up": ("ffn_up_shexp",), "shared.w_gate": ("ffn_gate_shexp", "ffn_up_shexp"),
    "shared.w_down": ("ffn_down_shexp",), "moe.w_router": ("ffn_gate_inp",),
    "moe.w_shared_gate": ("ffn_gate_inp_shexp",),
}  # fmt: skip
"""End of a weight's name -> tensors of a layer that may hold it; what is not here are vectors."""

OUTSIDE = {
    "embedding.tokens": "token_embd",
    "embedding.positions": "position_embd",
    "head.w_logits": "output",
}

_LAYER = re.compile(r"blk\.(\d{1,6})\.")


def matched(document: dict[str, Any], tensors: Sequence[TensorInfo]) -> dict[str, str]:
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
            result[weight.tensor.name] = _joined(Counter(t.format for t in found))
            used |= {t.name for t in found}
    own = sum(int(product(w.tensor.axes.values())) * len(w.layers) for w in weights)
    count = sum(map(_times, document["layers"]))
    learned = [t for t in tensors if t.name not in TABLES and not _ahead(t.name, count)]
    _same(own, sum(t.elements for t in learned), learned, used)
    sizes = Counter[str]()
    for tensor in learned:
        if tensor.name not in used:
            sizes[tensor.format or "fp32"] += tensor.elements
    usual = Counter[str]()
    for tensor in learned:
        usual[tensor.format] += tensor.elements if tensor.name in used else 0
    main = {"linear": usual.most_common(1)[0][0]} if usual else {}
    return {"default": _joined(sizes) if sizes else "fp32", **main, **result}


def _names(name: str, layers: Sequence[int], named: dict[str, TensorInfo]) -> Iterator[str]:
    """The tensors that hold a weight, one for each layer."""
    if name in OUTSIDE:
        yield f"{OUTSIDE[name]}.weight"
        return
    end = ".".join(name.split(".")[-2:])
    for layer in layers:
        options = [f"blk.{layer}.{short}.weight" for short in MATRICES.get(end, ())]
        yield from [option for option in options if option in named][:1]


def _joined(counts: Counter[str]) -> str:
    """Copies in their formats, as text."""
    if len(counts) == 1:
        return next(iter(counts))
    return "+".join(f"{n}*{fmt}" for fmt, n in sorted(counts.items()))


def _ahead(name: str, layers: int) -> bool:
    """Whether a tensor belongs to modules that predict further tokens: layers behind the last."""
    found = _LAYER.match(name)
    return found is not None and int(found[1]) >= layers


def _times(layer: dict[str, Any]) -> int:
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
        hints=["the architecture has parts that archsim does not read from gguf files yet: write a spec"],
    )  # fmt: skip
