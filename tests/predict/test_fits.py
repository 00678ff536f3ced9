"""`archsim fit --hw HW` without a model: every model and format of the catalog, as `fit` answers for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import archsim as a
from archsim.predict import fits as module
from archsim.spec import catalog

FEW = ("llama3.1-8b", "llama3-70b", "qwen2.5-0.5b", "gpt-oss-20b", "bert-base", "mamba-2.8b")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of six models, and a name without a spec."""
    entries = [entry for entry in catalog.names("models") if entry.name in FEW or entry.path is None][:7]
    entries += [entry for entry in catalog.names("models") if entry.name in FEW and entry not in entries]
    monkeypatch.setattr(module, "names", lambda kind: entries)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["generic", "vllm", "llamacpp"])
def test_rows_are_those_of_fit(few: None, engine: str) -> None:
    """Verdict, longest request and tokens; those that fit first, by parameters falling; one row a format."""
    found = a.fits("rtx-4090", context=4096, engine=engine)
    assert {row.model for row in found.rows} == set(FEW)
    assert len({(row.model, row.weights) for row in found.rows}) == len(found.rows)
    keys = [(not row.fits, -row.params) for row in found.rows]
    assert keys == sorted(keys)
    for row in found.rows:
        plain = a.load_model(row.model).weights
        weights = None if row.weights in plain.values() else row.weights
        answer = a.fit(row.model, "rtx-4090", engine=engine, weights=weights, max_model_len=4096, suggest=False)
        assert row.fits == answer.fits
        if row.fits:
            assert (row.max_model_len, row.kv_tokens) == (answer.longest, answer.kv_tokens)
        assert (row.tpot_s is not None) == (row.fits and answer.model.cached)


@pytest.mark.slow
def test_the_object(archsim: Any, few: None) -> None:
    """The keys of `archsim.fits/1`, and why a name has no row."""
    result = archsim("fit", "--hw", "rtx-4090", "--context", "4k", "--engine", "llama.cpp", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["schema"], data["hardware"]) == ("archsim.fits/1", "rtx-4090")
    keys = {
        "model",
        "params",
        "weights",
        "fits",
        "max_model_len",
        "kv_tokens",
        "tpot_s",
        "max_context",
        "beyond_context",
    }
    assert data["rows"] and all(set(row) == keys for row in data["rows"])
    assert all(set(line) == {"model", "reason"} and line["reason"] for line in data["refused"])
    assert {"llama3-70b", "gguf_q2_k"} <= {value for row in data["rows"] for value in row.values()}


@pytest.mark.slow
def test_models_with_a_shorter_context_stand_apart(archsim: Any, few: None) -> None:
    """BERT's 512 positions and the 8k of Llama 3 hold no 32k tokens, whatever the memory says."""
    found = a.fits("h200", context=32768)
    beyond = {row.model for row in found.rows if row.beyond_context}
    assert beyond == {name for name in FEW if (a.load_model(name).max_context or 10**9) < 32768}
    assert {"bert-base", "llama3-70b"} <= beyond
    listed, apart = archsim("fit", "--hw", "h200", "--context", "32k").out.split("Too short a context")
    assert "llama3-70b" not in listed and "llama3.1-8b" in listed
    assert "llama3-70b" in apart and "8,192" in apart
    assert "Too short a context" not in archsim("fit", "--hw", "h200", "--context", "256").out


@pytest.mark.slow
def test_several_devices_together(archsim: Any, few: None) -> None:
    """What two cards hold is what `fit` says of two cards; a count is a number here."""
    found = a.fits("rtx-4090", devices=2, context=4096, engine="vllm", weights="bf16")
    assert found.devices == 2
    for row in found.rows:
        answer = a.fit(row.model, "rtx-4090", devices=2, engine="vllm", weights="bf16", max_model_len=4096)
        assert row.fits == answer.fits
        assert not row.fits or row.max_model_len == answer.longest
    page = archsim("fit", "--hw", "2xrtx-4090", "--context", "4k").out
    assert page.startswith("What fits on 2 × ") and "--devices 2" in page
    result = archsim("fit", "--hw", "h100", "--devices", "auto")
    assert result.code == 2 and "say how many" in result.err


@pytest.mark.slow
def test_the_page(archsim: Any, few: None) -> None:
    """One line a model, in the widest weights that fit; a row a point in CSV."""
    out = archsim("fit", "--hw", "rtx-4090").out
    assert "What fits on one" in out and out.count("llama3.1-8b") == 1
    assert "model,params,weights" in archsim("fit", "--hw", "rtx-4090", "--format", "csv").out


@pytest.mark.slow
def test_several_devices_side_by_side(archsim: Any, few: None) -> None:
    """A column for each device: what it holds in its widest weights, a dash where it holds nothing."""
    out = archsim("fit", "--hw", "rtx-4090,h100", "--context", "4k").out
    (line,) = [line for line in out.splitlines() if line.strip().startswith("llama3-70b")]
    assert line.split()[2:4] == ["–", "–"] and "fp8" in line and "tok/s" in line
    data = json.loads(archsim("fit", "--hw", "rtx-4090,h100", "--context", "4k", "--json").out)
    assert data["schema"] == "archsim.fits_devices/1"
    assert [answer["hardware"] for answer in data["answers"]] == ["rtx-4090", "h100-sxm"]
    assert data["answers"][0]["rows"] == a.fits("rtx-4090", context=4096).to_dict()["rows"]
