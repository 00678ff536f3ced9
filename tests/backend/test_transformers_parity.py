"""Logits of published families against transformers, at tiny sizes and with the same random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from backend_parity import copy_weights, unhidden
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from archsim.backend.module import Encoded, build
from archsim.backend.oracle import flops_full
from archsim.spec.model import Model

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle

TOLERANCE = 1e-4
BATCH, LENGTH, VOCAB = 2, 11, 64


def reference(family: Any) -> nn.Module:
    """The transformers model with weights that no default would hide."""
    return unhidden(getattr(transformers, family.model), getattr(transformers, family.config)(**family.settings))


def output(result: Tensor | Encoded) -> Tensor:
    """Logits, or hidden states."""
    return result.hidden if isinstance(result, Encoded) else result


def given(family: Any, ids: Tensor, source: Tensor | None) -> dict[str, Tensor]:
    """What a model of transformers is called with."""
    if source is None:
        return {"input_ids": ids}
    read = {"input_ids": source} if family.sound is None else family.sound(source)
    return {**read, "decoder_input_ids": ids}


def test_logits(family: Any) -> None:
    """The module computes what transformers computes, from every one of its weights."""
    model, net = reference(family), build(Model.model_validate(family.spec), "cpu")
    used = copy_weights(net, family, dict(model.state_dict()))
    ids = torch.randint(3, VOCAB, (BATCH, LENGTH))  # the first few stand for padding in some families
    source = net.source_of(ids.flip(1))
    inputs = given(family, ids, source)
    expected = model(**inputs, **family.extra(ids))[0]
    for net.fused in (False, True):
        torch.testing.assert_close(output(net(ids, source=source)), expected, atol=TOLERANCE, rtol=0)
    unused = {name for name, _ in model.named_parameters()} - used
    assert unused == family.unused


def test_flops(family_run_alike: Any) -> None:
    """torch counts the same work in the transformers implementation as in the module on meta."""
    model = reference(family_run_alike)
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    spec = Model.model_validate(family_run_alike.spec)
    inputs = given(family_run_alike, ids, build(spec, "meta").source_of(ids))
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs)
    assert counter.get_total_flops() == flops_full(spec, BATCH, LENGTH, last=False)
