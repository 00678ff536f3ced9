"""RWKV-7's state (arXiv:2503.14456, section 4): in chunks of products, or token by token."""

from __future__ import annotations

from math import exp

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.run import Run, kernel, state_of
from archsim.graph.graph import Block, Op

FASTEST = exp(-0.5)
"""The most that the logarithm of a channel falls in one token, which keeps the scaling of a chunk within range."""


@kernel("rwkv7")
def rwkv7(run: Run, block: Block) -> bool:
    """Block attributes give the chunk and the inputs. What is taken away goes along the normed key, at a rate."""
    names = block.attrs["inputs"]
    r, decay, k, v, away, rate = (run.values[name].transpose(1, 2).float() for name in names)
    state, decay = state_of(block), -FASTEST * decay
    away = away * away.shape[-1] ** -0.5  # the norm before leaves numbers of mean square one, not of length one
    before = run.read(state).x
    args = (r, decay, k, v, -away, away * rate)
    alone = r.shape[2] == 1 and run.past > 0
    out, after = _token(*args, before) if alone else _chunks(*args, before, block.attrs["chunk"])
    run.write(state, after)
    last = block.body[-1]
    assert isinstance(last, Op)
    run.write(last.writes[0], out.transpose(1, 2).to(run.dtype))
    return True


def _token(
    r: Tensor, decay: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Read along `a`, decay, write that along `b` and the value along the key, read: elementwise."""
    r, decay, k, v, a, b = (x.squeeze(2) for x in (r, decay, k, v, a, b))
    taken = (state * a[..., None]).sum(-2)
    state = state * decay.exp()[..., None] + b[..., None] * taken[..., None, :] + k[..., None] * v[..., None, :]
    return (state * r[..., None]).sum(-2).unsqueeze(2), state


def _chunks(
    r: Tensor, decay: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Chunks, the last one filled up with zeros: what is taken away inside is solved exactly."""
    count, fill = r.shape[2], -r.shape[2] % chunk
    r, decay, k, v, a, b = (
        torch.unflatten(functional.pad(x, (0, 0, 0, fill)), 2, (-1, chunk)) for x in (r, decay, k, v, a, b)
    )
    total = decay.cumsum(-2)
    left, last = total.exp(), total[..., -1:, :]
    a, r = a * (total - decay).exp(), r * left
    ab, ak, rb, rk = (x @ (y / left).transpose(-1, -2) for x in (a, r) for y in (b, k))
    ab, ak, rb, rk = ab.tril(-1), ak.tril(-1), rb.tril(), rk.tril()
    akv, rkv = ak @ v, rk @ v
    b, k = b * (last - total).exp(), k * (last - total).exp()
    found = []
    for i in range(r.shape[2]):
        taken = torch.linalg.solve_triangular(
            -ab[:, :, i], a[:, :, i] @ state + akv[:, :, i], upper=False, unitriangular=True
        )
        found.append(r[:, :, i] @ state + rb[:, :, i] @ taken + rkv[:, :, i])
        added = b[:, :, i].transpose(-1, -2) @ taken + k[:, :, i].transpose(-1, -2) @ v[:, :, i]
        state = state * last[:, :, i, 0, :, None].exp() + added
    return torch.cat(found, dim=2)[:, :, :count], state
