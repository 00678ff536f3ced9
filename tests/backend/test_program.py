"""Programs of fixed shape against the module that they are made of: the same numbers from the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend import fused
from archsim.backend.compile.parts import Shape
from archsim.backend.compile.program import Program, Unsupported
from archsim.backend.fused import EAGER, Kernels
from archsim.backend.module import Net, build
from archsim.backend.packed import Packed
from archsim.backend.run import Cache
from archsim.graph.graph import ops
from archsim.spec.load import load_model
from archsim.spec.model import Model
from archsim.spec.tiny import tiny

BATCH, LENGTH = 2, 9
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def gemv(
    x: Tensor, w: Tensor, *, residual: Tensor | None = None, norm: Tensor | None = None, eps: float = 0.0,
    offset: bool = False, gated: str = "",
) -> Tensor:  # fmt: skip
    """What the one-row kernel computes, in plain torch."""
    assert x.shape[:2] == (1, 1)
    y = functional.linear(x if norm is None else fused.norm(x, norm, eps, offset), w)
    if gated:
        first, second = y.chunk(2, -1)
        y = fused.swiglu(first, second) if gated == "first" else fused.swiglu(second, first)
    return y if residual is None else y + residual


def store(qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, place: int, q_heads: int) -> Tensor:
    """What the kernel behind q, k and v does, in plain torch."""
    _, _, kv_heads, width = keys.shape
    heads = torch.unflatten(qkv, -1, (-1, width))
    q, k, v = heads.split([q_heads, kv_heads, kv_heads], 2)
    turned = [fused.rope(x, cos.view(1, 1, -1), sin.view(1, 1, -1), False) for x in (q, k)]
    keys[:, place : place + 1], values[:, place : place + 1] = turned[1], v
    return turned[0]


ONE_ROW = Kernels("one row", EAGER.norm, EAGER.add_norm, EAGER.rope, EAGER.gated, gemv, store)
"""The fusions that the Triton kernels allow, without Triton."""


def module(model: Model) -> Net:
    """The module with fused attention, since a program's is fused."""
    net = build(model, "cpu")
    net.fused = net.fast = True
    return net


def programmed(*arguments: Any, **options: Any) -> Program:
    """A program, or the test skipped where there is none for the model."""
    try:
        return Program(*arguments, **options)
    except Unsupported as reason:
        pytest.skip(str(reason))


def ids(model: Model, batch: int, length: int) -> Tensor:
    """Random tokens."""
    return torch.randint(model.vocab_size, (batch, length))


def after_prefill(net: Net, tokens: Tensor, source: Tensor | None = None) -> tuple[dict[Any, Tensor], Tensor]:
    """The caches that the module leaves behind all tokens but the last, and its logits of the last."""
    cache = Cache()
    net(tokens[:, :-1], cache=cache, last=True, source=source)
    states = {slot: x.clone() for slot, x in cache.states.items()}
    return states, net(tokens[:, -1:], cache=cache, last=True)  # type: ignore[return-value]


def test_prefill(cached_model: Model) -> None:
    """A prefill gives the module's logits, whatever attention, mixer or feed-forward layer it runs."""
    net = module(cached_model)
    program = programmed(net, Shape(BATCH, LENGTH, 0))
    tokens = ids(cached_model, BATCH, LENGTH)
    program.tokens.copy_(tokens)
    torch.testing.assert_close(program(), net(tokens, last=True, source=program.source), **CLOSE)


@pytest.mark.parametrize(("kernels", "batch"), [(EAGER, BATCH), (ONE_ROW, 1), (ONE_ROW, BATCH)])
def test_decode(cached_model: Model, kernels: Kernels, batch: int) -> None:
    """A step in place of a fixed cache gives the logits of the module's growing one, windows and all."""
    net = module(cached_model)
    program = programmed(net, Shape(batch, 1, LENGTH - 1), kernels)
    tokens = ids(cached_model, batch, LENGTH)
    states, wanted = after_prefill(net, tokens, program.source)
    program.adopt(states)
    program.tokens.copy_(tokens[:, -1:])
    torch.testing.assert_close(program(), wanted, **CLOSE)


def test_a_step_can_be_repeated(zoo: dict[str, Model]) -> None:
    """The second call finds what the first found: buffers keep their places and their contents."""
    program = Program(module(zoo["window"]), Shape(BATCH, 1, LENGTH))
    places = {slot: x.data_ptr() for slot, x in program.caches().items()}
    first = program().clone()
    torch.testing.assert_close(program(), first)
    assert {slot: x.data_ptr() for slot, x in program.caches().items()} == places


def test_every_op_runs_once(cached_model: Model) -> None:
    """The parts together stand for every op of the graph, each as often as it is repeated."""
    net = module(cached_model)
    shape = Shape(BATCH, 1, LENGTH)
    program = programmed(net, shape)
    found: dict[str, int] = {}
    for part in program.parts:
        for path in part.paths:
            found[path] = found.get(path, 0) + 1
    graph = net.graph(net.step(*shape))
    assert found == {op.name: times for op, times in ops(graph)}


@pytest.mark.parametrize("name", ["bert", "longformer_idle", "xlnet"])
def test_encoders(zoo: dict[str, Model], name: str) -> None:
    """An encoder's program ends in what its last part makes: the pooled token, or logits of masked tokens."""
    net = module(zoo[name])
    program = Program(net, Shape(BATCH, LENGTH, 0))
    found = net(program.tokens)
    wanted = found.logits if found.logits is not None else found.pooled[:, None]
    torch.testing.assert_close(program(), wanted, **CLOSE)
    with pytest.raises(Unsupported, match="no step after a prompt"):
        Program(net, Shape(BATCH, 1, LENGTH))


def test_a_lone_row_of_16_bits_attends_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attention is that of one row in fp32, as near as 16 bits are."""
    attend, seen = functional.scaled_dot_product_attention, []

    def watched(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.append((q.shape[2], q.dtype))
        found = attend(q, k, v, **options)
        wanted = attend(q[:, :, :1].float(), k.float(), v.float(), **options)
        torch.testing.assert_close(found[:, :, :1].float(), wanted, rtol=2e-2, atol=2e-2)
        return found

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    for dtype in (torch.float32, torch.bfloat16):
        Program(build(tiny(load_model("gpt2-small")), "cpu", dtype).requires_grad_(False), Shape(BATCH, 1, LENGTH))()
    assert set(seen) == {(1, torch.float32), (2, torch.bfloat16)}


def test_products_of_one_input_are_one_product(zoo: dict[str, Model]) -> None:
    """q, k and v are one product, up and gate another; a residual and the norm after it one call."""
    program = Program(module(zoo["gqa"]), Shape(BATCH, 1, LENGTH))
    names = [tuple(path.rsplit(".", 1)[-1] for path in part.paths) for part in program.parts]
    assert ("q", "k", "v") in names
    assert ("up", "gate") in names
    assert ("attention_residual", "ffn_norm()") in names


def test_one_row_takes_its_neighbours_along() -> None:
    """With a single token a layer is five calls: projections into the caches, attention, and three products."""
    net = module(tiny(load_model("llama3-8b")))
    one, many = (len(Program(net, Shape(batch, 1, LENGTH), ONE_ROW).parts) for batch in (1, BATCH))
    layers = 2
    ends = 4  # embedding, final norm, the last token, logits
    assert one == 5 * layers + ends
    assert many > one


def test_released_weights_are_not_held_twice(zoo: dict[str, Model]) -> None:
    """Packing with `release` leaves the model's size what it was, and the logits too."""
    net = module(zoo["gqa"])
    size = sum(p.nbytes for p in net.parameters())
    tokens = ids(zoo["gqa"], BATCH, LENGTH)
    wanted = net(tokens, last=True)
    packed = Packed(net, release=True)
    program = Program(net, Shape(BATCH, LENGTH, 0), EAGER, packed)
    program.tokens.copy_(tokens)
    torch.testing.assert_close(program(), wanted, **CLOSE)
    distinct = {x.untyped_storage().data_ptr(): x.nbytes for x in (*packed.held(), *net.parameters()) if x.numel()}
    assert sum(distinct.values()) == size


@pytest.mark.parametrize("shape", [Shape(1, 3, 4), Shape(2, 2, 1)])
def test_several_tokens_behind_others_are_refused(zoo: dict[str, Model], shape: Shape) -> None:
    """Speculative and chunked steps have no program, and the refusal says so."""
    with pytest.raises(Unsupported, match="several new tokens"):
        Program(module(zoo["gqa"]), shape)


def test_watch_sees_every_part(zoo: dict[str, Model]) -> None:
    """What watches a program is called behind each part, in order."""
    program, seen = Program(module(zoo["moe"]), Shape(1, 1, 4)), []
    program(watch=seen.append)
    assert seen == program.parts


def test_the_module_can_be_watched(zoo: dict[str, Model]) -> None:
    """`Net.watch` surrounds every op of a pass."""
    from contextlib import contextmanager

    net, seen = module(zoo["gqa"]), []

    @contextmanager
    def watch(node: Any) -> Any:
        yield
        seen.append(node.name)

    net.watch = watch
    net(ids(zoo["gqa"], 1, 4))
    assert seen.count("layers.ffn.down") == 2
    assert "layers.attention.core" in seen


def test_triton_kernels_equal_torch() -> None:
    """Each Triton kernel against torch, where there is a device that runs them."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    triton_kernels = pytest.importorskip("archsim.backend.triton_kernels")
    triton_kernels.check("cuda")
