"""Configs of families whose class comes with the checkpoint: as many parameters as the tensors that vLLM's and SGLang's
model files load, added up by hand here."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.blocks.layer import walk_layers
from archsim.counts.count import count
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.model import Model


def decoder(
    d: int, vocab: int, layers: int, attention: int, ffn: int, *, norms: int = 2, tables: int = 2, more: int = 0
) -> int:
    """A decoder of equal layers with norms of one vector each, and one behind them."""
    return tables * vocab * d + layers * (attention + ffn + norms * d) + d + more


def heads(d: int, n: int, kv: int, size: int) -> int:
    """Matrices of attention."""
    return d * size * (2 * n + 2 * kv)


def latent(d: int, n: int, q: int, kv: int, nope: int, rope: int, v: int) -> int:
    """Matrices and norms of latent attention."""
    return d * q + q + q * n * (nope + rope) + d * (kv + rope) + kv + kv * n * (nope + v) + n * v * d


STEP3_MOE = 7168 * 48 + 48 * 3 * 7168 * 5120 + 3 * 7168 * 5120
PANGU_MOE = 7680 * 256 + 257 * 3 * 7680 * 2048

TABLES: dict[str, tuple[dict[str, Any], int]] = {
    "qwen": ({}, decoder(4096, 151936, 32, heads(4096, 32, 32, 128) + 3 * 4096, 3 * 4096 * 11008)),
    "internlm": (
        {"num_hidden_layers": 3},
        decoder(4096, 103168, 3, heads(4096, 32, 32, 128) + 4 * 4096, 3 * 4096 * 11008),
    ),
    "aquila": ({"num_key_value_heads": 8}, decoder(4096, 100008, 32, heads(4096, 32, 8, 128), 3 * 4096 * 11008)),
    "orion": (
        {"hidden_size": 5120},
        decoder(5120, 84608, 40, heads(5120, 40, 40, 128), 3 * 5120 * 15360, norms=4, more=5120),
    ),
    "telechat": (
        {},
        decoder(4096, 160256, 30, heads(4096, 32, 32, 128) + 4096, 3 * 4096 * 12288 + 4096, tables=1),
    ),
    "TeleFLM": ({}, decoder(8192, 80000, 64, heads(8192, 64, 64, 128), 3 * 8192 * 21824)),
    "step1": ({}, decoder(4096, 65536, 32, heads(4096, 32, 1, 128), 3 * 4096 * 11008)),
    "PanguEmbedded": (
        {},
        decoder(4096, 153376, 34, heads(4096, 32, 8, 128) + (32 + 2 * 8) * 128 + 4096, 3 * 4096 * 12800),
    ),
    "plamo3": ({}, decoder(4096, 32000, 32, heads(4096, 32, 4, 128) + 2 * 128, 3 * 4096 * 13312, norms=4)),
    "spark2_5": ({}, decoder(2048, 133120, 28, heads(2048, 8, 2, 256) + 2048 * 8, 3 * 2048 * 6656)),
    "phi3small": (
        {},
        decoder(4096, 100352, 32, heads(4096, 32, 8, 128) + (32 + 2 * 8) * 128 + 4096,
                3 * 4096 * 14336 + 2 * 14336 + 4096, norms=4, tables=1, more=4096),
    ),
    "ouro": ({}, decoder(2048, 49152, 24, heads(2048, 16, 16, 128), 3 * 2048 * 5632, norms=4, more=2049)),
    "nanbeige": ({}, decoder(3072, 166144, 22, heads(3072, 48, 48, 64), 3 * 3072 * 10752)),
    "deepseek": (
        {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6},
        decoder(4096, 102400, 30, heads(4096, 32, 32, 128), 4096 * 64 + 66 * 3 * 4096 * 1407),
    ),
    "bailing_moe": (
        {"head_dim": 128},
        decoder(2048, 126464, 28, heads(2048, 16, 4, 128), 2048 * 64 + 66 * 3 * 2048 * 1408),
    ),
    "sarvam_moe": (
        {"use_qk_norm": True, "num_hidden_layers": 32, "intermediate_size": 16384, "moe_intermediate_size": 2048},
        decoder(4096, 262144, 31, heads(4096, 64, 4, 64) + 128, 4096 * 128 + 129 * 3 * 4096 * 2048)
        + heads(4096, 64, 4, 64) + 128 + 2 * 4096 + 3 * 4096 * 16384,
    ),
    "sarvam_mla": (
        {"q_lora_rank": 1536},
        decoder(4096, 262144, 31, latent(4096, 64, 1536, 512, 128, 64, 128), 4096 * 128 + 129 * 3 * 4096 * 2048)
        + latent(4096, 64, 1536, 512, 128, 64, 128) + 2 * 4096 + 3 * 4096 * 16384,
    ),
    "pangu_ultra_moe": (
        {"num_dense_layers": 3, "num_routed_experts": 256, "num_shared_experts": 1},
        decoder(7680, 153600, 58, latent(7680, 128, 1536, 512, 128, 64, 128), PANGU_MOE, norms=4)
        + 3 * (latent(7680, 128, 1536, 512, 128, 64, 128) + 3 * 7680 * 18432 + 4 * 7680),
    ),
    "step3_text": (
        {},
        2 * 128815 * 7168 + 7168 + 61 * (7168 * (2048 + 512) + 2048 + 2048 * 64 * 256 + 64 * 256 * 7168 + 2 * 7168)
        + 56 * STEP3_MOE + 5 * 3 * 7168 * 18432,
    ),
    "longcat_flash": (  # the class of transformers allots matrices to experts that pass through
        {},
        decoder(6144, 131072, 28, 2 * latent(6144, 64, 1536, 512, 128, 64, 128) + 2 * 3 * 6144 * 12288,
                768 * 6144 + 512 * 3 * 6144 * 2048, norms=4),
    ),
    "arctic": (
        {"parallel_attn_mlp_res": True, "use_residual": True, "moe_layer_frequency": 1},
        decoder(4096, 32000, 32, heads(4096, 32, 32, 128), 3 * 4096**2 + 4096 * 8 + 8 * 3 * 4096 * 14336, norms=3),
    ),
    "grok-1": (
        {},
        decoder(6144, 131072, 64, heads(6144, 48, 8, 128), 6144 * 8 + 8 * 3 * 6144 * 32768, norms=4, tables=1),
    ),
    "k2_horizon": (
        {},
        decoder(6144, 250624, 58, heads(6144, 48, 8, 128), 6144 * 192 + 193 * 3 * 6144 * 1792)
        + 3 * (heads(6144, 48, 8, 128) + 3 * 6144 * 16384 + 2 * 6144),
    ),
    "xverse_moe": (
        {"intermediate_size": 1728},
        decoder(2560, 100534, 32, heads(2560, 32, 32, 80), 2560 * 64 + 66 * 3 * 2560 * 1728),
    ),
}  # fmt: skip


def read(model_type: str, fields: dict[str, Any]) -> Model:
    """The model of a config with these keys and the defaults of its class."""
    return model_from(from_config({"model_type": model_type} | fields))


@pytest.mark.parametrize("model_type", TABLES)
def test_tensors_by_hand(model_type: str) -> None:
    """Matrices, norms and biases."""
    fields, wanted = TABLES[model_type]
    assert count(read(model_type, fields)).total == wanted


KIMI_K3 = {
    "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "attn_res_block_size": 2,
    "first_k_dense_replace": 1, "hidden_size": 64, "intermediate_size": 160, "kv_lora_rank": 24,
    "latent_moe_use_norm": True, "max_position_embeddings": 4096, "mla_use_nope": True, "mla_use_output_gate": True,
    "moe_intermediate_size": 40, "moe_layer_freq": 1, "moe_renormalize": True, "num_attention_heads": 4,
    "moe_router_activation_func": "sigmoid", "num_expert_group": 1, "num_experts": 8, "num_experts_per_token": 2,
    "num_hidden_layers": 5, "num_key_value_heads": 4, "num_shared_experts": 2, "q_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "rms_norm_eps": 1e-5, "routed_expert_hidden_size": 32,
    "routed_scaling_factor": 1.0, "tie_word_embeddings": False, "topk_group": 1, "topk_method": "noaux_tc",
    "use_grouped_topk": True, "v_head_dim": 8, "vocab_size": 128,
    "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3, 5], "gate_lower_bound": -5.0, "head_dim": 8,
                           "num_heads": 4, "short_conv_kernel_size": 4, "use_full_rank_gate": True},
}  # fmt: skip
"""Kimi K3's keys with small numbers."""


def test_kimi_k3() -> None:
    """Delta attention with one whole and one narrow gate, gated latent attention, experts in a narrow width, and two
    scores of residual streams in every layer.
    """
    model = model_from(from_config({"model_type": "kimi_k3", "text_config": KIMI_K3 | {
        "model_type": "kimi_linear"}}))  # fmt: skip
    d, p, gates = 64, 32, 32
    linear = 4 * d * p + (d * 8 + 8 * p) + d * 4 + 3 * p * 4 + p + 4 + 8 + p * d
    full = latent(d, 4, 16, 24, 8, 4, 8) + d * gates
    experts = d * 8 + 2 * d * 32 + 32 + 8 * 3 * 32 * 40 + 3 * d * 80
    wanted = 2 * 128 * d + d + 2 * d + 5 * (2 * d + 4 * d) + 4 * linear + full + 3 * d * 160 + 4 * experts
    assert count(model).total == wanted
    assert [layer.residuals.sources for layer in _leaves(model)] == [1, 2, 2, 3, 3]
    assert [layer.residuals.opens for layer in _leaves(model)] == [True, False, True, False, True]


def _leaves(model: Model) -> list[Any]:
    """Every layer, one by one."""
    return [leaf for leaf in walk_layers(model.layers) for _ in range(leaf.repeat)]


def test_k2_horizon_without_experts_and_with_norms_in_groups() -> None:
    """The dense size; weights of the norms of queries and keys are one for each channel of each head."""
    dense = {"num_experts": 0, "mlp_only_layers": [], "hidden_size": 4096, "intermediate_size": 12288,
             "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 250624,
             "query_key_norm": True, "layernorm_num_groups": 4}  # fmt: skip
    model = read("k2_horizon", dense)
    norms = (32 + 8) * 128
    assert count(model).total == decoder(4096, 250624, 36, heads(4096, 32, 8, 128) + norms, 3 * 4096 * 12288)
    layer = next(iter(walk_layers(model.layers)))
    assert layer.norm.groups == 4 and layer.attention.position.dim == 64
    for key, value in (("mova_num_experts", 8), ("attention_gate_func", "silu")):
        with pytest.raises(SpecError, match=key):
            read("k2_horizon", {key: value})
