"""GGUF files of recurrent, hybrid and encoder models, and of Mixtral's first layout."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import gguf
import pytest
from bounded import bounded

import archsim
from archsim.base.errors import SpecError
from archsim.importers.opening import load_model

from .gguf_files import Q, Shapes, llama, with_experts, write
from .gguf_mixers import (
    DELTA,
    MAMBA2,
    Keys,
    attention,
    base,
    delta,
    encoder,
    ffn,
    gemma4,
    mamba,
    mamba2,
    moe,
    norms,
    short_conv,
    split_experts,
    t5,
)

Case = tuple[str, Keys, Shapes]


def hybrid(arch: str, layers: list[Shapes], more: Keys, second: str = "ffn_norm") -> Case:
    """A model of these layers, each with two norms."""
    keys, tensors = base(len(layers))
    for i, layer in enumerate(layers):
        tensors |= norms(i, "attn_norm", second) | layer
    return arch, keys | more, tensors


def plain(arch: str, layers: list[Shapes], more: Keys) -> Case:
    """A model of layers with one norm each."""
    arch, keys, tensors = hybrid(arch, layers, more)
    return arch, keys, {name: t for name, t in tensors.items() if ".ffn_norm." not in name}


def cases() -> dict[str, Case]:
    """Architectures by name."""
    experts: Keys = {"expert_count": 8, "expert_used_count": 2}
    mixed = [mamba(0, True) | ffn(0), mamba(1, True) | moe(1), attention(2) | ffn(2)]
    next_ = [*(delta(i) | moe(i, shared=True) for i in range(3)), attention(3, True, True) | moe(3, shared=True)]
    old = [delta(0, True) | moe(0, shared=True), attention(1, True, True) | moe(1, parts=("gate_up", "down"))]
    newer = [delta(0, parted=True) | ffn(0), attention(1, True, True) | ffn(1)]
    granite = [mamba2(0) | moe(0), attention(1) | moe(1)]
    kv: Keys = {"attention.head_count_kv": [0, 0, 2]}
    lfm2 = [short_conv(0) | ffn(0), short_conv(1) | ffn(1), attention(2, norm=True) | ffn(2)]
    biased: Shapes = {"blk.2.exp_probs_b.bias": ((8,), Q.F32)}
    named = hybrid("lfm2", lfm2, kv)
    named[2]["token_embd_norm.weight"] = named[2].pop("output_norm.weight")
    return {
        "mamba": plain("mamba", [mamba(i) for i in range(3)], {}),
        "falcon-mamba": plain("mamba", [mamba(i) for i in range(3)], {"ssm.dt_b_c_rms": 1}),
        "mamba2": plain("mamba2", [mamba2(i) for i in range(3)], MAMBA2),
        "jamba": hybrid("jamba", mixed, experts | kv),
        "falcon-h1": hybrid("falcon-h1", [mamba2(i, False) | attention(i) | ffn(i) for i in range(2)], MAMBA2),
        "granitehybrid": hybrid("granitehybrid", granite, MAMBA2 | experts),
        "nemotron_h": plain("nemotron_h", [mamba2(0), ffn(1, ("up", "down")), attention(2), mamba2(3)], MAMBA2),
        "qwen3next": hybrid("qwen3next", next_, DELTA | experts, "post_attention_norm"),
        "qwen3next, one projection": hybrid("qwen3next", old, DELTA | experts, "post_attention_norm"),
        "qwen35": hybrid("qwen35", newer, DELTA, "post_attention_norm"),
        "lfm2moe": hybrid("lfm2moe", [*lfm2[:2], attention(2, norm=True) | moe(2) | biased], kv | experts),
        "lfm2": hybrid("lfm2", lfm2, kv), "lfm2, older name": named,
        "bert": ("bert", *encoder(rotary=False)), "nomic-bert": ("nomic-bert", *encoder(rotary=True)),
        "t5": ("t5", *t5(gated=False)), "flan-t5": ("t5", *t5(tied=False)),
        "t5encoder": ("t5encoder", *t5("enc")),
        "mixtral before 2024": ("llama", *split_experts(*with_experts(*llama()))),
    }  # fmt: skip


def sizes(tensors: Shapes) -> tuple[int, int]:
    """Elements and bytes, by the package's own table."""
    found = [(prod(shape), *gguf.GGML_QUANT_SIZES[kind]) for shape, kind in tensors.values()]
    return sum(n for n, _, _ in found), sum(n // block * size for n, block, size in found)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases())
def test_a_model_has_the_parameters_and_bytes_of_its_file(case: str, tmp_path: Path) -> None:
    """Exactly, and the caches are those of its own layers. What corrects a router's choice is stored, not learned."""
    arch, keys, tensors = cases()[case]
    counted = archsim.count(write(tmp_path / "model.gguf", arch, keys, tensors))
    learned = {name: t for name, t in tensors.items() if "exp_probs_b" not in name}
    assert (counted.total, counted.weight_bytes) == (sizes(learned)[0], sizes(tensors)[1])
    attends = sum(name.endswith("attn_output.weight") for name in tensors)
    each = 0 if "bert" in case or "enc" in case else attends * 2 * 2 * 64 * 2
    if case in ("t5", "flan-t5"):  # two layers that see themselves; what they see of the encoder does not grow
        each = 2 * 2 * 512 * 2
    assert counted.kv_bytes_per_token == each
    recurrent = any("ssm_" in name or "shortconv" in name for name in tensors)
    assert bool(counted.state_bytes) == recurrent


def test_states_are_those_of_the_mixers(tmp_path: Path) -> None:
    """Mamba-2: heads x size x states in fp32, and three inputs of the convolution in 16 bits."""
    arch, keys, tensors = cases()["mamba2"]
    counted = archsim.count(write(tmp_path / "model.gguf", arch, keys, tensors))
    assert counted.state_bytes == 3 * (1024 * 64 * 4 + 3 * (1024 + 2 * 2 * 64) * 2)


def test_keys_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Another number of groups than the convolution is wide."""
    arch, keys, tensors = cases()["mamba2"]
    with pytest.raises(SpecError, match="ssm_conv1d"):
        load_model(str(write(tmp_path / "m.gguf", arch, keys | {"ssm.group_count": 3}, tensors)))


def test_experts_that_differ_are_refused(tmp_path: Path) -> None:
    """One expert in another format than its neighbours."""
    arch, keys, tensors = cases()["mixtral before 2024"]
    changed = tensors | {"blk.1.ffn_up.3.weight": ((512, 256), Q.Q8_0)}
    with pytest.raises(SpecError, match="not all stored in the same format"):
        load_model(str(write(tmp_path / "m.gguf", arch, keys, changed)))


@pytest.mark.parametrize(
    ("options", "growth"),
    [
        ({}, 5 * 2 * 64 + 128),
        ({"per_layer": False, "alike": True}, 5 * 2 * 64 + 128),
        ({"readers": 4}, 5 * 2 * 64 + 128),
    ],
    ids=["embeddings per layer", "keys as values", "shared caches"],
)
def test_gemma4(options: dict[str, Any], growth: int, tmp_path: Path) -> None:
    """Every parameter and byte but the fixed factors, and the caches of the layers that have one."""
    keys, tensors = gemma4(**options)
    counted = archsim.count(write(tmp_path / "m.gguf", "gemma4", keys, tensors))
    learned = {k: v for k, v in tensors.items() if "layer_output_scale" not in k and "rope_freqs" not in k}
    assert (counted.total, counted.weight_bytes) == sizes(learned)
    assert counted.kv_bytes_per_token == growth * 2 * 2


def test_gemma4_with_experts_is_refused(tmp_path: Path) -> None:
    """By name, with the reason."""
    keys, tensors = gemma4()
    with pytest.raises(SpecError, match="next to a dense layer"):
        load_model(str(write(tmp_path / "m.gguf", "gemma4", keys, tensors | moe(0))))


@pytest.mark.parametrize("arch", ["rwkv7", "gemma3n", "kimi-linear"])
def test_what_cannot_be_expressed_is_refused_by_name(arch: str, tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(SpecError, match=rf"`{arch}` cannot be read: .{{10}}"):
        load_model(str(write(tmp_path / "m.gguf", arch, *llama())))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*cases(), "gemma4"])
def test_damaged_headers(case: str, tmp_path: Path) -> None:
    """60 damaged files of each kind: a result or an error in words, soon and in little memory."""
    arch, keys, tensors = cases()[case] if case != "gemma4" else ("gemma4", *gemma4(readers=4))
    base_file = write(tmp_path / "base.gguf", arch, keys, tensors).read_bytes()
    rng, path = random.Random(case), tmp_path / "m.gguf"
    for _ in range(60):
        data = bytearray(base_file)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(24, len(data) - 8)
            if rng.random() < 0.5:
                data[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 3, 2**31, 2**40, 2**64 - 1]))
            else:
                data[at] = rng.randrange(256)
        path.write_bytes(data)
        with bounded(), suppress(SpecError):
            load_model(str(path))
