"""`quantization_config` of every kind, and the modules that it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.counts.count import count
from archsim.counts.formats import choose_formats
from archsim.importers.hf.describe import from_config
from archsim.importers.hf.ignored import Pattern, Rules
from archsim.spec.load import model_from

SMALL: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "small.json").read_text())
LLAMA, MIXTRAL, DEEPSEEK = (SMALL[name] for name in ("llama", "mixtral", "deepseek_v3"))
BNB = {"quant_method": "bitsandbytes"}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
MLX = {"group_size": 64, "bits": 4}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def compressed(**scheme: Any) -> dict[str, Any]:
    """A compressed-tensors config with one group."""
    return PACKED | {"config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme}}}


AUTO = "auto_round:auto_"
SCHEME = {"axis": 1, "channel_wise": True, "group_size": 64, "nbits": 4, "optimize": True, "round_zero": True}
HQQ = {
    "quant_method": "hqq",
    "skip_modules": ["lm_head"],
    "quant_config": {
        "offload_meta": False,
        "scale_quant_params": None,
        "zero_quant_params": None,
        "weight_quant_params": SCHEME,
    },
}
"""As HqqConfig writes it."""


def quark(dtype: str, scheme: str, **more: Any) -> dict[str, Any]:
    """A config of AMD Quark with one scheme for all linear layers."""
    weight = {"dtype": dtype, "qscheme": scheme, "is_dynamic": False, "symmetric": None, "group_size": None, **more}
    whole = {"weight": weight, "input_tensors": None, "output_tensors": None, "bias": None}
    return {"quant_method": "quark", "global_quant_config": whole, "layer_quant_config": {}, "exclude": ["lm_head"]}


def torchao(kind: str, **data: Any) -> dict[str, Any]:
    """A config of torchao with one scheme for all linear layers."""
    scheme = {"_type": kind, "_data": data, "_version": 1}
    return {"quant_method": "torchao", "quant_type": {"default": scheme}, "modules_to_not_convert": ["lm_head"]}


def formats(quantised: dict[str, Any], config: dict[str, Any] = LLAMA) -> dict[str, str]:
    """The formats of a config with this quantisation; the model is valid."""
    document = from_config(config | {"quantization_config": quantised})
    assert count(model_from(document)).to_dict()["weights"]["bytes"] > 0
    found: dict[str, str] = document["weights"]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("quantised", "name"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "awq_int4"),
        (torchao("Int4WeightOnlyConfig", group_size=128, int4_packing_format="plain"), "int4_asym"),
        (torchao("Int4WeightOnlyConfig", group_size=32), "int4_asym_g32"),
        (HQQ, "int4_asym_g64"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq_int4_g64"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}, "gptq_int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq_int4_g32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq_int8"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "gptq_int3"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True}, "gptq_int4_channel"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq_int8_channel"),
        (compressed(num_bits=4, type="int", strategy="channel"), "int4_channel"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=64), "int4_g64"),
        (compressed(num_bits=8, type="int", strategy="group", group_size=128), "int8_g128"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8_channel"),
        (compressed(num_bits=4, type="int", group_size=128, strategy="group", symmetric=True), "int4"),
        (compressed(num_bits=4, type="int", group_size=32, strategy="group"), "int4_g32"),
        (compressed(num_bits=4, type="int", group_size=128, strategy="group", symmetric=False), "awq_int4"),
        (compressed(num_bits=8, type="int", strategy="channel"), "int8"),
        (compressed(num_bits=8, type="float", strategy="tensor"), "fp8"),
        (compressed(num_bits=8, type="float", strategy="channel"), "fp8_channel"),
        (compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), "fp8_block"),
        (compressed(num_bits=4, type="float", group_size=16, strategy="tensor_group"), "nvfp4"),
        (compressed(num_bits=4, type="float", group_size=32, strategy="group"), "mxfp4"),
        (BNB | {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4"),
        (BNB | {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4_single"),
        (BNB | {"load_in_4bit": True}, "fp4_bnb"),
        (BNB | {"load_in_8bit": True, "llm_int8_threshold": 6.0}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 128}, "w4a8_g128"),
        (compressed(num_bits=8, type="float", group_size=32, strategy="group"), "mxfp8"),
        (quark("fp8_e4m3", "per_tensor"), "fp8"),
        (quark("fp8_e4m3", "per_channel"), "fp8_channel"),
        (quark("fp4", "per_group", group_size=32), "mxfp4"),
        (quark("uint4", "per_group", group_size=128, symmetric=False), "awq_int4"),
        (torchao("Int8WeightOnlyConfig"), "int8"),
        (torchao("Float8DynamicActivationFloat8WeightConfig", granularity=[{"_type": "PerRow"}] * 2), "fp8_channel"),
        (torchao("Int8DynamicActivationInt4WeightConfig", group_size=32), "int4_g32"),
        ({"quant_method": "torchao", "quant_type": "int8_dynamic_activation_int8_weight"}, "w8a8"),
        (
            {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}},
            "int4_asym_g64",
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4_asym"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": AUTO + "gptq"}, "gptq_int4"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": AUTO + "awq"}, "awq_int4"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp4"}, "mxfp4"),
        ({"quant_method": "eetq", "weights": "int8"}, "int8"),
        ({"quant_method": "quanto", "weights": "float8"}, "fp8_channel"),
    ],
)
def test_kinds(quantised: dict[str, Any], name: str) -> None:
    """The matrices of the layers take the format; tables, norms and the head do not."""
    assert formats(quantised) == {"default": "bf16", "linear": name, "expert": name}


@pytest.mark.parametrize(
    ("name", "stored"),
    [("auto", "bf16"), ("half", "fp16"), ("torch.float16", "fp16"), ("float", "fp32"), (None, "bf16")],
)
def test_names_of_dtypes(name: str | None, stored: str) -> None:
    """PyTorch's other names; what does not say is bf16."""
    assert from_config(LLAMA | {"torch_dtype": name})["weights"]["default"] == stored


@pytest.mark.parametrize("empty", [{}, {"quant_method": None}])
def test_a_mapping_of_nothing_is_no_quantisation(empty: dict[str, Any]) -> None:
    """As trainers write it."""
    assert formats(empty) == {"default": "bf16"}


def test_modules_with_bits_of_their_own_by_autoround() -> None:
    """16 bits are left as they were."""
    own = {"model.layers.0.mlp.up_proj": {"bits": 16}, "model.layers.1.mlp.up_proj": {"bits": 8}}
    found = formats({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": own})
    assert "1*bf16" in found["layers.ffn.w_up"] and "1*gptq_int8" in found["layers.ffn.w_up"]


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_language_model_inside_under_any_of_its_names(key: str) -> None:
    """Of a type that nobody knows, the language model is read where its own type is known."""
    inner = from_config({"model_type": "seer", "hidden_size": 64, key: LLAMA})
    assert count(model_from(inner)).total == count(model_from(from_config(LLAMA))).total


def test_eight_bit_activations_change_the_arithmetic() -> None:
    """With activations quantised too, products run in int8."""
    config = compressed(num_bits=8, type="int", strategy="channel")
    config["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "int"}
    assert formats(config)["linear"] == "w8a8"


def test_mxfp4_is_for_experts() -> None:
    """gpt-oss keeps everything else in 16 bits."""
    listed = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": listed}
    assert formats(quantised, SMALL["gpt_oss"]) == {"default": "bf16", "expert": "mxfp4"}


@pytest.mark.parametrize(
    ("quantised", "key"),
    [
        ({"quant_method": "hqq"}, "hqq"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": SCHEME | {"nbits": 3}}}, "nbits"),
        ({"quant_method": "exl3", "bits": 9.5}, "bits"),
        ({"bits": 4}, "quant_method"),
        ({"bits": 7, "group_size": 64}, "bits"),
        ({"bits": 4, "group_size": 48}, "group_size"),
        ({"bits": 4, "group_size": 64, "mode": "fp7"}, "mode"),
        ({"bits": 4, "group_size": 64, "per_head": 3}, "per_head"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 100}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:nowhere": {"bits": 8}}}, "nowhere"),
        (compressed(num_bits=4, type="int", group_size=48), "group_size"),
        (PACKED | {"config_groups": {"a": {"targets": ["re:.*mlp.*"], "weights": {}}}}, "weights"),
        (PACKED | {"config_groups": {"a": {"targets": ["Conv2d"], "weights": INT8}}}, "Conv2d"),
        ({"quant_method": "awq", "bits": 3, "group_size": 128}, "bits"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size"),
        ({"quant_method": "fp8", "weights_of_another_kind": 2}, "weights_of_another_kind"),
        (compressed(num_bits=2, type="int", group_size=128), "type"),
        (PACKED, "config_groups"),
        (BNB | {"load_in_4bit": True, "bnb_4bit_quant_type": "af4"}, "bnb_4bit_quant_type"),
        (BNB, "load_in_4bit"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": None}, "config_groups"),
        (compressed(**INT4) | {"format": "marlin-24"}, "marlin-24"),
        (PACKED | {"config_groups": {"a": {"format": "marlin-24", "targets": ["Linear"], "weights": INT4}}}, "sparse"),
        ({"quant_method": "mxfp4", "lm_head": True}, "lm_head"),
    ],
)
def test_what_is_not_known_is_refused_by_name(quantised: dict[str, Any], key: str) -> None:
    """A new kind, width, group or key is an error that names it."""
    with pytest.raises(SpecError, match=key):
        from_config(LLAMA | {"quantization_config": quantised})


@pytest.mark.parametrize("method", ["gptq", "awq", "auto-round"])
def test_an_output_table_quantised_as_the_layers_are(method: str) -> None:
    """`lm_head: true`, which vLLM reads of such checkpoints; false says nothing."""
    quantised = {"quant_method": method, "bits": 4, "group_size": 128}
    usual = formats(quantised)
    assert formats(quantised | {"lm_head": False}) == usual
    assert formats(quantised | {"lm_head": True}) == usual | {"head": usual["linear"]}


def test_model_optimizers_own_file_has_its_algorithm_one_level_further_in() -> None:
    own = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    nested = {"quant_method": "modelopt", "producer": {"name": "modelopt"}, "quantization": own}
    assert formats(nested) == formats({"quant_method": "modelopt"} | own)


def test_a_quantised_cache_alone_leaves_the_weights_as_they_were() -> None:
    assert formats({"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"}) == formats({})


def test_ignored_attention_stays_as_it_was() -> None:
    """Matrices that a pattern names keep the default; the others of their class do not."""
    found = formats(compressed(num_bits=4, type="int", group_size=32) | {"ignore": ["re:.*self_attn.*", "lm_head"]})
    kept = {f"layers.attention.w_{x}": "bf16" for x in "qkvo"}
    assert found == {"default": "bf16", "linear": "int4_g32", "expert": "int4_g32"} | kept


def test_ignored_layers_are_counted() -> None:
    """Meta's list names attention everywhere and the feed-forward layer of the first and last layer."""
    ends = [f"model.layers.{i}.mlp.{part}_proj" for i in (0, 2) for part in ("up", "gate", "down")]
    attention = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(3) for p in "qkvo"]
    found = formats({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ends + attention})
    assert found["layers.ffn.w_up"] == "2*bf16+1*fp8_channel"
    assert found["layers.attention.w_q"] == "bf16"


def test_experts_alone() -> None:
    """Where every other matrix is on the list, only the experts are quantised (Kimi K2 Thinking)."""
    listed = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    found = formats(compressed(num_bits=4, type="int", group_size=32) | {"ignore": listed}, DEEPSEEK)
    assert found == {"default": "bf16", "expert": "int4_g32"}


def test_an_entry_of_a_skip_list_that_names_no_module_is_noted() -> None:
    """Lists are written for several versions of a model: a name that matches nothing keeps nothing."""
    listed = ["model.layers.0.attention_wormhole", "model.layers.1.self_attn*"]
    document = from_config(MIXTRAL | {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": listed}})
    assert document["unused"] == ["quantization_config: model.layers.0.attention_wormhole"]


@pytest.mark.parametrize("prefix", ["model.language_model.layers.0", "language_model.model.layers.0", "model.layers.0"])
def test_a_glob_reaches_the_layers_of_a_model_inside_another(prefix: str) -> None:
    """Globs with the outer model's prefix keep the same matrices (lists of TensorRT Model Optimizer)."""
    listed = {"quant_method": "fp8", "exclude_modules": [prefix + ".self_attn*"]}
    found = formats(listed, MIXTRAL)
    assert "attention" in str(found) and "unused" not in from_config(MIXTRAL | {"quantization_config": listed})


def test_a_pattern_that_cannot_be_followed_is_refused() -> None:
    """Nobody knows what it keeps."""
    with pytest.raises(SpecError, match="matches no weight matrix"):
        formats({"quant_method": "fp8", "ignore": ["re:(a+)+$"]}, MIXTRAL)


def test_modules_of_other_parts_are_passed_over() -> None:
    """Vision towers, routers, heads and prediction modules behind the last layer are no matrices of the layers."""
    listed = ["lm_head", "visual.blocks.0.attn.qkv", "re:.*gate$", "model.layers.61", "model.embed_tokens"]
    assert "linear" in formats({"quant_method": "fp8", "ignored_layers": listed}, MIXTRAL)


def test_a_quantization_config_beside_text_config_counts() -> None:
    """Multimodal files have it outside of the language model's part, or inside."""
    quantised = {"quantization_config": {"quant_method": "fp8"}}
    outside = {"model_type": "gemma3", "text_config": SMALL["gemma3_text"]} | quantised
    inside = {"model_type": "gemma3", "text_config": SMALL["gemma3_text"] | quantised}
    assert from_config(outside, "x") == from_config(inside, "x")
    assert from_config(inside)["weights"]["linear"] == "fp8"


# ---------------------------------------------------------------------- several formats in one checkpoint
def test_groups_with_targets_of_their_own() -> None:
    """compressed-tensors: a pattern takes its modules out of the group of all linear layers; what is ignored stays."""
    groups = {
        "group_0": {"targets": ["Linear"], "weights": INT4},
        "group_1": {"targets": ["re:.*mlp.down_proj", "model.layers.1.self_attn.q_proj"], "weights": INT8},
    }
    found = formats(PACKED | {"config_groups": groups, "ignore": ["model.layers.0.mlp.down_proj"]})
    assert found == {
        "default": "bf16", "linear": "int4", "expert": "int4", "layers.ffn.w_down": "1*bf16+2*int8",
        "layers.attention.w_q": "2*int4+1*int8",
    }  # fmt: skip


def test_targets_without_a_group_of_all() -> None:
    """Only the named modules are quantised."""
    group = {"targets": ["re:.*self_attn.*"], "weights": INT8}
    found = formats(PACKED | {"config_groups": {"group_0": group}})
    assert found == {"default": "bf16"} | {f"layers.attention.w_{x}": "int8" for x in "qkvo"}


def test_two_formats_for_all_are_refused() -> None:
    """Which of them a layer has, the config does not say."""
    groups = {str(i): {"targets": ["Linear"], "weights": w} for i, w in enumerate((INT4, INT8))}
    with pytest.raises(SpecError, match="config_groups"):
        formats(PACKED | {"config_groups": groups})


def test_dynamic_rules_of_gptq() -> None:
    """GPTQModel: negative rules leave modules alone, positive ones change their bits."""
    rules = {"-:.*self_attn.*": {}, r"+:.*\.1\.mlp\.down_proj": {"bits": 8}}
    found = formats({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": rules})
    assert found["layers.attention.w_o"] == "bf16"
    assert found["layers.ffn.w_down"] == "2*gptq_int4+1*gptq_int8"


def test_modules_in_blocks_of_gptq() -> None:
    """A list of modules is all that is quantised."""
    inside = [["self_attn.q_proj", "self_attn.k_proj"], ["mlp.up_proj"]]
    found = formats({"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": inside})
    names = ("attention.w_q", "attention.w_k", "ffn.w_up")
    assert found == {"default": "bf16"} | {f"layers.{name}": "gptq_int4" for name in names}


def test_layers_listed_by_modelopt() -> None:
    """MIXED_PRECISION names an algorithm for every module."""
    listed = {f"model.layers.{i}.self_attn.{p}_proj": {"quant_algo": "FP8"} for i in range(3) for p in "qkvo"}
    listed |= {f"model.layers.{i}.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16} for i in range(2)}
    found = formats({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed})
    assert found["layers.attention.w_q"] == "fp8"
    assert found["layers.ffn.w_up"] == "2*nvfp4+1*bf16"
    assert "layers.ffn.w_down" not in found


# ---------------------------------------------------------------------- MLX
@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
@pytest.mark.parametrize(
    ("quantised", "name"),
    [
        (MLX, "mlx_4bit"),
        ({"group_size": 32, "bits": 6}, "mlx_6bit_g32"),
        ({"group_size": 128, "bits": 3, "mode": "affine"}, "mlx_3bit_g128"),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mxfp4"),
    ],
)
def test_mlx(quantised: dict[str, Any], name: str, key: str) -> None:
    """mlx-lm names no method, and converts tables as well."""
    found = from_config(LLAMA | {key: quantised})["weights"]
    assert found == {"default": "bf16"} | dict.fromkeys(("linear", "expert", "embedding", "head"), name)


def test_mlx_bytes_are_those_of_the_file() -> None:
    """Every matrix in groups of 64 with a scale and a bias of 16 bits each, norms in 16 bits."""
    wide = LLAMA | {"hidden_size": 128, "intermediate_size": 256}
    config = wide | {"quantization": MLX, "quantization_config": MLX}
    whole = count(model_from(from_config(wide)))
    packed = count(model_from(from_config(config)))
    norms = whole.by_class["norm"]
    assert packed.weight_bytes == (whole.total - norms) * 36 // 64 + 2 * norms


def test_mlx_modules_of_their_own() -> None:
    """Other bits, or none, for single modules: tables, routers and matrices of a layer."""
    own = {
        "model.embed_tokens": {"group_size": 64, "bits": 8},
        "lm_head": False,
        "model.layers.0.block_sparse_moe.switch_mlp.down_proj": {"group_size": 64, "bits": 6},
        "model.layers.0.mlp.gate": {"bits": 8},
        "model.layers.1.self_attn.q_proj": True,
    }
    config = MIXTRAL | {"quantization": MLX | own}
    found = from_config(config)["weights"]
    assert found["embedding.tokens"] == "mlx_8bit"
    assert "head" not in found
    n = config["num_hidden_layers"]
    assert found["layers.moe.w_down"] == f"1*mlx_6bit+{n - 1}*mlx_4bit"
    assert found["layers.moe.w_router"] == f"1*mlx_8bit+{n - 1}*bf16"
    assert "layers.attention.w_q" not in found


def test_long_lists_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module is compared with the patterns that can mean it, not with all of a list of hundreds."""
    compared: list[str] = []
    means = Pattern.means
    monkeypatch.setattr(Pattern, "means", lambda self, name: (compared.append(name), means(self, name))[1])
    listed = [(f"model.layers.{i}.self_attn*", None) for i in range(1000)]
    rules = Rules(listed)
    found = [rules.of([f"model.layers.{i}.self_attn.q_proj"]) for i in range(1000)]
    assert found == listed
    assert len(compared) <= 4 * len(listed)  # model.layers.1 also begins model.layers.12


@pytest.mark.parametrize("pattern", ["model.layers.1.mlp*", "*.mlp.up_proj", "*layers.[1]*", "re:.*\\.up_proj"])
def test_patterns_begin_anywhere(pattern: str) -> None:
    """With text, with any text, or as a regular expression; a module means what is inside of it."""
    rules = Rules([(pattern, None)])
    assert rules.of(["model.layers.1.mlp.up_proj"]) == (pattern, None)
    assert rules.of(["model.layers.2.self_attn.q_proj"]) is None
    assert rules.used == {pattern}


CACHE_SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}

STATED = [
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, ("fp8", "modelopt")),
    ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "nvfp4"}, ("nvfp4", "modelopt")),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": CACHE_SCHEME}, ("fp8", "modelopt")),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, None),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP6"}, None),
    ({"quant_method": "fp8", "kv_cache_scheme": CACHE_SCHEME}, None),
]


@pytest.mark.parametrize(("quantization", "stated"), STATED)
def test_what_a_checkpoint_states_of_its_cache_is_kept(
    quantization: dict[str, Any], stated: tuple[str, str] | None
) -> None:
    """By the method that states it; formats that nobody knows are left out."""
    found = from_config(LLAMA | {"quantization_config": quantization}).get("kv_cache")
    assert (found and (found["format"], found["method"])) == stated


def test_engines_cache_in_what_a_checkpoint_states_where_they_follow_it() -> None:
    """vLLM from 0.14 on and SGLang for Model Optimizer; vLLM alone for compressed-tensors; what is asked for wins."""
    modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}
    compressed = {"quant_method": "compressed-tensors", "config_groups": groups, "kv_cache_scheme": CACHE_SCHEME}
    models = [model_from(from_config(LLAMA | {"quantization_config": own}, "tiny")) for own in (modelopt, compressed)]
    found = {engine: [choose_formats(model, engine=engine).kv.name for model in models]
             for engine in ("generic", "vllm", "vllm@0.13", "sglang", "trtllm", "tgi", "tgi@2.4")}  # fmt: skip
    assert found == {
        "generic": ["bf16", "bf16"], "vllm": ["fp8", "fp8"], "vllm@0.13": ["bf16", "bf16"], "sglang": ["fp8", "bf16"],
        "trtllm": ["fp8", "bf16"], "tgi": ["bf16", "fp8"], "tgi@2.4": ["bf16", "bf16"],
    }  # fmt: skip
    assert choose_formats(models[0], None, "bf16", engine="vllm").kv.name == "bf16"
    assert choose_formats(models[0], "int4", engine="vllm").kv.name == "bf16"


def test_exllama_averages_whole_widths_and_has_another_for_the_head() -> None:
    """Six bits for the head unless told."""
    found = formats({"quant_method": "exl3", "bits": 3.0, "out_scales": "auto"})
    assert found["linear"] == "exl3_3bpw=1*3bit@fp16"
    assert found["head"] == "exl3_6bpw=1*6bit@fp16"
    found = formats({"quant_method": "exl2", "bits": 4.25, "head_bits": 8, "calibration": {"rows": 115}})
    assert found["expert"] == "exl2_4.25bpw=3*4bit+1*5bit@fp16"
    assert found["head"] == "exl2_8bpw=1*8bit@fp16"
