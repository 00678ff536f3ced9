"""Captures of transformers' classes beside the graphs of their importers: parameters, FLOPs and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracles.test_reference_flops import CONFIGS

from archsim.counts.count import count
from archsim.importers.opening import from_mapping
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from archsim.tracing.build import from_transformers  # noqa: E402
from archsim.tracing.trace import trace  # noqa: E402

pytestmark = pytest.mark.oracle

UNTRACED = {"deberta", "falcon_mamba", "mamba", "minimax"}
"""Types whose forward pass asks for values, or loops over chunks in a way that no straight line follows: refused."""

OTHER_KERNELS = {
    "bart", "bloom", "deepseek_v3", "falcon", "gpt_neox", "gpt_oss", "mamba2", "mt5",
    "qwen3_5_moe_text", "recurrent_gemma", "t5",
}  # fmt: skip
"""Types whose class computes in other steps than engines do, or that are traced without their decode step."""

EXACT = sorted(set(CONFIGS) - UNTRACED)

UNIMPORTED = [
    "camembert", "codegen", "ernie", "gte", "minicpm3", "modernbert-decoder", "mpnet", "nomic_bert",
    "trocr", "xglm"]  # fmt: skip
"""Types without an importer when this was written."""


def config(model_type: str) -> dict[str, Any]:
    """A tiny config, with room for the lengths of captures."""
    given = {"model_type": model_type, "dtype": "bfloat16", **CONFIGS[model_type]}
    return {**given, "max_position_embeddings": 2048} if "max_position_embeddings" in given else given


@pytest.mark.parametrize("model_type", EXACT)
def test_parameters_and_flops_equal_the_importer(model_type: str) -> None:
    """To the unit: all parameters, and each forward pass with the head at all positions."""
    own, traced = from_mapping(config(model_type)), trace(from_transformers(config(model_type)))
    a, b = (count(model, logits="all", batch=2, input_len=512) for model in (own, traced))
    assert (b.total, b.full.total) == (a.total, a.full.total)


@pytest.mark.parametrize("model_type", sorted(set(EXACT) - OTHER_KERNELS))
def test_cache_and_times_are_those_of_the_importer(model_type: str) -> None:
    """The same cache, and both phases within 3 %."""
    own, traced = from_mapping(config(model_type)), trace(from_transformers(config(model_type)))
    a, b = (estimate(model, load_hardware("h100-sxm"), devices=1, input_len=1024) for model in (own, traced))
    assert b.kv_bytes_per_token == a.kv_bytes_per_token
    for mine, theirs in ((a.prefill, b.prefill), (a.decode, b.decode)):
        if mine is not None and theirs is not None:
            assert abs(theirs.expected_s / mine.expected_s - 1) < 0.03


@pytest.mark.parametrize("model_type", UNIMPORTED)
def test_types_without_an_importer_are_counted_and_priced(model_type: str) -> None:
    """All parameters of the class, and FLOPs as torch counts them at a length that was not captured."""
    from torch.utils.flop_counter import FlopCounterMode

    module = from_transformers(model_type)
    traced = trace(module)
    assert count(traced).total == sum(p.numel() for p in module.net.parameters())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.net(**module.inputs(2, 300))
    assert count(traced, batch=2, input_len=300, logits="all").full.total == counter.get_total_flops()
    assert estimate(traced, load_hardware("h100-sxm"), devices=1).prefill.expected_s > 0


def test_code_that_a_config_points_to_is_not_run() -> None:
    """A type that only `auto_map` explains is refused, and so is one that nobody knows."""
    from archsim.base.errors import ArchsimError

    with pytest.raises(ArchsimError, match="is never run"):
        from_transformers({"model_type": "mine", "auto_map": {"AutoModel": "modeling_mine.Mine"}})


MORE = sorted({
    "dots1", "ernie4_5_moe", "flex_olmo", "glm", "glm4", "gpt2", "granitemoe", "hunyuan_v1_moe", "lfm2_moe",
    "minimax_m2", "ministral", "nanochat", "nemotron", "olmo3", "phimoe", "qwen2_moe", "seed_oss",
    "solar_open", "starcoder2",
    "vaultgemma",
})  # fmt: skip
"""Families with small configs of their own whose class takes the same steps as engines."""

CONFIG_FILES = Path(__file__).parents[1] / "importers"


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_families_equal_the_importer(name: str) -> None:
    """Parameters and FLOPs to the unit, both phases within 3 %."""
    counted = json.loads((CONFIG_FILES / "counted.json").read_text())["families"]
    held = {family: row["config"] for family, row in counted.items()}
    for file in ("small.json", "small_more.json"):
        held |= json.loads((CONFIG_FILES / file).read_text())
    given = {**held[name], "dtype": "bfloat16"}
    if "max_position_embeddings" in given:
        given["max_position_embeddings"] = 2048
    own, traced = from_mapping(given), trace(from_transformers(given))
    a, b = (count(model, logits="all", batch=2, input_len=512) for model in (own, traced))
    assert (b.total, b.full.total) == (a.total, a.full.total)
    mine, theirs = (estimate(model, load_hardware("h100-sxm"), devices=1, input_len=1024) for model in (own, traced))
    assert abs(theirs.prefill.expected_s / mine.prefill.expected_s - 1) < 0.03
    assert mine.decode is not None and theirs.decode is not None
    assert abs(theirs.decode.expected_s / mine.decode.expected_s - 1) < 0.03
