"""Formats as data: blocks, what stands beside them, mixtures, and names that others rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import archsim
from archsim.base.errors import ArchsimError, SpecError
from archsim.graph.tensor import Format, Tensor, mixed_format, nbytes
from archsim.spec.format import FormatSpec, load_format, stored_format
from archsim.spec.mixture import fitting, in_layers
from archsim.spec.spelling import SUFFIXES

FOLDER = Path(__file__).resolve().parents[2] / "specs" / "formats"
NAMES = """
fp32 fp16 bf16 fp8 fp8_block int8 w8a8 w8a8_int8 int4 int4_g32 awq_int4 awq_int4_g128 gptq_int4 gptq_int4_g128
gptq_int8 w4a8_g128 mxfp4 mxfp4_moe nvfp4 nf4 q4f16 exl2_4.0bpw exl2_3.25bpw gguf_q4_k_m gguf_iq2_xs gguf_q8_0 Q4_K_M
GGUF-Q5_K_S gguf_mxfp4_moe
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    """Every one can be asked for, and makes a model smaller or leaves it."""
    counted = archsim.count("llama3.1-8b", weights=name)
    assert isinstance(counted.weight_bytes, int)
    assert counted.weight_bytes <= 4 * counted.total


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8", "int8", "int4", "q8_0", "q4_0"])
def test_cache_formats(name: str) -> None:
    """Usable for caches."""
    assert archsim.count("llama2-7b", kv_cache_dtype=name).kv_bytes_per_token == pytest.approx(
        2 * 32 * 32 * 128 * load_format(name).format().bits / 8
    )


@pytest.mark.parametrize(("name", "bits"), [("fp8", 8), ("int8", 8), ("int4", 4)])
def test_caches_with_a_scale_per_token_and_head(name: str, bits: int) -> None:
    """vLLM's content of a block: (keys + values) and one fp32 scale for either, head by head."""
    scaled = name + "_per_token_head"
    head = 2 * (128 * bits // 8 + 4)
    assert archsim.count("llama3.1-8b", kv_cache_dtype=scaled).kv_bytes_per_token == 32 * 8 * head
    with pytest.raises(ArchsimError):
        archsim.fit("llama3.1-8b", "h100", engine="vllm@0.27", kv_cache_dtype=scaled)
    tokens = archsim.fit("llama3.1-8b", "h100", engine="vllm@0.28", kv_cache_dtype=scaled, suggest=False).kv_tokens
    whole = archsim.fit("llama3.1-8b", "h100", engine="vllm@0.28", kv_cache_dtype="fp8", suggest=False).kv_tokens
    assert tokens is not None and whole is not None
    assert tokens == pytest.approx(whole * 2 * 128 / head, abs=16)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("awq_int4", 4.15625), ("awq_int4_g64", 4.3125), ("awq_int4_g32", 4.625), ("gptq_int8", 8.1875),
        ("mxfp4", 4.25), ("mxfp6", 6.25), ("mxfp8", 8.25), ("nvfp4", 4.5), ("nf4_single", 4.5), ("fp4_bnb", 4.5),
        ("mlx_4bit", 4.5), ("mlx_8bit", 8.5), ("mlx_3bit", 3.5), ("mlx_6bit_g32", 7.0), ("mlx_5bit_g128", 5.25),
        ("gptq_int3", 3.1484375), ("gptq_int2", 2.140625), ("gptq_int8_g32", 8.75), ("int4_g64", 4.25),
        ("int8_g128", 8.125), ("q4f16", 4.5), ("fp8_block", 8.001953125), ("int4", 4.125),
        ("iq1_s", 1.5625), ("q3_k", 3.4375), ("tq1_0", 1.6875), ("exl2_4.65bpw", 4.65), ("exl3_1.6bpw", 1.6),
    ],
)  # fmt: skip
def test_bits_of_whole_blocks(name: str, bits: float) -> None:
    """Bits per weight, scales and zero points in them."""
    assert load_format(name).format().bits == pytest.approx(bits, rel=1e-12)


@pytest.mark.parametrize("hint", sorted({hint for hint in SUFFIXES.values() if hint is not None}))
def test_suffixes_of_names_are_formats(hint: str) -> None:
    """What the end of a checkpoint's name implies can be loaded."""
    assert load_format(hint).name == hint


def test_one_scale_per_output() -> None:
    """Per channel: 4 bits and one scale, however long the rows are."""
    w = Tensor("w", {"D": 64, "F": 32}, "weight", stored_format("int4_channel"), "linear", ("D",))
    assert nbytes(w) == 64 * 32 // 2 + 2 * 32


def test_double_quantization() -> None:
    """NF4: 4 bits, 8 per 64, and 32 per 64 x 256 (QLoRA, section 3)."""
    assert load_format("nf4").format().bits == pytest.approx(4 + 8 / 64 + 32 / (64 * 256), rel=1e-3)


def test_bytes_beside_the_blocks() -> None:
    """Per output, per input and per matrix; of experts, each has its own."""
    fmt = Format(name="x", bytes=1, beside=(2, 4, 8))
    w = Tensor("w", {"D": 64, "F": 32}, "weight", fmt, "linear", ("D",))
    assert nbytes(w) == 64 * 32 + 2 * 32 + 4 * 64 + 8
    e = Tensor("e", {"E": 3, "D": 64, "F": 32}, "weight", fmt, "expert", ("D",))
    assert nbytes(e) == 3 * nbytes(w)


def test_gptq_counts_its_group_index() -> None:
    """Four bytes for every input of every matrix, and nothing else, is what AWQ lacks."""
    gptq, awq = (archsim.count("llama2-7b", weights=name).weight_bytes for name in ("gptq_int4", "awq_int4"))
    assert gptq - awq == 4 * 32 * (6 * 4096 + 11008)


def test_copies_in_several_formats() -> None:
    """All copies exactly, one on average."""
    fmt = stored_format("3*q4_k+5*q6_k")
    w = Tensor("w", {"D": 256, "F": 1}, "weight", fmt, "linear", ("D",))
    assert nbytes(w, 8) == 3 * 144 + 5 * 210
    assert nbytes(w) == (3 * 144 + 5 * 210) / 8
    assert (fmt.bits, fmt.compute) == (8 * (3 * 144 + 5 * 210) / 8 / 256, "int8")
    assert mixed_format(((1, stored_format("q4_k")), (2, stored_format("q4_k")))) is stored_format("q4_k")


@pytest.mark.parametrize(
    "text",
    [
        "3*",
        "*",
        "0*q4_k",
        "1*2*q4_k",
        "3*nothing",
        "=",
        "@fp8",
        "a=b=c",
        "exl2_9bpw",
        "exl2_1.5bpw",
        "exl3_0.5bpw",
        "exl3_9bpw",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    """As a name that nobody knows."""
    with pytest.raises(ArchsimError):
        stored_format(text)


def test_layers_with_more_bits() -> None:
    """llama.cpp: the first and last eighth, and every third between; 16 of 32 (llama-quant.cpp, use_more_bits)."""
    chosen = [i for i in range(32) if in_layers("more_bits", i, 32)]
    assert chosen == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    assert [i for i in range(16) if in_layers("middle 1/8", i, 16)] == list(range(2, 14))
    assert [i for i in range(33) if in_layers("first 1/16", i, 33)] == [0, 1]
    assert [i for i in range(4) if in_layers("inner", i, 4)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "inner", "taken"),
    [
        ("q4_k", 4096, "q4_k"), ("q4_k", 2880, "q5_0"), ("q6_k", 29568, "q8_0"), ("iq2_xs", 96, "iq4_nl"),
        ("q4_k", 40, "fp16"),
    ],
)  # fmt: skip
def test_rows_that_a_block_does_not_divide(name: str, inner: int, taken: str) -> None:
    """Another type, and where its block does not fit either, 16 bits."""
    assert fitting(name, inner).name == taken


def test_the_eight_experts_rule() -> None:
    """Mixtral's keys and values are in q8_0 (llama-quant.cpp, n_expert == 8)."""
    from archsim.counts.formats import choose_formats
    from archsim.spec.load import load_model

    tensors = choose_formats(load_model("mixtral-8x7b"), "gguf_q4_k_m").tensors
    assert tensors["layers.attention.w_k"].name == tensors["layers.attention.w_v"].name == "q8_0"
    assert tensors["layers.attention.w_o"].name == "q5_k"
    assert tensors["layers.moe.w_router"].name == "fp32"
    assert tensors["layers.moe.w_down"].name == "16*q6_k+16*q4_k"


def test_a_tied_table_is_the_output_matrix() -> None:
    """q6_k in a Q4_K_M file."""
    from archsim.counts.formats import choose_formats
    from archsim.spec.load import load_model

    assert choose_formats(load_model("llama3.2-1b"), "gguf_q4_k_m").tensors["embedding.tokens"].name == "q6_k"
    assert choose_formats(load_model("llama3.1-8b"), "gguf_q4_k_m").tensors["embedding.tokens"].name == "q4_k"


def test_importance_matrix() -> None:
    """Changes Q4_0 and IQ4_XS, nothing that needs one anyway, and nothing else."""

    def size(name: str, imatrix: bool | None) -> int:
        return archsim.count("llama3.1-8b", weights=name, imatrix=imatrix).weight_bytes

    assert size("gguf_q4_0", True) > size("gguf_q4_0", None) == size("gguf_q4_0", False)
    assert size("gguf_iq4_xs", True) < size("gguf_iq4_xs", False)
    assert size("gguf_iq3_xxs", True) == size("gguf_iq3_xxs", False)
    assert size("fp8", True) == size("fp8", False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_document(path: Path) -> None:
    """Loads, has a source, and names only formats that there are."""
    spec = load_format(str(path))
    assert spec.sources and spec.name == path.stem
    if spec.mixture is not None:
        for use in (
            spec.mixture.default,
            spec.mixture.vectors,
            spec.mixture.kept,
            *(r.use for r in spec.mixture.rules),
        ):
            assert stored_format(use).bytes > 0


def test_no_two_documents_share_a_name() -> None:
    """Names and aliases, however spelt, are unique."""
    seen: dict[str, str] = {}
    for path in FOLDER.glob("*.yaml"):
        document = yaml.safe_load(path.read_text())
        for name in {document["name"], *document.get("aliases", ())}:
            assert seen.setdefault(re.sub("[-_ ]", "", name.lower()), path.stem) == path.stem


def test_bytes_or_a_mixture() -> None:
    """One of the two, not both and not none."""
    with pytest.raises(ValueError, match="either"):
        FormatSpec(name="x", title="x", compute="bf16")


def test_a_format_of_a_folder_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document below `./specs` stands for its name there, and not in the next folder of the same process."""
    shipped = load_format("q8_0").format()
    own = tmp_path / "specs" / "formats" / "q8_0.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("name: q8_0\ntitle: own\nbytes: 40\nblock: [32, 1]\ncompute: int8\nkv: true\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert stored_format("q8_0").bytes == 40
    monkeypatch.chdir(tmp_path.parent)
    assert stored_format("q8_0") == shipped


def test_blocks_have_a_size_that_a_tensor_could_hold(tmp_path: Path) -> None:
    """Blocks of 9e18 elements, whose cache took no bytes, are refused."""
    own = tmp_path / "wide.yaml"
    own.write_text(f"name: wide\ntitle: w\nbytes: 1\nblock: [{2**63 - 1}, 1]\ncompute: int8\n", encoding="utf-8")
    with pytest.raises(SpecError, match="65536"):
        load_format(str(own))
