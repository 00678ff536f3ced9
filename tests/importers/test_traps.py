"""Fields of configs that are easily misread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.counts.count import count
from archsim.importers.hf.describe import from_config
from archsim.importers.hf.families.registry import REFUSED
from archsim.spec.load import model_from

HERE = Path(__file__).parent
SMALL: dict[str, dict[str, Any]] = {
    name: config
    for file in ("small.json", "small_more.json")
    for name, config in json.loads((HERE / file).read_text()).items()
}
COUNTED: dict[str, dict[str, Any]] = json.loads((HERE / "counted.json").read_text())["families"]


def layers(config: dict[str, Any]) -> list[Any]:
    """Every layer in order, in full."""
    found: list[Any] = []

    def walk(group: tuple[Any, ...]) -> None:
        for layer in group:
            for _ in range(layer.repeat):
                walk(layer.layers) if layer.layers else found.append(layer)

    walk(model_from(from_config(config)).layers)
    return found


def attention(name: str, **change: Any) -> Any:
    """The attention block of the first layer."""
    return layers(SMALL[name] | change)[0].attention


def total(config: dict[str, Any]) -> int:
    """Parameters."""
    return int(count(model_from(from_config(config))).total)


# ------------------------------------------------------------------ nulls
def test_sizes_of_global_layers_that_are_null_are_refused() -> None:
    """The class gives such layers the heads of the others, a file without the key other ones."""
    with pytest.raises(SpecError, match="per_layer_config"):
        from_config(COUNTED["gemma4_unified_text"]["config"] | {"per_layer_config": None})


# ------------------------------------------------------------------ heads
def test_null_key_value_heads_are_all_heads() -> None:
    """A null in the file is not the default of the class, which has 8 for Mistral."""
    assert attention("mistral", num_key_value_heads=None).kv_heads == attention("mistral").n_heads


@pytest.mark.parametrize("name", ["albert", "bart", "electra", "gpt2", "mpt"])
def test_heads_divide_the_width_where_nothing_says_how_wide_they_are(name: str) -> None:
    """Classes project to the whole width or to the rounded one, which no file means."""
    key = {"gpt2": "n_head", "mpt": "n_heads", "bart": "encoder_attention_heads"}.get(name, "num_attention_heads")
    with pytest.raises(SpecError, match="not a multiple of the 3 attention heads"):
        from_config(SMALL[name] | {key: 3})


def test_caches_are_shared_with_a_layer_that_has_one() -> None:
    """As many shared layers as there are, or of a kind that no earlier layer has, are refused."""
    for name in ("gemma3n_text", "gemma4_shared"):
        with pytest.raises(SpecError, match="num_kv_shared_layers"):
            from_config(SMALL[name] | {"num_kv_shared_layers": SMALL[name]["num_hidden_layers"]})


def test_a_tower_whose_blocks_do_not_fit_is_refused() -> None:
    """As blocks of the language model are, in words."""
    vision = {"model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 1, "patch_size": 14,
              "num_attention_heads": 5, "intermediate_size": 48, "image_size": 56}  # fmt: skip
    config = {"model_type": "gemma3", "text_config": SMALL["gemma3_text"], "vision_config": vision}
    with pytest.raises(SpecError, match="a width of 32 is not a multiple of n_heads 5"):
        count(model_from(from_config(config)))


def test_falcon_has_its_three_ways() -> None:
    """One head with `multi_query`, all without, and a number in the later architecture alone."""
    assert attention("falcon", num_kv_heads=2, multi_query=True).kv_heads == 1
    later = {"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True}
    assert attention("falcon", **later).kv_heads == 2


def test_latent_attention_has_no_key_value_heads() -> None:
    """`num_key_value_heads` and `head_dim` of DeepSeek say nothing about the cache: latent and rotated key do."""
    config = SMALL["deepseek_v3"]
    odd = config | {"num_key_value_heads": 128, "head_dim": 64}
    assert from_config(odd) == from_config(config)
    cache = count(model_from(from_config(config))).to_dict()["kv_cache"]["bytes_per_token"]
    assert cache == 2 * config["num_hidden_layers"] * (config["kv_lora_rank"] + config["qk_rope_head_dim"])


@pytest.mark.parametrize(("name", "size"), [("qwen3", 128), ("gemma", 256), ("gpt_oss", 64), ("mistral", None)])
def test_head_size_is_explicit_or_a_share(name: str, size: int | None) -> None:
    """The class's own size where it has one, whatever width / heads would give."""
    config = {key: value for key, value in SMALL[name].items() if key != "head_dim"}
    share = config["hidden_size"] // config["num_attention_heads"]
    assert layers(config)[0].attention.d_head == (size or share)
    assert layers(config | {"head_dim": 24})[0].attention.d_head == 24


# ------------------------------------------------------------------ widths
def test_missing_inner_widths() -> None:
    """GPT-2's null is four times the width, OPT has a name of its own, MPT and DBRX nest or derive it."""
    gpt2 = SMALL["gpt2"]
    assert layers(gpt2 | {"n_inner": None})[0].ffn.d_ff == 4 * gpt2["n_embd"]
    assert layers(SMALL["opt"] | {"ffn_dim": 48})[0].ffn.d_ff == 48
    assert layers(SMALL["dbrx"])[0].ffn.expert.d_ff == SMALL["dbrx"]["ffn_config"]["ffn_hidden_size"]


def test_llama4_experts_are_narrower_than_its_dense_layers() -> None:
    """`intermediate_size` is an expert's, `intermediate_size_mlp` a dense layer's."""
    config = SMALL["llama4_text"] | {"intermediate_size": 24, "intermediate_size_mlp": 48,
                                     "interleave_moe_layer_step": 2}  # fmt: skip
    config.pop("moe_layers", None)
    found = layers(config)
    assert found[0].ffn.d_ff == 48
    assert found[1].ffn.expert.d_ff == 24


def test_moe_width_is_not_the_dense_one() -> None:
    """DeepSeek and Qwen: dense layers as wide as `intermediate_size`, experts as `moe_intermediate_size`."""
    found = layers(SMALL["deepseek_v3"])
    assert (found[0].ffn.d_ff, found[-1].ffn.expert.d_ff) == (64, 16)
    [moe] = {layer.ffn for layer in layers(SMALL["qwen3_moe"]) if layer.ffn.kind == "moe"}
    assert moe.expert.d_ff == SMALL["qwen3_moe"]["moe_intermediate_size"]


def test_gemma3n_has_a_width_per_layer() -> None:
    """A list is taken entry by entry."""
    config = SMALL["gemma3n_text"]
    widths = [32 + 8 * i for i in range(config["num_hidden_layers"])]
    assert [layer.ffn.d_ff for layer in layers(config | {"intermediate_size": widths})] == widths


def test_gemma4_has_two_kinds_of_heads() -> None:
    """Global layers have heads of their own size, and their keys serve as values: no second projection, but both are
    kept. `per_layer_config` of newer files says the same."""
    config = SMALL["gemma4_keys_as_values"]
    local, far = layers(config)[0].attention, layers(config)[-1].attention
    assert (local.d_head, local.kv_heads, local.keys_as_values) == (8, 2, False)
    assert (far.d_head, far.kv_heads, far.keys_as_values) == (16, 1, True)
    plain = model_from(from_config(config | {"attention_k_eq_v": False, "num_global_key_value_heads": None}))
    own = model_from(from_config(config))
    assert count(plain).total - count(own).total == (2 * 2 - 1) * 16 * 32
    newer = {k: v for k, v in config.items() if "global" not in k}
    listed = {"per_layer_config": {"05": {"head_dim": 16, "num_key_value_heads": 1}}}
    assert from_config(newer | listed, "x") == from_config(config, "x")


def test_gemma4_s_last_layers_read_other_caches() -> None:
    """They have queries alone, feed-forward layers twice as wide, and no cache."""
    config = SMALL["gemma4_shared"]
    found = layers(config)
    assert [layer.attention.kv_from is None for layer in found] == [True] * 5 + [False] * 5
    assert found[-1].ffn.d_ff == 2 * found[0].ffn.d_ff
    half = config | {"num_hidden_layers": 5, "num_kv_shared_layers": 0, "layer_types": config["layer_types"][:5]}
    growth = [count(model_from(from_config(c))).kv_bytes_per_token for c in (config, half)]
    assert growth[0] == growth[1]


def test_gemma4_with_experts_needs_their_width() -> None:
    """Experts stand beside the dense layer; no width of theirs can be guessed."""
    with pytest.raises(SpecError, match="moe_intermediate_size"):
        from_config(SMALL["gemma4_text"] | {"enable_moe_block": True, "num_experts": 4})


def test_positions_that_are_no_part_of_the_rotated_width() -> None:
    """Mistral Small 4 states what part of a whole head is rotated beside the rotated width: all of that is."""
    config = COUNTED["mistral4"]["config"] | {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
    assert all(layer.attention.position.dim is None for layer in layers(config))


def test_olmo_hybrid_without_positions() -> None:
    """The released files switch rotary positions off by a base that is null."""
    config = COUNTED["olmo_hybrid"]["config"]
    without = config | {"rope_parameters": {"rope_theta": None, "rope_type": "default"}}
    found = [[layer.attention.position for layer in layers(c) if layer.attention] for c in (config, without)]
    assert found[0][0].kind == "rope" and found[1] == [None]


# ------------------------------------------------------------------ experts
def test_experts_have_many_names() -> None:
    """`num_experts`, `num_local_experts`, `n_routed_experts`, `moe_num_experts`; the chosen ones as well."""
    for name, key in (("qwen3_moe", "num_experts"), ("mixtral", "num_local_experts"),
                      ("deepseek_v3", "n_routed_experts"), ("ernie4_5_moe", "moe_num_experts")):  # fmt: skip
        moe = next(layer.ffn for layer in layers(SMALL[name]) if layer.ffn.kind == "moe")
        assert moe.n_experts == SMALL[name][key]
    assert layers(SMALL["ernie4_5_moe"])[-1].ffn.top_k == SMALL["ernie4_5_moe"]["moe_k"]


def test_shared_experts_by_number_or_width() -> None:
    """DeepSeek counts them; Qwen gives their width."""
    shared = layers(SMALL["deepseek_v3"] | {"n_shared_experts": 3})[-1].ffn.shared
    assert shared.n * shared.d_ff == 3 * 16
    qwen = layers(SMALL["qwen2_moe"])[-1].ffn.shared
    assert (qwen.d_ff, qwen.gate) == (24, True)


def test_where_layers_are_dense() -> None:
    """A prefix, a list, a step."""
    assert [layer.ffn.kind for layer in layers(SMALL["deepseek_v3"])][:3] == ["swiglu", "swiglu", "moe"]
    assert layers(SMALL["qwen3_next"])[1].ffn.kind == "swiglu"
    assert [layer.ffn.kind for layer in layers(SMALL["qwen2_moe"])] == ["swiglu", "moe"] * 2


# ------------------------------------------------------------------ tables
@pytest.mark.parametrize(
    ("name", "tied"),
    [("gemma", True), ("gemma2", True), ("gpt2", True), ("opt", True), ("falcon", True), ("bloom", True),
     ("smollm3", True), ("starcoder2", True), ("cohere2", True), ("llama", False), ("qwen2", False),
     ("qwen3", False), ("mistral", False)],
)  # fmt: skip
def test_tying_is_the_family_s(name: str, tied: bool) -> None:
    """Without the key, each class has a default of its own; a small checkpoint's `true` counts."""
    config = {key: value for key, value in SMALL[name].items() if key != "tie_word_embeddings"}
    assert from_config(config)["head"]["tied"] is tied
    assert from_config(config | {"tie_word_embeddings": True})["head"]["tied"] is True


def test_the_vocabulary_is_the_file_s() -> None:
    """Rows are not padded to any multiple."""
    assert total(SMALL["llama"] | {"vocab_size": 97}) - total(SMALL["llama"]) == 2 * SMALL["llama"]["hidden_size"]


# ------------------------------------------------------------------ windows
def test_windows_that_are_off() -> None:
    """A number beside `use_sliding_window: false`; Qwen2-MoE's 0; a first layer behind the last."""
    assert attention("qwen2", use_sliding_window=False, sliding_window=131072).mask.kind == "causal"
    assert attention("qwen2_moe", use_sliding_window=True).mask.kind == "causal"
    n = SMALL["qwen2"]["num_hidden_layers"]
    behind = SMALL["qwen2"] | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": n}
    assert {layer.attention.mask.kind for layer in layers(behind)} == {"causal"}


def test_layer_types_are_the_truth() -> None:
    """They count before every older key, and a kind that the family does not have is refused."""
    config = SMALL["gemma2"]
    n = config["num_hidden_layers"]
    kinds = ["full_attention"] * (n - 1) + ["sliding_attention"]
    found = [layer.attention.mask.kind for layer in layers(config | {"layer_types": kinds})]
    assert found == ["causal"] * (n - 1) + ["sliding"]
    with pytest.raises(SpecError, match="indexed_attention"):
        from_config(config | {"layer_types": ["indexed_attention"] * n})


def test_older_patterns() -> None:
    """`sliding_window_pattern` and `full_attention_interval` where `layer_types` are not there yet."""
    gemma3 = SMALL["gemma3_text"] | {"sliding_window_pattern": 2, "num_hidden_layers": 4}
    gemma3.pop("layer_types", None)
    assert [layer.attention.mask.kind for layer in layers(gemma3)] == ["sliding", "causal"] * 2
    qwen = SMALL["qwen3_next"] | {"full_attention_interval": 2, "mlp_only_layers": []}
    assert [layer.attention is None for layer in layers(qwen)] == [True, False] * 4


def test_block_types_of_hybrids() -> None:
    """One letter per layer, or words, in their older and newer spelling."""
    config = {k: v for k, v in SMALL["nemotron_h"].items() if k != "hybrid_override_pattern"}
    words = ["mamba", "mlp", "attention", "moe"]
    spelt = from_config(config | {"layers_block_type": words})
    assert spelt == from_config(config | {"hybrid_override_pattern": "M-*E"})


# ------------------------------------------------------------------ positions
def test_rotary_parameters_in_one_mapping() -> None:
    """transformers 5 has base and scaling in one place; a nested one per layer type for Gemma 3."""
    new = attention("llama", rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    assert new.position == attention("llama", rope_theta=5e5).position
    nested = {"full_attention": {"rope_theta": 2e6, "rope_type": "linear", "factor": 8.0},
              "sliding_attention": {"rope_theta": 2e4}}  # fmt: skip
    thetas = {layer.attention.position.theta for layer in layers(SMALL["gemma3_text"] | {"rope_parameters": nested})}
    assert thetas == {2e6, 2e4}


def test_the_context_is_as_written() -> None:
    """Whether the factor is in it or not, `max_position_embeddings` is not multiplied."""
    scaled = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
              "max_position_embeddings": 32768}  # fmt: skip
    assert from_config(SMALL["qwen3"] | scaled)["max_context"] == 32768


# ------------------------------------------------------------------ storage, nesting, names
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_names_of_the_dtype(key: str) -> None:
    """And checkpoints of 32 bits exist."""
    assert from_config(SMALL["llama"] | {key: "float32"})["weights"] == {"default": "fp32"}


def _with_names(spec: Any) -> Any:
    """The spec with the names of its encoders alone: their stages are tested with the towers."""
    return spec | {"towers": [{"name": tower["name"]} for tower in spec["towers"]]}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("gemma3", "gemma3_text"), ("llama4", "llama4_text"), ("mistral3", "mistral"), ("mistral3", "ministral3"),
     ("kimi_k25", "deepseek_v3"), ("qwen2_5_vl", "qwen2")],
)  # fmt: skip
def test_multimodal_configs_nest_the_language_model(outer: str, inner: str) -> None:
    """The nested type counts where it has one; else the outer type says which it is."""
    nested = {"model_type": outer, "text_config": SMALL[inner], "vision_config": {"hidden_size": 1}}
    assert _with_names(from_config(nested, "x")) == from_config(SMALL[inner], "x") | {"towers": [{"name": "vision"}]}


def test_older_multimodal_configs_are_flat() -> None:
    """Qwen2-VL's first files have the language model's keys beside the vision tower."""
    flat = SMALL["qwen2"] | {"model_type": "qwen2_vl", "vision_config": {"depth": 32}, "image_token_id": 7}
    assert _with_names(from_config(flat, "x")) == from_config(SMALL["qwen2"], "x") | {"towers": [{"name": "vision"}]}


@pytest.mark.parametrize("model_type", sorted(REFUSED))
def test_families_that_cannot_be_expressed_are_refused_by_name(model_type: str) -> None:
    """With the reason."""
    with pytest.raises(SpecError) as caught:
        from_config({"model_type": model_type, "hidden_size": 32})
    assert model_type in caught.value.message
    assert REFUSED[model_type] in caught.value.message


def test_a_config_without_a_type_is_asked_about() -> None:
    """Grok-1's own file has none."""
    with pytest.raises(SpecError, match="does not say which architecture"):
        from_config({"hidden_size": 6144, "num_experts": 8})


def test_pruned_heads_change_the_cost() -> None:
    """A key that is harmless while empty."""
    assert from_config(SMALL["bert"] | {"pruned_heads": {}})
    with pytest.raises(SpecError, match="pruned_heads"):
        from_config(SMALL["bert"] | {"pruned_heads": {"0": [1]}})


def test_mimo_is_qwen2_with_prediction_modules() -> None:
    """They are kept apart."""
    config = SMALL["qwen2"] | {"model_type": "mimo", "use_sliding_window": False}
    plain = SMALL["qwen2"] | {"use_sliding_window": False}
    document = from_config(config | {"num_nextn_predict_layers": 1})
    assert "mtp" in document
    assert total(config | {"num_nextn_predict_layers": 1}) == total(plain)
