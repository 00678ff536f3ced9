"""Parallelism derived from axis names: collectives, conservation, and what stays whole."""

from collections import Counter

import pytest

from archsim.counts import graph_counts as c
from archsim.graph.graph import Block, ops
from archsim.graph.passes.shard import Mesh, shard
from archsim.graph.step import Step
from archsim.spec.load import load_model
from archsim.spec.lower import lower

STEP = Step.of(8, 1, 1024)


def collectives(graph: Block) -> Counter[str]:
    """How often each collective runs in a step."""
    found: Counter[str] = Counter()
    for op, times in ops(graph):
        if op.kind == "collective":
            found[op.fn] += times
    return found


def rank(name: str, **degrees: int) -> Block:
    """One rank's graph of a decode step."""
    return shard(lower(load_model(name), STEP), Mesh.of(**degrees))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama2-70b", 2 * 80 + 1),  # after attention, after the feed-forward, after the embedding
        ("falcon-40b", 60 + 1),  # parallel blocks: the two partial sums are added before they are reduced
        ("command-r-plus", 64 + 1),
        ("deepseek-v3", 2 * 61 + 1),
    ],
)
def test_all_reduces_per_step(name: str, expected: int) -> None:
    """Partial sums travel through linear ops, which gives Megatron's count and one for parallel blocks."""
    found = collectives(rank(name, tp=8))
    assert found["all_reduce"] == expected
    assert found["all_gather"] == 1


def test_degree_one_is_the_identity() -> None:
    """A mesh of one rank changes nothing."""
    graph = lower(load_model("llama2-70b"), STEP)
    assert shard(graph, Mesh.of()) is graph


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_work_is_conserved(tp: int) -> None:
    """tp ranks together do what one device does, where everything divides."""
    whole, part = rank("llama2-70b"), rank("llama2-70b", tp=tp)
    for cls in ("matmul", "attention"):
        assert c.flops(part, cls) * tp == c.flops(whole, cls)  # type: ignore[arg-type]
    assert c.state_bytes(part) * tp == c.state_bytes(whole)


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    """8 KV heads on 16 ranks: two ranks hold the same head, queries go on being cut."""
    eight, sixteen = rank("llama2-70b", tp=8), rank("llama2-70b", tp=16)
    assert c.state_bytes(sixteen) == c.state_bytes(eight)
    assert c.flops(sixteen, "attention") * 2 == c.flops(eight, "attention")


def test_mla_latent_stays_whole_on_each_rank() -> None:
    """The latent has no head axis, so every rank keeps all of it; attention-DP cuts it by sequences."""
    one = c.state_bytes(rank("deepseek-v3"))
    assert c.state_bytes(rank("deepseek-v3", tp=8)) == one
    assert c.state_bytes(rank("deepseek-v3", dp=8, ep=8)) * 8 == one


def test_experts_are_spread_and_tokens_exchanged() -> None:
    """Attention-DP with experts over the same ranks: two all-to-alls per MoE layer and no all-reduce."""
    found = collectives(rank("deepseek-v3", dp=8, ep=8))
    assert found == Counter(all_to_all=2 * 58)


def test_experts_over_tensor_ranks_need_no_exchange() -> None:
    """With whole batches on every rank, expert outputs are partial sums."""
    found = collectives(rank("deepseek-v3", tp=8, ep=8))
    assert found["all_to_all"] == 0
    assert found["all_reduce"] == 2 * 61 + 1


def test_expert_weights_are_cut_either_way() -> None:
    """ep = 8 and tp = 8 both leave an eighth of the experts' bytes on a rank."""
    by_width, by_expert = rank("mixtral-8x7b", tp=8), rank("mixtral-8x7b", tp=8, ep=8)
    experts = [c.weight_bytes(g, where=lambda t: t.role == "expert") for g in (by_width, by_expert)]
    assert experts[0] == experts[1] == c.weight_bytes(rank("mixtral-8x7b"), where=lambda t: t.role == "expert") / 8


def test_a_norm_over_a_cut_axis_exchanges_statistics() -> None:
    """OLMo 2 normalises whole projections: two numbers per token and layer cross the ranks."""
    found = collectives(rank("olmo2-7b", tp=4))
    assert found["all_reduce"] == 2 * 32 + 1 + 2 * 32
