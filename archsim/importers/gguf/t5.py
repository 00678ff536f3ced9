"""T5 in GGUF files: an encoder and a decoder, or the encoder alone."""

from __future__ import annotations

from collections.abc import Mapping

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.importers.gguf.keys import Keys
from archsim.importers.gguf.reader import TensorInfo

Doc = JsonObject
ARCHITECTURES = ("t5", "t5encoder")


def describe(keys: Keys, tensors: Mapping[str, TensorInfo], doc: Doc) -> Doc:
    """The document; `doc` has the name and the sizes of the table."""
    doc = {key: value for key, value in doc.items() if key != "max_context"}  # relative positions have no end
    norm = {"kind": "rmsnorm", "eps": keys.real("attention.layer_norm_rms_epsilon", 1e-6)}
    count = keys.count("block_count")
    encoder = {"final_norm": norm, "layers": [_layer(keys, tensors, "enc", count, norm)]}
    if keys.architecture == "t5encoder":
        return {"architecture": "encoder"} | doc | encoder
    count = keys.number("decoder_block_count") or count
    tied = "output.weight" not in tensors
    head = {"tied": tied} | ({"scale": doc["d_model"] ** -0.5} if tied else {})
    decoder = {"final_norm": norm, "layers": [_layer(keys, tensors, "dec", count, norm)], "head": head}
    return {"architecture": "encoder-decoder"} | doc | {"encoder": encoder} | decoder


def _layer(keys: Keys, tensors: Mapping[str, TensorInfo], side: str, count: int, norm: Doc) -> Doc:
    """The layers of one side, which are all alike: those of the first one's tensors."""
    if not 1 <= count <= 2048:
        raise SpecError(f"{quote(keys.file)} states {count:,} layers", code="E110")
    heads = keys.count("attention.head_count")
    width = _shape(tensors, f"{side}.blk.0.attn_q")[1]
    buckets = _shape(tensors, f"{side}.blk.0.attn_rel_b")[-1]
    if width % heads:
        raise SpecError(f"{heads} heads do not divide {width}", code="E110")
    plain: Doc = {"kind": "mha", "n_heads": heads, "d_head": width // heads, "scale": 1.0}
    position = {"position": {"kind": "t5", "buckets": buckets, "max_distance": 128}}
    mask = {"mask": {"kind": "bidirectional"}} if side == "enc" else {}
    gated = f"{side}.blk.0.ffn_gate.weight" in tensors
    act = {"kind": "geglu", "activation": "gelu_tanh"} if gated else {"kind": "mlp", "activation": "relu"}
    ffn = act | {"d_ff": _shape(tensors, f"{side}.blk.0.ffn_up")[1]}
    crossed = {"cross_attention": plain} if side == "dec" else {}
    repeat = {"repeat": count} if count > 1 else {}
    return repeat | {"norm": norm, "attention": plain | position | mask, **crossed, "ffn": ffn}


def _shape(tensors: Mapping[str, TensorInfo], name: str) -> tuple[int, ...]:
    found = tensors.get(f"{name}.weight")
    if found is None or len(found.shape) < 2:
        raise SpecError(f"the file has no matrix {quote(name)}", code="E109")
    # The table of relative positions is heads x buckets, the row first.
    return found.shape
