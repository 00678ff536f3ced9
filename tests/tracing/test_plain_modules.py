"""Modules as people write them: torch's own layers, attention written out, loops over experts, files that import."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.predict.model_parts import seconds_by_part

torch = pytest.importorskip("torch")

MODULES = """
import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS = 1000, 256, 4


def causal(n, device):
    return torch.tril(torch.ones(n, n, dtype=torch.bool, device=device))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, norm_first=True)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.attend = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(3))

    def forward(self, ids):
        x = self.embed(ids)
        for attend in self.attend:
            x = x + attend(x, x, x)[0]
        return x


class WrittenOut(nn.Module):
    def __init__(self, fused=False):
        super().__init__()
        self.fused = fused
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        b, t, d = x.shape
        for qkv, out, up, down in zip(self.qkv, self.out, self.up, self.down):
            q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in qkv(x).chunk(3, -1))
            if self.fused:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(-2, -1) / math.sqrt(d / HEADS)
                y = scores.masked_fill(~causal(t, x.device), float("-inf")).softmax(-1) @ v
            x = x + out(y.transpose(1, 2).reshape(b, t, d))
            x = x + down(F.gelu(up(x)))
        return self.head(x)


def fused():
    return WrittenOut(fused=True)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.embed(ids))[0]


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, pixels):
        return self.conv(pixels)


class Experts(nn.Module):
    EXPERTS, TOP = 8, 2

    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, self.EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(self.EXPERTS)
        )

    def forward(self, ids):
        x = self.embed(ids).view(-1, WIDTH)
        chosen, out = torch.topk(self.router(x), self.TOP)[1], torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            self.run(expert, x, out, chosen == i)
        return out.view(*ids.shape, WIDTH)


class ByPlace(Experts):
    def run(self, expert, x, out, hits):
        rows, _ = torch.where(hits)
        out.index_add_(0, rows, expert(x[rows]))


class ByMask(Experts):
    def run(self, expert, x, out, hits):
        mask = hits.any(-1)
        out[mask] += expert(x[mask])


class ByTurn(Experts):
    rates = {f"rate_{i}": 1.0 for i in range(8)}

    def forward(self, ids):
        x = self.embed(ids).view(-1, WIDTH)
        chosen, out = torch.topk(self.router(x), self.TOP)[1], torch.zeros_like(x)
        mask = F.one_hot(chosen, self.EXPERTS)
        mask = (mask * (mask.cumsum(0) <= len(x))).permute(2, 1, 0)
        for hit in (mask.sum(dim=(-1, -2)) > 0).nonzero():
            _, rows = torch.where(mask[hit[0]])
            out.index_add_(0, rows, self.experts[hit[0]](x[rows]) * self.rates[f"rate_{hit[0]}"])
        return out.view(*ids.shape, WIDTH)


class Switch(Experts):
    TOP = 1

    def run(self, expert, x, out, hits):
        rows = torch.nonzero(hits.squeeze(-1)).squeeze(-1)
        out[rows] = expert(x[rows])
"""
PLAIN = ("Encoder", "Weighed", "WrittenOut", "fused", "Recurrent")
WIDTH, HEADS, VOCABULARY = 256, 4, 1000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with modules."""
    path = tmp_path_factory.mktemp("plain") / "plain.py"
    path.write_text(MODULES)
    return path


def _module(file: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location("plain", file)
    assert spec is not None and spec.loader is not None
    space = importlib.util.module_from_spec(spec)
    with torch.device("meta"):
        spec.loader.exec_module(space)
        return getattr(space, name)().eval()


@pytest.mark.parametrize("name", PLAIN)
def test_flops_are_those_that_torch_counts(file: Path, name: str) -> None:
    """At a length that was not captured, and nothing of it is skipped where a mask is only added to the scores."""
    from torch.utils.flop_counter import FlopCounterMode

    net = _module(file, name)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(torch.zeros(2, 300, dtype=torch.long, device="meta"))
    torch.backends.mha.set_fastpath_enabled(before)
    found = archsim.count(f"{file}:{name}", batch=2, input_len=300, logits="all")
    assert found.full.total == counter.get_total_flops()
    assert found.total == sum(p.numel() for p in net.parameters())
    assert (found.masked.total == found.full.total) is (name != "fused")


def test_the_fast_path_of_torch_is_left_as_it_was(file: Path) -> None:
    """A capture switches it off for itself."""
    archsim.count(f"{file}:Encoder")
    assert torch.backends.mha.get_fastpath_enabled()


def test_attention_written_out_moves_its_scores_and_nothing_more(file: Path) -> None:
    """Each of its two products moves queries, keys or values, and results of the sequence, and the square of scores:
    long prompts, so that no cache holds them. It takes longer than the fused kernel, by less than those scores.
    """
    n, batch = 2048, 16
    out, fused = (
        archsim.estimate(f"{file}:{name}", "h100", weights="bf16", batch=batch, input_len=n).to_dict()
        for name in ("WrittenOut", "fused")
    )
    square, row = batch * HEADS * n * n * 2, batch * n * WIDTH * 2
    moved = [out["phases"]["prefill"]["bytes"], fused["phases"]["prefill"]["bytes"]]
    assert 3 * 2 * square <= moved[0] - moved[1] + 3 * 12 * row <= 3 * (8 * square + 12 * row)
    times = [one["phases"]["prefill"]["expected_s"] for one in (out, fused)]
    assert times[1] < times[0] < times[1] + 3 * 12 * square / 3.35e12


@pytest.mark.parametrize("name", ["WrittenOut", "fused", "Encoder"])
def test_parts_say_what_takes_the_time(file: Path, name: str) -> None:
    """Attention, its projections, MLPs and the head, also where the head is the table of the embedding."""
    found = archsim.estimate(f"{file}:{name}", "h100", weights="bf16").prefill
    parts = seconds_by_part(found)
    assert {"attention projections", "MLP", "attention scores", "output head", "embedding"} <= set(parts)
    assert sum(parts.values()) == pytest.approx(found.expected_s)
    assert parts.get("norms and residuals", 0) < parts["MLP"]


@pytest.mark.parametrize("name", ["ByPlace", "ByMask", "ByTurn", "Switch"])
def test_experts_in_a_loop_work_on_the_tokens_sent_to_them(file: Path, name: str) -> None:
    """As many products as each token has experts, whichever way the loop finds its tokens."""
    found = archsim.count(f"{file}:{name}", batch=2, input_len=512)
    top = 1 if name == "Switch" else 2
    assert found.full.total == 2 * 1024 * (top * 2 * WIDTH * WIDTH + 8 * WIDTH)


@pytest.mark.parametrize("name", ["ByPlace", "ByMask", "ByTurn", "Switch"])
def test_experts_in_a_loop_are_active_as_often_as_tokens_go_to_them(file: Path, name: str) -> None:
    """Of eight experts each token uses the chosen ones; they were all counted as active."""
    found = archsim.count(f"{file}:{name}").to_dict()["params"]
    top, expert = (1 if name == "Switch" else 2), 2 * (WIDTH + 1) * WIDTH
    assert found["total"] - found["active"] == (8 - top) * expert


def test_loops_over_tokens_are_said_to_wait(file: Path) -> None:
    """An LSTM's products run one after another; a module without such a loop says nothing of it."""
    looped, plain = (archsim.count(f"{file}:{name}").to_dict()["assumptions"] for name in ("Recurrent", "fused"))
    assert any("loop over tokens" in line for line in looped)
    assert not any("loop over tokens" in line for line in plain)


def test_a_module_that_takes_no_tokens_is_told_how_to_say_so(file: Path) -> None:
    """The error names the method that it needs."""
    with pytest.raises(archsim.ArchsimError) as caught:
        archsim.count(f"{file}:Picture")
    assert any("archsim_inputs" in hint for hint in caught.value.hints)


def test_a_file_imports_what_is_beside_it_and_in_its_package(tmp_path: Path) -> None:
    """As when Python runs it, relative imports of a package included; a list of rates is no obstacle."""
    package = tmp_path / "own" / "nets"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package.parent / "layers.py").write_text("from torch import nn\nclass Layer(nn.Linear):\n    pass\n")
    (package / "net.py").write_text(NET)
    (tmp_path / "beside.py").write_text("from own.nets.net import Net\n")
    for name in (package / "net.py", tmp_path / "beside.py"):
        assert archsim.count(f"{name}:Net").total == 100 * 64 + 4 * (64 * 64 + 64) + 2048 * 64


NET = """
import torch
from torch import nn
from ..layers import Layer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.1, 4)]
        self.embed, self.places = nn.Embedding(100, 64), nn.Embedding(2048, 64)
        self.layers = nn.ModuleList(Layer(64, 64) for _ in rates)
        self.register_buffer("place", torch.arange(2048))

    def forward(self, ids):
        x = self.embed(ids) + self.places(self.place[: ids.shape[1]])
        for layer in self.layers:
            x = x + layer(x).relu()
        return x
"""


ODD = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(100, 64), nn.Linear(64, 128), nn.Linear(128, 64)

    def table(self, x):
        return x

    def forward(self, ids):
        x = self.embed(ids)
        return x + self.down(F.relu(self.up(self.table(x))))


class FewPositions(Base):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(96, 64)

    def table(self, x):
        assert x.shape[1] <= 96, f"cannot forward {x.shape[1]} tokens, block size is only 96"
        return x + self.places(torch.arange(x.shape[1], device=x.device))


class OnTheProcessor(Base):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.Tensor(64))
        self.register_buffer("slopes", torch.Tensor([2.0**-i for i in range(64)]))
        self.rates = torch.from_numpy(np.ones(64, dtype="float32"))

    def table(self, x):
        return x * self.gain * self.slopes * self.rates


class WithoutAutocast(Base):
    def table(self, x):
        with torch.autocast(device_type=x.device.type, enabled=False):
            return x.float() * 2


class Sparsified(Base):
    def table(self, x):
        normal = torch.distributions.Normal(torch.zeros((), device=x.device), torch.ones((), device=x.device))
        return F.relu(x - normal.icdf(torch.full((), 0.95, device=x.device)))


class SparseTable(Base):
    def __init__(self):
        super().__init__()
        heads = torch.zeros(4, 6, dtype=torch.bool)
        heads[2:] = True
        self.register_buffer("heads", heads.to_sparse(), persistent=False)
"""


@pytest.mark.parametrize(
    ("name", "more"),
    [("FewPositions", 96 * 64), ("OnTheProcessor", 64), ("WithoutAutocast", 0), ("SparseTable", 0), ("Sparsified", 0)],
)
def test_what_only_runs_with_data_is_no_obstacle(tmp_path: Path, name: str, more: int) -> None:
    """Few positions that nothing states (minGPT, Whisper), tables made on the processor whatever the default device
    (`torch.Tensor(numbers)`), autocast by the tensor's device, a sparse buffer (Whisper), a distribution that looks at
    its parameters (Gemma 3n).
    """
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    found = archsim.count(f"{path}:{name}", batch=2, input_len=50)
    assert found.total == 100 * 64 + 2 * 64 * 128 + 128 + 64 + more
    assert found.full.total == 2 * 2 * 50 * 2 * 64 * 128


def test_autocast_is_left_as_it_was(tmp_path: Path) -> None:
    """Only a capture knows `meta` there."""
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    before = torch.autocast.__init__
    archsim.count(f"{path}:WithoutAutocast")
    assert torch.autocast.__init__ is before
