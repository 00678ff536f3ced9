"""Reduced models: the same blocks, small, and valid."""

from __future__ import annotations

import torch

from archsim.backend.module import Encoded, build
from archsim.backend.oracle import param_count
from archsim.spec.model import Model
from archsim.spec.tiny import tiny


def test_tiny_runs(any_model: Model) -> None:
    """Every kind of block still runs after its sizes were reduced."""
    small = tiny(any_model)
    ids = torch.randint(small.vocab_size, (1, 12))
    net = build(small, "cpu")
    output = net(ids, source=net.source_of(ids))
    assert (output.hidden if isinstance(output, Encoded) else output).isfinite().all()


def test_tiny_is_a_valid_spec(any_model: Model) -> None:
    """The reduced model passes the validation of a written one."""
    small = tiny(any_model)
    assert Model.model_validate(small.model_dump(exclude_none=True)).d_model == small.d_model


def test_tiny_of_a_large_model() -> None:
    """Sizes of a large model shrink by name and in step; its pattern and its head ratios stay."""
    attention = {"kind": "gqa", "n_heads": 64, "n_kv_heads": 8, "d_head": 128}
    expert = {"kind": "swiglu", "d_ff": 2048}
    router = {"groups": 8, "top_groups": 4, "score": "sigmoid", "selection_bias": True}
    moe = {"kind": "moe", "n_experts": 256, "top_k": 8, "expert": expert, "router": router}
    norm = {"kind": "rmsnorm"}
    large = Model.model_validate({
        "name": "large", "d_model": 7168, "vocab_size": 128000, "final_norm": norm,
        "layers": [
            {"repeat": 3, "norm": norm, "attention": attention, "ffn": expert},
            {"repeat": 58, "norm": norm, "attention": attention, "ffn": moe},
        ],
    })  # fmt: skip
    small = tiny(large)
    kept, routed = small.layers[1].attention, small.layers[1].ffn
    assert (small.d_model, small.vocab_size, [layer.repeat for layer in small.layers]) == (64, 128, [2, 2])
    assert (kept.n_heads, kept.n_kv_heads, kept.d_head) == (4, 2, 16)
    assert (routed.n_experts, routed.top_k, routed.router.groups, routed.router.top_groups) == (8, 2, 4, 2)
    assert param_count(small) < 300_000
