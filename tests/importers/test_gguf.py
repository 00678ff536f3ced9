"""GGUF files: the reader against the `gguf` package, models against the files they come from, hostile headers."""

from __future__ import annotations

import random
import resource
import struct
from contextlib import suppress
from math import prod
from pathlib import Path

import gguf
import pytest
from bounded import bounded

import archsim
from archsim.base.errors import SpecError
from archsim.importers.gguf.reader import TYPES, first_files, read_gguf
from archsim.importers.opening import load_model
from archsim.spec.format import load_format

from .gguf_files import Q, Shapes, llama, with_experts, write


def sizes(tensors: Shapes) -> tuple[int, int]:
    """Elements and bytes of tensors, by the package's own table."""
    blocks = {name: gguf.GGML_QUANT_SIZES[kind] for name, (_, kind) in tensors.items()}
    found = [(prod(shape), *blocks[name]) for name, (shape, _) in tensors.items()]
    return sum(n for n, _, _ in found), sum(n // block * size for n, block, size in found)


@pytest.mark.parametrize("number", sorted(TYPES))
def test_types_are_those_of_the_package(number: int) -> None:
    """Every tensor type has the block and the bytes that the package states, which knows neither q8_1 nor q2_0."""
    spec = load_format(TYPES[number])
    if number not in (9, 42):
        assert (spec.block[0], spec.bytes) == gguf.GGML_QUANT_SIZES[Q(number)]


def test_every_type_of_the_package_is_known() -> None:
    """Formats, or integers."""
    assert {int(kind) for kind in gguf.GGML_QUANT_SIZES} <= TYPES.keys() | {24, 25, 26, 27, 28}


def test_every_file_type_has_a_document() -> None:
    """All of llama.cpp's file types can be named."""
    for kind in gguf.LlamaFileType:
        if kind.name != "GUESSED":
            name = "gguf_" + kind.name.split("_", 1)[1].lower()
            assert load_format(name).mixture is not None


def cases() -> dict[str, tuple[str, dict[str, object], Shapes]]:
    """Architectures with what their files differ in."""
    qwen3, qwen3moe = llama(norm=True), with_experts(*llama(norm=True))
    gemma, window = llama(norm=True, tied=True), {"attention.sliding_window": 1024}
    for i in range(4):
        for name in ("post_attention_norm", "post_ffw_norm"):
            gemma[1][f"blk.{i}.{name}.weight"] = ((512,), Q.F32)
    phi = llama()
    for i in range(4):
        for old in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
            phi[1].pop(f"blk.{i}.{old}.weight")
        phi[1][f"blk.{i}.attn_qkv.weight"] = ((512, 768), Q.Q5_K)
        phi[1][f"blk.{i}.ffn_up.weight"] = ((512, 1536), Q.Q4_K)
    oss = with_experts(*llama(bias="qkv"))
    for i in range(4):
        oss[1][f"blk.{i}.attn_sinks.weight"] = ((8,), Q.F32)
        oss[1][f"blk.{i}.attn_output.bias"] = ((512,), Q.F32)
    return {
        "llama": ("llama", *llama()), "tied": ("llama", *llama(tied=True)),
        "mixtral": ("llama", *with_experts(*llama())),
        "qwen2": ("qwen2", *llama(bias="qkv")), "qwen3": ("qwen3", *qwen3), "qwen3moe": ("qwen3moe", *qwen3moe),
        "shared": ("qwen2moe", *with_experts(*llama(bias="qkv"), shared=True)),
        "gemma3": ("gemma3", gemma[0] | window, gemma[1]), "phi3": ("phi3", *phi),
        "gpt-oss": ("gpt-oss", oss[0] | {"attention.sliding_window": 128}, oss[1]),
        "deepseek2": ("deepseek2", *latent()),
    }  # fmt: skip


def latent() -> tuple[dict[str, object], Shapes]:
    """DeepSeek-V2's attention."""
    keys, t = with_experts(*llama(), shared=True)
    keys |= {"attention.kv_lora_rank": 256, "attention.q_lora_rank": 256, "attention.head_count_kv": 1}
    for i in range(4):
        for x in "qkv":
            t.pop(f"blk.{i}.attn_{x}.weight")
        t |= {
            f"blk.{i}.attn_q_a.weight": ((512, 256), Q.Q4_K), f"blk.{i}.attn_q_a_norm.weight": ((256,), Q.F32),
            f"blk.{i}.attn_q_b.weight": ((256, 8 * 192), Q.Q4_K), f"blk.{i}.attn_kv_a_mqa.weight": ((512, 320), Q.Q8_0),
            f"blk.{i}.attn_kv_a_norm.weight": ((256,), Q.F32), f"blk.{i}.attn_k_b.weight": ((128, 256, 8), Q.Q5_0),
            f"blk.{i}.attn_v_b.weight": ((256, 128, 8), Q.Q4_K), f"blk.{i}.attn_output.weight": ((1024, 512), Q.Q4_K),
        }  # fmt: skip
    return keys, t


@pytest.mark.parametrize("case", cases())
def test_a_model_has_the_parameters_and_bytes_of_its_file(case: str, tmp_path: Path) -> None:
    """Exactly, for every architecture; and the package reads the same tensors."""
    arch, keys, tensors = cases()[case]
    path = write(tmp_path / "model.gguf", arch, keys, tensors)
    counted = archsim.count(path)
    assert (counted.total, counted.weight_bytes) == sizes(tensors)
    found = {t.name: (t.shape, t.format) for t in read_gguf(path).tensors}
    assert found == {name: (shape, TYPES[int(kind)]) for name, (shape, kind) in tensors.items()}
    assert read_gguf(path).bytes == sizes(tensors)[1]


def test_the_package_reads_the_same(tmp_path: Path) -> None:
    """Keys and tensors of a file with data."""
    keys, tensors = llama()
    path = write(tmp_path / "m.gguf", "llama", keys, tensors, tokens=1000)
    with path.open("ab") as file:
        file.write(bytes(32 + sizes(tensors)[1] + 32 * len(tensors)))
    oracle, ours = gguf.GGUFReader(path), read_gguf(path)
    assert [(t.name, tuple(int(n) for n in t.shape), t.n_bytes) for t in oracle.tensors] == [
        (t.name, t.shape, t.bytes) for t in ours.tensors
    ]
    for name, entry in oracle.fields.items():
        if name in ours.values and not isinstance(ours.values[name], list):
            assert ours.values[name] == pytest.approx(entry.contents())
    assert ours.lengths["tokenizer.ggml.tokens"] == 1000


def test_windows_and_positions(tmp_path: Path) -> None:
    """Gemma 3 has five local layers before each global one; four layers are all local."""
    arch, keys, tensors = cases()["gemma3"]
    model = load_model(str(write(tmp_path / "g.gguf", arch, keys, tensors)))
    masks = [layer.attention.mask for layer in model.layers if layer.attention is not None]
    assert [(m.kind, m.window) for m in masks] == [("sliding", 1024)]
    assert model.head is not None and model.head.tied


def test_key_value_heads_may_differ_by_layer(tmp_path: Path) -> None:
    """`head_count_kv` as a list, shapes agreeing with it."""
    keys, tensors = llama()
    for x in "kv":
        tensors[f"blk.3.attn_{x}.weight"] = ((512, 256), Q.Q4_K)
    keys["attention.head_count_kv"] = [2, 2, 2, 4]
    counted = archsim.count(write(tmp_path / "m.gguf", "llama", keys, tensors))
    assert (counted.total, counted.weight_bytes) == sizes(tensors)
    assert counted.kv_bytes_per_token == 2 * 64 * 2 * (2 + 2 + 2 + 4)


def test_other_byte_order_and_version(tmp_path: Path) -> None:
    """A file of a big-endian machine, and version 2, read alike."""
    keys, tensors = llama()
    path = write(tmp_path / "be.gguf", "llama", keys, tensors, order=gguf.GGUFEndian.BIG)
    assert archsim.count(path).total == sizes(tensors)[0]
    path = write(tmp_path / "v2.gguf", "llama", keys, tensors)
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)
    assert archsim.count(path).total == sizes(tensors)[0]


def test_split_files(tmp_path: Path) -> None:
    """Any part stands for all, and so does a folder of one model; a missing part is named."""
    keys, tensors = llama()
    names = list(tensors)
    parts = [{n: tensors[n] for n in names[i::2]} for i in range(2)]
    paths = [
        write(tmp_path / f"m-{i + 1:05}-of-00002.gguf", "llama", keys if i == 0 else {}, part)
        for i, part in enumerate(parts)
    ]
    for path in paths:
        assert archsim.count(path).weight_bytes == sizes(tensors)[1]
    (tmp_path / "mmproj-m.gguf").touch()
    assert [file.name for file in first_files(tmp_path.iterdir())] == [paths[0].name]
    (tmp_path / "mmproj-m.gguf").unlink()
    assert archsim.count(tmp_path).weight_bytes == sizes(tensors)[1]
    other = write(tmp_path / "other.gguf", "llama", keys, tensors)
    with pytest.raises(SpecError, match="holds 2 GGUF models"):
        archsim.count(tmp_path)
    other.unlink()
    paths[1].unlink()
    with pytest.raises(SpecError, match="00002-of-00002"):
        archsim.count(paths[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blk.0.attn_mystery.weight": ((512, 512), Q.Q4_K)}, "attn_mystery"),
        ({"blk.0.attn_q.weight": ((512, 500), Q.Q4_K)}, "do not fit 8 and 2 heads"),
        ({"blk.0.ffn_down.weight": ((768, 256), Q.Q4_K)}, "parameters"),
    ],
)
def test_what_is_not_understood_is_refused(change: Shapes, words: str, tmp_path: Path) -> None:
    """No parameter is counted that is not there, and none is lost."""
    keys, tensors = llama()
    with pytest.raises(SpecError, match=words):
        load_model(str(write(tmp_path / "m.gguf", "llama", keys, tensors | change)))


def test_unknown_architecture(tmp_path: Path) -> None:
    """Refused by name."""
    with pytest.raises(SpecError, match="mystery"):
        load_model(str(write(tmp_path / "m.gguf", "mystery", *llama())))


@pytest.mark.slow
def test_a_large_tokenizer_is_stepped_over(tmp_path: Path) -> None:
    """A 70B header with 128k tokens: little work for each, and little memory."""
    path = write(tmp_path / "m.gguf", "llama", *llama(layers=80), tokens=128_256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with bounded():
        header = read_gguf(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert header.lengths["tokenizer.ggml.tokens"] == 128_256
    assert len(header.tensors) == 80 * 9 + 3


@pytest.mark.slow
def test_mutated_headers(tmp_path: Path) -> None:
    """2,000 damaged files: each is a result or a SpecError, soon and in little memory."""
    base = write(tmp_path / "base.gguf", "llama", *llama(layers=2), tokens=20).read_bytes()
    rng, path = random.Random(1), tmp_path / "m.gguf"
    huge = [struct.pack("<Q", n) for n in (0, 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1)]
    for turn in range(2000):
        data = bytearray(base)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(4 if rng.random() < 0.98 else 0, len(data) - 8)
            kind = rng.random()
            if kind < 0.4:
                data[at : at + 8] = rng.choice(huge)
            elif kind < 0.7:
                data[at] = rng.randrange(256)
            elif kind < 0.85:
                del data[rng.randrange(8, len(data)) :]
                data += b"\0" * 9
            else:
                data[at : at + 4] = struct.pack("<I", rng.randrange(16))
        path.write_bytes(data)
        with bounded(counted=turn % 20 == 0), suppress(SpecError):
            load_model(str(path))


@pytest.mark.parametrize("count", [2**32, 2**40, 2**63, 1_200_000_000])
def test_a_sparse_file_of_10_gb(count: int, tmp_path: Path) -> None:
    """Counts that the file could hold are bounded all the same: of empty strings, keys and tensors."""
    path = tmp_path / "sparse.gguf"
    key = struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9)
    heads = (
        struct.pack("<QQ", 0, 1) + key + struct.pack("<IQ", 8, count),
        struct.pack("<QQ", 0, 1) + key + struct.pack("<IQ", 9, count),
        struct.pack("<QQ", 0, 1) + key + struct.pack("<IQ", 0, count),
        struct.pack("<QQ", count, 0),
        struct.pack("<QQ", 0, count),
    )
    for head in heads:
        with path.open("wb") as file:
            file.write(b"GGUF" + struct.pack("<I", 3) + head)
            file.truncate(10 * 2**30)
        with bounded(), pytest.raises(SpecError):
            load_model(str(path))
