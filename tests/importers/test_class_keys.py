"""Keys of configs that no figure depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import SpecError
from archsim.importers.hf.class_keys import DATA, class_keys, derive, without_effect
from archsim.importers.hf.describe import from_config

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("albert", "classifier_dropout_prob", 0.1),  # read for dropout alone
        ("dbrx", "num_key_value_heads", 8),  # the class reads attn_config
        ("llama", "max_window_layers", 28),  # copied from another family
        ("llama", "expert_intermediate_size", None),  # switches nothing on
        ("llama", "video_fps_token_id", 7),  # a token
        ("llama", "release_channel", "beta"),  # speaks of no part
        ("llama", "spam_initializer_gain", 0.1),  # initialisation
        ("llama", "sliding_window", None),  # what code for all families reads is off (Voxtral's language model)
        ("exaone4", "mtp_share_layers", True),  # of prediction modules (EXAONE 4.5)
    ],
)
def test_a_key_without_effect_is_noted(model_type: str, key: str, value: Any) -> None:
    """It passes, and the document says so."""
    assert without_effect(key, value, model_type, own_code=False)
    if model_type == "llama":
        document = from_config(LLAMA | {key: value})
        assert document.get("unused", [key]) == [key]
        assert [note for note in archsim.count(LLAMA | {key: value}).assumptions if note.code == "A36"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("generation_config", {"do_sample": True, "top_k": 20}),
        ("sentence_transformers", {"activation_fn": "torch.nn.Sigmoid"}),
        ("transformers.js_config", {"dtype": "q4"}),
        ("tp_plan", "auto"),
        ("use_liger_kernel", True),
        ("is_causal", True),
    ],
)
def test_what_programs_write_into_files_changes_nothing(key: str, value: Any) -> None:
    """Sampling, export, training and parallel plans."""
    assert from_config(LLAMA | {key: value}, "x") == from_config(LLAMA, "x")


def test_a_decoder_that_looks_both_ways_is_an_encoder() -> None:
    """`is_causal: false`, by which transformers makes every mask bidirectional."""
    document = from_config(LLAMA | {"is_causal": False})
    assert document["architecture"] == "encoder"
    assert "head" not in document
    assert document["layers"][0]["attention"]["mask"] == {"kind": "bidirectional"}
    counted = archsim.count(LLAMA | {"is_causal": False}).to_dict()["params"]["total"]
    assert counted == archsim.count(LLAMA).to_dict()["params"]["total"] - 128 * 64
    with pytest.raises(SpecError, match="is_causal"):
        from_config({"model_type": "mamba", "is_causal": False})


def test_the_type_of_a_family_that_transformers_has_outweighs_a_class_of_another() -> None:
    """As transformers itself goes by the type."""
    qwen = LLAMA | {"model_type": "qwen2", "architectures": ["LlamaForSequenceClassification"]}
    assert from_config(qwen, "x") == from_config(qwen | {"architectures": ["Qwen2ForCausalLM"]}, "x")


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("llama", "attention_wormholes", 3),
        ("llama", "sliding_window", 4096),
        ("llama", "num_memory_tokens", 64),
        ("llama", "hc_mult", 4),
        ("nemotron_h", "moe_latent_dim", 64),
        ("nobody_knows_it", "num_experts", 8),
        ("llama", "quantization_config.bits_of_another_kind", 3),
    ],
)
def test_a_key_that_could_matter_is_not(model_type: str, key: str, value: Any) -> None:
    """What a class reads, what no class has heard of, and what a family without a class has."""
    assert not without_effect(key, value, model_type, own_code=False)


def test_code_of_the_checkpoint_may_read_what_the_class_does_not() -> None:
    """Beside code of its own, a key of several families may mean what it means there."""
    changed = LLAMA | {"first_k_dense_replace": 1}
    assert from_config(changed)["unused"] == ["first_k_dense_replace"]
    with pytest.raises(SpecError, match="first_k_dense_replace"):
        from_config(changed | {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}})


def test_the_file_says_which_transformers_it_is_of() -> None:
    """And has the families that files are most often of."""
    found = json.loads(Path(DATA).read_text("utf-8"))
    assert found["transformers"].count(".") == 2
    assert {"llama", "bert", "t5", "gemma3", "deepseek_v3"} <= found["reads"].keys()
    assert "hidden_size" in class_keys().reads["llama"]


@pytest.mark.slow
@pytest.mark.oracle
def test_the_file_is_what_the_installed_source_says() -> None:
    """Where the versions are the same."""
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != json.loads(Path(DATA).read_text("utf-8"))["transformers"]:
        pytest.skip("the file is of another version of transformers")
    now, kept = derive(), class_keys()
    assert all(now.reads[folder] == keys for folder, keys in kept.reads.items())
    assert (now.aliases, now.classes) == (kept.aliases, {f: kept.classes.get(f, frozenset()) for f in now.classes})
    assert {f: names for f, names in now.composites.items() if names} == kept.composites


def test_a_file_that_names_the_class_of_transformers_beside_old_code_is_read_as_the_class() -> None:
    """Files of before their family was taken over keep `auto_map`."""
    changed = LLAMA | {"first_k_dense_replace": 1, "auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}}
    assert from_config(changed | {"architectures": ["LlamaForCausalLM"]})["unused"] == ["first_k_dense_replace"]
    for named in (["MineForCausalLM"], ["LlamaForCausalLM", "MineForCausalLM"], [], None, 3, [["LlamaForCausalLM"]]):
        with pytest.raises(SpecError, match="first_k_dense_replace"):
            from_config(changed | {"architectures": named})


SMALL: dict[str, dict[str, Any]] = {
    config["model_type"]: config
    for file in ("small.json", "small_more.json")
    for config in json.loads(Path(__file__).with_name(file).read_text("utf-8")).values()
}

GPT2 = {"model_type": "gpt2", "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}


def test_a_key_under_another_name_that_the_config_class_takes_is_that_key() -> None:
    """The `attribute_map` of the class: `hidden_size` of a GPT-2 is `n_embd`."""
    names = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
             "n_positions": "max_position_embeddings"}  # fmt: skip
    renamed = {names.get(key, key): value for key, value in GPT2.items()}
    assert from_config(renamed, "x") == from_config(GPT2, "x")
    assert from_config(GPT2 | {"hidden_size": 99}, "x")["d_model"] == 64  # its own name is what counts


@pytest.mark.parametrize(("own", "other"), [("hidden_size", "d_model"), ("num_hidden_layers", "n_layers"),
                                            ("num_attention_heads", "n_heads")])  # fmt: skip
def test_another_familys_name_of_a_size_is_not_passed_over_for_the_default(own: str, other: str) -> None:
    """ESMC's first files say `d_model`, which its class does not read: the default would be counted."""
    config = {key: value for key, value in LLAMA.items() if key != own} | {other: LLAMA[own]}
    with pytest.raises(SpecError, match=f"not understood: `{other}`"):
        from_config(config)
    assert from_config(LLAMA | {other: LLAMA[own]})["unused"] == [other]


def test_nor_is_one_that_the_reader_passes_over() -> None:
    """Mamba's files have `d_model` beside `hidden_size`."""
    mamba = {"model_type": "mamba", "hidden_size": 64, "d_model": 64, "num_hidden_layers": 2, "vocab_size": 128}
    assert from_config(mamba)["d_model"] == 64
    with pytest.raises(SpecError, match="not understood: `d_model`"):
        from_config({key: value for key, value in mamba.items() if key != "hidden_size"})


@pytest.mark.parametrize("model_type", sorted(class_keys().aliases.keys() & SMALL.keys()))
def test_aliases_of_every_family_are_read(model_type: str) -> None:
    """Each key under its other names gives the same document."""
    config, names = SMALL[model_type], class_keys().aliases[model_type]
    for alias, own in names.items():
        if own in config and alias not in config:
            renamed = {alias if key == own else key: value for key, value in config.items()}
            assert from_config(renamed, "x") == from_config(config, "x"), alias


EXAONE = {
    "model_type": "exaone4", "architectures": ["Exaone4ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128,
    "transformers_version": "4.55.0",
}  # fmt: skip


def test_what_a_class_that_is_known_to_run_does_not_read_changes_nothing() -> None:
    """`reorder_qk_norm` of EXAONE 4.5, of which no class has heard."""
    known, whole = EXAONE | {"reorder_qk_norm": True}, class_keys().version
    assert from_config(known)["unused"] == ["reorder_qk_norm"]
    assert from_config(known | {"transformers_version": whole})["unused"] == ["reorder_qk_norm"]
    around = {"model_type": "exaone4_5", "architectures": ["Exaone4_5_ForConditionalGeneration"], "text_config": known,
              "transformers_version": "5.8.0"}  # fmt: skip
    assert from_config(around)["unused"] == ["reorder_qk_norm"]


@pytest.mark.parametrize(
    "changed",
    [
        {"transformers_version": "99.1.0"},  # whose class may read it
        {"transformers_version": None},
        {"architectures": ["Exaone4DrafterModel"]},
        {"architectures": []},
        {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}},
        {"reorder_qk_norm": {"size": 3}},
        {"reorder_qk_norm": 3},
    ],
)
def test_where_another_class_may_run_an_unknown_key_is_refused(changed: dict[str, Any]) -> None:
    """A later version, a class that transformers does not have, code of the checkpoint's own."""
    with pytest.raises(SpecError, match="reorder_qk_norm"):
        from_config(EXAONE | {"reorder_qk_norm": True} | changed)


def test_released_glm_5_3_flash_names_its_attention_by_an_earlier_word() -> None:
    """`deepseek_sparse_attention`, as the file of transformers 5.16 has it, is the class's `indexed_attention`."""
    small = {"model_type": "glm5_next_text", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 128}
    kinds = ["linear_attention"] * 3
    released = from_config(small | {"layer_types": [*kinds, "deepseek_sparse_attention"]}, "x")
    assert released == from_config(small | {"layer_types": [*kinds, "indexed_attention"]}, "x")


@pytest.mark.parametrize("name", ["DFlashDraftModel", "Qwen3DSparkModel"])
def test_keys_of_drafting_in_a_drafter_are_refused(name: str) -> None:
    """They say which tables and heads it has, and what it reads of the other model."""
    drafter = LLAMA | {"architectures": [name], "dspark_markov_rank": 512, "dflash_config": {"use_swa": False}}
    with pytest.raises(SpecError, match=f"`{name}`, which drafts for another model, .*: `dspark_markov_rank`"):
        from_config(drafter)


def test_keys_of_drafting_modules_beside_a_whole_model_are_noted() -> None:
    """DeepSeek-V4-Flash of July ships one in its checkpoint."""
    found = from_config(LLAMA | {"dspark_markov_rank": 256, "dspark_target_layer_ids": [40, 41, 42]})
    assert found["unused"] == ["dspark_markov_rank", "dspark_target_layer_ids"]
