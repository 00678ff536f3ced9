"""The example notebook: its cells run one after the other, and what each ends with can be shown by Jupyter."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def run_cell(source: str, scope: dict[str, Any]) -> object:
    """Runs a cell; gives the value of its last line where that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if isinstance(last, ast.Expr) else None


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one scope, without pandas too: a list stands for the DataFrame. No output is kept in the file."""
    document = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert document["nbformat"] == 4 and all(cell["outputs"] == [] for cell in cells)
    scope: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for source in ("".join(cell["source"]) for cell in cells):
        with monkeypatch.context() as patched:
            if "to_pandas" in source:
                patched.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))  # type: ignore[arg-type]
            shown.append(run_cell(source, scope))
    answer, parts, *figures, rows, curve, compared = shown
    assert "Memory" in answer._repr_html_() and "Cost" in answer._repr_html_()
    assert parts[0] is True
    for figure in (*figures, curve):
        assert figure.data and "plotly" in figure._repr_html_()
    assert [row["batch"] for row in rows if row["hw"] == "l40s"] == [1, 4, 16, 64]
    assert "qwen3-8b" in compared._repr_html_()
