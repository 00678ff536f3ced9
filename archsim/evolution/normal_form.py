"""Specs as plain trees in one normal form, in which two architectures can be compared and mixed field by field.

A tree is a mapping with the name of its class under `class` and every field, defaults filled in. What can be written in
two ways is written in one: heads of keys that equal the heads are `None`, biases are flags, a gated network is `gated`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archsim.blocks.dispatch import Spec

Tree = dict[str, Any]
"""A spec in normal form."""

CLASS = "class"


def tree(value: Any) -> Any:
    """A spec, or what a field of one holds, in normal form."""
    if isinstance(value, Spec):
        name = type(value).__name__
        found = {CLASS: name} | {field: tree(getattr(value, field)) for field in type(value).model_fields}
        return NORMAL[name](value, found) if name in NORMAL else found
    if isinstance(value, (tuple, list)):
        return tuple(tree(item) for item in value)
    return dict(value) if isinstance(value, dict) else value


def is_tree(value: Any) -> bool:
    """Whether a value is a spec in normal form."""
    return isinstance(value, dict) and CLASS in value


def document(value: Any) -> Any:
    """The document of a tree, as a spec file has it: fields that are None are left out."""
    if isinstance(value, tuple):
        return [document(item) for item in value]
    if not is_tree(value):
        return value
    name = value[CLASS]
    value = WRITTEN[name](value) if name in WRITTEN else value
    return {field: document(item) for field, item in value.items() if field != CLASS and item is not None}


def frozen(value: Any) -> Any:
    """A tree as something that can be compared and hashed."""
    if isinstance(value, dict):
        return tuple(sorted((key, frozen(item)) for key, item in value.items()))
    return tuple(map(frozen, value)) if isinstance(value, (tuple, list)) else (type(value).__name__, value)


def kind(value: Any) -> str:
    """What a block is called: its kind, of attention and feed-forward networks by what they do."""
    if value is None:
        return "none"
    if not is_tree(value):
        return str(value)
    if value[CLASS] == "Attention":
        return sharing(value)
    if value[CLASS] in NETWORKS:
        return written_network(value)["kind"]  # type: ignore[no-any-return]
    return str(value.get("kind", "yes"))


def sharing(attention: Tree) -> str:
    """mha, gqa or mqa."""
    shared = attention.get("n_kv_heads")
    return "mha" if shared is None else "mqa" if shared == 1 else "gqa"


# ---------------------------------------------------------------------- into normal form
def _attention(spec: Any, found: Tree) -> Tree:
    del found["kind"], found["bias"]
    found["n_kv_heads"] = None if spec.kv_heads == spec.n_heads else spec.kv_heads
    found["d_head_v"] = None if spec.d_head_v == spec.d_head else spec.d_head_v
    found["qkv_bias"] = tuple(spec.biased(name) for name in ("q", "k", "v"))
    found["out_bias"] = spec.bias if spec.out_bias is None else spec.out_bias
    return found


def _mla(spec: Any, found: Tree) -> Tree:
    found["norm"][CLASS] = "LatentNorm"
    return found


def _network(spec: Any, found: Tree) -> Tree:
    del found["kind"]
    return found | {"gated": spec.gated, "activation": spec.act}


def _moe(spec: Any, found: Tree) -> Tree:
    found["expert"][CLASS] = "Expert"
    if found["dense"] is not None:
        found["dense"][CLASS] = "Beside"
    return found


def _norm(spec: Any, found: Tree) -> Tree:
    return found | {"bias": spec.has_bias}


def _tower(spec: Any, found: Tree) -> Tree:
    return {field: value for field, value in found.items() if field != "note"}


def _layer(spec: Any, found: Tree) -> Tree:
    return {field: value for field, value in found.items() if field not in ("name", "repeat", "layers")}


NORMAL: dict[str, Callable[[Any, Tree], Tree]] = {
    "Attention": _attention,
    "Mla": _mla,
    "Ffn": _network,
    "Shared": _network,
    "Moe": _moe,
    "Norm": _norm,
    "QkNorm": _norm,
    "Layer": _layer,
    "Tower": _tower,
}
"""Class -> what its normal form has in place of some fields."""

NETWORKS = ("Ffn", "Expert", "Beside", "Shared")
_GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu", "relu": "reglu"}


# ---------------------------------------------------------------------- and back
def _written_attention(value: Tree) -> Tree:
    own, (q, k, v) = dict(value), value["qkv_bias"]
    flags = q if q == k == v else {"q": q, "k": k, "v": v}
    return own | {"kind": sharing(value), "bias": value["out_bias"], "qkv_bias": flags}


def written_network(value: Tree) -> Tree:
    """A feed-forward network with its `kind` instead of `gated`."""
    own = {field: item for field, item in value.items() if field != "gated"}
    return own | {"kind": _GATED.get(value["activation"], "glu") if value["gated"] else "mlp"}


WRITTEN: dict[str, Callable[[Tree], Tree]] = {
    "Attention": _written_attention,
    **dict.fromkeys(NETWORKS, written_network),
}
"""Class -> its fields as a document has them."""
