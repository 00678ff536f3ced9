"""GGUF files written for tests: small models with the tensors of a real one, tensor data left out."""

from __future__ import annotations

from math import prod
from pathlib import Path

import gguf
import numpy as np

Shapes = dict[str, tuple[tuple[int, ...], gguf.GGMLQuantizationType]]
Q = gguf.GGMLQuantizationType
PLAIN = {Q.F32: np.float32, Q.F16: np.float16}


def write(path: Path, arch: str, keys: dict[str, object], tensors: Shapes, tokens: int = 0,
          order: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> Path:  # fmt: skip
    """A header with these keys and tensors (row first); `tokens` entries of a tokenizer."""
    writer = gguf.GGUFWriter(str(path), arch, endianess=order)
    for key, value in keys.items():
        name = f"{arch}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_uint32(name, value)  # type: ignore[arg-type]
    if tokens:
        writer.add_token_list([f"token {i}" for i in range(tokens)])
        writer.add_token_scores([0.5] * tokens)
    for name, (shape, kind) in tensors.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        full, dtype = tuple(reversed(shape)), PLAIN.get(kind)
        stored = full if dtype else (*full[:-1], full[-1] // block * size)
        writer.add_tensor_info(
            name, stored, np.dtype(dtype or np.uint8), prod(full) // block * size, None if dtype else kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def llama(layers: int = 4, bias: str = "", norm: bool = False, tied: bool = False) -> tuple[dict[str, object], Shapes]:
    """A small model of LLaMA's kind: `bias` on these projections, norms of the heads, one table."""
    d, ff, vocab, n, kv, head = 512, 768, 1024, 8, 2, 64
    keys: dict[str, object] = {
        "block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": ff,
        "attention.head_count": n, "attention.head_count_kv": kv, "rope.freq_base": 10000.0,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    t: Shapes = {"token_embd.weight": ((d, vocab), Q.Q4_K), "output_norm.weight": ((d,), Q.F32)}
    if not tied:
        t["output.weight"] = ((d, vocab), Q.Q6_K)
    for i in range(layers):
        more = Q.Q6_K if i % 2 else Q.Q4_K
        t |= {
            f"blk.{i}.attn_norm.weight": ((d,), Q.F32), f"blk.{i}.ffn_norm.weight": ((d,), Q.F32),
            f"blk.{i}.attn_q.weight": ((d, n * head), Q.Q4_K), f"blk.{i}.attn_k.weight": ((d, kv * head), Q.Q4_K),
            f"blk.{i}.attn_v.weight": ((d, kv * head), more), f"blk.{i}.attn_output.weight": ((n * head, d), Q.Q4_K),
            f"blk.{i}.ffn_gate.weight": ((d, ff), Q.Q4_K), f"blk.{i}.ffn_up.weight": ((d, ff), Q.Q4_K),
            f"blk.{i}.ffn_down.weight": ((ff, d), more),
        }  # fmt: skip
        t |= {f"blk.{i}.attn_{x}.bias": (((n if x == "q" else kv) * head,), Q.F32) for x in bias}
        if norm:
            t |= {f"blk.{i}.attn_{x}_norm.weight": ((head,), Q.F32) for x in "qk"}
    return keys, t


def with_experts(keys: dict[str, object], tensors: Shapes, shared: bool = False) -> tuple[dict[str, object], Shapes]:
    """The same with routed experts in every layer but the first."""
    d, ff, n = 512, 256, 8
    keys = keys | {"expert_count": n, "expert_used_count": 2}
    for i in range(1, int(keys["block_count"])):  # type: ignore[call-overload]
        for x, shape in (("gate", (d, ff)), ("up", (d, ff)), ("down", (ff, d))):
            tensors.pop(f"blk.{i}.ffn_{x}.weight")
            tensors[f"blk.{i}.ffn_{x}_exps.weight"] = ((*shape, n), Q.Q5_K)
            if shared:
                tensors[f"blk.{i}.ffn_{x}_shexp.weight"] = (shape, Q.Q8_0)
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = ((d, n), Q.F32)
    return keys, tensors
