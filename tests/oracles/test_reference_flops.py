"""FLOPs `full` against torch's counter over transformers' own models: the two share no code with archsim.

Tiny configurations run on the CPU with eager attention and gathered experts (grouped kernels count nothing).
"""

from __future__ import annotations

from typing import Any

import pytest

from archsim.counts.count import count
from archsim.counts.graph_counts import flops
from archsim.graph.step import Step
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.lower import lower

pytestmark = pytest.mark.oracle

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
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
    "albert": {**ENCODER, "embedding_size": 32},
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
    "falcon_mamba": {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 128},
    "mamba2": {
        "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 128, "num_heads": 8, "head_dim": 16,
        "n_groups": 2, "chunk_size": 32,
    },
    "recurrent_gemma": {**BASE, "num_key_value_heads": 1, "num_hidden_layers": 4, "attention_window_size": 16},
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
ENCODERS = ("bert", "roberta", "albert", "deberta")


NOT_STEPPED = (*ENCODERS, "t5", "mt5", "bart", "gemma2", "gpt_oss", "mistral", "recurrent_gemma")
"""Encoders, and models with a window, of whose cache the reference drops one token more before it reads."""


def built(model_type: str, config: dict[str, Any]) -> Any:
    """transformers' model of a configuration."""
    full = transformers.AutoConfig.for_model(model_type, **config)
    full._experts_implementation = "batched_mm"
    seq2seq = model_type in ("t5", "mt5", "bart")
    kind = "Model" if model_type in ENCODERS else "ModelForSeq2SeqLM" if seq2seq else "ModelForCausalLM"
    return getattr(transformers, "Auto" + kind).from_config(full, attn_implementation="eager").eval()


def tokens(batch: int, length: int) -> Any:
    """Random ids."""
    return torch.randint(3, 128, (batch, length), generator=torch.Generator().manual_seed(0))


def reference(model_type: str, config: dict[str, Any], batch: int, length: int) -> int:
    """What torch counts of transformers' model for one forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    ids, seq2seq = tokens(batch, length), model_type in ("t5", "mt5", "bart")
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if seq2seq else {})}
    net = built(model_type, config)
    with FlopCounterMode(display=False) as counter:
        net(**inputs, use_cache=False)
    return int(counter.get_total_flops())


def reference_step(model_type: str, config: dict[str, Any], batch: int, past: int) -> int:
    """What torch counts for one more token, short convolutions left out: the reference runs them twice."""
    from torch.utils.flop_counter import FlopCounterMode

    net, ids = built(model_type, config), tokens(batch, past + 1)
    with torch.no_grad():
        out = net(ids[:, :past], use_cache=True)
        name = next(name for name in ("cache", "cache_params", "past_key_values") if name in out)  # by version
        with FlopCounterMode(display=False) as counter:
            net(ids[:, past:], use_cache=True, **{name: out[name]})
    convolutions = counter.get_flop_counts()["Global"].get(torch.ops.aten.convolution, 0)
    return int(counter.get_total_flops() - convolutions)


def tiny(model_type: str) -> Any:
    """The same configuration as a model here."""
    return model_from(from_config({"model_type": model_type, **CONFIGS[model_type]}, "tiny"))


@pytest.mark.parametrize(("batch", "length"), [(1, 64), (2, 100), (1, 1)])
@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_full_flops_equal_the_reference_implementation(model_type: str, batch: int, length: int) -> None:
    """To the unit, for lengths that are and are not whole chunks, and for a single first token."""
    ours = count(tiny(model_type), batch=batch, input_len=length, logits="all").full.total
    assert ours == reference(model_type, CONFIGS[model_type], batch, length)


@pytest.mark.parametrize("model_type", sorted(set(CONFIGS) - set(NOT_STEPPED)))
def test_a_decode_step_equals_the_reference_implementation(model_type: str) -> None:
    """One token after 40 cached ones, in two sequences: the same products to the unit."""
    graph = lower(tiny(model_type), Step.of(2, 1, 40, masked=False))
    ours = flops(graph) - flops(graph, "conv")
    assert ours == reference_step(model_type, CONFIGS[model_type], 2, 40)


@pytest.mark.parametrize(("batch", "length"), [(1, 64), (2, 100), (3, 7)])
def test_masked_mamba2_by_hand(batch: int, length: int) -> None:
    """Pairs inside chunks of 32, C·B once per group; two products with the state per token; nothing is filled up."""
    heads, size, states, groups, chunk, layers = 8, 16, 8, 2, 32, 2
    lengths = [min(chunk, length - start) for start in range(0, length, chunk)]
    pairs, new = (batch * sum(f) for f in ([n * (n + 1) // 2 for n in lengths], lengths))
    products = pairs * (groups * states + heads * size) + 2 * new * heads * size * states
    found = count(tiny("mamba2"), batch=batch, input_len=length).masked.attention
    assert found == 2 * layers * products
