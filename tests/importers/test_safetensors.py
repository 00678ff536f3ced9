"""Safetensors checkpoints: packed integers, towers, indices, and hostile headers."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import pytest
from bounded import bounded

import archsim
from archsim.base.errors import ArchsimError, SpecError
from archsim.importers.opening import load_model
from archsim.importers.safetensors import BITS, Entry, measure, ratio, read_tensors
from archsim.spec.format import stored_format

Tensors = dict[str, tuple[str, list[int]]]

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 2, "vocab_size": 1000,
    "num_attention_heads": 8, "num_key_value_heads": 2, "torch_dtype": "float16",
}  # fmt: skip
LINEARS = {
    "self_attn.q_proj": (512, 512), "self_attn.k_proj": (128, 512), "self_attn.v_proj": (128, 512),
    "self_attn.o_proj": (512, 512), "mlp.gate_proj": (768, 512), "mlp.up_proj": (768, 512), "mlp.down_proj": (512, 768),
}  # fmt: skip


def packed(kind: str, name: str, out: int, inner: int) -> Tensors:
    """One linear layer as a format stores it."""
    q, g = f"{name}.qweight", inner // 128
    match kind:
        case "fp16":
            return {f"{name}.weight": ("F16", [out, inner])}
        case "awq":
            return {
                q: ("I32", [inner, out // 8]),
                f"{name}.qzeros": ("I32", [g, out // 8]),
                f"{name}.scales": ("F16", [g, out]),
            }
        case "gptq":
            return {
                q: ("I32", [inner // 8, out]),
                f"{name}.qzeros": ("I32", [g, out // 8]),
                f"{name}.scales": ("F16", [g, out]),
                f"{name}.g_idx": ("I32", [inner]),
            }
        case "gptq8":
            return {
                q: ("I32", [inner // 4, out]),
                f"{name}.qzeros": ("I32", [g, out // 4]),
                f"{name}.scales": ("F16", [g, out]),
                f"{name}.g_idx": ("I32", [inner]),
            }
        case "compressed-tensors":
            return {
                f"{name}.weight_packed": ("I32", [out, inner // 8]),
                f"{name}.weight_scale": ("BF16", [out, g]),
                f"{name}.weight_shape": ("I64", [2]),
            }
        case "nvfp4":
            return {
                f"{name}.weight": ("U8", [out, inner // 2]),
                f"{name}.weight_scale": ("F8_E4M3", [out, inner // 16]),
                f"{name}.weight_scale_2": ("F32", []),
                f"{name}.input_scale": ("F32", []),
            }
        case "nf4":
            return {
                f"{name}.weight": ("U8", [out * inner // 2, 1]),
                f"{name}.weight.absmax": ("U8", [out * inner // 64]),
                f"{name}.weight.quant_map": ("F32", [16]),
                f"{name}.weight.nested_absmax": ("F32", [out * inner // 64 // 256]),
                f"{name}.weight.quant_state.bitsandbytes__nf4": ("U8", [90]),
            }
        case "fp8":
            return {f"{name}.weight": ("F8_E4M3", [out, inner]), f"{name}.weight_scale_inv": ("F32", [out // 128, g])}
        case _:
            bits, group = (8, 128) if name == "model.layers.1.mlp.up_proj" else (4, 64)
            beside = dict.fromkeys((f"{name}.scales", f"{name}.biases"), ("F16", [out, inner // group]))
            return {f"{name}.weight": ("U32", [out, inner * bits // 32])} | beside


def grouped(kind: str, size: int) -> dict[str, Any]:
    """One group of 4-bit weights, as compressed-tensors and modelopt write it."""
    return {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": kind, "group_size": size}}}}


QUANTISED: dict[str, dict[str, Any]] = {
    "fp16": {},
    "mlx": {"group_size": 64, "bits": 4, "model.layers.1.mlp.up_proj": {"group_size": 128, "bits": 8}},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "gptq8": {"quant_method": "gptq", "bits": 8, "group_size": 128},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "nvfp4": {"quant_method": "modelopt", **grouped("float", 16)},
    "compressed-tensors": {"quant_method": "compressed-tensors", **grouped("int", 128)},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip


def checkpoint(kind: str) -> Tensors:
    """All tensors of a small model."""
    t: Tensors = {"model.embed_tokens.weight": ("F16", [1000, 512]), "lm_head.weight": ("F16", [1000, 512]),
                  "model.norm.weight": ("F16", [512])}  # fmt: skip
    for i in range(2):
        for name, (out, inner) in LINEARS.items():
            t |= packed(kind, f"model.layers.{i}.{name}", out, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            t[f"model.layers.{i}.{name}.weight"] = ("F16", [512])
    return t


def header(tensors: Tensors) -> tuple[bytes, int]:
    """The head of a file, and the bytes of its tensors."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text, at


def save(folder: Path, kind: str, tensors: Tensors, config: dict[str, Any] = CONFIG) -> tuple[Path, int]:
    """A checkpoint with its config.json, data left out."""
    quantised = {"quantization_config": QUANTISED[kind]} if QUANTISED.get(kind) else {}
    (folder / "config.json").write_text(json.dumps(config | quantised))
    data, size = header(tensors)
    (folder / "model.safetensors").write_bytes(data)
    return folder / "model.safetensors", size


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", QUANTISED)
def test_bytes_and_parameters_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    """Packed integers count as the values they hold, and every byte is counted."""
    path, size = save(tmp_path, kind, checkpoint(kind))
    counted = archsim.count(path)
    assert (counted.total, counted.weight_bytes) == (4_696_576, size)
    assert archsim.estimate(path, "h100").memory.weights == size


@pytest.mark.parametrize("kind", ["awq", "gptq", "gptq8", "fp8"])
def test_formats_alone_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """What the config says and what the headers hold agree to the byte."""
    path, size = save(tmp_path, kind, checkpoint(kind))
    assert archsim.count(path.with_name("config.json")).weight_bytes == size


UNKNOWN = CONFIG | {
    "model_type": "unknown_kind", "architectures": ["UnknownForCausalLM"], "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_a_config_of_an_unknown_type_is_compared_with_the_tensors(tmp_path: Path) -> None:
    """As many parameters, some more (norms of queries and keys), or another model's."""
    path, _ = save(tmp_path, "fp16", checkpoint("fp16"), UNKNOWN)
    assert read_as(path).endswith("; as many parameters as are stored")
    norms = {f"model.layers.{i}.self_attn.{x}_norm.weight": ("F16", [64]) for i in range(2) for x in "qk"}
    path, _ = save(tmp_path, "fp16", checkpoint("fp16") | norms, UNKNOWN)
    assert read_as(path).endswith("; 256 more parameters are stored")
    with pytest.raises(SpecError, match="describes"):
        archsim.count(save(tmp_path, "fp16", checkpoint("fp16"), UNKNOWN | {"intermediate_size": 1024})[0])


def test_and_with_the_size_that_an_index_beside_it_states(tmp_path: Path) -> None:
    """Where only the small files of a checkpoint are there."""
    path, size = save(tmp_path, "fp16", checkpoint("fp16"), UNKNOWN)
    path.unlink()
    index = tmp_path / "model.safetensors.index.json"
    for stated, said in ((size, "as many parameters as are stored"), (size + 4, "2 more parameters are stored")):
        index.write_text(json.dumps({"metadata": {"total_size": stated}, "weight_map": {}}))
        assert read_as(tmp_path).endswith(f"; {said}")
    index.write_text(json.dumps({"metadata": {"total_size": 2 * size}, "weight_map": {}}))
    with pytest.raises(SpecError, match="describes"):
        archsim.count(tmp_path)
    for odd in ({"metadata": {}}, {"metadata": [1]}, {}):
        index.write_text(json.dumps(odd | {"weight_map": {}}))
        assert "stored" not in read_as(tmp_path)


def read_as(path: Path) -> str:
    """The caution beside the figures of a config of an unknown type."""
    return str(load_model(str(path)).read_as)


def test_an_index(tmp_path: Path) -> None:
    """Shards that an index names, beside it."""
    tensors = checkpoint("awq")
    names = list(tensors)
    _, size = save(tmp_path, "awq", tensors)
    (tmp_path / "model.safetensors").unlink()
    files = {}
    for i in range(2):
        part = {n: tensors[n] for n in names[i::2]}
        (tmp_path / f"model-{i}.safetensors").write_bytes(header(part)[0])
        files |= dict.fromkeys(part, f"model-{i}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": files}))
    assert archsim.count(index).weight_bytes == size
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(SpecError, match="1 of 2 files are missing"):
        archsim.count(index)
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(SpecError, match="next to it"):
        archsim.count(index)


def test_towers_and_prediction_modules_are_left_out(tmp_path: Path) -> None:
    """A vision tower and layers behind the last one are not the language model."""
    more: Tensors = {
        "vision_tower.blocks.0.weight": ("F16", [64, 64]),
        "model.layers.2.mlp.up_proj.weight": ("F16", [64, 64]),
    }
    path, size = save(tmp_path, "fp16", checkpoint("fp16") | more)
    counted = archsim.count(path)
    assert (counted.total, counted.weight_bytes) == (4_696_576, size - 4 * 64 * 64)


def test_experts_in_mxfp4() -> None:
    """gpt-oss: two values in a byte of `_blocks`, none in `_scales`; biases are no experts' matrices."""
    t = {
        "model.layers.0.mlp.experts.gate_up_proj_blocks": Entry("U8", (32, 5760, 90, 16)),
        "model.layers.0.mlp.experts.gate_up_proj_scales": Entry("U8", (32, 5760, 90)),
        "model.layers.0.mlp.experts.gate_up_proj_bias": Entry("BF16", (32, 5760)),
        "model.layers.0.mlp.router.weight": Entry("BF16", (32, 2880)),
    }
    found = measure(t, 24, {})
    assert found.params == {"expert": 32 * 5760 * 2880, "default": 32 * 5760 + 32 * 2880}
    assert found.bytes["expert"] == 32 * 5760 * 90 * 17


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """A config.json that describes something else, or none."""
    path, _ = save(tmp_path, "fp16", checkpoint("fp16"), CONFIG | {"num_hidden_layers": 4})
    with pytest.raises(SpecError, match="parameters"):
        archsim.count(path)
    path.with_name("config.json").unlink()
    with pytest.raises(SpecError, match=r"no config\.json"):
        archsim.count(path)


@pytest.mark.parametrize(("size", "elements"), [(1001, 512), (2048, 1024), (3, 7), (10**12 + 7, 10**12)])
def test_a_ratio_is_exact(size: int, elements: int) -> None:
    """Any number of bytes for any number of values."""
    if 8 * size < elements:
        return
    fmt = stored_format(ratio(size, elements, "bf16"))
    assert fmt.bytes * elements == size * fmt.elements
    assert fmt.compute == "bf16"


@pytest.mark.slow
def test_mutated_headers(tmp_path: Path) -> None:
    """2,000 damaged files: each is a result or an error in words, soon."""
    path, _ = save(tmp_path, "awq", checkpoint("awq"))
    base, rng = path.read_bytes(), random.Random(2)
    for turn in range(2000):
        data = bytearray(base)
        for _ in range(rng.randint(1, 5)):
            at, kind = rng.randrange(len(data)), rng.random()
            if kind < 0.3:
                data[at] = rng.randrange(256)
            elif kind < 0.5:
                data[at : at + 1] = rng.choice([b"[" * 500, b"9" * 400, b"-", b"1e999", b"null", b"{", b'"'])
            elif kind < 0.7:
                data[:8] = struct.pack("<Q", rng.choice([0, 1, 2**20, 2**63, 2**64 - 1, len(data) - 9]))
            else:
                del data[at : at + rng.randrange(200)]
                data += b" " * 16
        path.write_bytes(data)
        with bounded(counted=turn % 20 == 0), suppress(ArchsimError):
            load_model(str(path))


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A sparse file of 10 GB, and JSON of nothing but brackets."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 9 * 2**30))
        file.truncate(10 * 2**30)
    with bounded(), pytest.raises(SpecError, match="a header of"):
        read_tensors(path)
    path.write_bytes(struct.pack("<Q", 20_000_000) + b"[]" * 10_000_000)
    with bounded(), pytest.raises(SpecError, match="more values"):
        read_tensors(path)
