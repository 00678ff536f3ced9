"""Attention residuals against a plain reading of vLLM's layer."""

from __future__ import annotations

import torch
from torch import Tensor

from archsim.backend.module import build
from archsim.spec.model import Model

EPS = 1e-6


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def mixture(bank: list[Tensor], x: Tensor, weight: Tensor, score: Tensor) -> Tensor:
    """The softmax of the scores of all normed streams, times the streams."""
    streams = torch.stack([*bank, x], -2)
    shares = (norm(streams, weight) @ score).squeeze(-1).softmax(-1)
    return (shares.unsqueeze(-1) * streams).sum(-2)


def tiny() -> Model:
    """A part of one layer and one of two."""
    rms = {"kind": "rmsnorm", "eps": EPS}
    layers = [
        {"name": f"l{i}", "norm": rms, "residuals": {"sources": n, "opens": opens, "norm": rms},
         "attention": {"kind": "mha", "n_heads": 1, "d_head": 4},
         "ffn": {"kind": "mlp", "activation": "relu", "d_ff": 6}}
        for i, (n, opens) in enumerate(((1, True), (2, True), (3, False)))
    ]  # fmt: skip
    document = {"name": "tiny", "d_model": 4, "vocab_size": 10, "layers": layers, "final_norm": rms}
    return Model.model_validate(document)


def test_streams_are_mixed_as_vllm_mixes_them() -> None:
    """Of one token, whose attention gives its own values."""
    torch.manual_seed(0)
    net = build(tiny(), "cpu")
    weights = {name.split("weights.")[-1]: value.detach() for name, value in net.named_parameters()}
    with torch.no_grad():
        for value in weights.values():
            value.copy_(torch.randn_like(value))
        found = net(torch.tensor([[3]]))
    torch.testing.assert_close(found, plain(weights, 3), atol=1e-4, rtol=1e-4)


def plain(w: dict[str, Tensor], token: int) -> Tensor:
    """The logits: a layer that opens a part puts the running sum away behind its attention."""
    total, bank = w["embedding__tokens"][token].reshape(1, 1, 4), []

    def mixed(at: str) -> Tensor:
        return mixture(bank, total, w[f"{at}_mixture__norm"], w[f"{at}_mixture__w_score"])

    for i, opens in enumerate((True, True, False)):
        h = norm(mixed(f"l{i}__attention"), w[f"l{i}__attention_norm"])
        y = h @ w[f"l{i}__attention__w_v"].reshape(4, 4) @ w[f"l{i}__attention__w_o"].reshape(4, 4)
        bank, total = ([*bank, total], y) if opens else (bank, total + y)
        h = norm(mixed(f"l{i}__ffn"), w[f"l{i}__ffn_norm"])
        total = total + (h @ w[f"l{i}__ffn__w_up"]).relu() @ w[f"l{i}__ffn__w_down"]
    return norm(mixed("output"), w["final_norm"]) @ w["head__w_logits"].T
