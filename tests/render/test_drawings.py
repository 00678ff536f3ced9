"""Drawings of architectures: boxes add up to the model, text fits, the files are valid and say what they show."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from archsim import load_model
from archsim.counts.count import count
from archsim.graph.graph import ops
from archsim.graph.step import Mask
from archsim.render.drawing.canvas import RISE
from archsim.render.drawing.figure import model_svg, models_svg
from archsim.render.drawing.layout import arrange, keep_apart
from archsim.render.drawing.masks import TOKENS, sees
from archsim.render.drawing.plan import Plan
from archsim.render.drawing.text_width import fold, text_width
from archsim.spec.catalog import names

CATALOG = sorted(entry.name for entry in names("models") if entry.status is None)
KINDS = (
    "llama3-8b", "deepseek-v3.2", "t5-small", "qwen3.5-27b", "gemma3n-e2b", "falcon-40b", "nemotron3-nano-30b-a3b",
    "mamba-2.8b", "minimax-text-01", "switch-base-8", "gemma4-26b-a4b", "longformer-base", "opt-350m",
)  # fmt: skip
"""Of each kind of architecture one."""

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"h": 13.0, "b": 12.0, "s": 10.5, "in": 8.5}


def boxes(root: ET.Element) -> Iterator[tuple[ET.Element, list[ET.Element]]]:
    """Every box with its lines."""
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        lines = group.findall(f"{SVG}text")
        alone = len(group.findall(f"{SVG}rect")) == 1
        if rect is not None and alone and lines and rect.get("class") not in ("cell", "loop", "page"):
            yield rect, lines


def check(name: str) -> None:
    """A model's drawing: parameters to the integer, and no text beyond its box."""
    model = load_model(name)
    text = model_svg(model)
    root = ET.fromstring(text)
    assert sum(int(g.get("data-params", 0)) for g in root.iter(f"{SVG}g")) == count(model).total
    title, about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and about is not None and f"{count(model).total:,}" in str(about.text)
    found = 0
    for rect, lines in boxes(root):
        left, width, top, height = (float(rect.get(key, 0)) for key in ("x", "width", "y", "height"))
        for line in lines:
            classes = line.get("class", "").split()
            size = next((SIZES[c] for c in classes if c in SIZES), 11.5)
            wide = text_width(line.text or "", size, bool({"b", "h", "diff"} & set(classes)))
            x = float(line.get("x", 0)) - (wide / 2 if "m" in classes else 0)
            assert left <= x and x + wide <= left + width + 1, (name, line.text)
            assert top < float(line.get("y", 0)) <= top + height, (name, line.text)
            found += 1
    assert found > 10


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_architectures(name: str) -> None:
    """One of each."""
    check(name)


@pytest.mark.slow
def test_every_model_of_the_catalog() -> None:
    """All of them are drawn."""
    assert len(CATALOG) > 200
    for name in CATALOG:
        check(name)


def test_parts_beside_the_total() -> None:
    """Prediction modules and encoders whose size is known are drawn apart, and add up to the count with them."""
    apart = {"deepseek-v3": "mtp", "gemma3-27b": "vision", "bert-base": "mlm-head", "qwen3-vl-30b-a3b": "vision"}
    for name, part in apart.items():
        model = load_model(name)
        text = model_svg(model)
        drawn = sum(map(int, re.findall(r'data-(?:params|beside)="(\d+)"', text)))
        assert drawn == count(model, parts=(part,)).total, name
    for words in ("Vision encoder: 538,631,408", "Patch embedding", "27 layers", "vectors among those of the text"):
        assert words in text, words


def test_words_of_the_field() -> None:
    """Latent attention in the names of `config.json`; a router, shared experts; the pattern of the layers."""
    text = model_svg(load_model("deepseek-v3"))
    for words in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "256 experts, 8 per token", "Shared experts",
                  "Router", "3 A, then 58 B", "512 per token", "Latent cache"):  # fmt: skip
        assert words in text, words
    assert "post-norm" in model_svg(load_model("transformer-base"))
    assert "2 × (4 A, 1 B)" in model_svg(load_model("gemma3n-e2b"))


def test_encoder_and_decoder() -> None:
    """Both have an embedding, of which the table is counted once; the cross-attention has its name."""
    text = model_svg(load_model("t5-small"))
    for words in ("Encoder embedding", "the same table", "Cross-attention (MHA)", "output of the encoder"):
        assert words in text, words


def test_tied_tables_are_said() -> None:
    """A tied head has no parameters and says whose table it uses."""
    text = model_svg(load_model("gpt2-small"))
    assert "Output head, tied" in text and "the table of the embedding" in text
    assert "the table of the embedding" not in model_svg(load_model("llama3-8b"))


def test_shares_of_flop_add_up() -> None:
    """The boxes of a model's layers and its head have all FLOP."""
    plan = Plan(load_model("deepseek-v3"))
    blocks = [block for kind in plan.main.kinds for block in kind.blocks]
    nodes = (*plan.main.before, *blocks, *plan.main.after)
    parts = sum(plan.tally.of([op for op, _ in ops(node)]).flops for node in nodes)
    assert parts == plan.whole.flops == count(plan.model, input_len=plan.tokens).masked.total


def test_models_side_by_side() -> None:
    """Lines that the other does not have carry a sign; the same model twice is drawn once."""
    text = models_svg([load_model("llama2-7b"), load_model("llama3-8b")])
    assert "≠ 8 KV heads" in text and text.count("Embedding</text>") == 2
    assert "≠ " not in models_svg([load_model("llama2-7b"), load_model("llama2-7b")]).split("≠:")[0]


def test_encoders_side_by_side() -> None:
    """What differs between two encoders of images is marked, and what both have is not."""
    svg = models_svg([load_model("gemma3-4b"), load_model("gemma3-27b")])
    marked = {text for text in re.findall(r">([^<]+)<", svg) if text.startswith("≠ ")}
    assert {"≠ width 2,560", "≠ width 5,376"} <= marked
    assert not any("14 × 14 pixels" in text or "4,304" in text for text in marked)
    other = models_svg([load_model("gemma3-27b"), load_model("mistral-small-3.1-24b")])
    assert "≠ 27 layers" in other and "≠ 24 layers" in other and "≠ 16 become one" in other


def test_themes() -> None:
    """Dark where the reader's system is, or always; light on paper."""
    model = load_model("gpt2-small")
    auto, light, dark = (model_svg(model, theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme:dark" in auto and "prefers-color-scheme" not in light + dark
    assert "@media print" in dark and "#0f1318" not in light


def test_masks() -> None:
    """Pictures of masks have the pairs that the mask counts, where it is as large as in the picture."""
    for mask in (Mask(), Mask(window=3), Mask(chunk=5), Mask(causal=False), Mask(causal=False, window=2),
                 Mask(prefix=4), Mask(window=3, global_tokens=2), Mask(causal=False, window=2, global_tokens=1),
                 Mask(window=3, block=1, vertical=4)):  # fmt: skip
        pairs = sum(sees(mask, q, k) for q in range(TOKENS) for k in range(TOKENS))
        assert pairs == mask.pairs(0, TOKENS), mask


def test_boxes_do_not_overlap() -> None:
    """Boxes of a row keep apart, and a line that passes a row has a place in it."""
    sizes = {"in": (40.0, 20.0), **dict.fromkeys("abc", (100.0, 30.0)), "d": (60.0, 30.0), "out": (80.0, 20.0)}
    edges = [("in", "a"), ("in", "b"), ("in", "c"), ("a", "d"), ("d", "out"), ("b", "out"), ("c", "out")]
    layout = arrange(sizes, edges, gap=10)
    row = sorted(layout.centres[name] for name in "abc")
    assert all(b - a >= 110 - 1e-9 for a, b in pairwise(row))
    assert [len(layout.passes[edge]) for edge in edges[4:]] == [0, 1, 1]
    assert keep_apart([0, 0, 10], [4, 4]) == [-2, 2, 10]


def test_long_text_is_folded() -> None:
    """No line is wider than its room, not even a word."""
    lines = fold("a " * 200 + "b" * 400, 100, 11.5)
    assert len(lines) == 3 and all(text_width(line, 11.5) <= 100 for line in lines) and lines[-1].endswith("…")
    assert RISE > 11.5


@pytest.mark.slow
def test_gallery(tmp_path: Path) -> None:
    """A file for each model, and a page with all of them."""
    script = Path(__file__).resolve().parents[2] / "reports" / "gallery.py"
    command = [sys.executable, str(script), str(tmp_path / "all"), "gpt2-small", "t5-small"]
    subprocess.run(command, check=True, timeout=120)
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"gpt2-small.svg", "t5-small.svg", "index.html"}
    assert (tmp_path / "all" / "index.html").read_text("utf-8").count("<img") == 2
