"""The model catalog: every file, on its own terms and against independent counts."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.base.errors import SpecError
from archsim.blocks.dispatch import InvalidBlock
from archsim.blocks.ffn import Ffn
from archsim.blocks.norm import Norm
from archsim.blocks.stage import AttentionPoolStage
from archsim.counts.graph_counts import active_params, params
from archsim.graph.builder import Builder
from archsim.graph.graph import Block
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import Tensor
from archsim.spec import loader
from archsim.spec.catalog import build_index, resolve
from archsim.spec.load import load_model, model_from
from archsim.spec.lower import PARTS, lower
from archsim.spec.model import Model
from archsim.spec.spelling import normalise

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "specs" / "models"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.startswith("_"))
EXPECTED: dict[str, Any] = json.loads((ROOT / "tests" / "facts" / "params.json").read_text())["models"]
FORMULA_TOLERANCE = 1e-4
TABLES = ("embedding", "position", "head")


@cache
def model(name: str) -> Model:
    """A catalog entry, loaded as the tool loads it."""
    return load_model(str(FOLDER / f"{name}.yaml"))


@cache
def one_token(name: str) -> Block:
    """The graph of one token, and of one source token where there is an encoder."""
    return lower(model(name), Step.of(source=(Seqs(),)))


def in_table(tensor: Tensor) -> bool:
    """Whether a weight is an input, position or output table."""
    return tensor.role in TABLES


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_identity(name: str) -> None:
    """The name is the file's, and there are a title, a date, a source for something, and a known parent."""
    m = model(name)
    assert m.name == name
    assert m.title and m.org and m.released and m.confidence
    assert m.sources and all(source.url.startswith("https://") and source.covers for source in m.sources)
    assert m.lineage is None or m.lineage.parent is None or m.lineage.parent in NAMES


def test_no_change_is_cut_at_a_comma_of_its_number() -> None:
    """`202,752 tokens` without quotes is two items of a list."""
    lists = {name: m.lineage.changes for name in NAMES if (m := model(name)).lineage}
    cut = {name: changes for name, changes in lists.items() if re.search(r"\d\|\d{3}\b", "|".join(changes))}
    assert len(lists) > 100 and cut == {}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", EXPECTED)
def test_parameters(name: str) -> None:
    """Total, active and embedding parameters equal the independent count."""
    expected, graph = EXPECTED[name], one_token(name)
    tolerance = FORMULA_TOLERANCE if expected.get("method") == "formula" else 0.0
    assert params(graph) == pytest.approx(expected["total"], rel=tolerance, abs=0)
    assert active_params(graph) == pytest.approx(expected["active"], rel=tolerance, abs=0)
    if "embedding" in expected:
        assert params(graph, where=in_table) == expected["embedding"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
def test_the_published_exact_total_is_reproduced(name: str) -> None:
    """Where the authors state the total to the last digit, it is ours."""
    published = model(name).published
    if published is not None and published.exact is not None:
        assert params(one_token(name)) == published.exact


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_optional_parts_only_add(name: str) -> None:
    """Prediction modules and pre-training heads are lowered on request, and add parameters."""
    m = model(name)
    more = params(lower(m, Step.of(source=(Seqs(),)), PARTS)) - params(one_token(name))
    assert (more > 0) == (m.mtp is not None or m.mlm_head is not None)


def test_a_prediction_module_of_deepseek_v3() -> None:
    """The published 685B checkpoint holds one more layer, its norms and its projection."""
    whole = params(lower(model("deepseek-v3"), Step.of(), ("mtp",)))
    tables = 2 * 129280 * 7168  # the checkpoint stores both tables a second time
    assert whole + tables == pytest.approx(684.5e9, rel=2e-3)


def test_every_expected_model_is_there() -> None:
    """The catalog has all models that were counted independently."""
    assert set(EXPECTED) <= set(NAMES)


@pytest.mark.slow
def test_checkpoints_belong_to_one_model() -> None:
    """No Hugging Face id is claimed twice."""
    claimed = Counter(hf_id for name in NAMES for hf_id in model(name).hf_ids)
    assert not [hf_id for hf_id, times in claimed.items() if times > 1]


def test_the_index_covers_the_catalog() -> None:
    """Every file and every Hugging Face id is found by it; no spelling is claimed twice (`build_index` refuses)."""
    listed = build_index(FOLDER)["names"]
    assert set(listed.values()) == set(NAMES)
    assert all(listed[normalise(hf_id)] == name for name in NAMES for hf_id in model(name).hf_ids)


def test_names_without_a_spec_say_why() -> None:
    """Undisclosed models have a status and a reason."""
    status = loader.read(FOLDER / "_status.yaml")
    assert status and not set(status) & set(NAMES)
    assert all(entry["status"] and entry["notes"] and entry["title"] for entry in status.values())


def test_a_model_keeps_no_format_of_the_one_it_extends() -> None:
    """Kimi K2 stores fp8 matrices, its successors int4 experts and bf16 for the rest."""
    assert model("kimi-k2").weights["linear"] == "fp8_block"
    assert model("kimi-k2.5").weights == {"default": "bf16", "linear": "bf16", "expert": "int4_g32"}


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("deepseek-r1-distill-llama-70b", "llama3.3-70b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3.1-8b"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "qwen2.5-32b"),
        ("Qwen/QwQ-32B", "qwen2.5-32b"),
    ],
)
def test_checkpoints_of_another_s_shape(name: str, stem: str) -> None:
    """Checkpoints that were trained on from another one resolve to its architecture."""
    assert resolve("models", name).name == stem


def test_embeddings_per_layer_need_their_table() -> None:
    """A layer that takes its own embedding of the token, and a model that has none."""
    layer = {"ffn": {"kind": "mlp", "d_ff": 8}, "per_layer_input": {"d": 8, "norm": {"kind": "rmsnorm"}}}
    document = {"name": "x", "d_model": 64, "vocab_size": 10, "layers": [layer]}
    with pytest.raises(SpecError, match="per_layer"):
        model_from(document)


SMALL = """
name: x
d_model: 64
vocab_size: 128
layers:
  - {repeat: 2, norm: {kind: rmsnorm}, attention: {kind: gqa, n_heads: 4, n_kv_heads: 2, d_head: 16},
     ffn: {kind: swiglu, d_ff: 128}}
"""


@pytest.mark.parametrize("weights", ["{}", "{linear: fp8}", "{default: bf16}"])
def test_weights_without_a_default_are_bf16(weights: str, tmp_path: Path, archsim: Any) -> None:
    """What no class names is stored in 16 bits, as where nothing is said."""
    path = tmp_path / "m.yaml"
    path.write_text(SMALL + f"weights: {weights}\n")
    assert load_model(str(path)).weights["default"] == "bf16"
    for words in (("count", str(path)), ("estimate", str(path), "--hw", "t4"), ("explain", str(path), "kv_cache")):
        assert archsim(*words).code == 0


def test_sizes_have_limits(tmp_path: Path) -> None:
    """Far beyond any model; they keep a file from costing hours."""
    path = tmp_path / "m.yaml"
    path.write_text(SMALL.replace("d_model: 64", "d_model: 1000000000000"))
    with pytest.raises(SpecError, match="1000000000"):
        load_model(str(path))
    inner = "{repeat: 10000, ffn: {kind: swiglu, d_ff: 128}}"
    path.write_text(SMALL + f"  - {{repeat: 10000, layers: [{inner}]}}\n")
    with pytest.raises(SpecError, match="100,000,002 layers are more than the limit of 10,000"):
        load_model(str(path))


@pytest.mark.parametrize(
    "mixer",
    [
        "{kind: rwkv7, d_inner: 1, decay_rank: 8, rate_rank: 8, gate_rank: 8}",
        "{kind: rwkv7, d_inner: 100, decay_rank: 8, rate_rank: 8, gate_rank: 8}",
        "{kind: mamba2, n_heads: 6, n_groups: 4, d_head: 64, d_state: 64}",
        "{kind: rg_lru, d_inner: 100, n_blocks: 3}",
    ],
)
def test_heads_fill_the_width_of_a_mixer(mixer: str, tmp_path: Path) -> None:
    """A width that is not a multiple of its heads is refused: matrices of no heads would divide by zero later on."""
    path = tmp_path / "m.yaml"
    path.write_text(f"name: m\nd_model: 256\nvocab_size: 512\nlayers:\n- norm: {{kind: rmsnorm}}\n  mixer: {mixer}\n")
    with pytest.raises(SpecError, match="is not a multiple of") as refused:
        load_model(str(path))
    assert refused.value.code == "E110"


def test_heads_fill_the_width_of_a_pool() -> None:
    """An encoder's pooling by attention alike, whose width is that of the stage before."""
    pool = AttentionPoolStage(
        kind="attention_pool", n_heads=7, norm=Norm(kind="layernorm"), ffn=Ffn(kind="swiglu", d_ff=8)
    )
    b = Builder(T=4, D=64, D2=64)
    with pytest.raises(InvalidBlock, match="64 is not a multiple of n_heads 7"):
        pool.lower(b, b.tensor("x", "T D"), Step.prefill(1, 4))


def test_parallel_streams_are_two_at_least(tmp_path: Path) -> None:
    """AltUp corrects the other streams: of one there are none, and matrices for them would have no rows."""
    text = (FOLDER / "gemma3n-e2b.yaml").read_text()
    assert "n: 4" in text
    path = tmp_path / "m.yaml"
    path.write_text(re.sub(r"altup:\s*\{n: 4", "altup: {n: 1", text))
    with pytest.raises(SpecError, match="greater than or equal to 2"):
        load_model(str(path))


def test_blocks_that_do_not_fit_together_are_an_error_of_the_spec() -> None:
    """What is found while a model is lowered names the model and the block."""
    document = yaml.safe_load(resolve("models", "kimi-k3").path.read_text("utf-8"))
    document["layers"][0]["residuals"]["sources"] = 7
    with pytest.raises(SpecError, match="sources: 7") as refused:
        lower(model_from(document, "wrong"), Step.prefill(1, 1))
    assert refused.value.code == "E110"
