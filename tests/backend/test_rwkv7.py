"""RWKV-7 against its formulas (arXiv:2503.14456, section 4 and appendix), written out token by token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend import build
from archsim.backend.module import Net
from archsim.backend.run import Cache
from archsim.counts.count import count
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.model import Model

D, HEADS, SIZE, LAYERS = 32, 4, 8, 3
CONFIG = {
    "model_type": "rwkv7", "hidden_size": D, "head_dim": SIZE, "num_hidden_layers": LAYERS, "vocab_size": 64,
    "decay_low_rank_dim": 5, "a_low_rank_dim": 6, "gate_low_rank_dim": 7, "v_low_rank_dim": 3,
}  # fmt: skip


@pytest.fixture(name="net")
def net_of() -> Net:
    return build(model(CONFIG), "cpu")


def model(config: dict[str, object]) -> Model:
    return model_from(from_config(config, "x"))


def weights(net: Net, i: int) -> dict[str, Tensor]:
    """Those of one layer, matrices as (in, out)."""
    found = {}
    for name, x in net.weights().items():
        prefix, _, rest = name.partition(".")
        if prefix == ("first" if i == 0 else "rest"):
            x = x if i == 0 else x[i - 1]
            found[rest] = x.flatten(1) if x.ndim > 1 and rest.rpartition(".")[2].startswith("w_") else x.flatten()
    found["mixer.w_o"] = found["mixer.w_o"].reshape(D, D)
    return found


def shifted(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def mixed(x: Tensor, w: Tensor) -> Tensor:
    return x + (shifted(x) - x) * w


def time_mixing(p: dict[str, Tensor], x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """Equations 3 to 19: the result, and the first layer's values."""
    xr, xw, xk, xv, xa, xg = (mixed(x, p[f"mix_{n}"]) for n in "rwkvag")
    r, k, v = xr @ p["w_r"], xk @ p["w_k"], xv @ p["w_v"]
    w = -functional.softplus(-(p["b_decay"] + torch.tanh(xw @ p["w_decay_down"]) @ p["w_decay"])) - 0.5
    if first is None:
        first = v
    else:
        v = v + (first - v) * torch.sigmoid(p["b_share"] + (xv @ p["w_share_down"]) @ p["w_share"])
    a = torch.sigmoid(p["b_rate"] + (xa @ p["w_rate_down"]) @ p["w_rate"])
    g = torch.sigmoid(xg @ p["w_gate_down"]) @ p["w_gate"]
    heads = (*x.shape[:2], HEADS, SIZE)
    kk = functional.normalize((k * p["key_scale"]).view(heads), dim=-1)
    k = k * (1 + (a - 1) * p["key_rate"])
    r, w, k, v, a = (y.view(heads) for y in (r, w, k, v, a))
    state, found = torch.zeros(x.shape[0], HEADS, SIZE, SIZE), []
    for t in range(x.shape[1]):
        taken = state @ -kk[:, t, :, :, None] @ (kk * a)[:, t, :, None, :]
        state = state * torch.exp(-torch.exp(w[:, t, :, None, :])) + taken + v[:, t, :, :, None] @ k[:, t, :, None, :]
        found.append((state @ r[:, t, :, :, None]).squeeze(-1))
    y = torch.stack(found, dim=1).flatten(0, 1).flatten(1)
    y = functional.group_norm(y, HEADS, p["norm"], p["norm_bias"], SIZE * 1e-5).view(x.shape)
    y = y + ((r * k * p["bonus"].view(HEADS, SIZE)).sum(-1, keepdim=True) * v).flatten(2)
    return (y * g) @ p["w_o"], first


def reference(net: Net, ids: Tensor) -> Tensor:
    """Logits."""
    own, first = net.weights(), None

    def norm(x: Tensor, name: str, p: dict[str, Tensor]) -> Tensor:
        return functional.layer_norm(x, (D,), p[name], p[name + "_bias"])

    x = norm(own["embedding.tokens"][ids], "embedding.norm", own)
    for i in range(LAYERS):
        p = weights(net, i)
        y, first = time_mixing(inside(p, "mixer."), norm(x, "mixer_norm", p), first)
        x = x + y
        z = mixed(norm(x, "ffn_norm", p), p["ffn.mix_k"])
        x = x + torch.relu(z @ p["ffn.w_up"]) ** 2 @ p["ffn.w_down"]
    return norm(x, "final_norm", own) @ own["head.w_logits"].T


def inside(p: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in p.items() if name.startswith(prefix)}


def test_logits(net: Net) -> None:
    """Chunks of 16 tokens, the last not whole, and single tokens behind them."""
    ids = torch.randint(64, (2, 37))
    expected = reference(net, ids)
    torch.testing.assert_close(net(ids), expected, atol=1e-4, rtol=0)
    cache = Cache()
    found = [net(ids[:, :21], cache), *(net(ids[:, i : i + 1], cache) for i in range(21, 37))]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("d", "layers", "ranks"),
    [(768, 12, (64, 64, 32, 128)), (1024, 24, (64, 64, 32, 128)), (2048, 24, (96, 96, 64, 256)),
     (2560, 32, (96, 96, 64, 320))],
)  # fmt: skip
def test_parameters(d: int, layers: int, ranks: tuple[int, ...]) -> None:
    """Those of the models of RWKV-7 "Goose" World, by the paper's formula (appendix)."""
    names = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")
    config = {"model_type": "rwkv7", "hidden_size": d, "num_hidden_layers": layers, "vocab_size": 65536}
    found = count(model(config | dict(zip(names, ranks, strict=True)))).total
    assert found == 2 * d * 65536 + 4 * d + layers * d * (12 * d + 2 * sum(ranks) + 19) - (2 * d * ranks[2] + d)
