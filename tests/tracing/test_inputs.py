"""What forward passes are given: sounds, pictures and boxes by the config, masks without data, chosen experts."""

from __future__ import annotations

from pathlib import Path

import pytest

import archsim

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from archsim.counts.count import count  # noqa: E402
from archsim.predict.estimate import estimate  # noqa: E402
from archsim.spec.load import load_hardware  # noqa: E402
from archsim.tracing.build import Module, from_transformers  # noqa: E402
from archsim.tracing.trace import trace  # noqa: E402

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

OTHER_INPUTS = ["vision-encoder-decoder", "speecht5", "canary", "encoder-decoder"]
"""Types that take pictures, samples or spectrograms, or have two limits of length."""


def running(module: Module) -> Module:
    """The module with the first choice of arguments that it takes."""
    for choice in module.choices:
        try:
            choice.net(**choice.inputs(2, 256))
        except (ValueError, RuntimeError):
            continue
        return choice
    raise AssertionError("no choice of arguments runs")


@pytest.mark.parametrize("model_type", OTHER_INPUTS)
def test_types_that_take_more_than_tokens(model_type: str) -> None:
    """All parameters of the class, and FLOPs as torch counts them at a length that was not captured."""
    from torch.utils.flop_counter import FlopCounterMode

    module = from_transformers(model_type)
    traced = trace(module)
    assert count(traced).total == sum(p.numel() for p in module.net.parameters())
    choice = running(module)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        choice.net(**choice.inputs(2, 300))
    assert count(traced, batch=2, input_len=300, logits="all").full.total == counter.get_total_flops()
    assert estimate(traced, load_hardware("h100-sxm"), devices=1).prefill.expected_s > 0


MODULES = """
import torch
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Embedding(10, 8), nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, ids):
        x = self.embed(ids).view(-1, 8)
        weights, chosen = self.router(x).topk(2)
        places = F.one_hot(chosen, 4).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in places.sum((1, 2)).nonzero():
            which, token = torch.where(places[expert].squeeze(0))
            out.index_add_(0, token, self.experts[expert.item()](x[token]) * weights[token, which, None])
        return out


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, ids):
        x = self.embed(ids)
        return torch.cat([self.a(x), self.b(x)], -1), self.b(x + 1)
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with modules."""
    path = tmp_path_factory.mktemp("modules") / "own.py"
    path.write_text(MODULES)
    return path


def test_each_expert_works_on_its_share(modules: Path) -> None:
    """A loop over the experts that tokens were sent to: two of four for each token, all four by number."""
    found = archsim.count(f"{modules}:Experts", batch=2, input_len=64, logits="all")
    assert found.total == 10 * 8 + 4 * 8 + 4 * 64
    assert found.full.total == 2 * 128 * (8 * 4 + 2 * 64)


def test_a_layer_that_runs_again_is_held_once(modules: Path) -> None:
    """Two alike layers of which one is read elsewhere are no repetition."""
    found = archsim.count(f"{modules}:Again", batch=2, input_len=64, logits="all")
    assert found.total == 10 * 8 + 2 * (64 + 8)
    assert found.full.total == 3 * 2 * 128 * 64
