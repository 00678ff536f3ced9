"""The step of one sequence on one device, as `explain` and `evolve` state it."""

from __future__ import annotations

import pytest

from archsim.render.pages.explain import formula, formula_page
from archsim.spec.load import load_hardware, load_model
from archsim.training.one_device import training_needs


def test_explained_times_add_up_and_are_those_of_evolve() -> None:
    asked = {"context": 1024, "weights": None, "changes": (), "hw": "h100"}
    answer, on = formula(["gpt2-small", "train"], **asked)
    assert on is not None
    terms = on.terms(answer.quantity)
    parts = sum(terms[f"{name}_s"] for name in ("forward", "backward", "head_and_loss", "optimizer"))
    assert terms["expected_s"] == pytest.approx(parts) and terms["expected_s"] > terms["ideal_s"]
    needs = training_needs(load_model("gpt2-small"), 1024, load_hardware("h100"))
    assert (needs.step_s, needs.bytes) == (terms["expected_s"], terms["peak_allocated_bytes"])
    assert any(section.title.startswith("Time on 1 ×") for section in formula_page(answer, on).sections)
