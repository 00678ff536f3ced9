"""A block that archsim has never seen, written as the extension page says: every command is right about it.

The attention variant is the class of `docs/add-an-attention-variant.md` itself; the feed-forward network and the mixer
are written here. Each is registered in this process, as the page's one line in `KINDS` would.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from archsim.blocks.dispatch import KINDS
from archsim.spec.load import load_model
from archsim.spec.stored_weights import stored_weights
from archsim.spec.tiny import tiny

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-an-attention-variant.md").read_text("utf-8")

FFN = '''
from typing import Literal
from archsim.blocks.block import Context, FfnSpec
from archsim.blocks.dispatch import About, Count
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor

class Bilinear(FfnSpec):
    """down((gate x) * (up x)), no activation."""

    kind: Literal["bilinear"] = "bilinear"
    d_ff: Count
    about = {"bilinear": About(title="Bilinear feed-forward", label="Bilinear", paper="Shazeer 2020, arXiv:2002.05202")}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "ffn") -> Tensor:
        with b.block(name, F=self.d_ff):
            h = b.map("h", "mul", b.linear("gate", x, "D F", "T F"), b.linear("up", x, "D F", "T F"))
            return b.linear("down", h, "F D", "T D")
'''

MIXER = '''
from typing import Literal
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Count
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor

class Retention(MixerSpec):
    """A decaying outer product of keys and values per head, without a gate."""

    kind: Literal["retention"] = "retention"
    n_heads: Count
    d_head: Count
    about = {"retention": About(label="Retention", paper="RetNet: Sun et al. 2023, arXiv:2307.08621")}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        with b.block(name, N=self.n_heads, H=self.d_head, Hv=self.d_head, S=ctx.step.n_seqs):
            q, k, v = (b.linear(n, x, "D N " + h, "T N " + h) for n, h in (("q", "H"), ("k", "H"), ("v", "Hv")))
            state = b.state("state", "S N H Hv", "recurrent", fp32=True)
            with b.block("core", kernel="retention"):
                update = b.contract("kv", k, v, "T N H Hv", cls="attention")
                b.emit("scan", "update", (update, state), state, fn="decay", rate=2)
                o = b.contract("q_state", q, state, "T N Hv", cls="attention")
            return b.linear("o", o, "N Hv D", "T D")
'''

D, LAYERS, V, N, H, Q, F = 2048, 24, 32_000, 24, 128, 512, 5632
BASE = {
    "name": "tiny-mha", "d_model": D, "vocab_size": V, "max_context": 8192, "final_norm": {"kind": "rmsnorm"},
    "head": {"tied": True},
    "layers": [{
        "repeat": LAYERS, "norm": {"kind": "rmsnorm"},
        "attention": {"kind": "mha", "n_heads": N, "d_head": H, "position": {"kind": "rope"}},
        "ffn": {"kind": "swiglu", "d_ff": F},
    }],
}  # fmt: skip
MFA = D * Q + Q + Q * N * H + 2 * D * H + N * H * D
MHA = 4 * D * N * H
NETWORK, NORMS, REST = 3 * D * F, 2 * D, V * D + D

Run = Callable[..., Any]


class New:
    """A new block in a model: the file, what is known of it by hand, and how to ask a command about it."""

    def __init__(self, run: Run, path: Path, per_layer: int, kv_bytes: int, state_bytes: int, name: str, title: str):
        self.run, self.path, self.name, self.title = run, path, name, title
        self.params = LAYERS * (per_layer + NORMS) + REST
        self.kv_bytes, self.state_bytes = kv_bytes, state_bytes
        self.base = path.with_name("tiny-mha.yaml")

    def text(self, command: str, *options: str) -> str:
        """What a command prints about the model."""
        done = self.run(command, str(self.path), *options)
        assert done.code == 0, done.err
        return str(done.out)

    def json(self, command: str, *options: str) -> Any:
        """The same as data."""
        return json.loads(self.text(command, *options, "--json"))

    def beside(self, command: str, *options: str) -> Any:
        """What a command says of the multi-head model and this one."""
        done = self.run(command, str(self.base), str(self.path), *options)
        assert done.code == 0, done.err
        return done


def written(place: str, before: str) -> str:
    """The text of a file as the extension page shows it."""
    found = re.search(rf"<!-- {place} -->\n```{before}\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "mfa": ("attention", "Mfa", written("file: archsim/blocks/mfa.py", "python"), {}),
    "bilinear": ("ffn", "Bilinear", FFN, {"ffn": {"kind": "bilinear", "d_ff": F}}),
    "retention": ("mixer", "Retention", MIXER,
                  {"attention": None, "mixer": {"kind": "retention", "n_heads": N, "d_head": H}}),
}  # fmt: skip


@pytest.fixture(params=CASES)
def new(request: pytest.FixtureRequest, archsim: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> New:
    """Each new block, registered and in a model of its own."""
    kind = request.param
    family, cls, source, changes = CASES[kind]
    module = ModuleType(f"new_{kind}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, f"{kind}.py", "exec"), module.__dict__)
    monkeypatch.setitem(KINDS[family], kind, f"{module.__name__}:{cls}")  # type: ignore[index]
    (tmp_path / "tiny-mha.yaml").write_text(yaml.safe_dump(BASE), "utf-8")
    path = tmp_path / f"tiny-{kind}.yaml"
    layer = {key: value for key, value in (BASE["layers"][0] | changes).items() if value is not None}  # type: ignore
    spec = yaml.safe_dump(BASE | {"name": path.stem, "layers": [layer]})
    path.write_text(written("file: tiny-mfa.yaml", "yaml") if kind == "mfa" else spec, "utf-8")
    known = {
        "mfa": (MFA + NETWORK, 2 * H * LAYERS * 2, 0, "Multi-matrix factorization attention"),
        "bilinear": (MHA + NETWORK, 2 * N * H * LAYERS * 2, 0, "Bilinear feed-forward"),
        "retention": (MHA + NETWORK, 0, N * H * H * LAYERS * 4, "Retention"),
    }[kind]  # fmt: skip
    return New(archsim, path, *known[:3], kind, known[3])


def test_count(new: New) -> None:
    """Parameters and cache as by hand."""
    counted = new.json("count", "--input-len", "1000")
    assert counted["params"]["total"] == new.params
    assert counted["kv_cache"]["bytes_per_token"] == new.kv_bytes


def test_count_in_a_mixture(new: New) -> None:
    """A gguf mixture converts its matrices by their names; small tensors stay in float."""
    counted = new.json("count", "--weights", "gguf_q4_k_m")
    bits = 8 * counted["weights"]["bytes"] / new.params
    assert 4.5 < bits < 5.2
    classes = {w.tensor.name.rpartition(".")[2]: w.cls for w in stored_weights(load_model(str(new.path)))[1]}
    if new.name == "mfa":
        assert stored_weights(load_model(str(new.path)))[0].gqa == N
        expected = {"w_q": "attn_q", "w_k": "attn_k", "w_v": "attn_v", "w_o": "attn_output", "w_q_down": "other"}
        assert expected.items() <= classes.items()
    assert {"w_up": "ffn_up", "w_gate": "ffn_gate", "w_down": "ffn_down"}.items() <= classes.items()


@pytest.mark.slow
def test_estimate(new: New) -> None:
    """Memory as counted; cut over eight devices a step has less to do on each, and sums to exchange."""
    whole = new.json("estimate", "--hw", "h100", "--devices", "1")
    assert whole["memory"]["per_device"]["weights_bytes"] == 2 * new.params
    assert whole["memory"]["per_device"]["kv_cache_bytes"] == (2048 + 256) * new.kv_bytes + new.state_bytes
    eighth = new.json("estimate", "--hw", "h100", "--devices", "8", "--tp", "8")
    one, cut = (answer["phases"]["decode"] for answer in (whole, eighth))
    assert 0 < cut["ideal_s"] < one["ideal_s"] <= one["expected_s"]
    assert cut["comm_bytes"] > 0 and one["comm_bytes"] == 0


def test_a_degree_that_does_not_divide_is_refused(new: New) -> None:
    """24 heads cannot be cut into 16."""
    done = new.run("estimate", str(new.path), "--hw", "h100", "--tp", "16")
    assert done.code == 2 and "error[E120]" in done.err and "1, 2, 4, 8" in done.err


def test_fit(new: New) -> None:
    """The verdict, and a cache whose tokens are as large as counted."""
    answer = new.json("fit", "--hw", "h100", "--devices", "1")
    assert answer["verdict"] == "FITS"
    assert answer["per_device"]["kv_growth_bytes_per_token"] == new.kv_bytes


def test_compare(new: New) -> None:
    """Both models side by side with their counts."""
    answer = json.loads(new.beside("compare", "--hw", "h100", "--json").out)
    assert str(new.params) in json.dumps(answer)


def test_sweep(new: New) -> None:
    """A grid's points are those of `estimate`."""
    grid = new.json("sweep", "--hw", "h100", "--batch", "1,8")
    for row in grid["rows"]:
        point = new.json("estimate", "--hw", "h100", "--devices", "1", "--batch", str(row["batch"]))
        assert row["decode_expected_s"] == pytest.approx(point["phases"]["decode"]["expected_s"], rel=1e-9)
        assert row["prefill_expected_s"] == pytest.approx(point["phases"]["prefill"]["expected_s"], rel=1e-9)


def test_diff_and_evolve(new: New) -> None:
    """The change has the block's own words, and steps add up to it exactly."""
    said = {"mfa": "attention: mha → mfa", "bilinear": "feed-forward network: swiglu → bilinear",
            "retention": "token mixing: mha → retention"}[new.name]  # fmt: skip
    assert said in new.beside("diff").out
    answer = json.loads(new.beside("evolve", "--json").out)
    assert said in [step["change"] for step in answer["steps"]]
    back = json.loads(new.run("evolve", str(new.path), str(new.base), "--json").out)
    for found in (answer, back):
        for figure in ("params", "weight_bytes", "flops_per_token", "kv_bytes", "state_bytes"):
            moved = sum(step["delta"][figure] for step in found["steps"])
            assert found["from"][figure] + moved == found["to"][figure]
    assert answer["to"]["params"] == new.params


def test_explain(new: New) -> None:
    """Formulas in letters, each with a meaning, that come to the counts; the papers of the blocks."""
    for quantity, value in (("params", new.params), ("kv_cache", new.kv_bytes)):
        answer = new.json("explain", quantity)
        assert answer["value"] == value
        numbers = re.findall(r"\d+", re.sub(r"[A-Z][a-z]*\d*", "", answer["formula"]))
        assert all(int(n) <= 8 for n in numbers), answer["formula"]
        text = new.text("explain", quantity)
        assert all(re.search(rf"^  {letter} +[\d,]+  \w\w+", text, re.M) for letter in answer["letters"])
    paper = {"mfa": "2412.19255", "bilinear": "2002.05202", "retention": "2307.08621"}[new.name]
    assert any(paper in source for source in new.json("explain", "params")["sources"])


@pytest.mark.slow
def test_report(new: New, tmp_path: Path) -> None:
    """The drawing names the block and its sizes."""
    out = tmp_path / "page.html"
    new.beside("report", "--hw", "h100", "-o", str(out))
    page = out.read_text("utf-8")
    assert new.title in page
    assert "q_lora_rank 512" in page or new.name != "mfa"


def test_trace(new: New) -> None:
    """The kernels of a step fill the time that `estimate` expects."""
    events = [e for e in json.loads(new.text("trace", "--hw", "h100"))["traceEvents"] if e["ph"] == "X"]
    part = {"mfa": "attention", "bilinear": "ffn", "retention": "mixer"}[new.name]
    assert any(part in e["name"] for e in events)
    last = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    expected = new.json("estimate", "--hw", "h100")["phases"]["decode"]["expected_s"]
    assert last * 1e-6 == pytest.approx(expected, rel=0.02)


def test_tiny(new: New) -> None:
    """A reduced model has the same blocks, a few hundred thousand parameters at most."""
    from archsim.counts.count import count

    small = tiny(load_model(str(new.path)))
    assert count(small).total < 300_000
    kinds = {block.kind for block in (small.layers[0].attention, small.layers[0].mixer, small.layers[0].ffn) if block}
    assert new.name in kinds
