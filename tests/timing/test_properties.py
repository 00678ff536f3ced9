"""What must hold of any model that can be written down."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import models

from archsim.counts import graph_counts as c
from archsim.graph.passes.quantize import quantize
from archsim.graph.passes.shard import Mesh, shard
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import Format
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import tp_degrees
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS

FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
INT4 = Format(name="int4", bytes=18, block=(32, 1))


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 3), st.integers(1, 20), st.integers(0, 20))
def test_parameters_do_not_depend_on_the_step(model: Model, batch: int, new: int, past: int) -> None:
    """Every step of a decoder names the same weights."""
    one, other = lower(model, Step.of(1, 1)), lower(model, Step.of(batch, new, past))
    assert c.params(one) == c.params(other)
    assert c.active_params(one) <= c.params(one)


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 3), st.integers(1, 20))
def test_counts_are_integers(model: Model, batch: int, new: int) -> None:
    """Exact means int: parameters, bytes, state and FLOPs."""
    graph = lower(model, Step.of(batch, new))
    for value in (c.params(graph), c.weight_bytes(graph), c.state_bytes(graph), c.flops(graph)):
        assert isinstance(value, int)


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 12), st.integers(1, 12))
def test_a_chunked_prefill_equals_a_whole_one(model: Model, first: int, second: int) -> None:
    """The masked work of a prompt does not depend on how it is cut; nor does the cache at the end."""
    whole = lower(model, Step.of(1, first + second, last=False))
    parts = [lower(model, Step.of(1, first, last=False)), lower(model, Step.of(1, second, first, last=False))]
    for cls in ("matmul", "attention"):
        if not any(layer.attention.kind == "mla" for layer in _leaves(model)):
            assert c.flops(whole, cls) == sum(c.flops(p, cls) for p in parts)  # type: ignore[arg-type]
    assert c.state_bytes(whole) == c.state_bytes(parts[1])


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 3), st.integers(0, 9))
def test_a_ragged_batch_is_the_sum_of_its_parts(model: Model, batch: int, past: int) -> None:
    """Decodes beside a prefill chunk: FLOPs and state add, the head runs once a sequence."""
    mixed = Step(seqs=(Seqs(batch, 1, past), Seqs(1, 7, 0)))
    single = [Step(seqs=(s,)) for s in mixed.seqs]
    total, parts = lower(model, mixed), [lower(model, s) for s in single]
    assert c.flops(total) == sum(c.flops(p) for p in parts)
    assert c.state_bytes(total) == sum(c.state_bytes(p) for p in parts)


@pytest.mark.slow
@FAST
@given(models())
def test_formats_change_bytes_and_nothing_else(model: Model) -> None:
    """Quantizing leaves parameters and FLOPs, and never grows a matrix."""
    graph = lower(model, Step.of(1, 5))
    small = quantize(graph, {"default": Format(name="fp32", bytes=4), "linear": INT4, "expert": INT4})
    assert c.params(small) == c.params(graph)
    assert c.flops(small) == c.flops(graph)
    assert quantize(graph, {"default": Format(name="bf16", bytes=2)}) is not None


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 4))
def test_ranks_together_do_all_the_work(model: Model, batch: int) -> None:
    """tp ranks never do less than one device, and weights on a rank never exceed the whole."""
    graph = lower(model, Step.of(batch, 3))
    for tp in tp_degrees(model, 8):
        rank = shard(graph, Mesh.of(tp))
        assert c.flops(rank) * tp >= c.flops(graph)
        assert c.weight_bytes(rank) <= c.weight_bytes(graph) + 2 * tp * model.d_model * 2


@pytest.mark.slow
@FAST
@given(models(), st.integers(1, 8))
def test_arrays_and_integers_agree(model: Model, batch: int) -> None:
    """A sweep over lengths is the same code: float64 arrays to 1e-12."""
    past = np.array([0.0, 5.0, 33.0])
    swept = c.flops(lower(model, Step.of(batch, 1, past)))
    single = [c.flops(lower(model, Step.of(batch, 1, int(p)))) for p in past]
    assert swept == pytest.approx(single, rel=1e-12)


def _leaves(model: Model) -> list:  # type: ignore[type-arg]
    from archsim.blocks.layer import walk_layers

    return walk_layers(model.layers)


@pytest.mark.parametrize("width", [1, 7, 63, 64, 65, 576])
def test_an_entry_narrower_than_its_rotary_part_has_nothing_else(width: int) -> None:
    """FLOP of sparse attention grow with the entry and are never negative, whatever a table's row states."""
    model = MODELS["dsa_attn"]
    dims = {"batch": 2, "seq_q": 4, "seq_kv": 40000, "heads": 64, "head_dim": width, "topk": 2048}
    here, wider = (model.flops(KernelCall("dsa_attn", dims={**dims, "head_dim": n})) for n in (width, width + 1))
    assert 0 < here < wider
