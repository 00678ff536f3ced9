"""Hugging Face configs to documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.counts.count import count
from archsim.counts.graph_counts import params
from archsim.graph.step import Seqs, Step
from archsim.importers.hf.describe import from_config
from archsim.importers.hf.families.registry import READERS, family
from archsim.importers.hf.pattern import pattern, stack
from archsim.spec import loader
from archsim.spec.load import load_model
from archsim.spec.lower import lower
from archsim.spec.model import Model, merge_layers

HERE = Path(__file__).parent
SMALL: dict[str, dict[str, Any]] = {
    name: config
    for file in ("small.json", "small_more.json")
    for name, config in json.loads((HERE / file).read_text()).items()
}
COUNTED: dict[str, dict[str, Any]] = json.loads((HERE / "counted.json").read_text())["families"]
"""More small configs, each with the parameters of its class (written by `reference_counts.py`)."""
CONFIGS = sorted((HERE / "configs").glob("*.json"))
LLAMA = SMALL["llama"]


def model(config: dict[str, Any]) -> Model:
    """The model that a config becomes, on the way that a file takes: as text, merged, validated."""
    document = loader.parse_text(json.dumps(from_config(config, "imported")), "imported")
    merge_layers(document, loader.merge)
    return loader.validate(document, Model)


def total(m: Model) -> int:
    """Parameters of a model."""
    return int(params(lower(m, Step.of(source=(Seqs(),)))))


def only_layer(config: dict[str, Any]) -> dict[str, Any]:
    """The layer of a document whose layers are all alike."""
    (layer,) = from_config(config)["layers"]
    return layer  # type: ignore[no-any-return]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_and_the_catalog_agree(path: Path) -> None:
    """The config of a catalog entry has the entry's parameters, layers and context."""
    imported, known = model(json.loads(path.read_text())), load_model(path.stem)
    assert total(imported) == total(known)
    assert imported.n_layers == known.n_layers
    assert imported.architecture == known.architecture


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("name", SMALL)
def test_small_models_have_the_parameters_of_the_reference(name: str) -> None:
    """Every family has as many parameters as the class of transformers with the same config."""
    assert total(model(SMALL[name])) == reference(SMALL[name])


LEFT_OUT = {"marian": "embed_positions", "pegasus": "embed_positions"}
"""Parts of names of what is no learned weight of the model that runs."""

NO_CLASS = {
    "mimo", "nemotron-nas", "ernie4_5_vl_moe_text", "kosmos_2_text_model", "kosmos_2_5_text_model",
    "internlm2", "baichuan", "minicpmv", "bailing_moe_v2", "chatglm", "minicpm",
    "qwen", "internlm", "aquila", "orion", "telechat", "teleflm", "step1", "pangu_embedded", "plamo3", "spark2_5",
    "phi3small",
    "ouro", "nanbeige", "deepseek", "bailing_moe", "pangu_ultra_moe", "step3_text",
    "arctic", "grok-1", "xverse_moe", "longcat_flash", "rwkv7", "k2_horizon",
}  # fmt: skip
"""Families that transformers has no class for, or none that can be built so small."""


def reference(config: dict[str, Any]) -> int:
    """Unique parameters of the class in transformers, on the meta device. Sinusoid tables are not learned."""
    torch = pytest.importorskip("torch", reason="the reference needs torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    spec = transformers.AutoConfig.for_model(**config)
    seq2seq = getattr(spec, "is_encoder_decoder", False)
    encoder = config["model_type"] in (
        "bert",
        "roberta",
        "distilbert",
        "deberta",
        "longformer",
        "albert",
        "xlnet",
        "camembert",
        "electra",
        "modernbert",
    )
    auto = "AutoModel" if encoder else "AutoModelForSeq2SeqLM" if seq2seq else "AutoModelForCausalLM"
    with torch.device("meta"):
        built = getattr(transformers, auto).from_config(spec)
    left_out = LEFT_OUT.get(config["model_type"], "no such name")
    return sum(p.numel() for name, p in built.named_parameters() if left_out not in name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", COUNTED)
def test_small_models_have_the_parameters_that_the_reference_had(name: str) -> None:
    """Families that vary another one's layer, by counts that were taken once."""
    assert total(model(COUNTED[name]["config"])) == COUNTED[name]["params"]


@pytest.mark.parametrize(
    ("parts", "params"), [((), 360_268_800), (("mlm-head",), 360_300_800)], ids=["XLNetModel", "XLNetLMHeadModel"]
)
def test_xlnet_large_has_its_mask_vector_and_the_bias_of_its_head(parts: tuple[str, ...], params: int) -> None:
    """Like every encoder it counts as the base model, and `--with mlm-head` adds the head: figures of transformers
    5.23 with the config of xlnet-large-cased.
    """
    config = {"model_type": "xlnet", "vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}
    assert count(model(config), parts=parts).total == params


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMALL)
def test_an_unknown_key_is_refused_by_name(name: str) -> None:
    """A key that nobody understands is an error, in every family."""
    with pytest.raises(SpecError, match="attention_wormholes"):
        from_config(SMALL[name] | {"attention_wormholes": 3})


def test_every_family_has_a_small_config() -> None:
    """No family goes untested; the other names of a family count with it."""
    configs = [*SMALL.values(), *(row["config"] for row in COUNTED.values())]
    tested = {READERS[config["model_type"]] for config in configs}
    assert set(READERS.values()) - {READERS[name] for name in NO_CLASS} == tested


def test_experts_of_image_tokens_are_held_and_not_touched() -> None:
    """ERNIE 4.5 VL: they add parameters, and no work."""
    config = LLAMA | {
        "model_type": "ernie4_5_vl_moe_text", "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1,
        "moe_intermediate_size": [48, 24], "num_hidden_layers": 3, "tie_word_embeddings": False,
    }  # fmt: skip
    both, text = count(model(config)), count(model(config | {"moe_intermediate_size": 48}))
    d = config["hidden_size"]
    assert both.total - text.total == 2 * (8 * 3 * d * 24 + 8 * d + 8)
    assert both.masked.total == text.masked.total
    assert both.active - text.active == 2 * (8 * d + 8)  # a router that texts do not pass counts as held by all


def test_layers_of_a_search_have_the_released_count() -> None:
    """Nemotron Super 49B v1: 80 layers of eight kinds, as its config has them; 49.9 billion, its page says."""
    none = {"no_op": True, "n_heads_in_group": None, "replace_with_linear": False, "sparsify": None}
    whole = none | {"no_op": False, "n_heads_in_group": 8, "num_sink_tokens": None, "window_length": None,
                    "unshifted_sink": False, "use_prefill_window_in_sink_attention": False}  # fmt: skip
    counts = {(True, 5.25): 48, (True, 2.625): 1, (False, 5.25): 1, (False, 3.28125): 1, (False, 2.625): 5,
              (False, 1.3125): 10, (False, 1.0): 8, (False, 0.5): 6}  # fmt: skip
    blocks = [
        {"attention": whole if attends else none, "ffn": {"ffn_mult": width, "no_op": False}}
        for (attends, width), n in counts.items()
        for _ in range(n)
    ]
    config = {"model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256,
              "num_attention_heads": 64, "intermediate_size": None, "num_key_value_heads": None,
              "block_configs": blocks}  # fmt: skip
    assert count(model(config)).total == 49_867_145_216
    nothing = {"attention": none, "ffn": none | {"ffn_mult": None}}
    shorter = config | {"block_configs": [nothing, *blocks[1:]]}
    assert model(shorter).n_layers == 79
    with pytest.raises(SpecError, match="replace_with_linear"):
        from_config(config | {"block_configs": [{**blocks[0], "ffn": {"replace_with_linear": True}}, *blocks[1:]]})


def test_a_family_is_registered_once() -> None:
    """Two readers for one type are a mistake."""
    with pytest.raises(ValueError, match="llama"):
        family("llama")(lambda c: {})


def test_nested_keys_are_checked_too() -> None:
    """An unknown field of the rotary scaling is named with its parent."""
    with pytest.raises(SpecError, match=re.escape("rope_scaling.spiral")):
        from_config(LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "spiral": 1}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "llama"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "swoosh"}, "swoosh"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "spiral"),
        ({"torch_dtype": "float3"}, "float3"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic"),
        ({"rope_scaling": 3}, "rope_scaling"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any], message: str) -> None:
    """The message or its hints name what is wrong."""
    with pytest.raises(SpecError) as caught:
        from_config(LLAMA | change)
    assert message in " ".join((caught.value.message, *caught.value.hints))


def test_layer_types_need_one_entry_per_layer() -> None:
    """A list of another length is an error, not a shorter model."""
    with pytest.raises(SpecError, match="layer_types"):
        from_config(SMALL["gemma2"] | {"layer_types": ["full_attention"]})


def test_missing_key_value_heads_are_all_heads() -> None:
    """Without the key, attention is multi-head."""
    assert only_layer(LLAMA)["attention"]["kind"] == "mha"


def test_falcon_counts_key_value_heads_in_its_later_architecture_only() -> None:
    """`num_kv_heads` beside `multi_query` means one head."""
    assert only_layer(SMALL["falcon"] | {"num_kv_heads": 4})["attention"]["kind"] == "mqa"


def test_a_window_that_is_switched_off_is_no_window() -> None:
    """Qwen2 files carry a number beside `use_sliding_window: false`."""
    assert "mask" not in only_layer(SMALL["qwen2"] | {"use_sliding_window": False})["attention"]


def test_window_layers_begin_at_the_given_one() -> None:
    """With the window on, the first `max_window_layers` layers have none."""
    names = [layer["name"] for layer in from_config(SMALL["qwen2"])["layers"]]
    assert names == ["full", "local"]


def test_a_null_window_is_not_a_missing_one() -> None:
    """Mistral's class has a window of 4096 unless the file says null."""
    assert only_layer(SMALL["mistral"])["attention"]["mask"] == {"kind": "sliding", "window": 4096}
    assert "mask" not in only_layer(SMALL["mistral"] | {"sliding_window": None})["attention"]


def test_rotary_parameters_in_both_spellings() -> None:
    """The newer nested mapping and the older keys give the same position block."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    old = LLAMA | {"rope_theta": 5e5, "rope_scaling": scaling}
    new = LLAMA | {"rope_parameters": {"rope_theta": 5e5, **scaling}}
    assert from_config(old) == from_config(new)
    assert only_layer(old)["attention"]["position"]["scaling"]["original_max"] == 8192


def test_numbers_of_a_stretched_rotation_change_no_cost() -> None:
    """As the first implementations of YaRN and of dynamic scaling wrote them."""
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "attn_factor": 1.0,
            "extrapolation_factor": 1.0, "finetuned": True}  # fmt: skip
    for scaling in (yarn, {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}):
        assert total(model(LLAMA | {"rope_scaling": scaling})) == total(model(LLAMA))


def test_a_multimodal_config_gives_its_language_model() -> None:
    """`text_config` counts; the vision tower's keys are not asked about."""
    config = {"model_type": "gemma3", "text_config": SMALL["gemma3_text"], "vision_config": {"odd": 1}}
    (tower,) = from_config(config, "x").pop("towers")
    assert tower["note"] == "config keys that are not understood: vision_config.odd"
    assert from_config(config, "x") == from_config(SMALL["gemma3_text"], "x") | {"towers": [tower]}


@pytest.mark.parametrize(
    ("stored", "weights"),
    [
        ({}, {"default": "bf16"}),
        ({"torch_dtype": "float16"}, {"default": "fp16"}),
        ({"quantization_config": {"quant_method": "mxfp4"}}, {"default": "bf16", "expert": "mxfp4"}),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
            {"default": "bf16", "linear": "fp8_block", "expert": "fp8_block"},
        ),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}},
            {"default": "bf16", "linear": "awq_int4", "expert": "awq_int4"},
        ),
    ],
)
def test_weight_formats(stored: dict[str, Any], weights: dict[str, str]) -> None:
    """How a checkpoint is stored comes from its dtype and its quantisation."""
    assert from_config(LLAMA | stored)["weights"] == weights


def test_prediction_modules_are_kept_apart() -> None:
    """They are part of the document and not of the total."""
    config = SMALL["deepseek_v3"] | {"num_nextn_predict_layers": 1}
    assert "mtp" in from_config(config)
    assert total(model(config)) == total(model(SMALL["deepseek_v3"]))


def test_a_pattern_is_found_behind_a_prefix() -> None:
    """Dense layers first, then a period, then what is left of it."""
    entries = [("dense", {"a": 0})] * 2 + [("local", {"a": 1}), ("local", {"a": 1}), ("global", {"a": 2})] * 3
    head, group = pattern(entries)
    assert head == {"name": "dense", "repeat": 2, "a": 0}
    assert group["repeat"] == 3
    assert [layer["name"] for layer in group["layers"]] == ["local", "global"]


def test_names_are_numbered_through_what_surrounds_a_group() -> None:
    """Runs of one name before and behind the repeated group all get names of their own."""
    entries = [("a", {"x": 0})] * 2 + [("b", {"x": 1})]
    entries += ([("a", {"x": 2})] * 3 + [("b", {"x": 1})]) * 4 + ([("a", {"x": 2})] * 2 + [("b", {"x": 1})]) * 2
    names = [layer["name"] for layer in pattern(entries) if "name" in layer]
    assert names == ["a", "b", "a_2", "b_2", "a_3", "b_3"]


def test_equal_layers_need_no_shared_part() -> None:
    """A uniform stack is one entry."""
    assert stack([("x", {"a": 1})] * 4) == {"layers": [{"repeat": 4, "a": 1}]}
