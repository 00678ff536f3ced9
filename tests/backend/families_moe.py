"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

from backend_parity import (
    COMMON,
    HEAD_NORMS,
    NORMS,
    RMS,
    SWIGLU,
    UNTIED,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    attention,
    columns,
    gqa,
    layer,
    one,
    renamed,
    rope,
    scaled,
    spec,
    stacked,
)
from torch import Tensor


def _experts(prefix: str, width: int) -> dict[str, Entry]:
    return {
        "moe.w_gate": (prefix + "gate_up_proj", stacked(0, width)),
        "moe.w_up": (prefix + "gate_up_proj", stacked(width, 2 * width)),
        "moe.w_down": (prefix + "down_proj", stacked(0, D)),
    }


MLP, WIDTH = "model.layers.{i}.mlp.", 24
MIXTRAL = {"kind": "moe", "n_experts": 6, "top_k": 2, "expert": {"kind": "swiglu", "d_ff": F}}
ROUTER: Table = {"moe.w_router": MLP + "gate.weight"}


def _mixtral() -> Family:
    return Family(
        config="MixtralConfig",
        model="MixtralForCausalLM",
        top=UNTIED,
        settings=COMMON | {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": None},
        spec=spec(layer(attention=gqa(), ffn=MIXTRAL)),
        layers=one(attention(), NORMS, _experts(MLP + "experts.", F), ROUTER),
    )


def _qwen3_moe() -> Family:
    settings = {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH, "norm_topk_prob": True,
        "head_dim": 8,
    }  # fmt: skip
    ffn = MIXTRAL | {"expert": {"kind": "swiglu", "d_ff": WIDTH}}
    return Family(
        config="Qwen3MoeConfig",
        model="Qwen3MoeForCausalLM",
        top=UNTIED,
        settings=COMMON | settings,
        spec=spec(layer(attention=gqa(qk_norm=RMS), ffn=ffn)),
        layers=one(attention(**HEAD_NORMS), NORMS, _experts(MLP + "experts.", WIDTH), ROUTER),
    )


def _gpt_oss_table() -> dict[str, Entry]:
    halves = {
        f"moe.{kind}_{n}": (f"{MLP}experts.gate_up_proj{end}", lambda w, i=i: w[..., i::2])
        for i, n in enumerate(("gate", "up"))
        for kind, end in (("w", ""), ("b", "_bias"))
    }
    return {
        **attention("q k v o", **{"core.sinks": "sinks"}), **NORMS, **halves,
        "moe.w_router": MLP + "router.weight", "moe.b_router": MLP + "router.bias",
        "moe.w_down": (MLP + "experts.down_proj", lambda w: w), "moe.b_down": MLP + "experts.down_proj_bias",
    }  # fmt: skip


def _gpt_oss() -> Family:
    settings = {
        "num_hidden_layers": 4, "head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2,
        "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2,
    }  # fmt: skip
    expert = {"kind": "swiglu", "d_ff": F, "bias": True, "clamp": 7.0, "alpha": 1.702}
    router = {"order": "topk_then_score", "bias": True}
    base = layer(repeat=1, ffn=MIXTRAL | {"expert": expert, "router": router})
    own = {"bias": True, "sinks": True, "position": rope("yarn", truncate=False)}
    local = base | {"name": "local", "attention": gqa(mask={"kind": "sliding", "window": 5}, **own)}
    full, table = base | {"name": "full", "attention": gqa(**own)}, _gpt_oss_table()
    return Family(
        config="GptOssConfig",
        model="GptOssForCausalLM",
        top=UNTIED,
        settings=scaled("yarn", truncate=False, beta_fast=32.0, beta_slow=1.0) | settings,
        spec=spec({"repeat": 2, "layers": [local, full]}),
        layers={"layers.local": ((0, 2), table), "layers.full": ((1, 3), table)},
    )


NOPE, TURNED, VALUE, LATENT = 8, 4, 6, 12
YARN = {"mscale": 1.0, "mscale_all_dim": 0.7}
DEEPSEEK_SETTINGS = scaled("yarn", **YARN) | {
    "q_lora_rank": 10, "kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": TURNED,
    "v_head_dim": VALUE, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": WIDTH, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
    "norm_topk_prob": True, "num_key_value_heads": N, "rope_interleave": True,
}  # fmt: skip
MLA = {
    "kind": "mla", "n_heads": N, "q_rank": 10, "kv_rank": LATENT, "d_nope": NOPE, "d_rope": TURNED,
    "d_v": VALUE, "norm": RMS, "position": rope("yarn", **YARN) | {"interleaved": True},
}  # fmt: skip


def _mla_table() -> dict[str, Entry]:
    """Two up-projections per latent, stacked head by head in one matrix."""

    def rows(start: int, stop: int, size: int) -> Callable[[Tensor], Tensor]:
        return lambda w: w.reshape(N, size, -1)[:, start:stop].flatten(0, 1).T

    a, query, pair = "model.layers.{i}.self_attn.", NOPE + TURNED, NOPE + VALUE
    table: dict[str, Entry] = {
        "w_q_down": a + "q_a_proj.weight", "q_norm": a + "q_a_layernorm.weight",
        "w_q_nope": (a + "q_b_proj.weight", rows(0, NOPE, query)),
        "w_q_rope": (a + "q_b_proj.weight", rows(NOPE, query, query)),
        "w_kv_down": (a + "kv_a_proj_with_mqa.weight", columns(0, LATENT)),
        "w_k_rope": (a + "kv_a_proj_with_mqa.weight", columns(LATENT, LATENT + TURNED)),
        "kv_norm": a + "kv_a_layernorm.weight", "w_o": a + "o_proj.weight",
        "w_uk": (a + "kv_b_proj.weight", rows(0, NOPE, pair)),
        "w_uv": (a + "kv_b_proj.weight", rows(NOPE, pair, pair)),
    }  # fmt: skip
    return {**NORMS, **renamed(table, "attention.", "")}


def _deepseek() -> Family:
    table = _mla_table()
    shared = {f"moe.shared.w_{n}": f"{MLP}shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    bias = {"moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    routed = {**table, **_experts(MLP + "experts.", WIDTH), **shared, **ROUTER, **bias}
    router = {"score": "sigmoid", "selection_bias": True, "groups": 4, "top_groups": 2, "scale": 2.5}
    expert = {"kind": "swiglu", "d_ff": WIDTH}
    moe = {"kind": "moe", "n_experts": 8, "top_k": 3, "expert": expert, "shared": expert, "router": router}
    first = layer(name="dense", repeat=1, attention=MLA)
    return Family(
        config="DeepseekV3Config",
        model="DeepseekV3ForCausalLM",
        top=UNTIED,
        settings=DEEPSEEK_SETTINGS,
        spec=spec(first, layer(name="sparse", repeat=2, attention=MLA, ffn=moe)),
        layers={"dense": ((0,), {**table, **SWIGLU}), "sparse": ((1, 2), routed)},
    )


FAMILIES: dict[str, Family] = {
    "mixtral": _mixtral(), "qwen3-moe": _qwen3_moe(), "gpt-oss": _gpt_oss(), "deepseek-v3": _deepseek(),
}  # fmt: skip
"""Every family by name."""
