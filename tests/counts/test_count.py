"""Counts of well-known models against published figures, and the conventions they stand on."""

from pathlib import Path

import pytest

from archsim.base.errors import UsageError
from archsim.counts.count import CountResult, _items_inside, count, growth_beyond_windows
from archsim.counts.formats import choose_formats
from archsim.counts.graph_counts import by_block, inventory
from archsim.counts.towers import tower_params
from archsim.graph.step import Step
from archsim.spec.catalog import files, names
from archsim.spec.format import load_format
from archsim.spec.load import load_model
from archsim.spec.lower import lower


def counted(name: str, **options: object) -> CountResult:
    """A count by name."""
    return count(load_model(name), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llama2-70b", 68_976_648_192),
        ("mixtral-8x7b", 46_702_792_704),
        ("gpt2-small", 124_439_808),
        ("bert-base", 109_482_240),
        ("bloom-176b", 176_247_271_424),
        ("deepseek-v3", 671_026_404_352),
    ],
)
def test_published_totals(name: str, total: int) -> None:
    """Parameter counts that their authors or checkpoints state to the unit."""
    assert counted(name).total == total


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama2-70b", 327_680),  # 2 x 80 layers x 8 heads x 128 x 2 B
        ("deepseek-v3", 70_272),  # 61 layers x (512 + 64) x 2 B: one latent, no values
        ("gemma3n-e4b", 40_960),  # 20 of 35 layers own a cache
        ("qwen3.5-397b-a17b", 30_720),  # 15 of 60 layers have one
        ("mamba-2.8b", 0),
        ("bert-base", 0),
    ],
)
def test_cache_growth_per_token(name: str, bytes_per_token: int) -> None:
    """KV bytes per token in 16 bits, while no window is full."""
    assert counted(name).kv_bytes_per_token == bytes_per_token


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [
        ("gemma3-27b", 131072, 10.41),  # 10 global layers, 52 local ones of 1,024
        ("qwen3-0.6b", 40960, 4.375),  # head_dim 128 although d_model / heads is 64
        ("deepseek-v3", 163840, 10.72),
        ("gpt-oss-20b", 8192, 6.09 / 32),  # half of the layers keep 128 tokens
    ],
)
def test_cache_sizes_that_other_calculators_got_wrong(name: str, tokens: int, gib: float) -> None:
    """Windows, explicit head sizes and latents, at full length."""
    assert counted(name, input_len=tokens).kv_bytes / 2**30 == pytest.approx(gib, rel=2e-3)


def test_native_formats_give_the_released_size() -> None:
    """gpt-oss-120b: experts in MXFP4, all else in bf16, 65.2 GB."""
    answer = counted("gpt-oss-120b")
    assert answer.formats.name == "mxfp4"
    assert answer.weight_bytes == pytest.approx(65.2e9, rel=1e-3)


def test_recurrent_state_is_constant() -> None:
    """A state-space model's memory does not grow with the prompt."""
    short, long = counted("mamba-2.8b", input_len=10), counted("mamba-2.8b", input_len=10_000)
    assert short.state_bytes == long.state_bytes == 64 * 5120 * (16 * 4 + 3 * 2)
    assert short.kv_bytes == long.kv_bytes == 0


def test_active_parameters_leave_out_unused_experts_only() -> None:
    """Mixtral uses 2 of 8 experts a token; both embedding tables count."""
    answer = counted("mixtral-8x7b")
    experts = answer.by_class["expert"]
    assert answer.total - answer.active == experts * 6 // 8


def test_masked_counts_half_the_square() -> None:
    """Causal pairs are n(n+1)/2 of n²; everything else is the same."""
    n = 2048
    answer = counted("llama2-70b", input_len=n)
    assert answer.full.matmul == answer.masked.matmul
    assert answer.masked.attention * 2 * n == answer.full.attention * (n + 1)


def test_last_position_logits_cost_one_token() -> None:
    """--logits all runs the head at every position."""
    last, every = counted("llama2-70b"), counted("llama2-70b", logits="all")
    assert every.full.matmul - last.full.matmul == 2047 * 2 * 8192 * 32000


def test_optional_parts_are_added_on_request() -> None:
    """The prediction module of DeepSeek-V3 brings it to about 685B with embedding and head shared."""
    base, with_mtp = counted("deepseek-v3"), counted("deepseek-v3", parts=("mtp",))
    assert 11e9 < with_mtp.total - base.total < 15e9
    vision = counted("gemma3-27b", parts=("vision",))
    assert vision.total - counted("gemma3-27b").total == sum(tower_params(vision.model).values()) == 423_060_336


def test_active_formula_evaluates_to_the_count() -> None:
    """`explain MODEL active` is the graph's own polynomial; an encoder has no decode step to explain."""
    from archsim.base.errors import UsageError
    from archsim.explanation.formulas import explain

    answer = counted("mixtral-8x7b")
    whole = explain(answer.model, "active").whole
    assert whole.poly(**whole.letters) == answer.active
    with pytest.raises(UsageError, match="no decode step"):
        explain(load_model("bert-base"), "decode")


def test_neighbours_of_one_name_are_refused() -> None:
    """Weights belong to a name: two equal names would be counted once, so they are an error."""
    from archsim.base.errors import SpecError
    from archsim.spec.load import model_from

    layer = {"ffn": {"kind": "swiglu", "d_ff": 16}}
    document = {"name": "x", "d_model": 8, "vocab_size": 10, "layers": [{"name": "a", **layer}, {"name": "a", **layer}]}
    with pytest.raises(SpecError, match="named a"):
        model_from(document)
    document["layers"] = [{"repeat": 2, "layers": document["layers"]}]
    with pytest.raises(SpecError, match="named a"):
        model_from(document)


def check_blocks(name: str) -> None:
    """The outermost blocks, and what lies beside them, add up to the model."""
    found = counted(name)
    outer = [block for block in found.blocks if "." not in block.path]
    assert sum(block.params for block in outer) == found.total
    assert sum(block.bytes for block in outer) == found.weight_bytes
    assert sum(block.flops for block in outer) == found.masked.total
    assert len({block.path for block in found.blocks}) == len(found.blocks)


@pytest.mark.parametrize(
    "name",
    ["llama2-70b", "deepseek-v3", "bloom-560m", "t5-large", "gemma3n-e4b", "bert-base", "mamba-2.8b", "deberta-base"],
)
def test_blocks_add_up(name: str) -> None:
    """Final norms and tables outside of the blocks are listed too."""
    check_blocks(name)


@pytest.mark.slow
def test_blocks_of_the_catalog_add_up() -> None:
    """For every model."""
    for entry in names("models"):
        if entry.path is not None:
            check_blocks(entry.name)


@pytest.mark.parametrize("weights", ["mxfp4", "mxfp4_moe"])
def test_a_format_of_experts_changes_a_dense_model(weights: str) -> None:
    """MXFP4 of a model without experts is that of all its linear weights, and a note names that format."""
    found, plain = counted("llama3-8b", weights=weights), counted("llama3-8b")
    assert found.weight_bytes < 0.5 * plain.weight_bytes
    assert [note.code for note in found.formats.assumptions if "mxfp4_linear" in note.text] == ["A11"]
    assert found.formats.name == "mxfp4_linear" == counted("llama3-8b", weights="mxfp4_linear").formats.name
    assert counted("gpt-oss-20b", weights=weights).formats.name == "mxfp4"


@pytest.mark.slow
def test_every_format_converts_something() -> None:
    """No weight format leaves a dense model as it is, and one of caches alone is refused."""
    plain = counted("llama3-8b").weight_bytes
    for name in files("formats"):
        spec = load_format(name)
        if not spec.applies_to:
            with pytest.raises(UsageError, match="is a format of caches"):
                counted("llama3-8b", weights=name)
        elif not spec.plain:
            assert counted("llama3-8b", weights=name).weight_bytes != plain, name


def test_a_format_of_experts_without_a_counterpart_is_refused(tmp_path: Path) -> None:
    """It would change nothing but the headline."""
    path = tmp_path / "moe4.yaml"
    path.write_text("name: moe4\ntitle: t\nbytes: 1\nblock: [2, 1]\ncompute: fp16\napplies_to: [expert]\n")
    with pytest.raises(UsageError, match="has none"):
        counted("llama3-8b", weights=str(path))
    assert counted("mixtral-8x7b", weights=str(path)).weight_bytes < counted("mixtral-8x7b").weight_bytes


def test_blocks_hold_what_is_under_their_paths() -> None:
    """One pass over the tensors gives each block those whose names begin with its path and a dot, and no others."""
    graph = lower(load_model("deepseek-v3"), Step.of(1, 1, 0))
    items = inventory(graph)
    held = _items_inside(items)
    for block, _ in by_block(graph):
        assert held.get(block.name, []) == [i for i in items if i.tensor.name.startswith(block.name + ".")]
    assert sum(map(len, held.values())) <= len(items) * max(i.tensor.name.count(".") for i in items)


@pytest.mark.parametrize(("model", "later"), [("llama3.1-8b", None), ("gpt-oss-20b", 12 * 2 * 8 * 64 * 2),
                                              ("gemma3-27b", 10 * 2 * 16 * 128 * 2), ("mistral-7b-v0.1", 0),
                                              ("deepseek-v4-flash", 21 * 1280 // 4 + 20 * 1024 // 128)])  # fmt: skip
def test_growth_of_caches_once_windows_are_full(model: str, later: int | None) -> None:
    """Layers with a window add nothing, those with an entry for several tokens its share."""
    spec = load_model(model)
    assert growth_beyond_windows(spec, choose_formats(spec, None, None)) == later
