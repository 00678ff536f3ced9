"""Decoders whose weights have the usual names: a configuration, and what is called otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
import transformers
from backend_families_delta import latent_tables
from backend_families_imported import GROUPS, KEYS, VALUE, delta_table
from backend_families_imported import WIDE as KEY_WIDTH
from backend_parity import COMMON, D, Entry, Family, N, Table, affine, columns, dense, imported, per_head, renamed
from torch import Tensor

WIDTH = 24
QKV = (0, D), (D, D + 2 * D // N), (D + 2 * D // N, D + 4 * D // N)
"""Rows of queries, keys and values in one matrix, of four query heads and two key/value heads."""


def half(i: int) -> Callable[[Tensor], Tensor]:
    """Gate (0) or up (1) of every expert, which lie side by side as (experts, out, in)."""
    return lambda w: w.chunk(2, 1)[i].transpose(1, 2)


def turned(w: Tensor) -> Tensor:
    """(experts, out, in) as (experts, in, out)."""
    return w.transpose(1, 2)


def rows(part: int, parts: int) -> Callable[[Tensor], Tensor]:
    """One of equal parts of an (out, in) matrix or of a bias."""
    return lambda w: w.chunk(parts, 0)[part].T if w.ndim == 2 else w.chunk(parts, 0)[part]


def _attention(a: str) -> Iterator[tuple[str, Entry]]:
    for n in "qkv":
        yield f"attention.w_{n}", f"{a}{n}_proj.weight"
        yield f"attention.b_{n}", f"{a}{n}_proj.bias"
    for i, n in enumerate(("q", "k", "v")):
        yield f"attention.w_{n}", (f"{a}qkv_proj.weight", columns(*QKV[i]))
    for out in ("o_proj", "out_proj", "dense"):
        yield "attention.w_o", f"{a}{out}.weight"
        yield "attention.b_o", f"{a}{out}.bias"
    for n, norm in (("q", "q_norm"), ("k", "k_norm"), ("q", "query_layernorm"), ("k", "key_layernorm"),
                    ("q", "q_layernorm"), ("k", "k_layernorm")):  # fmt: skip
        yield f"attention.{n}_norm", f"{a}{norm}.weight"
    yield "attention.core.sinks", f"{a}sinks"
    yield "attention.w_gate", f"{a}gate_proj.weight"
    yield "attention.w_gate", f"{a}g_proj.weight"


def _feed_forward(m: str) -> Iterator[tuple[str, Entry]]:
    for n in ("gate", "up", "down"):
        yield f"ffn.w_{n}", f"{m}{n}_proj.weight"
        yield f"ffn.b_{n}", f"{m}{n}_proj.bias"
        for inner in ("shared_experts.", "shared_expert.", "shared_mlp."):
            yield f"moe.shared.w_{n}", f"{m}{inner}{n}_proj.weight"
    for i, n in enumerate(("gate", "up")):
        yield f"ffn.w_{n}", (f"{m}gate_up_proj.weight", rows(i, 2))
        yield f"moe.w_{n}", (f"{m}experts.gate_up_proj", half(i))
    yield "moe.w_down", (f"{m}experts.down_proj", turned)
    for router in ("gate", "router", "router.gate", "gate.wg"):
        yield "moe.w_router", f"{m}{router}.weight"
    for bias in (
        "gate.e_score_correction_bias",
        "e_score_correction_bias",
        "router.e_score_correction_bias",
        "gate.moe_statics.e_score_correction_bias",
        "moe_statics.e_score_correction_bias",
        "expert_bias",
    ):
        yield "moe.selection_bias", m + bias
    yield "moe.w_shared_gate", f"{m}shared_expert_gate.weight"


def _norms(layer: str) -> Iterator[tuple[str, Entry]]:
    for part, name in (("attention_norm", "input_layernorm"), ("norm", "input_layernorm"),
                       ("ffn_norm", "pre_feedforward_layernorm"), ("ffn_norm", "post_attention_layernorm"),
                       ("attention_post_norm", "post_attention_layernorm"),
                       ("ffn_post_norm", "post_feedforward_layernorm"),
                       ("ffn_post_norm", "post_mlp_layernorm")):  # fmt: skip
        yield part, f"{layer}{name}.weight"
        yield part + "_bias", f"{layer}{name}.bias"


def _candidates() -> Iterator[tuple[str, Entry]]:
    layer = "model.layers.{i}."
    yield from _norms(layer)
    yield from _attention(layer + "self_attn.")
    for block in ("mlp.", "feed_forward.", "block_sparse_moe."):
        yield from _feed_forward(layer + block)


TOP: tuple[tuple[str, Entry], ...] = (
    ("embedding.tokens", "model.embed_tokens.weight"), ("final_norm", "model.norm.weight"),
    ("final_norm_bias", "model.norm.bias"), ("head.w_logits", "lm_head.weight"), ("head.b_logits", "lm_head.bias"),
)  # fmt: skip


def held(candidates: Iterator[tuple[str, Entry]] | tuple[tuple[str, Entry], ...], names: set[str]) -> Table:
    """The first entry of every weight that a model has for some layer."""
    found: dict[str, Entry] = {}
    for ours, entry in candidates:
        name = entry if isinstance(entry, str) else str(entry[0])
        if ours not in found and any(name.format(i=i) in names for i in range(8)):
            found[ours] = entry
    return found


def usual(name: str, model_type: str, settings: Mapping[str, Any], *tables: Table, top: Table = {}) -> Family:  # noqa: B006
    """A family whose weights have the usual names but for those of the tables."""
    settings = deepcopy(dict(settings))
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(model_type, **deepcopy(settings))  # some write into what they get
        names = set(getattr(transformers, name)(config).state_dict())
    tied = {"head.w_logits"} if config.tie_word_embeddings else set()
    known = {k: v for k, v in held(TOP, names).items() if k not in tied}
    return imported(name, model_type, settings, known | dict(top), held(_candidates(), names), *tables)


LAYERS, MLP = "model.layers.{i}.", "model.layers.{i}.mlp."
MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 5}
WIDE = {"head_dim": 8}
ROUTED = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH}
DEEPSEEK = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
SOME = {"num_local_experts": 6, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "num_key_value_heads": N,
}  # fmt: skip
FACTORS = {
    "embedding_multiplier": 2.0, "logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
}  # fmt: skip
PADDED = {"pad_token_id": 0}


def kinds_of_rope(*kinds: str) -> dict[str, Any]:
    """A base of positions for each kind of layer."""
    bases = zip(kinds, (1e4, 1e5), strict=True)
    return {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in bases}}


BY_KIND = kinds_of_rope("sliding_attention", "full_attention")
YARN = {
    "type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
"""Beyond four tokens queries grow."""

SANDWICH = {
    "attention_post_norm": LAYERS + "post_self_attn_layernorm.weight",
    "ffn_post_norm": LAYERS + "post_mlp_layernorm.weight", "ffn_norm": LAYERS + "post_attention_layernorm.weight",
}  # fmt: skip
NUMBERED = {
    "attention_post_norm": LAYERS + "post_norm1.weight", "ffn_post_norm": LAYERS + "post_norm2.weight",
    "ffn_norm": LAYERS + "post_attention_layernorm.weight",
}  # fmt: skip
JOINED: Table = {
    "moe.shared.w_gate": (LAYERS + "shared_mlp.input_linear.weight", rows(0, 2)),
    "moe.shared.w_up": (LAYERS + "shared_mlp.input_linear.weight", rows(1, 2)),
    "moe.shared.w_down": LAYERS + "shared_mlp.output_linear.weight",
}  # fmt: skip
AS_USED: Table = {
    "moe.w_gate": (MLP + "experts.gate_up_proj", lambda w: w.chunk(2, -1)[0]),
    "moe.w_up": (MLP + "experts.gate_up_proj", lambda w: w.chunk(2, -1)[1]),
    "moe.w_down": (MLP + "experts.down_proj", lambda w: w),
}  # fmt: skip
"""Experts as (in, out)."""

INDEXER = renamed(
    {"w_q": "wq_b.weight", "w_k": "wk.weight", "w_weights": "weights_proj.weight"} | affine("k_norm", "k_norm"),
    "attention.indexer.", LAYERS + "self_attn.indexer.",
)  # fmt: skip


def other_half_first(w: Tensor) -> Tensor:
    """Rows of every head of eight with their halves swapped: nanochat turns pairs the other way."""
    return w.reshape(-1, 2, 4, w.shape[-1]).flip(1).reshape(w.shape).T


TURNED_BACK: Table = {f"attention.w_{n}": (f"{LAYERS}self_attn.{n}_proj.weight", other_half_first) for n in "qk"}


def two(first: str, second: str, bias: bool = True) -> Table:
    """A feed-forward layer of two matrices."""
    return dense("ffn.", {"up": MLP + first, "down": MLP + second}, bias)


def without(*keys: str) -> dict[str, Any]:
    """The usual settings but for some."""
    return {k: v for k, v in COMMON.items() if k not in keys}


NO_EPS = without("rms_norm_eps")
TABLES = {"latent": latent_tables(10, 12, 8, 4, 6)}

LIKE: dict[str, tuple[Any, ...]] = {
    "aria": ("AriaTextForCausalLM", "aria_text", COMMON | WIDE | {
        "moe_num_experts": 6, "moe_topk": 2, "moe_num_shared_experts": 2}, AS_USED),
    "arcee": ("ArceeForCausalLM", "arcee", COMMON | WIDE),
    "cohere2-moe": ("Cohere2MoeForCausalLM", "cohere2_moe", NO_EPS | WIDE | {
        "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 4, "sliding_window": 5, "logit_scale": 0.25,
        "tie_word_embeddings": True}),
    "cohere2-moe-dense": ("Cohere2MoeForCausalLM", "cohere2_moe", COMMON | WIDE | {
        "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 4, "sliding_window": 5, "logit_scale": 0.25,
        "tie_word_embeddings": True, "first_k_dense_replace": 1, "prefix_dense_intermediate_size": 40}),
    "cohere2-moe-shared": ("Cohere2MoeForCausalLM", "cohere2_moe", NO_EPS | WIDE | {
        "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 4, "sliding_window": 5, "logit_scale": 0.25,
        "tie_word_embeddings": True, "num_shared_experts": 2, "expert_selection_fn": "sigmoid"}),
    "cwm": ("CwmForCausalLM", "cwm", COMMON | WIDE | MIXED),
    "deepseek-v2": ("DeepseekV2ForCausalLM", "deepseek_v2", COMMON | DEEPSEEK | LATENT | {
        "first_k_dense_replace": 1, "topk_method": "greedy"}, TABLES["latent"]),
    "deepseek-v3.2": ("DeepseekV32ForCausalLM", "deepseek_v32", COMMON | DEEPSEEK | LATENT | {
        "first_k_dense_replace": 1, "index_topk": 16, "index_n_heads": 2, "index_head_dim": 8},
        TABLES["latent"], INDEXER),
    "dots1": ("Dots1ForCausalLM", "dots1", COMMON | DEEPSEEK | {
        "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True}),
    "emu3": ("Emu3ForCausalLM", "emu3_text_model", COMMON | PADDED),
    "ernie4.5": ("Ernie4_5ForCausalLM", "ernie4_5", COMMON | WIDE),
    "ernie4.5-moe": ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", COMMON | {
        "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": WIDTH, "moe_num_shared_experts": 1}),
    "exaone4": ("Exaone4ForCausalLM", "exaone4", COMMON | MIXED),
    "exaone-moe": ("ExaoneMoeForCausalLM", "exaone_moe", COMMON | ROUTED | WIDE | {
        "sliding_window": 5, "num_hidden_layers": 4}),
    "flex-olmo": ("FlexOlmoForCausalLM", "flex_olmo", COMMON | PADDED | {"num_experts": 6, "num_experts_per_tok": 2}),
    "flint": ("FlintForCausalLM", "flint", COMMON | ROUTED | WIDE | MIXED | PADDED | {
        "shared_expert_intermediate_size": 20, "mlp_only_layers": [1]}),
    "gemma": ("GemmaForCausalLM", "gemma", COMMON | PADDED | {"head_dim": 16, "tie_word_embeddings": True}),
    "glm": ("GlmForCausalLM", "glm", COMMON | WIDE | PADDED | {"attention_bias": True}),
    "glm4": ("Glm4ForCausalLM", "glm4", COMMON | WIDE | PADDED, SANDWICH),
    "glm4-moe-lite": ("Glm4MoeLiteForCausalLM", "glm4_moe_lite", COMMON | DEEPSEEK | LATENT | {
        "mlp_layer_types": ["dense", "sparse", "sparse"]}, TABLES["latent"]),
    "granite": ("GraniteForCausalLM", "granite", COMMON | FACTORS),
    "granitemoe": ("GraniteMoeForCausalLM", "granitemoe", COMMON | SOME | FACTORS),
    "granitemoe-shared": ("GraniteMoeSharedForCausalLM", "granitemoeshared", COMMON | SOME | FACTORS | {
        "shared_intermediate_size": 20}, JOINED),
    "granite-swa": ("GraniteSWAForCausalLM", "granite_swa", COMMON | MIXED | FACTORS),
    "granitemoe-swa": ("GraniteMoeSWAForCausalLM", "granitemoe_swa", COMMON | MIXED | SOME | FACTORS),
    "helium": ("HeliumForCausalLM", "helium", COMMON | WIDE | PADDED),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", COMMON | WIDE),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", COMMON | WIDE | {"num_experts": 6, "moe_topk": 2}),
    "hy-v3": ("HYV3ForCausalLM", "hy_v3", COMMON | ROUTED | WIDE | {"num_shared_experts": 1}),
    "hyperclovax": ("HyperCLOVAXForCausalLM", "hyperclovax", COMMON | WIDE | FACTORS | {"use_post_norm": True},
                    NUMBERED),
    "jais2": ("Jais2ForCausalLM", "jais2", NO_EPS | WIDE),
    "kolibri": ("Kolibri1ForCausalLM", "kolibri1", COMMON | WIDE | SOME | {
        "num_hidden_layers": 6, "sliding_window": 5, "moe_intermediate_size": WIDTH,
        "shared_expert_intermediate_size": 20}, SANDWICH),
    "mellum": ("MellumForCausalLM", "mellum", COMMON | WIDE | MIXED | BY_KIND | SOME | {
        "moe_intermediate_size": WIDTH}),
    "minicpm3": ("MiniCPM3ForCausalLM", "minicpm3", COMMON | LATENT | {"scale_emb": 2, "dim_model_base": 8},
                 TABLES["latent"]),
    "minimax-m2": ("MiniMaxM2ForCausalLM", "minimax_m2", COMMON | WIDE | SOME),
    "ministral": ("MinistralForCausalLM", "ministral", COMMON | WIDE | MIXED),
    "ministral3": ("Ministral3ForCausalLM", "ministral3", COMMON | WIDE | {"rope_parameters": YARN}),
    "nanochat": ("NanoChatForCausalLM", "nanochat", COMMON | WIDE | {"final_logit_softcapping": 3.0},
                 two("fc1", "fc2", bias=False), TURNED_BACK),
    "nemotron": ("NemotronForCausalLM", "nemotron", NO_EPS | WIDE),
    "olmo3": ("Olmo3ForCausalLM", "olmo3", COMMON | MIXED | PADDED | BY_KIND),
    "olmoe": ("OlmoeForCausalLM", "olmoe", COMMON | {
        "num_experts": 6, "num_experts_per_tok": 2, "clip_qkv": 0.5}),
    "phi3": ("Phi3ForCausalLM", "phi3", COMMON | PADDED | {"sliding_window": 5}),
    "qwen2-moe": ("Qwen2MoeForCausalLM", "qwen2_moe", COMMON | ROUTED | {"shared_expert_intermediate_size": 20}),
    "seed-oss": ("SeedOssForCausalLM", "seed_oss", COMMON | WIDE),
    "solar-open": ("SolarOpenForCausalLM", "solar_open", COMMON | DEEPSEEK | WIDE),
    "stablelm": ("StableLmForCausalLM", "stablelm", NO_EPS | {"num_key_value_heads": 2}),
    "starcoder2": ("Starcoder2ForCausalLM", "starcoder2", NO_EPS | {"sliding_window": 5}, two("c_fc", "c_proj")),
    "vaultgemma": ("VaultGemmaForCausalLM", "vaultgemma", COMMON | MIXED | PADDED | {
        "head_dim": 16, "query_pre_attn_scalar": 20}),
}  # fmt: skip
"""Class, type, settings, and tables of weights with names of their own."""


def _qwen3_5_moe() -> Family:
    """Qwen 3.5's delta nets and gated attention over experts with a gated shared one."""
    q = LAYERS + "self_attn.q_proj.weight"
    gate: Table = {"attention.w_q": (q, per_head(0, 2)), "attention.w_gate": (q, per_head(1, 2))}
    settings = COMMON | ROUTED | {
        "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": KEYS, "linear_key_head_dim": KEY_WIDTH,
        "linear_num_value_heads": KEYS * GROUPS, "linear_value_head_dim": VALUE, "full_attention_interval": 2,
        "shared_expert_intermediate_size": 20,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    norm = {"mixer_norm": LAYERS + "input_layernorm.weight"}
    return usual("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", settings, gate, delta_table(), norm)


READ: dict[str, Callable[[], Family]] = {
    **{name: (lambda made=made: usual(*made)) for name, made in LIKE.items()}, "qwen3.5-moe": _qwen3_5_moe,
}  # fmt: skip
FAMILIES: dict[str, Family] = {name: make() for name, make in READ.items()}
"""Every family by name."""
