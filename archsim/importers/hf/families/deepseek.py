"""Multi-head latent attention: DeepSeek-V2 and V3, and what was built on them."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import d_head, gated, layers
from archsim.importers.hf.families.moe import dense_then_experts
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, decoder, glu, head, moe, rmsnorm, rope

Doc = JsonObject


def latent(c: Config) -> Doc:
    """The attention block. Key/value heads and `head_dim` say nothing here."""
    c.skip("num_key_value_heads", "head_dim", "qk_head_dim", "rope_interleave")
    c.only("attention_bias", False)
    c.only("mlp_bias", False)
    d_rope = c.count("qk_rope_head_dim")
    rank = c.get("q_lora_rank")
    block: Doc = {"kind": "mla", "n_heads": c.count("num_attention_heads")}
    if rank is not None:
        block["q_rank"] = c.count("q_lora_rank")
    interleaved = c.get("rope_interleave", True) is not False
    return block | {
        "kv_rank": c.count("kv_lora_rank"),
        "d_nope": c.count("qk_nope_head_dim"),
        "d_rope": d_rope,
        "d_v": c.count("v_head_dim"),
        "position": rope(c, d_rope, interleaved=interleaved),
    }


# DeepseekV2Config
@family("deepseek_v2", vocab_size=102400, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False, first_k_dense_replace=0, kv_lora_rank=512, q_lora_rank=1536,
        n_routed_experts=64, n_shared_experts=2, qk_nope_head_dim=128, qk_rope_head_dim=64,
        routed_scaling_factor=1.0, topk_method="greedy", norm_topk_prob=False, v_head_dim=128,
        moe_intermediate_size=1407)  # fmt: skip
def deepseek_v2(c: Config) -> Doc:
    """DeepSeek-V2: MLA, softmax routing within groups of experts; DeepSeek-OCR's keeps whole keys and values."""
    c.only("scoring_func", "softmax")
    c.only("topk_method", "greedy", "group_limited_greedy")
    grouped = {"group_score": "max"} if c.get("topk_method") == "group_limited_greedy" else {}
    if c.get("use_mla", True) is not False:
        return dense_then_experts(c, rmsnorm(c), latent(c), grouped)
    c.skip("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "lm_head")
    c.only("rm_head", False)
    return dense_then_experts(c, rmsnorm(c), attention(c, position=rope(c, d_head(c))), grouped)


DEEPSEEK_V3 = {
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "norm_topk_prob": True, "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}  # fmt: skip
"""DeepseekV3Config; the classes derived from it differ in the keys given beside it."""
SIGMOID = {"score": "sigmoid", "selection_bias": True}
"""Routing balanced by a bias that only the choice sees."""


# DeepseekV3Config
@family("deepseek_v3", "kimi_k2", **DEEPSEEK_V3, rope_interleave=True)
def deepseek_v3(c: Config) -> Doc:
    """DeepSeek-V3 and Kimi K2: MLA, sigmoid routing within groups of experts."""
    c.only("scoring_func", "sigmoid")
    c.only("topk_method", "noaux_tc")
    return dense_then_experts(c, rmsnorm(c), latent(c), SIGMOID)


# GlmMoeDsaConfig
@family("glm_moe_dsa", **{**DEEPSEEK_V3, "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
        "num_hidden_layers": 78, "num_attention_heads": 64, "q_lora_rank": 2048, "v_head_dim": 256,
        "qk_nope_head_dim": 192, "n_group": 1, "topk_group": 1, "max_position_embeddings": 202752,
        "rms_norm_eps": 1e-5}, index_topk=2048, index_head_dim=128, index_n_heads=32)  # fmt: skip
def sparse_attention(c: Config) -> Doc:
    """GLM-5 and DeepSeek-V3.2: a light indexer picks the cached tokens that each query attends to."""
    c.only("scoring_func", "sigmoid")
    c.only("topk_method", "noaux_tc")
    c.skip("indexer_rope_interleave", "layer_types", "index_share_for_mtp_iteration")
    indexer = {"n_heads": c.count("index_n_heads"), "d_head": c.count("index_head_dim"), "top_k": c.count("index_topk")}
    whole = latent(c) | {"indexer": indexer}
    kinds = {"full": ("", {}), "shared": ("_shared", {"indexer": indexer | {"shared": True}})}
    return dense_then_experts(c, rmsnorm(c), whole, SIGMOID, [kinds[t] for t in indexer_types(c)])


def indexer_types(c: Config) -> list[str]:
    """Which layers choose keys themselves: a list, a pattern of F and S, or one in so many behind an offset."""
    n, pattern = layers(c), c.get("index_topk_pattern")
    given = c.listed("indexer_types", n)
    c.skip("index_topk_freq", "index_skip_topk_offset")
    if given is None and isinstance(pattern, str):
        given = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    if given is None:
        step, offset = c.get("index_topk_freq") or 1, c.get("index_skip_topk_offset")
        offset = 2 if offset is None else offset
        given = ["full" if max(i - offset + 1, 0) % step == 0 else "shared" for i in range(n)]
    if len(given) != n or not set(given) <= {"full", "shared"} or given[0] != "full":
        raise c.error("indexer_types", "not a list of full or shared for each layer, beginning with full")
    return given


# DeepseekV32Config
@family("deepseek_v32", **{**DEEPSEEK_V3, "max_position_embeddings": 163840}, index_topk=2048, index_head_dim=128,
        index_n_heads=64)  # fmt: skip
def deepseek_v32(c: Config) -> Doc:
    """DeepSeek-V3.2: the same layers with other defaults."""
    return sparse_attention(c)


# Glm4MoeLiteConfig
@family("glm4_moe_lite", **{**DEEPSEEK_V3, "vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240,
        "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20, "n_routed_experts": 64,
        "routed_scaling_factor": 1.8, "q_lora_rank": 768, "v_head_dim": 256, "qk_nope_head_dim": 192, "n_group": 1,
        "topk_group": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "max_position_embeddings": 202752,
        "rms_norm_eps": 1e-5})  # fmt: skip
def glm4_moe_lite(c: Config) -> Doc:
    """GLM-4.7-Flash: DeepSeek-V3's layer."""
    c.only("topk_method", "noaux_tc")
    return dense_then_experts(c, rmsnorm(c), latent(c), SIGMOID)


# MistralLarge4TextConfig
@family("mistral_large4_text", vocab_size=204800, hidden_size=6144, intermediate_size=24576, moe_intermediate_size=6144,
        num_hidden_layers=72, num_attention_heads=64, num_key_value_heads=64, n_shared_experts=1, n_routed_experts=128,
        routed_scaling_factor=1.0, kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, qk_nope_head_dim=64,
        n_group=1, topk_group=1, num_experts_per_tok=4, hidden_act="silu", max_position_embeddings=1048576,
        rms_norm_eps=1e-5, tie_word_embeddings=False, index_topk=2048, index_head_dim=128, index_n_heads=32,
        first_k_dense_replace=1, final_logit_softcapping=30.0, no_rope_layer_interval=4,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2048.0, "beta_fast": 32.0,
                         "beta_slow": 1.0, "original_max_position_embeddings": 512,
                         "attention_factor": 1.0})  # fmt: skip
def mistral_large4(c: Config) -> Doc:
    """Mistral Large 4: queries straight from the stream, which grow with their position, keys chosen by an indexer,
    learned frequencies, every fourth layer without positions. Its drafting module is left out: no class of transformers
    has it.
    """
    n = layers(c)
    c.skip("layer_types", "num_nextn_predict_layers")
    c.only("q_lora_rank", None)
    c.only("norm_topk_prob", True)
    c = c.changed(norm_topk_prob=True)
    if (c.listed("kv_source_layers", n) or list(range(n))) != list(range(n)):
        raise c.error("kv_source_layers", "latent attention that reads an earlier layer's cache cannot be expressed")
    turned = c.listed("no_rope_layers", n)
    step = c.count("no_rope_layer_interval")
    turned = [int((i + 1) % step != 0) for i in range(n)] if turned is None else turned
    norm: Doc = {"kind": "layernorm", "eps": 1e-6}
    indexer = {"n_heads": c.count("index_n_heads"), "d_head": c.count("index_head_dim"), "top_k": c.count("index_topk"),
               "query_norm": norm, "query_scale": True}  # fmt: skip
    block = latent(c) | {"norm": rmsnorm(c), "query_scale": True}
    plain = {"d_nope": block["d_nope"] + block["d_rope"], "d_rope": 0, "position": None}
    places = {1: ("", {"learned_frequencies": True}), 0: ("_nope", plain)}
    own = []
    for kind, place in zip(indexer_types(c), turned, strict=True):
        suffix, more = places[place]
        one = indexer | ({"shared": True} if kind == "shared" else {})
        own.append((suffix + ("_shared" if kind == "shared" else ""), {**more, "indexer": one}))
    doc = dense_then_experts(c, rmsnorm(c), block, {}, own)
    return doc | {"head": head(c, softcap=c.number("final_logit_softcapping"))}


# LongcatFlashConfig; keys of LongcatFlashConfig in SGLang
@family("longcat_flash", "longcat_flash_ngram", vocab_size=131072, hidden_size=6144, num_layers=28,
        num_attention_heads=64, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=False, ffn_hidden_size=12288,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, moe_topk=12,
        n_routed_experts=512, zero_expert_num=256, expert_ffn_hidden_size=2048, routed_scaling_factor=6.0,
        rope_parameters={"rope_theta": 10000000.0})  # fmt: skip
def longcat_flash(c: Config) -> Doc:
    """LongCat-Flash: two attentions and two dense networks to one set of experts, which read what the first network
    reads and are added behind the second. Some experts give back what they get. transformers allots these two of the
    three matrices, which no checkpoint has and which are not counted.
    """
    c.skip("mla_scale_q_lora", "mla_scale_kv_lora", "num_hidden_layers", "nextn_use_scmoe", "num_nextn_predict_layers",
           "rounter_params_dtype", "params_dtype", "attention_method", "norm_topk_prob", "topk_method")  # fmt: skip
    c.only("zero_expert_type", "identity")
    c.only("qk_head_dim", c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim"))
    c.only("router_bias", False)
    norm, act = rmsnorm(c), activation(c, "hidden_act")
    dense = gated(c.changed(intermediate_size=c.count("ffn_hidden_size", "intermediate_size")))
    routed = glu(act, c.count("expert_ffn_hidden_size", "moe_intermediate_size"))
    passing = {"pass_through": c.count("zero_expert_num")} if c.get("zero_expert_num") else {}
    router = {"normalize": False, "selection_bias": True, "scale": c.number("routed_scaling_factor"), **passing}
    experts = moe(c.count("n_routed_experts"), c.count("moe_topk", "num_experts_per_tok"), routed, router, dense=dense)
    base = {"norm": norm, "attention": latent(c)}
    first = base | {"ffn": experts | {"late": True}}
    second = base | {"ffn": dense, "adds_late": True}
    return decoder(c, [("experts", first), ("dense", second)] * c.count("num_layers"), norm, embedding=_ngrams(c))


def _ngrams(c: Config) -> Doc | None:
    """Vectors of the last tokens beside the token's own (`LongcatFlashNgramForCausalLM` in vLLM)."""
    if c.first("ngram_vocab_size_ratio", "oe_vocab_size_ratio") is None:
        return None
    n, tables = (c.count(f"{a}_{b}", f"oe_{b}") for a, b in (("emb", "neighbor_num"), ("emb", "split_num")))
    return {"ngrams": {"n": n, "tables": tables, "ratio": c.count("ngram_vocab_size_ratio", "oe_vocab_size_ratio")}}
