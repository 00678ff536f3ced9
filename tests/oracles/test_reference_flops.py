"""FLOPs `full` against torch's counter over transformers' own models: the two share no code with archsim.

Tiny configurations run on the CPU with eager attention and gathered experts (grouped kernels count nothing).
"""

from __future__ import annotations

from typing import Any

import pytest

from archsim.importers.hf import from_config
from archsim.sim.counting import count
from archsim.spec.load import model_from

pytestmark = pytest.mark.oracle

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BASE: dict[str, Any] = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 128, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
GQA = {**BASE, "num_key_value_heads": 2, "head_dim": 16}
MLA = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
DEEPSEEK = {
    **BASE, **MLA, "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
ENCODER = {k: v for k, v in BASE.items() if k != "tie_word_embeddings"}
SEQ2SEQ = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 128,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": 512,
}  # fmt: skip
T5 = {
    "num_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_heads": 4,
    "vocab_size": 128,
}
HYBRID = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GQA,
    "mistral": {**GQA, "sliding_window": 16},
    "qwen2": {**BASE, "num_key_value_heads": 2},
    "qwen3": GQA,
    "gemma": GQA,
    "gemma2": {**GQA, "sliding_window": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True},
    "olmo2": {**BASE, "num_key_value_heads": 4},
    "phi3": {**BASE, "num_key_value_heads": 2, "pad_token_id": 0},
    "cohere": {**BASE, "num_key_value_heads": 2, "use_qk_norm": True, "tie_word_embeddings": True},
    "gpt_neox": {**BASE, "rotary_pct": 0.25, "use_parallel_residual": True},
    "falcon": {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_kv_heads": 2, "vocab_size": 128,
        "new_decoder_architecture": True, "bias": False, "parallel_attn": True, "alibi": False,
    },
    "bloom": {"n_layer": 2, "hidden_size": 64, "n_head": 4, "vocab_size": 128},
    "opt": {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "ffn_dim": 96, "vocab_size": 128,
        "max_position_embeddings": 512, "do_layer_norm_before": True, "word_embed_proj_dim": 64,
    },
    "bert": ENCODER,
    "roberta": ENCODER,
    "deberta": {
        **ENCODER, "type_vocab_size": 0, "relative_attention": True, "max_relative_positions": -1,
        "pos_att_type": ["c2p", "p2c"], "position_biased_input": False,
    },
    "t5": {**T5, "feed_forward_proj": "relu"},
    "mt5": {**T5, "feed_forward_proj": "gated-gelu"},
    "bart": SEQ2SEQ,
    "mixtral": {**BASE, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**GQA, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v3": DEEPSEEK,
    "gpt_oss": {**GQA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "mamba": {
        "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "expand": 2, "conv_kernel": 4, "vocab_size": 128,
        "time_step_rank": 4,
    },
    "minimax": {
        **GQA, "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": HYBRID,
        "block_size": 32,
    },
    "qwen3_5_moe_text": {
        **GQA, "num_hidden_layers": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
        "num_experts": 8, "num_experts_per_tok": 2, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 16, "layer_types": HYBRID,
    },
}  # fmt: skip


def reference(model_type: str, config: dict[str, Any], batch: int, length: int) -> int:
    """What torch counts of transformers' model for one forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    full = transformers.AutoConfig.for_model(model_type, **config)
    full._experts_implementation = "batched_mm"
    seq2seq = model_type in ("t5", "mt5", "bart")
    kind = (
        "Model"
        if config in (ENCODER, CONFIGS["deberta"])
        else "ModelForSeq2SeqLM"
        if seq2seq
        else "ModelForCausalLM"
    )
    net = getattr(transformers, "Auto" + kind).from_config(full, attn_implementation="eager").eval()
    ids = torch.randint(3, 128, (batch, length), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if seq2seq else {})}
    with FlopCounterMode(display=False) as counter:
        net(**inputs)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("batch", "length"), [(1, 64), (2, 100)])
@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_full_flops_equal_the_reference_implementation(model_type: str, batch: int, length: int) -> None:
    """To the unit, for two shapes that do and do not divide a chunk."""
    config = CONFIGS[model_type]
    model = model_from(from_config({"model_type": model_type, **config}, "tiny"))
    ours = count(model, batch=batch, input_len=length, logits="all").full.total
    assert ours == reference(model_type, config, batch, length)
