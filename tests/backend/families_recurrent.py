"""Families with a recurrent token mixer."""

from __future__ import annotations

from collections.abc import Callable

from backend_parity import (
    COMMON,
    HALF,
    HALF_ROPE,
    NORMS,
    RMS,
    SWIGLU,
    UNIT,
    UNTIED,
    VOCAB,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    attention,
    columns,
    dense,
    gqa,
    imported,
    layer,
    one,
    per_head,
    projections,
    renamed,
    spec,
)
from torch import Tensor

SSM_TOP: Table = {"embedding.tokens": "backbone.embeddings.weight", "final_norm": "backbone.norm_f.weight"}


def _mamba() -> Family:
    inner, states, rank, m = 2 * D, 5, 2, "mixer."
    bounds = {"dt_down": (0, rank), "B": (rank, rank + states), "C": (rank + states, rank + 2 * states)}
    table: dict[str, Entry] = {
        **{f"w_{n}": (m + "x_proj.weight", columns(*b)) for n, b in bounds.items()},
        "w_x": (m + "in_proj.weight", columns(0, inner)),
        "w_z": (m + "in_proj.weight", columns(inner, 2 * inner)),
        "conv_w": m + "conv1d.weight",
        "conv_b": m + "conv1d.bias",
        "w_dt": m + "dt_proj.weight",
        "b_dt": m + "dt_proj.bias",
        "A_log": m + "A_log",
        "D_skip": m + "D",
        "w_out": m + "out_proj.weight",
    }
    norm, mixer = RMS | {"eps": 1e-5}, {"kind": "mamba", "d_inner": inner, "d_state": states, "dt_rank": rank}
    return Family(
        config="MambaConfig",
        model="MambaForCausalLM",
        top=SSM_TOP,
        settings={"hidden_size": D, "state_size": states, "num_hidden_layers": 3, "vocab_size": VOCAB},
        spec=spec(layer(norm=norm, mixer=mixer, ffn=None), final_norm=norm, head={"tied": True}),
        layers=one(renamed(table, "mixer.", "backbone.layers.{i}."), {"mixer_norm": "backbone.layers.{i}.norm.weight"}),
    )


def _mamba2() -> Family:
    inner, heads, states, groups, m = 2 * D, 8, 5, 2, "mixer."
    widths = (("z", inner), ("x", inner), ("B", groups * states), ("C", groups * states), ("dt", heads))
    table: dict[str, Entry] = {
        "A_log": m + "A_log",
        "D_skip": m + "D",
        "dt_bias": m + "dt_bias",
        "norm": m + "norm.weight",
        "w_out": m + "out_proj.weight",
    }
    start = 0
    for name, width in widths:
        table["w_" + name] = (m + "in_proj.weight", columns(start, start + width))
        if name in ("x", "B", "C"):
            rows = slice(start - inner, start - inner + width)
            table[f"conv_{name}_w"] = (m + "conv1d.weight", lambda w, rows=rows: w[rows])
            table[f"conv_{name}_b"] = (m + "conv1d.bias", lambda w, rows=rows: w[rows])
        start += width
    norm = RMS | {"eps": 1e-5}
    mixer = {
        "kind": "mamba2",
        "n_heads": heads,
        "d_head": inner // heads,
        "d_state": states,
        "n_groups": groups,
        "chunk": 4,
        "norm": norm,
    }
    return Family(
        config="Mamba2Config",
        model="Mamba2ForCausalLM",
        top={**SSM_TOP, "head.w_logits": "lm_head.weight"},
        settings={
            "hidden_size": D,
            "state_size": states,
            "num_hidden_layers": 3,
            "vocab_size": VOCAB,
            "num_heads": heads,
            "head_dim": inner // heads,
            "n_groups": groups,
            "expand": 2,
            "chunk_size": 4,
            "tie_word_embeddings": False,
        },
        spec=spec(layer(norm=norm, mixer=mixer, ffn=None), final_norm=norm),
        layers=one(renamed(table, "mixer.", "backbone.layers.{i}."), {"mixer_norm": "backbone.layers.{i}.norm.weight"}),
    )


KEYS, GROUPS, WIDE, VALUE = 2, 2, 6, 5


def _delta_table() -> dict[str, Entry]:
    """Queries, keys, values and gate of each key head share one matrix; the convolution is by kind."""
    m, start, channel = "linear_attn.", 0, 0
    sizes = {"q": WIDE, "k": WIDE, "v": GROUPS * VALUE, "z": GROUPS * VALUE}
    table: dict[str, Entry] = {
        "dt_bias": m + "dt_bias", "A_log": m + "A_log", "norm": m + "norm.weight",
        "w_o": m + "out_proj.weight",
    }  # fmt: skip

    def rows(start: int, stop: int, size: int) -> Callable[[Tensor], Tensor]:
        return lambda w: w.reshape(KEYS, size, -1)[:, start:stop].flatten(0, 1).T

    for name, size in sizes.items():
        table["w_" + name] = (m + "in_proj_qkvz.weight", rows(start, start + size, sum(sizes.values())))
        if name != "z":
            part = slice(channel, channel + KEYS * size)
            table[f"conv_{name}_w"] = (m + "conv1d.weight", lambda w, part=part: w[part])
        start, channel = start + size, channel + KEYS * size
    for i, name in enumerate(("beta", "decay")):
        table["w_" + name] = (m + "in_proj_ba.weight", rows(i * GROUPS, (i + 1) * GROUPS, 2 * GROUPS))
    return renamed(table, "mixer.", "model.layers.{i}.")


def _qwen3_next() -> Family:
    second: Table = {**SWIGLU, "ffn_norm": NORMS["ffn_norm"]}
    gated = attention(q_norm="q_norm.weight", k_norm="k_norm.weight")
    q = "model.layers.{i}.self_attn.q_proj.weight"
    gated |= {"attention.w_q": (q, per_head(0, 2)), "attention.w_gate": (q, per_head(1, 2))}
    linear = {**_delta_table(), "mixer_norm": NORMS["attention_norm"], **second}
    mixer = {
        "kind": "gated_delta_net", "n_key_heads": KEYS, "n_value_heads": KEYS * GROUPS, "d_key": WIDE,
        "d_value": VALUE, "chunk": 4, "norm": RMS,
    }  # fmt: skip
    settings = {
        "num_hidden_layers": 4, "head_dim": D // N, "num_experts": 0, "rope_parameters": HALF,
        "layer_types": ["linear_attention", "full_attention"] * 2, "linear_num_key_heads": KEYS,
        "linear_num_value_heads": KEYS * GROUPS, "linear_key_head_dim": WIDE, "linear_value_head_dim": VALUE,
    }  # fmt: skip
    own = gqa(qk_norm=UNIT, gate={"per": "element"}, position=HALF_ROPE)
    base = layer(norm=UNIT, repeat=1)
    group = [base | {"name": "linear", "mixer": mixer}, base | {"name": "full", "attention": own}]
    return Family(
        config="Qwen3NextConfig",
        model="Qwen3NextForCausalLM",
        top=UNTIED,
        settings=COMMON | settings,
        spec=spec({"repeat": 2, "layers": group}, final_norm=UNIT),
        layers={"layers.linear": ((0, 2), linear), "layers.full": ((1, 3), {**gated, **NORMS, **second})},
    )


def _griffin_tables() -> tuple[Table, Table]:
    """Recurrent layers and those with attention."""
    h = "model.layers.{i}."
    t, norm, lru = h + "temporal_block.", h + "temporal_pre_norm.weight", h + "temporal_block.rg_lru."
    ffn = dense("ffn.", {n: f"{h}mlp_block.{n}_proj" for n in ("gate", "up", "down")})
    ffn |= {"ffn_norm": h + "channel_pre_norm.weight"}
    gates = {
        f"mixer.{kind}_{ours}": f"{lru}{theirs}_{end}"
        for ours, theirs in (("input_gate", "input_gate"), ("recurrence_gate", "recurrent_gate"))
        for kind, end in (("w", "weight"), ("b", "bias"))
    }
    recurrent: dict[str, Entry] = {
        **ffn, **gates, "mixer_norm": norm, "mixer.lambda": lru + "recurrent_param",
        **dense("mixer.", {n: f"{t}linear_{n}" for n in ("x", "y", "out")}),
        "mixer.conv_w": t + "conv_1d.weight", "mixer.conv_b": t + "conv_1d.bias",
    }  # fmt: skip
    return recurrent, {**ffn, "attention_norm": norm, **renamed(projections(bias="o"), "attention.", t)}


def _recurrent_gemma() -> Family:
    width = 64  # a width whose root bfloat16 holds exactly
    rope = {"kind": "rope", "dim": 8}
    local = {"kind": "mqa", "n_heads": N, "d_head": 16, "out_bias": True, "position": rope}
    base = layer(norm=UNIT, ffn={"kind": "geglu", "activation": "gelu_tanh", "d_ff": F, "bias": True})
    lru = base | {"name": "lru", "repeat": 2, "mixer": {"kind": "rg_lru", "d_inner": width, "n_blocks": N}}
    settings = {
        "hidden_size": width, "lru_width": width, "num_attention_heads": N, "num_key_value_heads": 1,
        "num_hidden_layers": 6, "vocab_size": VOCAB, "intermediate_size": 2 * F, "rope_parameters": HALF,
        "logits_soft_cap": 30.0, "attn_implementation": "eager",
    }  # fmt: skip
    group = {"repeat": 2, "layers": [lru, base | {"name": "local", "repeat": 1, "attention": local}]}
    surround = {"embedding": {"scale": "sqrt_d_model"}, "head": {"tied": True, "softcap": 30.0}}
    recurrent, own = _griffin_tables()
    return Family(
        config="RecurrentGemmaConfig",
        model="RecurrentGemmaForCausalLM",
        top={"embedding.tokens": "model.embed_tokens.weight", "final_norm": "model.final_norm.weight"},
        settings=settings,
        spec=spec(group, d_model=width, final_norm=UNIT, **surround),
        layers={"layers.lru": ((0, 1, 3, 4), recurrent), "layers.local": ((2, 5), own)},
    )


def _xlstm() -> Family:
    """A matrix memory, read through a norm per head and a gate; chunks of four tokens and a rest."""
    m, f = "backbone.blocks.{i}.mlstm_layer.", "backbone.blocks.{i}.ffn."
    names = {"q": "q", "k": "k", "v": "v", "z": "ogate_preact", "o": "out_proj"}
    table: dict[str, Entry] = {f"mixer.w_{a}": f"{m}{b}.weight" for a, b in names.items()}
    table |= dense("mixer.", {"input_gate": m + "igate_preact", "forget_gate": m + "fgate_preact"})
    table |= {
        "mixer.norm": m + "multihead_norm.weight", "mixer_norm": "backbone.blocks.{i}.norm_mlstm.weight",
        "ffn_norm": "backbone.blocks.{i}.norm_ffn.weight", "ffn.w_gate": f + "proj_up_gate.weight",
        "ffn.w_up": f + "proj_up.weight", "ffn.w_down": f + "proj_down.weight",
    }  # fmt: skip
    settings = {
        "hidden_size": 128, "vocab_size": VOCAB, "num_hidden_layers": 3, "num_heads": N, "chunk_size": 4,
        "ffn_round_up_to_multiple_of": 8,
    }  # fmt: skip
    top: Table = {"embedding.tokens": "backbone.embeddings.weight", "final_norm": "backbone.out_norm.weight",
                  "head.w_logits": "lm_head.weight"}  # fmt: skip
    return imported("xLSTMForCausalLM", "xlstm", settings, top, table)


FAMILIES: dict[str, Family] = {
    "mamba": _mamba(),
    "mamba2": _mamba2(),
    "qwen3-next": _qwen3_next(),
    "recurrent-gemma": _recurrent_gemma(),
    "xlstm": _xlstm(),
}
"""Every family by name."""
