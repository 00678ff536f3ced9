"""`archsim survey`: choices are read from specs, and every cell of the study is compared and explained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.ledger.choices import choices
from archsim.ledger.published_table import COLUMNS
from archsim.ledger.survey import Survey, distinct, survey
from archsim.render.figures.shares import shares_by_year
from archsim.render.html.survey import document
from archsim.spec.load import load_model

ROOT = Path(__file__).resolve().parents[2]
STUDY = yaml.safe_load((ROOT / "specs/survey/study-53.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def answer() -> Survey:
    """The survey, made once."""
    return survey()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt2-xl", ("Pre LayerNorm", "Learned Abs", "GeLU", "MHA", "Serial", "No")),
        ("transformer-base", ("Post LayerNorm", "Sinusoidal", "ReLU", "MHA", "Serial", "No")),
        ("t5-11b", ("Pre RMSNorm", "Relative", "ReLU", "MHA", "Serial", "No")),
        ("palm-540b", ("Pre LayerNorm", "RoPE", "SwiGLU", "MQA", "Parallel", "No")),
        ("bloom-176b", ("Pre LayerNorm", "ALiBi", "GeLU", "MHA", "Serial", "No")),
        ("gemma2-27b", ("Pre+Post RMSNorm", "RoPE", "GeGLU", "GQA", "Serial", "No")),
        ("olmo2-7b", ("Inside RMSNorm", "RoPE", "SwiGLU", "MHA", "Serial", "No")),
        ("command-a-111b", ("Pre LayerNorm", "RoPE+NoPE", "SwiGLU", "GQA", "Parallel", "No")),
        ("nemotron-4-340b", ("Pre LayerNorm", "RoPE", "ReLU²", "GQA", "Serial", "No")),
        ("deepseek-v3", ("Pre RMSNorm", "RoPE", "SwiGLU", "MLA", "Serial", "256E+1/8act")),
        ("minimax-text-01", ("After-norm residual RMSNorm", "RoPE", "SwiGLU", "Lightning+GQA", "Serial", "32E/2act")),
        ("mamba-2.8b", ("Pre RMSNorm", "", "", "Mamba", "Serial", "No")),
    ],
)
def test_choices(model: str, expected: tuple[str, ...]) -> None:
    """Each choice in the words of the literature."""
    found = choices(load_model(model))
    assert tuple(found.text(name) for name in found._fields) == expected


def test_heads_are_counted_not_named() -> None:
    """Grouped attention with a group of one is full attention, whatever the spec calls it."""
    model = load_model("llama3-8b", ["attention.n_kv_heads=32"])
    assert choices(model).attention == ("MHA",)


def test_sizes_of_one_design_count_once() -> None:
    """OPT's sizes are one design, but for the one with its norm elsewhere."""
    sizes = [load_model(name) for name in ("opt-125m", "opt-350m", "opt-1.3b", "opt-175b")]
    assert len(distinct(sizes)) == 2


@pytest.mark.slow
def test_adoption_adds_up(answer: Survey) -> None:
    """Every design is in one year, and has a value of each choice that it makes; state-space models have no positions
    and no feed-forward layers.
    """
    for one in answer.adoption:
        assert sum(one.designs) == answer.designs
        for i, whole in enumerate(one.designs):
            counts = [values[i] for values in one.values.values()]
            assert max(counts) <= whole
            assert whole <= sum(counts) + (2 if one.choice in ("position", "activation") else 0)


@pytest.mark.slow
def test_all_rows_are_compared(answer: Survey) -> None:
    """53 rows: each has specs and eight cells, or says why it has no spec."""
    assert [row.name for row in answer.rows] == [row["name"] for row in STUDY["rows"]]
    assert len(answer.rows) == 53
    assert [row.name for row in answer.rows if not row.models] == ["Reka Flash", "Mistral Medium 3"]
    for row in answer.rows:
        assert tuple(cell.column for cell in row.cells[:8]) == COLUMNS
        assert row.models or (row.missing or "").startswith("undisclosed")


def test_every_differing_cell_is_explained(answer: Survey) -> None:
    """A cell that differs says what the spec has, and where the spec has it from."""
    differing = [(row.name, cell) for row in answer.rows for cell in row.differing]
    assert len(differing) == answer.differing > 0
    for name, cell in differing:
        assert cell.reason, (name, cell.column)
        if cell.column == "date":
            assert "released 20" in cell.reason
        elif cell.column != "stability":
            assert "source: " in cell.reason and cell.computed != cell.stated


@pytest.mark.parametrize(
    ("row", "column", "status", "reason"),
    [
        ("T5", "norm", "differs", "a norm without mean and bias, before each block"),
        ("LaMDA", "norm", "differs", "the paper states no norm"),
        ("OLMo 2", "norm", "differs", "behind each block, inside the residual"),
        ("Mistral 7B", "date", "differs", "released 2023-09; 2023-10 is the date of arXiv:2310.06825"),
        ("MiniMax M2", "date", "differs", "January 2025 is the date of MiniMax-Text-01"),
        ("Trinity Nano", "norm", "differs", "depth-scaled is how the weights of the second norm begin"),
        ("PaLM", "attention", "differs", "48 query heads over 1 key/value head"),
        ("LLaMA 2", "attention", "some sizes", "as stated in llama2-70b"),
        ("Command R+", "block", "differs", "Parallel"),
        ("MiniMax M2", "moe", "differs", "256 routed experts, 8 chosen"),
        ("Kimi K2", "vocab", "differs", "163,840"),
        ("DeepSeek V3", "vocab", "rounded", "129,280"),
        ("LaMDA", "activation", "same", ""),
        ("GPT-3", "norm", "same", ""),
        ("Reka Flash", "norm", "no spec", ""),
    ],
)
def test_cells(answer: Survey, row: str, column: str, status: str, reason: str) -> None:
    """Cells whose answer is known."""
    cell = next(one for one in answer.rows if one.name == row).cell(column)
    assert cell.status == status
    assert reason in cell.reason


def test_confused_row_says_so(answer: Survey) -> None:
    """The row of MiniMax M2 describes another model, which the comparison finds."""
    note = next(row.note for row in answer.rows if row.name == "MiniMax M2")
    assert "cells are those of minimax-text-01" in note


def test_totals(answer: Survey) -> None:
    """The study's own table is counted as it is printed; rows without a spec are kept apart."""
    totals = {total.id: total for total in answer.totals}
    printed = STUDY["rows"]
    assert totals["rmsnorm"].in_table == sum("RMSNorm" in row["norm"] for row in printed)
    assert totals["moe"].in_table == sum(row["moe"] != "No" for row in printed) == totals["moe"].stated
    assert totals["models_2025"].in_table == sum(row["date"].startswith("2025") for row in printed)
    by_specs = sum("RMSNorm" in (row.cell("norm").computed or "").split(",")[0] for row in answer.rows if row.models)
    assert totals["rmsnorm"].computed == by_specs
    assert totals["rmsnorm"].unknown == 2
    assert totals["mla"].computed == 3 and totals["dense"].computed + totals["moe"].computed == 51


@pytest.mark.slow
def test_json(archsim: Any, answer: Survey) -> None:
    """`--json` holds the adoption, all rows, the missing ones and the numbers."""
    found = json.loads(archsim("survey", "--json").out)
    assert found == json.loads(json.dumps(answer.to_dict()))
    assert found["schema"] == "archsim.survey/1"
    assert len(found["study"]["rows"]) == 53 and found["study"]["missing"] == ["Reka Flash", "Mistral Medium 3"]


@pytest.mark.slow
def test_terminal(archsim: Any) -> None:
    """The page names what is missing; `-v` lists all rows."""
    short, long = archsim("survey").out, archsim("survey", "-v").out
    assert "Without a spec" in short and "Reka Flash" in short
    assert "All rows from the specs" in long and len(long) > len(short)


def test_html(answer: Survey) -> None:
    """Six charts, no request without `cdn`, the same bytes twice."""
    text = document(answer)
    assert text == document(answer)
    assert text.count('class="chart"') == 6
    assert "default-src 'none'" in text and not re.search(r"<(?:script|img|link)[^>]* (?:src|href)=", text)
    assert all(row.name in text for row in answer.rows)


def test_chart_is_inert_and_whole() -> None:
    """Names are escaped, the bars of a year are all of it, and a year without designs has none."""
    chart = shares_by_year(
        ["2024", "2025"], [2, 0], {"<script>": [1, 0], "b": [1, 0]}, key="k", title="t", finding="f."
    )
    assert [trace["name"] for trace in chart.traces] == ["&lt;script&gt;", "b"]
    assert sum(trace["y"][0] for trace in chart.traces) == pytest.approx(100)
    assert all(trace["x"] == ["2024"] for trace in chart.traces)
