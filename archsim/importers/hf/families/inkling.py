"""Inkling: attention with relative profiles and short convolutions, and a router that weighs its shared experts too."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import layers
from archsim.importers.hf.families.moe import top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, decoder, glu, heads, layer_types, moe, rmsnorm, sliding
from archsim.importers.hf.pattern import Entry

Doc = JsonObject
LOCAL = "hybrid_sliding"


# InklingTextConfig
@family("inkling_text", vocab_size=201024, hidden_size=6144, num_hidden_layers=66, num_attention_heads=64,
        num_key_value_heads=8, head_dim=128, swa_num_attention_heads=64, swa_num_key_value_heads=16, swa_head_dim=128,
        sliding_window_size=512, d_rel=16, rel_extent=1024, log_scaling_alpha=0.1, max_position_embeddings=131072,
        rms_norm_eps=1e-06, conv_kernel_size=4, intermediate_size=24576, hidden_act="silu", moe_intermediate_size=3072,
        n_routed_experts=256, num_experts_per_tok=6, n_shared_experts=2, route_scale=8.0,
        logits_mup_width_multiplier=24.0)  # fmt: skip
def inkling(c: Config) -> Doc:
    """Every sixth layer global, the others local; keys, values and what each block gives pass short convolutions."""
    c.skip("rms_norm_eps_moe_gate", "chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids",
           "num_mtp_layers", "number_of_conv_states", "unpadded_vocab_size")  # fmt: skip
    c.skip("num_attention_heads", "num_key_value_heads", "head_dim", "rel_extent")  # where every layer is local
    c.skip("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "sliding_window_size")  # or none is
    for key in ("shared_expert_sink", "use_embed_norm", "use_sconv", "use_gate_bias", "norm_after_topk",
                "use_global_scale"):  # fmt: skip
        c.only(key, True)
    c.only("gate_activation", "sigmoid")
    c.only("q_bias", False)
    c.only("o_bias", False)
    c.only("final_logit_softcapping")
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    dense, sparse = _networks(c, act)
    base: Doc = {"norm": norm, "branch_conv": _taps(c)}
    entries: list[Entry] = []
    for kind, ffn in zip(_kinds(c, n), _places(c, n), strict=True):
        name = ("local" if kind == LOCAL else "global") + ("_dense" if ffn == "dense" else "")
        entries.append(
            (name, base | {"attention": _attention(c, kind, norm), "ffn": dense if ffn == "dense" else sparse})
        )
    scale = 1 / c.number("embedding_multiplier" if "embedding_multiplier" in c.data else "logits_mup_width_multiplier")
    c = c if c.data.get("model_max_length") is None else c.changed(max_position_embeddings=c.count("model_max_length"))
    return decoder(c, entries, norm, embedding={"norm": norm}, output={"tied": False, "scale": scale})


def _taps(c: Config) -> int:
    return c.count("sconv_kernel_size", "conv_kernel_size")


def _kinds(c: Config, n: int) -> list[str]:
    """Kinds of layers: listed, local ones by their numbers, or all but every sixth local."""
    local = c.get("local_layer_ids")
    if local is not None and not (isinstance(local, list) and all(isinstance(i, int) for i in local)):
        raise c.error("local_layer_ids", "not a list of layers")
    near = {i for i in range(n) if (i + 1) % 6} if local is None else set(local)
    return layer_types(c, n, [LOCAL if i in near else "hybrid" for i in range(n)], (LOCAL, "hybrid"))


def _places(c: Config, n: int) -> list[str]:
    """Which layers are dense: listed, or the first `dense_mlp_idx`."""
    first = c.get("dense_mlp_idx", 0)
    return c.listed("mlp_layer_types", n) or ["dense" if i < first else "sparse" for i in range(n)]


def _networks(c: Config, act: str) -> tuple[Doc, Doc]:
    """The dense network and the experts; with `dense_intermediate_size`, `intermediate_size` is that of experts."""
    wide = c.get("dense_intermediate_size")
    width = c.count("intermediate_size" if wide is None else "dense_intermediate_size")
    narrow = c.count("moe_intermediate_size") if wide is None else c.count("intermediate_size")
    c.skip("moe_intermediate_size", "intermediate_size")
    router: Doc = {"score": "sigmoid", "scale": c.number("route_scale"), "selection_bias": True, "with_shared": True,
                   "learned_scale": True}  # fmt: skip
    shared = glu(act, narrow, n=c.count("n_shared_experts"))
    experts = moe(c.count("num_local_experts", "n_routed_experts"), top_k(c), glu(act, narrow), router, shared=shared)
    return glu(act, width, learned_scale=True), experts


def _attention(c: Config, kind: str, norm: Doc) -> Doc:
    """A layer's attention; local layers have heads of their own, and profiles as long as their window."""
    own = "swa_" if kind == LOCAL else ""
    window = c.count("sliding_window", "sliding_window_size")
    size = c.count(own + "head_dim")
    extent = window if kind == LOCAL else c.count("rel_extent")
    floor, alpha = c.get("log_scaling_n_floor"), c.number("log_scaling_alpha")
    block = heads(c.count(own + "num_attention_heads"), c.count(own + "num_key_value_heads"), size,
                  qk_norm=norm, scale=1 / size, kv_conv=_taps(c),
                  position={"kind": "profiles", "rank": c.count("d_rel"), "extent": extent})  # fmt: skip
    if kind == LOCAL:
        return block | {"mask": sliding(window)}
    grown = {"temperature": {"floor_scale": floor, "attn_scale": alpha, "first": 1, "steady": True}}
    return block | (grown if floor else {})
