"""Models without softmax attention whose layers are a recurrence and a feed-forward network: xLSTM, RWKV-7."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import decoder, glu, head, mlp, rmsnorm

Doc = JsonObject


# xLSTMConfig
@family("xlstm", vocab_size=50304, hidden_size=4096, num_hidden_layers=32, num_heads=8, use_bias=False,
        tie_word_embeddings=False, add_out_norm=True, norm_eps=1e-6, qk_dim_factor=0.5, v_dim_factor=1.0,
        chunk_size=64, eps=1e-6, ffn_proj_factor=2.667, ffn_round_up_to_multiple_of=64, gate_soft_cap=15.0,
        output_logit_soft_cap=30.0)  # fmt: skip
def xlstm(c: Config) -> Doc:
    """xLSTM 7B: a matrix memory and a SwiGLU in each layer."""
    c.skip("chunkwise_kernel", "sequence_kernel", "step_kernel", "mode", "return_last_states", "autocast_kernel_dtype",
           "inference_state_dtype", "max_inference_chunksize", "norm_reduction_force_float32", "weight_mode",
           "head_dim", "mlstm_round_up_to_multiple_of")  # fmt: skip
    for key in ("use_bias", "add_post_norm", "add_qk_norm", "add_embedding_dropout", "add_forward_backend_padding"):
        c.only(key, False)
    for key in ("add_out_norm", "add_post_blocks_norm"):
        c.only(key, True)
    c.skip("cell_norm_eps", "force_bos_token_insert", "igate_bias_init_range")
    named = {"hidden_size": "embedding_dim", "num_hidden_layers": "num_blocks"}  # as the released file says them
    c = c.changed(**{new: c.get(old) for new, old in named.items() if new not in c.data and old in c.data})
    c.only("embedding_dim", c.get("hidden_size"))
    c.only("num_blocks", c.get("num_hidden_layers"))
    d, n, norm = c.count("hidden_size"), c.count("num_heads"), rmsnorm(c, "norm_eps")
    keys, values = (int(d * c.get(f"{side}_dim_factor")) // n for side in ("qk", "v"))
    multiple = c.count("ffn_round_up_to_multiple_of")
    mixer = {
        "kind": "mlstm", "n_heads": n, "d_key": keys, "d_value": values, "chunk": c.count("chunk_size"),
        "gate_cap": c.get("gate_soft_cap"), "eps": c.get("eps"),
        "norm": {"kind": "layernorm", "eps": c.get("norm_eps"), "bias": False},
    }  # fmt: skip
    d_ff = int((d * c.get("ffn_proj_factor") + multiple - 1) // multiple * multiple)
    entry = "layers", {"norm": norm, "mixer": mixer, "ffn": glu("silu", d_ff)}
    output = head(c, softcap=c.get("output_logit_soft_cap"))
    return decoder(c, [entry] * c.count("num_blocks", "num_hidden_layers"), norm, output=output)


# fla/models/rwkv7/configuration_rwkv7.py of flash-linear-attention, whose checkpoints bring it along
@family("rwkv7", vocab_size=32000, hidden_size=2048, num_hidden_layers=24, head_dim=64, hidden_ratio=4,
        intermediate_size=None, hidden_act="sqrelu", max_position_embeddings=2048, norm_first=True, norm_bias=True,
        norm_eps=1e-5, tie_word_embeddings=False, decay_low_rank_dim=64, gate_low_rank_dim=128, a_low_rank_dim=64,
        v_low_rank_dim=16)  # fmt: skip
def rwkv7(c: Config) -> Doc:
    """RWKV-7: time mixing and channel mixing, both of each token and the one before; the first layer has no share of
    earlier values.
    """
    c.skip("attn_mode", "attn", "num_heads", "value_dim", "fuse_norm", "fuse_cross_entropy", "fuse_swiglu",
           "fuse_linear_cross_entropy", "use_l2warp", "hidden_act")  # fmt: skip
    c.only("norm_bias", True)
    d, n, size = c.count("hidden_size"), c.count("num_hidden_layers"), c.count("head_dim")
    norm = {"kind": "layernorm", "eps": c.get("norm_eps")}
    d_ff = c.count("intermediate_size", default=c.count("hidden_ratio") * d)
    mixer = {
        "kind": "rwkv7", "d_inner": d, "d_head": size, "decay_rank": c.count("decay_low_rank_dim"),
        "rate_rank": c.count("a_low_rank_dim"), "gate_rank": c.count("gate_low_rank_dim"),
        "norm": norm | {"eps": size * c.get("norm_eps")},
    }  # fmt: skip
    ffn = mlp("relu2", d_ff, False) | {"token_shift": True}
    later = mixer | {"value_rank": c.count("v_low_rank_dim")}
    mixers = [mixer, *[later] * (n - 1)]
    entries = [("rest" if i else "first", {"norm": norm, "mixer": own, "ffn": ffn}) for i, own in enumerate(mixers)]
    embedding = {"norm": norm} if c.get("norm_first") else {}
    return decoder(c, entries, norm, embedding=embedding)
