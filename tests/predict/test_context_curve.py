"""An estimate over context is the estimate of each context."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim import api
from archsim.predict import context_curve
from archsim.predict.context_curve import MOST, at, decode_seconds, decode_times, lengths
from archsim.render.page import spark
from archsim.spec.equal_caches import with_equal_caches

ASKED: dict[str, dict[str, Any]] = {
    "llama3-8b": {"batch": 4, "weights": "fp8", "kv_cache_dtype": "fp8"},
    "mixtral-8x7b": {"tp": 2, "pp": 2, "engine": "vllm"},
    "deepseek-v3": {"engine": "sglang", "weights": "fp8"},
    "mamba-2.8b": {},
    "bert-base": {},
    "t5-base": {},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", ASKED)
def test_a_context_is_an_estimate(model: str) -> None:
    """Each point equals `estimate` with that prompt and one token of output."""
    options = ASKED[model]
    whole = api.estimate(model, "h100", **options)
    context = lengths(whole.model.max_context)[1]
    plan = {name: getattr(whole.plan, name) for name in ("tp", "pp", "dp")}
    single = api.estimate(model, "h100", **options | plan, input_len=context, output_len=1).to_dict()
    point = at(whole, context)
    assert point.memory.to_dict() == single["memory"]
    assert float(point.prefill.expected_s) == single["phases"]["prefill"]["expected_s"]
    steps = [float(step.expected_s) for step in decode_times(whole, [context])]
    assert steps == ([single["phases"]["decode"]["expected_s"]] if single["phases"]["decode"] else [])


DISTINCT = """\
name: distinct
d_model: 1024
vocab_size: 32000
final_norm: {kind: rmsnorm}
head: {tied: false}
layers:
"""
LAYER = """\
- norm: {kind: rmsnorm}
  attention: {kind: gqa, n_heads: 8, n_kv_heads: 2, d_head: 128%s}
  ffn: {kind: swiglu, d_ff: %d}
"""
WINDOW = ", mask: {kind: sliding, window: 512}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("engine", ["generic", "hf", "llamacpp"])
@pytest.mark.parametrize("hw", ["h100", "epyc-9654", "8xh100"])
def test_layers_with_equal_caches_are_timed_as_one(
    tmp_path: Path, engine: str, hw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve layers of twelve widths, every third with a window: the times of the decode steps one by one, from two
    layers' work.
    """
    path = tmp_path / "distinct.yaml"
    path.write_text(DISTINCT + "".join(LAYER % ("" if i % 3 else WINDOW, 512 + 16 * i) for i in range(12)))
    made = api.estimate(str(path), hw, engine=engine, batch=3)
    contexts = lengths(made.model.max_context)
    expected = [float(step.expected_s) for step in decode_times(made, contexts)]
    assert len(with_equal_caches(made.model).layers) == 2
    monkeypatch.setattr(context_curve, "decode_times", None)
    assert decode_seconds(made, contexts) == pytest.approx(expected, rel=1e-12)


@given(st.one_of(st.none(), st.integers(1, 20_000_000)))
def test_lengths(longest: int | None) -> None:
    """They rise, end at the model's limit and are few."""
    found = lengths(longest)
    assert all(a < b for a, b in pairwise(found)) and 1 <= len(found) <= MOST
    assert longest is None or found[-1] == longest


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
def test_spark_keeps_the_order(values: list[float]) -> None:
    """A column for each value, the largest full, none of a larger value lower."""
    columns = spark(values)
    assert len(columns) == len(values) and columns[values.index(max(values))] == "█"
    ranked = [column for _, column in sorted(zip(values, columns, strict=True))]
    assert ranked == sorted(ranked)


@pytest.mark.slow
def test_the_page_shows_it(archsim: Any) -> None:
    """In the page as a picture, with `--by context` as a table that says what fits, and as data."""
    asked = ("estimate", "llama3.1-8b", "--hw", "rtx-4090", "--weights", "fp8")
    assert re.search(r"context +TPOT [▁-█]{8}  .* ms @ 1,024 to .* ms @ 131,072", archsim(*asked).out)
    table = archsim(*asked, "--batch", "4", "--by", "context").out
    assert "131,072" in table and table.count("does not fit") == 3
    points = json.loads(archsim(*asked, "--by", "context", "--json").out)["by"]["context"]
    assert [point["context"] for point in points] == list(lengths(131_072))
    assert all(a["tpot_s"] < b["tpot_s"] for a, b in pairwise(points))
    rows = archsim(*asked, "--by", "context", "--format", "csv").out.splitlines()
    assert len(rows) == 1 + len(points) and rows[0].startswith("context,ttft_s,tpot_s,low_s,high_s")


@pytest.mark.parametrize("asked", [2048, 300_000])
def test_the_asked_context_is_on_the_curve(asked: int) -> None:
    """A request beyond the model's context length ends the series; a shorter one leaves it as it is."""
    whole = api.estimate("llama3.1-8b", "h100", devices=4, input_len=asked, output_len=2)
    found = context_curve.contexts_of(whole)
    assert found[-1] == max(131_072, asked + 1) and len(found) == MOST
    assert whole.decode is not None
    if asked > 131_072:
        assert decode_seconds(whole, found)[-1] == pytest.approx(float(whole.decode.expected_s), rel=1e-9)
