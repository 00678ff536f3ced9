"""What prices a step: steps compose, ragged equals uniform, arrays equal numbers, and nothing is computed twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from archsim.base.errors import UsageError
from archsim.counts.formats import choose_formats
from archsim.counts.lowered_steps import StepMemo
from archsim.counts.workload import PREFILL_TOKENS, Workload, WorkloadSteps
from archsim.engines.overhead import NO_HOST, EngineOverheads, HostWork
from archsim.graph.passes.shard import Mesh
from archsim.graph.step import Seqs, Step
from archsim.predict.estimate import estimate
from archsim.serving.steady_state import steady
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.duration import EVIDENCE, Duration, prevailing_evidence, weakest
from archsim.timing.roofline import BOUNDS, limit
from archsim.timing.step_pricer import StepPricer, add_host_overhead, engine_overheads
from archsim.timing.step_time import PIECE, KernelTime, StepTime

BARE = EngineOverheads()


def pricer(model: str, device: str = "h100", plan: Plan | None = None, engine: str = "generic") -> StepPricer:
    """A pricer with the measured kernels of an engine, without its host."""
    spec = load_model(model)
    overheads = engine_overheads(engine)._replace(host=NO_HOST, composition=(0.0, 0.0))
    return StepPricer.of(spec, load_hardware(device), choose_formats(spec), overheads, plan or Plan())


DENSE, MIXED = "llama3.1-8b", ("llama3.1-8b", "mixtral-8x7b", "mamba-2.8b", "deepseek-v3")


@pytest.mark.parametrize("model", MIXED)
@pytest.mark.parametrize(("batch", "prompt"), [(4, 128), (32, 1024), (64, 4096)])
def test_a_mixed_step_costs_between_the_dearer_part_and_both(model: str, batch: int, prompt: int) -> None:
    """One pass over the weights serves decodes and prompts, so together they cost less than apart, at the roofline."""
    clock = pricer(model, plan=Plan(tp=8))
    decode, prefill = Step.decode(batch, 2048), Step.prefill(1, prompt)
    both = clock.price(Step.mixed(decode, prefill))
    apart = [clock.price(decode), clock.price(prefill)]
    assert max(t.ideal_s for t in apart) * (1 - 1e-9) <= both.ideal_s <= sum(t.ideal_s for t in apart) * (1 + 1e-9)
    # kernels of unlike sizes run at unlike efficiencies: a tile more may cost a little
    assert max(t.expected_s for t in apart) * 0.98 <= both.expected_s <= sum(t.expected_s for t in apart) * 1.02


@pytest.mark.sampled(4)
@pytest.mark.parametrize("model", MIXED)
def test_more_work_takes_no_less_time(model: str) -> None:
    """A longer prompt, a longer context and more sequences each take at least as long, at the roofline."""
    clock = pricer(model, plan=Plan(tp=8))
    for steps in (
        [Step.prefill(1, n) for n in (64, 500, 2048, 9000)],
        [Step.decode(8, n) for n in (64, 500, 2048, 9000)],
        [Step.decode(n, 1000) for n in (1, 3, 16, 100)],
        [Step.prefill_chunk(512, n) for n in (0, 512, 2048, 9000)],
        [Step.decode(8, 1000, new=n) for n in (1, 2, 5)],
    ):
        times = [clock.price(step).ideal_s for step in steps]
        assert times == sorted(times)


@pytest.mark.parametrize("model", MIXED)
def test_groups_of_equal_sequences_are_one_batch(model: str) -> None:
    """Work does not depend on how equal sequences are grouped."""
    clock = pricer(model)
    one, two = Step(seqs=(Seqs(6, 64, 0),)), Step(seqs=(Seqs(4, 64, 0), Seqs(2, 64, 0)))
    assert clock.price(two).flops == pytest.approx(clock.price(one).flops, rel=1e-12)
    assert clock.price(two).ideal_s == pytest.approx(clock.price(one).ideal_s, rel=1e-12)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("model", "plan"), [
    ("llama3.1-8b", Plan(tp=2, pp=2)), ("mixtral-8x7b", Plan(tp=4, dp=2, ep=8)), ("mamba-2.8b", Plan()),
    ("t5-large", Plan(tp=2)), ("deepseek-v3", Plan(tp=8)),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_arrays_equal_numbers(model: str, plan: Plan, kind: str) -> None:
    """A step of arrays has at every point what the step of that point has."""
    spec, clock = load_model(model), pricer(model, plan=plan, engine="vllm")
    batches, lengths = [2, 9, 64], [16, 700, 5000]
    load = Workload(batch=np.array(batches, float)[:, None], input_len=np.array(lengths, float)[None, :], output_len=32)
    grid = clock.price(getattr(WorkloadSteps(spec, load), kind)).called(kind, load.prompt_tokens)
    for i, batch in enumerate(batches):
        for j, length in enumerate(lengths):
            point = Workload(batch=batch, input_len=length, output_len=32)
            one = clock.price(getattr(WorkloadSteps(spec, point), kind)).called(kind, point.prompt_tokens)
            for name in ("ideal_s", "expected_s", "low_s", "high_s", "bound_index", "evidence_index"):
                value = np.broadcast_to(getattr(grid, name), (3, 3))[i, j]
                assert value == pytest.approx(getattr(one, name), rel=1e-12), (name, batch, length)
            assert one.bound == BOUNDS[one.bound_index] and one.evidence == EVIDENCE[one.evidence_index]


def test_the_kernels_of_a_step_add_up() -> None:
    """Kernels, classes of kernels and what limits them are three ways to cut the same seconds."""
    time = pricer("mixtral-8x7b", plan=Plan(tp=2, pp=2)).price(Step.prefill(2, 3000))
    assert sum(op.expected_s for op in time.ops) == pytest.approx(time.expected_s, rel=1e-12)
    assert sum(part.time.expected for part in time.by_class) == pytest.approx(time.expected_s, rel=1e-12)
    sends = sum(op.ideal_s for op in time.ops if op.kind == "send")
    assert sum(time.rank.ideal_by_bound) + sends == pytest.approx(time.ideal_s, rel=1e-12)
    assert time.low_s <= time.expected_s <= time.high_s and time.ideal_s <= time.low_s
    assert time.duration == Duration(time.expected_s, time.low_s, time.high_s, time.ideal_s, time.evidence)


def test_the_room_of_a_cache_takes_no_time() -> None:
    """What a cache could still hold is memory, not traffic."""
    clock = pricer(DENSE)
    assert clock.price(Step.decode(4, 1000, room=5000)).expected_s == clock.price(Step.decode(4, 1000)).expected_s


def test_chunks_of_a_prompt_see_what_came_before() -> None:
    """Chunks together do the attention of the whole prompt, and read the weights once each."""
    clock = pricer(DENSE)
    whole = clock.price(Step.prefill(1, 4096))
    chunks = [clock.price(Step.prefill_chunk(1024, past)) for past in range(0, 4096, 1024)]
    pairs = [sum(op.flops for op in time.ops if op.kind == "attention") for time in (whole, *chunks)]
    assert sum(pairs[1:]) == pytest.approx(pairs[0], rel=1e-12)
    weights = [sum(op.weight_bytes for op in time.ops if op.kind == "matmul") for time in (whole, *chunks)]
    assert sum(weights[1:]) == pytest.approx(4 * weights[0], rel=1e-12)


def test_an_encoder_runs_with_the_prompt_and_not_with_a_decode() -> None:
    """An encoder-decoder's source is encoded once; a decode reads what the cross-attention cached of it."""
    clock = pricer("t5-large")
    paths = [
        {op.path.split(".")[0] for op in clock.price(step).ops}
        for step in (Step.prefill(2, 300, source=300), Step.decode(2, 10, source=300))
    ]
    assert "encoder" in paths[0] and "encoder" not in paths[1]
    longer = clock.price(Step.decode(64, 10, source=3000)).ideal_s
    assert longer > clock.price(Step.decode(64, 10, source=30)).ideal_s


# ---------------------------------------------------------------------- plans
def test_stages_of_a_pipeline() -> None:
    """A step passes through all stages one after another, and a prefill in pieces keeps all of them busy."""
    one, four = pricer(DENSE), pricer(DENSE, plan=Plan(pp=4))
    step = Step.prefill(8, 4096)
    whole, staged = one.price(step), four.price(step)
    send = next(op for op in staged.ops if op.kind == "send")
    assert send.count == 3 and send.comm_bytes == 3 * 8 * 4096 * 4096 * 2
    assert staged.expected_s == pytest.approx(whole.expected_s + send.expected_s, rel=1e-12)
    cut = staged.called("prefill", step.tokens)
    pieces = 8 * 4096 / PIECE
    assert cut.expected_s == pytest.approx(staged.expected_s * (pieces + 3) / (4 * pieces), rel=1e-12)
    assert cut.ideal_s == pytest.approx(staged.ideal_s / 4, rel=1e-12)
    assert cut.flops == pytest.approx(whole.flops / 4, rel=1e-12)
    assert four.ideal_s(step, step.tokens) == pytest.approx(cut.ideal_s, rel=1e-12)
    assert one.ideal_s(step) == pytest.approx(whole.ideal_s, rel=1e-12)


def test_the_rank_with_most_sequences_decides() -> None:
    """Whole sequences are dealt out: of nine, one of eight replicas has two, which may be prompts or decodes."""
    dealt = pricer(DENSE, plan=Plan(dp=8))
    alone = pricer(DENSE)
    assert dealt.price(Step.decode(9, 1000)).flops == pytest.approx(alone.price(Step.decode(2, 1000)).flops)
    mixed = Step.mixed(Step.decode(8, 1000), Step.prefill(8, 100))
    one = Step.mixed(Step.decode(1, 1000), Step.prefill(1, 100))
    assert dealt.price(mixed).flops == pytest.approx(alone.price(one).flops)


@pytest.mark.parametrize("model", MIXED)
@pytest.mark.parametrize("plan", [Plan(), Plan(dp=8, ep=8), Plan(dp=8)])
def test_sequences_of_each_kind_are_dealt_out_by_themselves(model: str, plan: Plan) -> None:
    """A prompt beside decodes stays whole on its replica: no part of a step takes longer than all of it."""
    if model == "mamba-2.8b" and plan.ep > 1:
        pytest.skip("has no experts")
    clock = pricer(model, plan=plan if model not in ("llama3.1-8b", "mamba-2.8b") else replace(plan, ep=1))
    parts = [Step.decode(31, 2112), Step.prefill(1, 2048)]
    mixed, apart = clock.price(Step.mixed(*parts)), [clock.price(part) for part in parts]
    assert max(t.ideal_s for t in apart) * (1 - 1e-9) <= mixed.ideal_s
    assert max(t.expected_s for t in apart) * 0.98 <= mixed.expected_s


def test_what_the_fullest_replica_runs_is_a_step_of_its_own() -> None:
    """Of 31 decodes and one prompt on eight replicas, one runs four decodes and the prompt."""
    dealt, alone = pricer(DENSE, plan=Plan(dp=8)), pricer(DENSE)
    whole = dealt.price(Step.mixed(Step.decode(31, 2112), Step.prefill(1, 2048)))
    own = alone.price(Step.mixed(Step.decode(4, 2112), Step.prefill(1, 2048)))
    for name in ("expected_s", "ideal_s", "flops", "bytes"):  # rows of the embedding are those of all tokens
        assert getattr(whole, name) == pytest.approx(getattr(own, name), rel=1e-4), name
    mine = {op.path: op.expected_s for op in own.rank.ops if op.kind != "gather"}
    assert {op.path: op.expected_s for op in whole.rank.ops if op.kind != "gather"} == pytest.approx(mine, rel=1e-12)


def test_more_requests_in_flight_wait_no_less() -> None:
    """Also where eight replicas cannot share the requests evenly."""
    model, hardware = load_model("llama2-7b"), load_hardware("h100")
    states = [steady(model, hardware, concurrency=n, input_len=2048, output_len=128, dp=8) for n in (8, 9, 12, 16, 17)]
    waits = [state.ttft.expected for state in states if state.ttft]
    assert len(waits) == len(states) and waits == sorted(waits)


def test_a_replica_of_a_pipeline_works_on_its_own_prompts() -> None:
    """Eight replicas with a prompt each take as long as one with one: pieces and transfers are a replica's own."""
    one, eight = (
        estimate(load_model(DENSE), load_hardware("h100"), pp=2, tp=1, dp=dp, batch=dp, input_len=900) for dp in (1, 8)
    )
    kernels = eight.prefill.rank.expected_s  # rows of the embedding are those of all tokens
    assert kernels == pytest.approx(one.prefill.rank.expected_s, rel=2e-3)
    assert eight.prefill.busy == one.prefill.busy
    sent = [next(op.comm_bytes for op in e.prefill.ops if op.kind == "send") for e in (one, eight)]
    assert sent[0] == sent[1]


def test_steps_that_mean_nothing_are_refused() -> None:
    """Named constructors refuse sizes without meaning; arrays pass."""
    for make in (
        lambda: Step.decode(0, 10), lambda: Step.decode(1, 0), lambda: Step.prefill(1, 0), lambda: Step.prefill(-1, 5),
        lambda: Step.decode(1, 3, new=5), lambda: Step.prefill_chunk(4, past=-1), lambda: Step.prefill(1, 5, 0),
        lambda: Step.mixed(), lambda: Step.mixed(Step.of(0, 5)),
        lambda: Step.mixed(Step.of(1, 5), Step.of(1, 5, last=False)),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            make()
    assert Step.decode(np.array([0, 1]), 10).n_seqs.sum() == 1
    joined = Step.mixed(Step.of(2, 5, masked=False, room=7), Step.of(0, 9), Step.of(1, 6, masked=False))
    assert joined == Step(seqs=(Seqs(2, 5), Seqs(1, 6)), masked=False, room=7)


def test_a_source_much_shorter_than_the_target() -> None:
    """The encoder still runs one sequence at least."""
    assert pricer("t5-base").price(Step.prefill(3, 4000, 1)).expected_s > 0


# ---------------------------------------------------------------------- memory
def test_a_step_is_priced_once() -> None:
    """Equal steps are one; steps of arrays are told apart by identity; pricers of other plans share graphs."""
    clock = pricer(DENSE)
    assert clock.price(Step.decode(4, 1000)) is clock.price(Step.decode(4, 1000))
    assert clock.price(Step.decode(4, 1001)) is not clock.price(Step.decode(4, 1000))
    arrays = [Step.decode(np.array([1.0, 2.0]), 1000) for _ in range(2)]
    assert clock.price(arrays[0]) is clock.price(arrays[0])
    assert clock.price(arrays[0]) is not clock.price(arrays[1])
    step = Step.prefill(1, 500)
    assert clock.on(Plan(pp=2)).price(step).rank is clock.price(step).rank
    assert clock.on(Plan(tp=2)).price(step).rank is not clock.price(step).rank
    assert clock.on(Plan(tp=2)).graphs.whole(step) is clock.graphs.whole(step)


def test_memory_is_bounded() -> None:
    """The step unused for longest is forgotten first."""
    memo, made = StepMemo[int](2), []

    def ask(context: int) -> None:
        memo.get(Step.decode(1, context), None, lambda: made.append(context) or context)  # type: ignore[func-returns-value]

    for context in (1, 2, 1, 3, 1, 2):
        ask(context)
    assert made == [1, 2, 3, 2] and len(memo.known) == 2


def test_steps_of_floats_are_kept_apart_from_those_of_integers() -> None:
    """4 == 4.0, but a graph of one counts in integers and of the other does not."""
    memo = StepMemo[type](4)
    assert [memo.get(Step.of(batch), None, lambda batch=batch: type(batch)) for batch in (4, 4.0, 4)] == [
        int,
        float,
        int,
    ]  # type: ignore[misc]
    mesh = Mesh.of(tp=2)
    assert [type(mesh.split({"T": batch, "F": 64})[0]["T"]) for batch in (4.0, 4)] == [float, int]


# ---------------------------------------------------------------------- the engine's host
def test_the_host_adds_its_work_and_the_launches_that_the_device_waits_for() -> None:
    """Host work per step is added; launches count only where the host is slower than the kernels."""
    time = pricer(DENSE).price(Step.decode(1, 100))
    assert add_host_overhead(time, BARE) is time
    host = HostWork(step_s=(1e-3, 5e-4, 2e-3), sequence_s=(1e-5, 1e-5, 1e-5))
    added = add_host_overhead(time, replace_(BARE, host=host), sequences=3)
    assert added.expected_s == pytest.approx(time.expected_s + 1.03e-3, rel=1e-12)
    assert added.ideal_s == time.ideal_s and added.high_s > time.high_s + 9e-4
    fast, slow = (add_host_overhead(time, replace_(BARE, launch_s=s)) for s in (1e-9, 1e-3))
    assert fast.expected_s == time.expected_s
    assert slow.expected_s == pytest.approx(1e-3 * time.rank.launches, rel=1e-12)


def replace_(overheads: EngineOverheads, **changes: float | HostWork) -> EngineOverheads:
    """The overheads with some changed."""
    return overheads._replace(**changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- words
def test_evidence_has_one_order() -> None:
    """The weakest kind that, with all weaker, stands behind more than a quarter of the time."""
    assert weakest(("measured", "datasheet", "calibrated")) == "datasheet"
    parts = [
        Duration(s, s, s, evidence=kind) for s, kind in ((0.2, "datasheet"), (0.2, "transferred"), (0.6, "measured"))
    ]
    assert EVIDENCE[prevailing_evidence(parts)] == "transferred"
    many = [part._replace(expected=np.array([part.expected, i])) for i, part in enumerate(parts)]
    assert list(prevailing_evidence(many)) == [1, 1]


def test_what_limits_a_kernel() -> None:
    """The largest of the three; of equals communication, then compute; numbers and arrays alike."""
    cases = [(1.0, 2.0, 0.0), (2.0, 1.0, 0.0), (2.0, 2.0, 0.0), (1.0, 2.0, 3.0), (3.0, 2.0, 3.0), (0.0, 0.0, 0.0)]
    expected = [1, 0, 0, 2, 2, 0]
    assert [limit(*case) for case in cases] == expected
    assert list(limit(*np.array(cases).T)) == expected
    assert KernelTime("a", "matmul", compute_s=1.0, memory_s=2.0).bound == "memory"


def test_a_step_known_only_as_a_whole() -> None:
    """What a synthetic timer answers with."""
    time = StepTime.of(Duration(2.0, 1.5, 3.0, 1.0, "measured"))
    assert time.duration == Duration(2.0, 1.5, 3.0, 1.0, "measured")
    assert math.isclose(time.called("prefill", 4 * PIECE).expected_s, 2.0)  # one stage


# ---------------------------------------------------------------------- the estimate is two priced steps
def test_an_estimate_is_its_two_steps() -> None:
    """`estimate` adds nothing to what the pricer says of the workload's prefill and decode."""
    answer = estimate(load_model(DENSE), load_hardware("h100"), batch=7, input_len=900, output_len=64, engine="vllm")
    clock = StepPricer.of(answer.model, answer.hardware, answer.formats, answer.overheads, answer.plan)
    assert answer.prefill.expected_s == clock.price(Step.prefill(7, 900)).expected_s
    assert answer.decode is not None
    assert answer.decode.expected_s == clock.price(Step.decode(7, 932)).expected_s


def test_what_of_a_long_prefill_is_alive_at_once() -> None:
    """A chunk where prompts can be cut, else as many whole prompts as fit."""
    long = Workload(batch=20, input_len=3000, output_len=10)
    assert WorkloadSteps(load_model(DENSE), long).prefill_at_once() == Step.prefill_chunk(PREFILL_TOKENS)
    assert WorkloadSteps(load_model("t5-large"), long).prefill_at_once() == Step.prefill(2, 3000, source=3000)


def test_lifted_launches_are_counted() -> None:
    """A launch whose time model says less than its kernels' speed of light is lifted to it, and that is stated."""
    clock = pricer(DENSE)
    quick = replace(clock, timer=_Instant(clock.timer))  # type: ignore[arg-type]
    time = quick.price(Step.prefill(1, 1000))
    modelled = [part for part in time.by_class if part.kernel_class != "other"]
    assert time.expected_s == pytest.approx(time.ideal_s, rel=1e-6)
    assert time.rank.lifted >= 32 * len(modelled) / 2
    assert time.rank.lifted_s == pytest.approx(time.expected_s, rel=0.01)


class _Instant:
    """A kernel timer for which nothing takes any time worth mentioning."""

    def __init__(self, timer: object) -> None:
        self.machine = timer.machine  # type: ignore[attr-defined]
        self.architecture = None

    def each(self, calls: list[object]) -> list[Duration]:
        """The same for all calls."""
        return [Duration(1e-15, 1e-15, 1e-15, evidence="measured")] * len(calls)


def test_an_estimate_says_what_was_lifted() -> None:
    """An assumption states launches that take the time of their roofline; there is none where there are none."""
    said = {
        name: [
            note.text
            for note in estimate(load_model(name), load_hardware(device), batch=8, engine="hf").assumptions
            if note.code == "A16"
        ]
        for name, device in (("gemma3n-e2b", "l4"), (DENSE, "h100"))
    }
    assert said[DENSE] == [] and len(said["gemma3n-e2b"]) == 1
    assert said["gemma3n-e2b"][0].startswith("60 kernel launches of prefill take the time of their roofline")
