"""GGUF files to spec documents: shapes and presence of the tensors say what the layers are, keys the rest.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; tensor names: `gguf-py/gguf/constants.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.importers.gguf.layers import ENCODERS, GEMMA4, Layers, check_gemma4, gemma4_embedding, gemma4_layers
from archsim.importers.gguf.reader import ENCODER, Header, Keys, TensorInfo, encoder_files, read_gguf
from archsim.importers.gguf.stored import formats_by_weight, stack_layers
from archsim.importers.hf.pattern import stack

KNOWN = """
arcee baichuan bert cohere2 command-r dbrx deci deepseek deepseek2 dots1 ernie4_5 ernie4_5-moe exaone falcon
falcon-h1 gemma gemma2 gemma3 gemma4 glm4 glm4moe gpt-oss gpt2 gptneox granite granitehybrid granitemoe grok
hunyuan-dense hunyuan-moe internlm2 jamba lfm2 lfm2moe llama mamba mamba2 mimo2 minicpm minimax-m2 mistral3
mixtral nemotron nemotron_h nemotron_h_moe nomic-bert olmo olmo2 olmoe orion phi2 phi3 phimoe qwen2 qwen2moe
qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder
starcoder2 t5 t5encoder xverse
""".split()  # noqa: SIM905
"""Architectures that are read: softmax or latent attention, recurrent mixers, feed-forward layers."""

REFUSED = {
    "gemma3n": "its AltUp streams and per-layer embeddings are not read from GGUF files",
    "kimi-linear": "Kimi delta attention cannot be expressed",
    "llama4": "its layers without positions and its chunked attention are not read from GGUF files",
    "modern-bert": "its sliding windows are not read from GGUF files",
    "plamo2": "its layers cannot be expressed",
    "rwkv6": "its WKV recurrence and token shift cannot be expressed in a spec",
    "rwkv7": "its tensors are not read yet; its config.json is",
}
"""Architecture -> why it is refused."""

MAX_LAYERS = 2048


def from_gguf(path: Path) -> JsonObject:
    """The document of a GGUF file, its weights stored as the file has them, with the encoders of a file beside it.

    Raises SpecError for a file that cannot be read, an architecture that is not among those known, and for
    tensors that the architecture does not explain.
    """
    document, beside = document_of(read_gguf(path)), encoder_files(path)
    if not beside:
        return document
    from archsim.importers.gguf.encoders import with_encoders  # loads the readers of configs

    return with_encoders(document, beside)


def document_of(header: Header) -> JsonObject:
    """The document of a header. Raises SpecError as `from_gguf`."""
    header.tensors = stack_layers(header.tensors)
    document = describe(header)
    return document | {"weights": formats_by_weight(document, header.tensors)}


def describe(header: Header) -> JsonObject:
    """The document without its weights' formats."""
    keys = Keys(header)
    if keys.architecture == ENCODER:
        hint = "pass the language model's file: an encoder file next to it is read with it"
        raise SpecError(f"{quote(header.path.name)} holds only encoders", code="E112", hints=[hint])
    if keys.architecture not in KNOWN:
        raise _unknown_architecture(str(keys.architecture))
    tensors = {t.name: t for t in header.tensors}
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise SpecError(f"{quote(header.path.name)} has no token embedding table", code="E109")
    doc: JsonObject = {
        "name": _name(header), "d_model": table.shape[0], "vocab_size": table.shape[1],
        **({"max_context": c} if (c := keys.number("context_length")) else {}),
    }  # fmt: skip
    if keys.architecture in T5:
        return _t5(keys, tensors, doc)
    layers = Layers(keys, tensors, doc["d_model"])
    count = keys.count("block_count") - (keys.number("nextn_predict_layers") or 0)
    if not 1 <= count <= MAX_LAYERS:
        raise SpecError(f"{quote(header.path.name)} states {count:,} layers", code="E110")
    behind = next((n for n in ("output_norm", BEHIND.get(str(keys.architecture), "")) if f"{n}.weight" in tensors), "")
    if embedding := _embedding({name: t for name, t in tensors.items() if name != f"{behind}.weight"}):
        doc["embedding"] = embedding
    if keys.architecture == GEMMA4:
        check_gemma4(tensors)
    entries = [layers.entry(i) for i in range(count)]
    if keys.architecture == GEMMA4:
        doc["embedding"] = gemma4_embedding(layers, tensors)
        doc |= gemma4_layers(entries, keys.number("attention.shared_kv_layers") or 0)
    else:
        doc |= stack(entries)
    if keys.architecture in ENCODERS:
        return {"architecture": "encoder"} | doc
    if final := layers.norm(behind):
        doc["final_norm"] = final
    bias = {"bias": True} if "output.bias" in tensors else {}
    return doc | {"head": {"tied": "output.weight" not in tensors} | bias}


BEHIND = {"lfm2": "token_embd_norm", "lfm2moe": "token_embd_norm"}
"""Architectures whose last norm has had the name of the embedding's."""


def _unknown_architecture(architecture: str) -> SpecError:
    if architecture in REFUSED:
        reason = f"GGUF architecture {quote(architecture)} cannot be read: {REFUSED[architecture]}"
        return SpecError(reason, code="E112", hints=["try the model's config.json, or write a spec"])
    return SpecError(
        f"unknown GGUF architecture {quote(architecture, 100)}", code="E112",
        hints=[f"known: {', '.join(KNOWN)}"],
    )  # fmt: skip


def _embedding(tensors: Mapping[str, TensorInfo]) -> JsonObject:
    found: JsonObject = {}
    if table := tensors.get("position_embd.weight"):
        found["positions"] = {"kind": "learned", "max": table.shape[-1]}
    if "token_embd_norm.weight" in tensors:
        bias = "token_embd_norm.bias" in tensors
        found["norm"] = {"kind": "layernorm" if bias else "rmsnorm"}
    if table := tensors.get("token_types.weight"):
        found["token_types"] = table.shape[-1] if len(table.shape) > 1 else 1
    return found


def _name(header: Header) -> str:
    given = header.values.get("general.name")
    return given if isinstance(given, str) and given.strip() else header.path.stem


T5 = ("t5", "t5encoder")


def _t5(keys: Keys, tensors: Mapping[str, TensorInfo], doc: JsonObject) -> JsonObject:
    """The document; `doc` has the name and the sizes of the table."""
    doc = {key: value for key, value in doc.items() if key != "max_context"}  # relative positions have no end
    norm = {"kind": "rmsnorm", "eps": keys.real("attention.layer_norm_rms_epsilon", 1e-6)}
    count = keys.count("block_count")
    encoder = {"final_norm": norm, "layers": [_t5_layer(keys, tensors, "enc", count, norm)]}
    if keys.architecture == "t5encoder":
        return {"architecture": "encoder"} | doc | encoder
    count = keys.number("decoder_block_count") or count
    tied = "output.weight" not in tensors
    head = {"tied": tied} | ({"scale": doc["d_model"] ** -0.5} if tied else {})
    decoder = {"final_norm": norm, "layers": [_t5_layer(keys, tensors, "dec", count, norm)], "head": head}
    return {"architecture": "encoder-decoder"} | doc | {"encoder": encoder} | decoder


def _t5_layer(keys: Keys, tensors: Mapping[str, TensorInfo], side: str, count: int, norm: JsonObject) -> JsonObject:
    """The layers of one side, which are all alike: those of the first one's tensors."""
    if not 1 <= count <= 2048:
        raise SpecError(f"{quote(keys.file)} states {count:,} layers", code="E110")
    heads = keys.count("attention.head_count")
    width = _t5_shape(tensors, f"{side}.blk.0.attn_q")[1]
    buckets = _t5_shape(tensors, f"{side}.blk.0.attn_rel_b")[-1]
    if width % heads:
        raise SpecError(f"a width of {width} is not divisible by {heads} heads", code="E110")
    plain: JsonObject = {"kind": "mha", "n_heads": heads, "d_head": width // heads, "scale": 1.0}
    position = {"position": {"kind": "t5", "buckets": buckets, "max_distance": 128}}
    mask = {"mask": {"kind": "bidirectional"}} if side == "enc" else {}
    gated = f"{side}.blk.0.ffn_gate.weight" in tensors
    act = {"kind": "geglu", "activation": "gelu_tanh"} if gated else {"kind": "mlp", "activation": "relu"}
    ffn = act | {"d_ff": _t5_shape(tensors, f"{side}.blk.0.ffn_up")[1]}
    crossed = {"cross_attention": plain} if side == "dec" else {}
    repeat = {"repeat": count} if count > 1 else {}
    return repeat | {"norm": norm, "attention": plain | position | mask, **crossed, "ffn": ffn}


def _t5_shape(tensors: Mapping[str, TensorInfo], name: str) -> tuple[int, ...]:
    found = tensors.get(f"{name}.weight")
    if found is None or len(found.shape) < 2:
        raise SpecError(f"the file has no tensor {quote(name)}", code="E109")
    # The table of relative positions is heads x buckets, the row first.
    return found.shape
