"""Several residual streams: DeepSeek-V4, with compressed attention and experts looked up by token, and Hy4."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.deepseek import SIGMOID, indexer_types, latent
from archsim.importers.hf.families.llama import gated, layers
from archsim.importers.hf.families.moe import grouped_router, shared_expert, sparse_layers, top_k
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import activation, decoder, glu, layer_types, moe, rmsnorm, rope, sliding
from archsim.importers.hf.pattern import Entry

Doc = JsonObject

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
SHORT = {WINDOW: "window", SPARSE: "sparse", HEAVY: "heavy"}
RATIOS = {0: WINDOW, 4: SPARSE, 128: HEAVY}
"""Tokens of an entry in released files, and the kind of layer that they stand for."""

SCORES = {"sqrtsoftplus": "sqrt_softplus", "softmax": "softmax", "sigmoid": "sigmoid"}


# DeepseekV4Config
@family("deepseek_v4", "deepseek_ref", vocab_size=129280, hidden_size=4096, moe_intermediate_size=2048,
        num_hidden_layers=43, num_attention_heads=64, num_key_value_heads=1, head_dim=512, q_lora_rank=1024,
        num_experts_per_tok=6, n_routed_experts=256, n_shared_experts=1, scoring_func="sqrtsoftplus",
        norm_topk_prob=True, routed_scaling_factor=1.5, max_position_embeddings=1048576, rope_theta=10000.0,
        compress_rope_theta=160000.0, hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6, swiglu_limit=10.0,
        sliding_window=128, o_groups=8, o_lora_rank=1024, index_n_heads=64, index_head_dim=128, index_topk=512,
        hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False)  # fmt: skip
def deepseek_v4(c: Config) -> Doc:
    """DeepSeek-V4. Its prediction module is left out: no class of transformers has it."""
    c.only("attention_bias", False)
    c.only("mlp_bias", False)
    c.only("num_key_value_heads", 1)
    c.only("norm_topk_prob", True)
    c.only("topk_method", "noaux_tc")
    c.skip("num_nextn_predict_layers", "head_dim")
    n, norm = layers(c), rmsnorm(c)
    hyper = {"n": c.count("hc_mult"), "iterations": c.count("hc_sinkhorn_iters"), "eps": c.number("hc_eps"),
             "norm_eps": norm["eps"]}  # fmt: skip
    positions, ratios = _positions(c), _ratios(c)
    entries: list[Entry] = []
    for kind, by_token in zip(_kinds(c, n), _by_token(c, n), strict=True):
        block = _attention(c, kind, norm, positions, ratios)
        own = {"norm": norm, "hyper": hyper, "attention": block, "ffn": _experts(c, by_token)}
        entries.append((SHORT[kind] + ("_hash" if by_token else ""), own))
    return decoder(c, entries, norm)


def _kinds(c: Config, n: int) -> list[str]:
    """The kind of attention of every layer: a list, the released files' ratios, or the usual order."""
    ratios = c.get("compress_ratios")
    usual = [HEAVY] * min(n, 2) + [SPARSE if i % 2 else HEAVY for i in range(max(n - 2, 0))]
    if isinstance(ratios, list) and c.data.get("layer_types") is None:
        if len(ratios) < n or not set(map(str, ratios)) <= set(map(str, RATIOS)):
            raise c.error("compress_ratios", f"not a list of 0, 4 and 128 for {n} layers")
        usual = [RATIOS[ratio] for ratio in ratios[:n]]
    return layer_types(c, n, usual, tuple(SHORT))


def _ratios(c: Config) -> dict[str, int]:
    """Tokens of an entry, by kind of layer."""
    given = c.child("compress_rates")
    found = {SPARSE: 4, HEAVY: 128}
    if given is not None:
        found |= {kind: given.count(kind) for kind in found if kind in given.data}
        given.skip(WINDOW)
    for kind, key in ((SPARSE, "compress_rate_csa"), (HEAVY, "compress_rate_hca")):
        found[kind] = c.count(key, default=found[kind])
    return found


def _positions(c: Config) -> dict[str, Doc]:
    """Rotation in layers with a window alone (`main`), and in layers with entries (`compress`)."""
    share = c.get("partial_rotary_factor")
    size = c.count("head_dim")
    dim = c.count("qk_rope_head_dim", default=int(size * share) if share else size // 8)
    given = c.get("rope_parameters")
    c.skip("rope_scaling", "rope_theta", "compress_rope_theta")
    if isinstance(given, dict) and isinstance(given.get("main"), dict) and isinstance(given.get("compress"), dict):
        own = {"main": dict(given["main"]), "compress": dict(given["compress"])}
    else:
        stretched = dict(c.get("rope_scaling") or given or {})
        if "yarn" in (stretched.get("type"), stretched.get("rope_type")):
            stretched.setdefault("attention_factor", 1.0)
        own = {"main": {"rope_theta": c.number("rope_theta")}}
        own["compress"] = stretched | {"rope_theta": c.number("compress_rope_theta")}
    found = {}
    for label, parameters in own.items():
        parameters.pop("partial_rotary_factor", None)
        found[label] = rope(Config({"rope_parameters": parameters}, {}), size, interleaved=True) | {"dim": dim}
    return found


def _attention(c: Config, kind: str, norm: Doc, positions: dict[str, Doc], ratios: dict[str, int]) -> Doc:
    block: Doc = {
        "kind": "compressed", "n_heads": c.count("num_attention_heads"), "d_head": c.count("head_dim"),
        "q_rank": c.count("q_lora_rank"), "out_groups": c.count("o_groups"), "out_rank": c.count("o_lora_rank"),
        "norm": norm, "position": positions["main" if kind == WINDOW else "compress"],
        "mask": sliding(c.count("sliding_window")),
    }  # fmt: skip
    indexer = {"n_heads": c.count("index_n_heads"), "d_head": c.count("index_head_dim"), "top_k": c.count("index_topk")}
    if kind == WINDOW:
        return block
    block["ratio"] = ratios[kind]
    return block | ({"overlap": True, "indexer": indexer} if kind == SPARSE else {})


def _by_token(c: Config, n: int) -> list[bool]:
    """Layers whose experts are looked up by token: a list of kinds, or the first few."""
    first = c.get("num_hash_layers", 3)
    given = c.listed("mlp_layer_types", n)
    if given is None:
        return [i < first for i in range(n)]
    if not set(map(str, given)) <= {"hash_moe", "moe"}:
        raise c.error("mlp_layer_types", "only hash_moe, moe is supported")
    return [kind == "hash_moe" for kind in given]


def _experts(c: Config, by_token: bool) -> Doc:
    act, width = activation(c, "hidden_act"), c.count("moe_intermediate_size")
    clamped = {"clamp": c.number("swiglu_limit"), "alpha": 1.0, "up_offset": 0.0}
    score = SCORES[c.only("scoring_func", *SCORES)]
    router: Doc = {"score": score, "scale": c.number("routed_scaling_factor")}
    router |= {"by_token": True} if by_token else {"selection_bias": True}
    shared = shared_expert(act, width, c.get("n_shared_experts"))
    shared = shared | clamped if shared else None
    return moe(c.count("n_routed_experts"), top_k(c), glu(act, width, **clamped), router, shared=shared)


# HYV4Config
@family("hy_v4", vocab_size=120832, hidden_size=2816, intermediate_size=6912, moe_intermediate_size=768,
        num_hidden_layers=34, num_attention_heads=32, hidden_act="silu", max_position_embeddings=262144,
        rms_norm_eps=1e-5, tie_word_embeddings=False, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, routed_scaling_factor=2.827, norm_topk_prob=True, n_group=1, topk_group=1,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256,
        index_topk=2048, index_head_dim=128, index_n_heads=16, hc_mult=4, hc_magnitude=2.0, hc_eps=1e-6,
        swiglu_limit=10.0, rope_interleave=False, first_k_dense_replace=1)  # fmt: skip
def hy_v4(c: Config) -> Doc:
    """Hy4: gated latent attention with sinks over keys that an indexer chooses, streams that stay apart, experts whose
    activations are bounded. Its prediction modules are left out: no class of transformers has them.
    """
    c.skip("learnable_sink_init", "layer_types", "num_nextn_predict_layers", "mtp_layers", "mtp_loss_factor",
           "head_dim", "num_key_value_heads", "enable_lm_head_fp32", "bitwise_backward_align", "router_fp32",
           "indexer_rope_interleave")  # fmt: skip
    c.only("topk_method", "noaux_tc")
    for key in ("gated_mla", "learnable_sink", "enable_ihc", "use_dsa", "use_mla"):
        c.only(key, True)
    c.only("gating_type", "elementwise")
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    eps = c.number("hc_eps")
    hyper = {"n": c.count("hc_mult"), "mixing": False, "magnitude": c.number("hc_magnitude"), "eps": eps,
             "post_eps": eps, "norm_eps": norm["eps"]}  # fmt: skip
    indexer = {"n_heads": c.count("index_n_heads"), "d_head": c.count("index_head_dim"),
               "top_k": c.count("index_topk"), "norm": {"kind": "layernorm", "eps": norm["eps"]}}  # fmt: skip
    block = latent(c) | {"gate": {"per": "element"}, "sinks": True, "indexer": indexer}
    kinds = {"full": ("", block), "shared": ("_shared", block | {"indexer": indexer | {"shared": True}})}
    width, limit = c.count("moe_intermediate_size"), c.number("swiglu_limit")
    clamped = {"clamp": limit, "alpha": 1.0, "up_offset": 0.0} if limit > 0 else {}
    shared = shared_expert(act, width, c.get("n_shared_experts"))
    experts = moe(c.count("n_routed_experts", "num_local_experts"), top_k(c), glu(act, width, **clamped),
                  SIGMOID | grouped_router(c), shared=shared)  # fmt: skip
    ffns = {False: ("dense", gated(c)), True: ("moe", experts)}
    entries: list[Entry] = []
    for sparse, types in zip(sparse_layers(c, n), _every_fourth(c), strict=True):
        (name, ffn), (suffix, own) = ffns[sparse], kinds[types]
        entries.append((name + suffix, {"norm": norm, "hyper": hyper, "attention": own, "ffn": ffn}))
    return decoder(c, entries, norm)


# HYV4VLTextConfig
family("hy_v4_vl_text", **{**DEFAULTS["hy_v4"], "hidden_size": 6144, "intermediate_size": 18432,
       "moe_intermediate_size": 2048, "num_hidden_layers": 78, "num_attention_heads": 64,
       "q_lora_rank": 2048, "index_n_heads": 32})(hy_v4)  # fmt: skip


def _every_fourth(c: Config) -> list[str]:
    """Which layers choose keys themselves: as given, else the first, the second and every fourth behind it."""
    n = layers(c)
    usual = ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(n)]
    return indexer_types(c if c.get("indexer_types") is not None else c.changed(indexer_types=usual))
