"""Steps of speculative decoding: what verifying and drafting cost."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from archsim import api
from archsim.base.errors import UsageError
from archsim.predict.estimate import pricer_for
from archsim.serving.speculation import Speculation, TableLimits, Tree, draft_model, eagle, mtp, ngram
from archsim.serving.step_times import ExactSteps, StepTable
from archsim.timing.step_pricer import StepPricer

SMALL = TableLimits(tokens=1024, sequences=64, context=8192)


@cache
def _pricer(name: str) -> StepPricer:
    options: dict[str, Any] = {"tp": 8} if name.startswith("deepseek") else {}
    return pricer_for(api.estimate(name, "h200-sxm", **options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["llama3.1-8b", pytest.param("deepseek-v3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [(40, 80_000, []), (12, 30_000, [(300, 500)])])
def test_a_verify_step_is_that_of_several_tokens(name: str, step: Any) -> None:
    """Of tables and priced: dearer than a decode, cheaper than one for each token."""
    found = ngram(_pricer(name), 3, SMALL)
    exact, one = ExactSteps(_pricer(name), new=4), StepTable(_pricer(name), tokens=1024, sequences=64, context=8192)
    assert found.seconds(*step) == pytest.approx(exact.seconds(*step), rel=2e-3)
    assert one.seconds(*step) < found.seconds(*step) < 4 * one.seconds(*step)


def _decode_part(found: Speculation, decodes: int = 32) -> float:
    return found.draft_seconds(decodes, decodes * 2000, [])


@pytest.mark.slow
def test_a_module_costs_about_a_layer_and_the_head() -> None:
    """Drafts by the model's own module, once for each: more than its layer's share of a step, far less than a step."""
    pricer = _pricer("deepseek-v3")
    one, three = (mtp(pricer, k, SMALL) for k in (1, 3))
    step = StepTable(pricer, tokens=1024, sequences=64, context=8192).seconds(32, 64_000, [])
    assert step / 61 < _decode_part(one) < step / 10
    assert 2 * _decode_part(one) < _decode_part(three) < 4 * _decode_part(one)


@pytest.mark.slow
def test_an_eagle_layer_is_less_than_a_draft_model() -> None:
    """One layer of 8B with its head, against a model of 1B."""
    pricer = _pricer("llama3.1-8b")
    found = [eagle(pricer, 3, SMALL), draft_model(pricer, _pricer("llama3.2-1b"), 3, SMALL)]
    layer, model = map(_decode_part, found)
    assert 0 < layer < model / 1.5 < model < found[1].seconds(32, 64_000, [])
    assert found[0].draft_seconds(32, 64_000, [(512, 0)]) > layer


def test_a_tree_costs_what_it_verifies_and_a_row_for_each_branch() -> None:
    """More than a chain as deep; its verify step is that of as many tokens. What it may accept stays."""
    pricer = _pricer("llama3.1-8b")
    chain, tree = eagle(pricer, 4, SMALL), eagle(pricer, 4, SMALL, Tree(topk=4, tokens=16))
    step = (32, 64_000, [])
    assert tree.verify.seconds(*step) == pytest.approx(ngram(pricer, 15, SMALL).seconds(*step), rel=1e-9)
    assert _decode_part(chain) < _decode_part(tree) < 2 * _decode_part(chain)
    assert tree.drafts == chain.drafts


def test_speculation_that_a_model_cannot_do_is_refused() -> None:
    """No module, no draft."""
    with pytest.raises(UsageError, match="no next-token module"):
        mtp(_pricer("llama3.1-8b"), 2, SMALL)
    with pytest.raises(UsageError, match="at least 1 draft"):
        ngram(_pricer("llama3.1-8b"), 0, SMALL)
