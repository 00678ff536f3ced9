"""Llama and its kin, and Gemma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend_parity import (
    COMMON,
    FOUR_NORMS,
    HEAD_NORMS,
    NORMS,
    RMS,
    ROPE,
    SWIGLU,
    TIED,
    UNIT,
    UNTIED,
    F,
    Family,
    attention,
    gqa,
    layer,
    one,
    rope,
    scaled,
    spec,
)


def _llama(settings: Mapping[str, Any], **fields: Any) -> Family:
    return Family(
        config="LlamaConfig",
        model="LlamaForCausalLM",
        settings=settings,
        top=UNTIED,
        spec=spec(layer(attention=gqa(**fields))),
        layers=one(attention(), SWIGLU, NORMS),
    )


def _llamas() -> dict[str, Family]:
    low = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    short, long = (1.0, 1.1, 1.2, 1.3), (2.0, 2.1, 2.2, 2.3)
    lists = {"short_factor": list(short), "long_factor": list(long)}
    return {
        "llama": _llama(COMMON),
        "llama-linear": _llama(scaled("linear"), position=rope("linear")),
        "llama-3": _llama(scaled("llama3", **low), position=rope("llama3", **low)),
        "llama-yarn": _llama(scaled("yarn"), position=rope("yarn")),
        "llama-longrope": _llama(
            scaled("longrope", **lists), position=rope("longrope", short_factor=short, long_factor=long)
        ),
        "mistral": Family(
            config="MistralConfig",
            model="MistralForCausalLM",
            settings=COMMON | {"sliding_window": 5},
            top=UNTIED,
            spec=spec(layer(attention=gqa(mask={"kind": "sliding", "window": 5}))),
            layers=one(attention(), SWIGLU, NORMS),
        ),
        "qwen2": Family(
            config="Qwen2Config",
            model="Qwen2ForCausalLM",
            settings=COMMON,
            top=UNTIED,
            spec=spec(layer(attention=gqa(qkv_bias=True))),
            layers=one(attention("q k v"), SWIGLU, NORMS),
        ),
        "qwen3": Family(
            config="Qwen3Config",
            model="Qwen3ForCausalLM",
            settings=COMMON | {"head_dim": 16},
            top=UNTIED,
            spec=spec(layer(attention=gqa(d_head=16, qk_norm=RMS))),
            layers=one(attention(**HEAD_NORMS), SWIGLU, NORMS),
        ),
        "olmo2": Family(
            config="Olmo2Config",
            model="Olmo2ForCausalLM",
            settings=COMMON,
            top=UNTIED,
            spec=spec(layer(placement="post_inside", attention=gqa(qk_norm=RMS | {"over": "all"}))),
            layers=one(attention(**HEAD_NORMS), SWIGLU, {k: v for k, v in FOUR_NORMS.items() if "post" in k}),
        ),
    }


SLIDING = {"kind": "sliding", "window": 5}
GEMMA_SETTINGS = COMMON | {
    "head_dim": 16, "tie_word_embeddings": True, "query_pre_attn_scalar": 20, "num_hidden_layers": 6,
    "sliding_window": 5,
}  # fmt: skip
GEMMA_FFN = {"kind": "geglu", "activation": "gelu_tanh", "d_ff": F}
GEMMA_LAYER = layer(placement="pre+post", norm=UNIT, ffn=GEMMA_FFN, repeat=1)


def _gemma(name: str, repeat: int, local: dict[str, Any], full: dict[str, Any], cap: float | None) -> dict[str, Any]:
    """Local layers and a global one, repeated."""
    group = [GEMMA_LAYER | {"name": "local"} | local, GEMMA_LAYER | {"name": "full"} | full]
    head = {"tied": True} if cap is None else {"tied": True, "softcap": cap}
    embedding = {"scale": "sqrt_d_model"}
    return spec({"repeat": repeat, "layers": group}, name=name, final_norm=UNIT, embedding=embedding, head=head)


def _gemma2() -> Family:
    own = {"d_head": 16, "scale": 20**-0.5, "softcap": 50.0}
    table = {**attention(), **SWIGLU, **FOUR_NORMS}
    local, full = {"attention": gqa(mask=SLIDING, **own)}, {"attention": gqa(**own)}
    return Family(
        config="Gemma2Config",
        model="Gemma2ForCausalLM",
        top=TIED,
        settings=GEMMA_SETTINGS | {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 50.0},
        spec=_gemma("gemma2", 3, local, full, 3.0),
        layers={"layers.local": ((0, 2, 4), table), "layers.full": ((1, 3, 5), table)},
    )


def _gemma3() -> Family:
    own = {"d_head": 16, "scale": 20**-0.5, "qk_norm": UNIT}
    table = {**attention(**HEAD_NORMS), **SWIGLU, **FOUR_NORMS}
    bases = {"sliding_attention": 1e4, "full_attention": 1e6}
    thetas = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in bases.items()}
    pattern = [*["sliding_attention"] * 2, "full_attention"] * 2
    local = {"repeat": 2, "attention": gqa(mask=SLIDING, **own)}
    full = {"attention": gqa(**own | {"position": ROPE | {"theta": 1e6}})}
    return Family(
        config="Gemma3TextConfig",
        model="Gemma3ForCausalLM",
        top=TIED,
        settings=GEMMA_SETTINGS | {"layer_types": pattern, "rope_parameters": thetas},
        spec=_gemma("gemma3", 2, local, full, None),
        layers={"layers.local": ((0, 1, 3, 4), table), "layers.full": ((2, 5), table)},
    )


FAMILIES: dict[str, Family] = {**_llamas(), "gemma2": _gemma2(), "gemma3": _gemma3()}
"""Every family by name."""
