"""Configs that are wrong: keys nobody understands, and values of every kind in every place."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from bounded import bounded

from archsim.base.errors import SpecError
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.model import Model

HERE = Path(__file__).parent
CONFIGS = sorted((HERE / "configs").glob("*.json"))
SMALL: dict[str, dict[str, Any]] = {
    name: config
    for file in ("small.json", "small_more.json")
    for name, config in json.loads((HERE / file).read_text()).items()
}

UNKNOWN = {
    "num_memory_tokens": 64, "kv_compression_ratio": 4, "num_extra_ffn_layers": 2, "n_hash_layers": 3,
    "attention_rank": 128, "moe_latent_dim": 512, "cross_layer_kv_share": 2, "ffn_dim_multiplier": 1.3,
    "engram_config": {"size": 4}, "hc_mult": 4, "num_registers": 8, "lora_rank": 16,
}  # fmt: skip
"""Keys that would change the cost of a model that obeys them; no family here does."""

HARMLESS = {
    "transformers_version": "4.57.1", "use_cache": True, "bos_token_id": 1, "eos_token_id": [2, 3],
    "initializer_range": 0.02, "attention_dropout": 0.0, "architectures": ["X"], "auto_map": {}, "id2label": {},
    "output_attentions": False, "_name_or_path": "a/b", "task_specific_params": None, "pad_token_id": None,
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_keys_that_could_change_the_cost_are_named(path: Path) -> None:
    """Each alone, and all together."""
    config = json.loads(path.read_text())
    inner = config.get("text_config", config)
    for key, value in UNKNOWN.items():
        changed = config | {"text_config": inner | {key: value}} if inner is not config else config | {key: value}
        with pytest.raises(SpecError, match=key):
            from_config(changed)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_harmless_keys_pass(path: Path) -> None:
    """Keys that no cost depends on leave the document as it is."""
    config = json.loads(path.read_text())
    assert from_config(config | HARMLESS, "x") == from_config(config, "x")


def test_there_are_forty_real_configs() -> None:
    """The two tests above speak of at least this many."""
    assert len(CONFIGS) >= 40


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 1000, 10**9, 10**30, 0.5, -2.5, 1e300, float("nan"), float("inf"), "",
    "x", "auto", "silu", "relu2", [], [1], ["a", "b"], [[["global", "local"], 10**9]], [None], {}, {"a": 1},
    {"rope_type": "yarn"}, ["full_attention"] * 3, "M*-E" * 9, {"quant_method": "fp8"},
]  # fmt: skip


def mutated(rng: random.Random) -> dict[str, Any]:
    """A config of some family with one to three places changed, keys dropped or borrowed from another."""
    config = copy.deepcopy(rng.choice(list(SMALL.values())))
    for _ in range(rng.randint(1, 3)):
        other = rng.choice(list(SMALL.values()))
        key = rng.choice([*config, *other, "quantization_config", "rope_scaling", "layer_types", "text_config"])
        action = rng.random()
        if action < 0.15:
            config.pop(key, None)
        elif action < 0.3 and key in other:
            config[key] = copy.deepcopy(other[key])
        elif isinstance(config.get(key), dict) and config[key] and action < 0.6:
            config[key][rng.choice(list(config[key]))] = rng.choice(VALUES)
        elif isinstance(config.get(key), list) and config[key] and action < 0.6:
            config[key][rng.randrange(len(config[key]))] = rng.choice(VALUES)
        else:
            config[key] = copy.deepcopy(rng.choice(VALUES))
    return config


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_mutations_give_a_model_or_an_error(seed: int) -> None:
    """A hundred mutated configs a seed: a valid model or a SpecError, never anything else, never slow."""
    rng = random.Random(seed)
    for _ in range(100):
        config = mutated(rng)
        with bounded():
            try:
                assert isinstance(model_from(from_config(config)), Model)
            except SpecError as error:
                assert error.message


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 10**400},
        {"vocab_size": 10**100},
        {"layer_types": ["x"] * 100_000},
        {"quantization_config": {"quant_method": "fp8", "ignore": ["re:(a+)+$" * 3, "x" * 10_000]}},
        {"rope_scaling": {"rope_type": ["yarn"]}},
        {"model_type": ["llama"]},
        {"model_type": "x" * 100_000},
        {"text_config": {"text_config": {}}},
    ],
)
def test_extremes_are_refused_at_once(change: dict[str, Any]) -> None:
    """No memory and no time is spent on them."""
    with bounded(), pytest.raises(SpecError) as caught:
        from_config(SMALL["mistral"] | change)
    assert len(caught.value.message) < 600


def test_the_longest_stack_is_quick() -> None:
    """As many layers as are allowed, in a pattern without a period."""
    kinds = ["full_attention" if i * i % 7 < 3 else "sliding_attention" for i in range(2000)]
    config = SMALL["gemma2"] | {"num_hidden_layers": 2000, "layer_types": kinds}
    with bounded():
        assert len(from_config(config)["layers"]) > 1


@pytest.mark.parametrize("value", [0, -256, -0.5])
@pytest.mark.parametrize("name", ["gemma2-2b", "gemma3-27b"])
def test_no_scale_is_the_root_of_nothing_or_less(name: str, value: float) -> None:
    """The scores' factor is 1 / sqrt of a number in the config."""
    config = json.loads((HERE / "configs" / f"{name}.json").read_text())
    holder = config.get("text_config", config)
    holder["query_pre_attn_scalar"] = value
    with pytest.raises(SpecError, match=r"query_pre_attn_scalar.*not a positive number"):
        from_config(config)
