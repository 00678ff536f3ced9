"""Kernels, HBM traffic and liveness."""

from archsim.counts import graph_counts as c
from archsim.graph.graph import Block
from archsim.graph.kernels import edges, kernels, readers, traffic
from archsim.graph.step import Step
from archsim.memory.activations import peak_activation_bytes
from archsim.spec.load import load_model
from archsim.spec.lower import lower


def totals(graph: Block, cache: int = 0) -> dict[str, float]:
    """HBM bytes of a step by what they belong to."""
    sequence = kernels(graph)
    read_by = readers(graph, sequence)
    found = {"weight": 0.0, "state": 0.0, "act": 0.0}
    for i, kernel in enumerate(sequence):
        moved = traffic(edges(kernel, i, read_by), cache)
        for name in found:
            found[name] += getattr(moved, name) * kernel.times
    return found


def test_every_op_is_in_exactly_one_kernel() -> None:
    """Fusing partitions the ops."""
    graph = lower(load_model("deepseek-v3"), Step.of(1, 64))
    names = [op.name for kernel in kernels(graph) for op in kernel.ops]
    assert len(names) == len(set(names)) == sum(1 for _ in c.ops(graph))


def test_a_decode_step_reads_each_weight_once() -> None:
    """All weights but the unread rows of the input table, for any dense batch."""
    model = load_model("llama2-70b")
    for batch in (1, 64):
        graph = lower(model, Step.of(batch, 1, 100))
        table = model.vocab_size * model.d_model * 2
        assert totals(graph)["weight"] == c.weight_bytes(graph) - table + batch * model.d_model * 2


def test_a_decode_step_reads_the_cache_and_writes_one_token() -> None:
    """State traffic is the whole cache once, and the new token's entry."""
    graph = lower(load_model("llama2-70b"), Step.of(4, 1, 100))
    assert totals(graph)["state"] == 4 * 327680 * 101 + 4 * 327680


def test_windows_bound_the_cache_traffic() -> None:
    """Beyond the window, a local layer reads no more."""
    model = load_model("gemma3-27b")
    near, far = (totals(lower(model, Step.of(1, 1, n)))["state"] for n in (4096, 8192))
    per_global_layer = 2 * 16 * 128 * 2
    assert far - near == 10 * 4096 * per_global_layer


def test_activations_that_fit_the_cache_stay_there() -> None:
    """The residency rule removes small activations and keeps large ones."""
    graph = lower(load_model("llama2-70b"), Step.of(1, 1, 100))
    assert totals(graph)["act"] > 0
    assert totals(graph, cache=50 * 2**20)["act"] == 0
    prompt = lower(load_model("llama2-70b"), Step.of(8, 2048))
    assert totals(prompt, cache=50 * 2**20)["act"] > 0


def test_fused_attention_never_writes_scores() -> None:
    """The square of scores stays inside the kernel: activation traffic grows linearly with length."""
    model = load_model("llama2-70b")
    short, long = (totals(lower(model, Step.of(1, n)))["act"] for n in (1024, 4096))
    assert long < 4.1 * short


def test_peak_activations_are_those_of_one_layer() -> None:
    """Repetitions reuse memory: a deeper model peaks no higher."""
    model = load_model("llama2-70b")
    deep = peak_activation_bytes(lower(model, Step.of(1, 2048)))
    layer = model.layers[0]
    shallow = model.model_copy(update={"layers": (layer.model_copy(update={"repeat": 2}),)})
    assert deep == peak_activation_bytes(lower(shallow, Step.of(1, 2048)))
    d_ff, d_model = 28672, 8192
    assert deep >= 2048 * 2 * (2 * d_ff + d_model)
