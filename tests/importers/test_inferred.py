"""Configs of a model_type that nobody here knows: read from their fields, with a caution, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import SpecError
from archsim.importers.hf.describe import from_config, language_model

KNOWN = Path(__file__).with_name("configs")

DENSE: dict[str, Any] = {
    "model_type": "Tiny-K", "architectures": ["LLaMAForCausalLM"], "transformers_version": "4.57.6",
    "auto_map": {"AutoConfig": "k_model.ModelConfig", "AutoModelForCausalLM": "k_model.LLaMAForCausalLM"},
    "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512, "max_seq_len": 512,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "vocab_size": 128, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def params(config: dict[str, Any]) -> int:
    return int(archsim.count(config).to_dict()["params"]["total"])


def test_a_dense_decoder_of_an_unknown_type_is_a_llama_with_a_caution() -> None:
    """Which stands above the figures, by a code of its own."""
    known = {k: v for k, v in DENSE.items() if k != "auto_map"} | {"model_type": "llama"}
    counted = archsim.count(DENSE)
    assert params(DENSE) == params(known)
    (note,) = [note for note in counted.assumptions if note.code == "A54"]
    assert "`Tiny-K` is not known" in note.text
    assert not [note for note in archsim.count(known).assumptions if note.code == "A54"]


def test_experts_and_latent_attention_are_read_by_their_keys() -> None:
    """As the family that has all of these keys counts them."""
    routed = DENSE | EXPERTS | LATENT | {"n_shared_experts": 1, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
                                         "scoring_func": "sigmoid", "n_group": 1, "topk_group": 1}  # fmt: skip
    known = {k: v for k, v in routed.items() if k not in ("auto_map", "max_seq_len")} | {"model_type": "deepseek_v3"}
    assert params(routed) == params(known | {"num_nextn_predict_layers": 0})
    assert "with latent attention with experts" in from_config(routed)["read_as"]


def test_layers_without_experts_may_be_a_list() -> None:
    """Qwen's `mlp_only_layers`, as DeepSeek's number of the first ones."""
    routed = DENSE | EXPERTS | {"score_function": "sigmoid", "router_scaling_factor": 2.5}
    assert params(routed | {"mlp_only_layers": [0]}) == params(routed | {"first_k_dense_replace": 1})
    for wrong in ([7], "0", [True, "x"]):
        with pytest.raises(SpecError, match="mlp_only_layers"):
            from_config(routed | {"mlp_only_layers": wrong})
    with pytest.raises(SpecError, match="intermediate_size"):
        from_config({k: v for k, v in routed.items() if k != "intermediate_size"} | {"mlp_only_layers": [0]})


def test_tables_are_tied_where_transformers_4_left_the_key_out() -> None:
    """What equals the default of its base class is in no file; later versions leave other values out."""
    without = {key: value for key, value in DENSE.items() if key != "tie_word_embeddings"}
    assert params(without) == params(DENSE) - 128 * 64
    with pytest.raises(SpecError, match="tie_word_embeddings"):
        from_config(without | {"transformers_version": "5.8.0"})


NEEDED = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
          "rms_norm_eps", "intermediate_size", "rope_theta"]  # fmt: skip


@pytest.mark.parametrize("key", NEEDED)
def test_no_default_stands_in_for_a_key_that_is_missing(key: str) -> None:
    """The refusal names it."""
    with pytest.raises(SpecError, match=f"unknown model_type `Tiny-K`.*`{key}`: missing"):
        from_config({k: v for k, v in DENSE.items() if k != key})


@pytest.mark.parametrize(("config", "key"), [(EXPERTS, "num_experts_per_tok"), (EXPERTS, "moe_intermediate_size"),
                                             (LATENT, "qk_nope_head_dim"), (LATENT, "q_lora_rank"),
                                             (LATENT, "v_head_dim")])  # fmt: skip
def test_nor_for_one_of_experts_or_latent_attention(config: dict[str, Any], key: str) -> None:
    """Whose sizes no class says."""
    with pytest.raises(SpecError, match=key):
        from_config(DENSE | {k: v for k, v in config.items() if k != key})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"num_loops": 2}, "`num_loops`"),
        ({"index_topk": 2048}, "`index_topk`"),
        ({"use_qk_norm": True}, "`use_qk_norm`"),
        ({"sparse_config": {"block": 64}}, "`sparse_config`"),
        ({"sliding_window": 128}, "`sliding_window`: without `layer_types`"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"use_moe": True}, "`use_moe`: no key says how many"),
        ({"use_mla": True}, "`use_mla`"),
        ({**EXPERTS, "scoring_func": "tanh"}, "`scoring_func`"),
        ({"rope_scaling": {"type": "clex", "max_factor": 16}}, "unknown scaling 'clex'"),
        ({"architectures": ["MineForImageGeneration"]}, "does not name a language model"),
        ({"architectures": None}, "does not name a language model"),
        ({"architectures": ["KForMaskedLM"]}, "does not name a language model that predicts tokens"),
        ({"hidden_act": "relu2"}, "`hidden_act`: 'relu2' does not say"),  # of two matrices in Arcee's models
        ({"hidden_act": "gelu"}, "`hidden_act`: 'gelu' does not say"),
        ({"total_ut_steps": 4}, "`total_ut_steps`"),  # Ouro's layers run so many times
        ({"is_causal": False}, "`is_causal`"),
        ({"is_encoder_decoder": True}, "`is_encoder_decoder`"),
        ({"use_glu": False}, "`use_glu`"),
        ({"gated_mlp": False}, "`gated_mlp`"),
        ({"use_rope": False}, "`use_rope`"),
        ({"use_swa": True}, "`use_swa`"),
        ({"mixer": "gdn"}, "`mixer`"),
        ({"capacity": 0.5}, "`capacity`"),
        ({"hidden_size": 66}, "not a multiple of 4, and no `head_dim`"),
        ({"tie_word_embeddings": "false"}, "neither true nor false"),
        ({"tie_word_embeddings": None}, "`tie_word_embeddings`: missing"),
        ({**EXPERTS, "use_moe": "false"}, "neither true nor false"),
        ({**EXPERTS, "num_experts": 16}, "`num_experts`: 16 is not what `n_routed_experts` says"),
        ({**EXPERTS, "moe_top_k": 4}, "`moe_top_k`: 4 is not what `num_experts_per_tok` says"),
        ({**EXPERTS, "n_shared_experts": 1, "num_shared_experts": 2}, "`num_shared_experts`: 2 is not what"),
        ({**EXPERTS, "n_shared_experts": -1}, "-1 is not a positive whole number"),
        (
            {"sliding_window": 64, "use_sliding_window": False, "layer_types": ["sliding_attention"] * 2},
            "`use_sliding_window`: false, but",
        ),
    ],
)
def test_what_could_be_a_part_of_its_own_is_refused_by_name(more: dict[str, Any], said: str) -> None:
    """Nothing that switches something on is passed over."""
    with pytest.raises(SpecError, match="unknown model_type `Tiny-K`") as caught:
        from_config(DENSE | more)
    assert said in caught.value.message


def test_what_is_switched_off_or_of_no_part_changes_nothing() -> None:
    """Experts that `use_moe` switches off, a window that is none, a threshold of training."""
    off = {"use_moe": False, **EXPERTS, "sliding_window": None, "use_qk_norm": False, "flash_attn": True,
           "aux_loss_alpha": 0.1, "dropout": 0.0}  # fmt: skip
    assert params(DENSE | {k: v for k, v in off.items() if k != "flash_attn"}) == params(DENSE)
    windowed = from_config(DENSE | {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]})
    assert [layer.get("attention", {}).get("mask") for layer in windowed["layers"]] == [
        {"kind": "sliding", "window": 64},
        None,
    ]


def test_the_format_of_the_cache_is_read_as_of_a_known_type() -> None:
    """Which compressed-tensors states beside the weights."""
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    stated = {"quant_method": "compressed-tensors", "format": "float-quantized", "kv_cache_scheme": weights,
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}  # fmt: skip
    known = {k: v for k, v in DENSE.items() if k != "auto_map"} | {"model_type": "llama"}
    found = from_config(DENSE | {"quantization_config": stated})
    assert found["kv_cache"] == from_config(known | {"quantization_config": stated})["kv_cache"]


def test_lengths_and_seeds_change_nothing() -> None:
    """Under any of their usual names."""
    lengths = {"max_seq_len": 9, "model_max_length": 9, "max_sequence_length": 9, "context_length": 9, "seed": 1}
    assert params(DENSE | lengths) == params(DENSE)


def test_a_type_that_transformers_has_is_not_guessed_at() -> None:
    """Its code says what its config means: `--via transformers`."""
    with pytest.raises(SpecError, match="unknown model_type `doge`") as caught:
        from_config(DENSE | {"model_type": "doge", "architectures": ["DogeForCausalLM"]})
    assert caught.value.message == "unknown model_type `doge`"
    assert "transformers has it" in caught.value.hints[0]


@pytest.mark.parametrize("path", sorted(KNOWN.glob("*.json")), ids=lambda path: path.stem)
def test_configs_of_known_families_under_an_unknown_type_are_counted_right_or_refused(path: Path) -> None:
    """Biases and norms of queries and keys, which no field tells, are less than a thousandth."""
    config = json.loads(path.read_text("utf-8"))
    text, _ = language_model(config)
    hidden = dict(text) | {"model_type": "unknown_kind", "architectures": ["UnknownForCausalLM"]}
    hidden.setdefault("transformers_version", config.get("transformers_version", "4.50.0"))
    try:
        found = params(hidden)
    except SpecError as error:
        assert "unknown model_type `unknown_kind`" in error.message
    else:
        assert found == pytest.approx(params(config), rel=1e-3)
        read, known = (archsim.count(c, input_len=512).to_dict() for c in (hidden, config))
        assert read["flops"]["masked"]["total"] == pytest.approx(known["flops"]["masked"]["total"], rel=1e-3)
        assert read["kv_cache"] == known["kv_cache"]
