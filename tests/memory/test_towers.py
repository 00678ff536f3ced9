"""Vision and audio encoders in memory: their weights, and what engines keep free for them."""

from __future__ import annotations

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.memory.check_fit import Fit

LAYER = {"norm": {"kind": "layernorm"}, "attention": {"kind": "mha", "n_heads": 12, "d_head": 64,
         "mask": {"kind": "bidirectional"}}, "ffn": {"kind": "mlp", "d_ff": 3072}}  # fmt: skip
VISION = {
    "name": "vision",
    "stages": [
        {"kind": "patches", "d": 768, "size": 16},
        {"kind": "layers", "layers": [{"repeat": 12, **LAYER}]},
        {"kind": "linear", "d": 2048},
    ],
    "images": {"resize": "area", "factor": 16, "min_pixels": 65536, "max_pixels": 1048576},
}
SPEC = {
    "name": "seeing", "d_model": 2048, "vocab_size": 32000, "max_context": 8192,
    "layers": [{"repeat": 16, "norm": {"kind": "rmsnorm"},
                "attention": {"kind": "gqa", "n_heads": 32, "n_kv_heads": 8, "d_head": 64},
                "ffn": {"kind": "swiglu", "d_ff": 8192}}],
    "final_norm": {"kind": "rmsnorm"}, "head": {"tied": False}, "weights": {"default": "bf16"}, "towers": [VISION],
}  # fmt: skip


def fitted(engine: str = "generic", **options: object) -> Fit:
    """The fit of the small model."""
    return a.fit(SPEC, "h100", engine=engine, max_model_len=4096, suggest=False, **options)  # type: ignore[arg-type]


def size() -> int:
    """Bytes of the tower."""
    params = a.count(SPEC).to_dict()["params"]["towers"]["vision"]
    assert params > 12 * (4 * 768**2 + 2 * 768 * 3072)
    return 2 * int(params)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["generic", "vllm", "sglang"])
def test_towers_are_among_the_weights(engine: str) -> None:
    """Unless they are left out; estimate and fit agree."""
    with_tower, without = fitted(engine), fitted(engine, without="vision")
    assert with_tower.budget.weights - without.budget.weights == size()
    assert with_tower.to_dict()["per_device"]["towers"] == {"vision": size()}
    estimated = a.estimate(SPEC, "h100", engine=engine, input_len=4000, output_len=96)
    assert estimated.memory.weights == with_tower.budget.weights
    if engine != "generic":  # whose activations are those of the prompt
        assert estimated.memory.kv_tokens == with_tower.kv_tokens


def test_ranks_that_divide_the_heads_share_a_tower() -> None:
    """12 heads are cut over 4 devices, and are whole on each of 8; on the first stage of a pipeline alone."""
    cut, whole = (fitted(tp=tp).to_dict()["per_device"]["towers"]["vision"] for tp in (4, 8))
    assert (cut, whole) == (-(-size() // 4), size())
    both = fitted(pp=2)
    assert fitted(pp=2, without="vision").budget.weights < both.budget.weights + size()


def test_llamacpp_loads_encoders_that_are_asked_for() -> None:
    """They are a file of their own."""
    assert fitted("llama.cpp").budget.weights == fitted("llama.cpp", without="vision").budget.weights
    assert fitted("llama.cpp", parts=["vision"]).budget.weights == fitted("llama.cpp").budget.weights + size()


def test_vllm_profiles_the_largest_images() -> None:
    """4,096 tokens each, two of them in a step of 8,192, more than a step of the language model takes: the products of
    the widest layer and the residual stream, as of that model.
    """
    wide = fitted("vllm", max_num_batched_tokens=8192, max_num_seqs=1)
    patches = 8192
    assert wide.budget.activations >= (patches * (3072 + 2 * 768)) * 2
    lean = fitted("vllm", max_num_batched_tokens=8192, max_num_seqs=1, without="vision")
    assert wide.budget.activations == lean.budget.activations + patches * 2048 * 2


def test_sglang_lowers_its_fraction() -> None:
    """By 5 %, and less for an encoder smaller than ViT-L/14; by 10 % before 0.5."""
    shares = {v: [fitted(f"sglang{v}", **o).budget.share for o in ({}, {"without": "vision"})] for v in ("", "@0.4.6")}
    assert shares[""][0] / shares[""][1] == pytest.approx(0.95 * 1.05)  # 12 x 768² is 0.28 of 24 x 1024²
    assert shares["@0.4.6"][0] / shares["@0.4.6"][1] == pytest.approx(0.9)
    asked = fitted("sglang", mem_fraction_static=0.8)
    assert asked.budget.share == 0.8


def test_other_names_are_refused() -> None:
    """Nothing is left out silently."""
    with pytest.raises(UsageError, match="no tower `sound`"):
        fitted(without="sound")
