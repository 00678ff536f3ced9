"""Laws of the steady state, with a timer that is a formula: what queueing theory says whatever kernels take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.engines.overhead import FirstToken
from archsim.graph.step import Step
from archsim.serving.steady_state import BUSIEST, ServedLoad, SteadyState, steady_state
from archsim.timing.duration import Duration
from archsim.timing.step_time import StepTime


@dataclass(frozen=True)
class LinearTimer:
    """t = step_s + token_s for each new token + read_s for each cached one, with an interval of a factor."""

    step_s: float = 5e-3
    token_s: float = 1e-5
    read_s: float = 1e-8
    factor: float = 1.25

    def price(self, step: Step) -> StepTime:
        """The formula, at half of it as the speed of light."""
        t = self.step_s + self.token_s * step.tokens + self.read_s * step.read()
        return StepTime.of(Duration(t, t / self.factor, t * self.factor, t / 2, "measured"))


ALONE = FirstToken(front_s=0.0, line=0.0, off=(0.0, 0.0))
LOAD = ServedLoad(concurrency=16, running=16.0, input_len=200, output_len=300, first_token=ALONE)
loads = st.builds(
    lambda n, prompt, answer, mixes: replace(
        LOAD, concurrency=n, running=float(n), input_len=prompt, output_len=answer, chunked_prefill_with_decode=mixes
    ),
    st.integers(1, 512), st.integers(1, 8192), st.integers(1, 4096), st.booleans(),
)  # fmt: skip


def state(load: ServedLoad, **timer: float) -> SteadyState:
    """The steady state with a linear timer."""
    return steady_state(LinearTimer(**timer), load)


@given(loads)
def test_littles_law(load: ServedLoad) -> None:
    """Requests that run = answers per second x the time that one occupies its place (Little, 1961)."""
    found = state(load)
    per_request = load.running / (found.tokens_per_s / load.output_len)
    decode = LinearTimer().price(load.decode).expected_s
    mixed = load.chunked_prefill_with_decode
    step = Step.mixed(load.decode, load.prompt) if mixed else load.prompt
    prompt = LinearTimer().price(step).expected_s - (decode if mixed else 0.0)
    if not mixed:  # those of one step share what it takes beside them
        prompt -= 5e-3 * (1 - (1 - (1 - 1 / load.cycle) ** load.per_replica) * load.cycle / load.per_replica)
    assert per_request == pytest.approx(load.cycle * decode + load.per_replica * prompt)


@given(loads)
def test_one_request_alone_waits_for_nothing(load: ServedLoad) -> None:
    """A single request: TPOT is its decode step, TTFT its prompt."""
    found = state(replace(load, concurrency=1, running=1.0))
    alone = replace(load, concurrency=1, running=1.0)
    assert found.tpot == LinearTimer().price(alone.decode).duration
    step = Step.mixed(alone.decode, alone.prompt) if load.chunked_prefill_with_decode else alone.prompt
    if found.ttft is not None:
        assert found.ttft.expected == pytest.approx(LinearTimer().price(step).expected_s)


@given(loads, st.integers(1, 64))
def test_more_requests_are_slower_each_and_faster_together(load: ServedLoad, more: int) -> None:
    """TPOT, utilisation and tokens/s do not fall with the requests in flight. In steps of their own, which they share,
    prompts take longer, but not always by as much as decodes do.
    """
    few, many = (state(load), state(replace(load, concurrency=load.concurrency + more, running=load.running + more)))
    assert many.tpot.expected >= few.tpot.expected
    assert many.tokens_per_s >= few.tokens_per_s * (1 - 1e-12)
    if load.chunked_prefill_with_decode:
        assert many.utilisation >= few.utilisation * (1 - 1e-12)
    else:
        prompts_s = [found.utilisation * found.running / found.tokens_per_s for found in (few, many)]
        assert prompts_s[1] >= prompts_s[0] * (1 - 1e-12)


@given(loads)
def test_figures_are_ordered(load: ServedLoad) -> None:
    """Ends hold the expected time, the speed of light is below, shares are shares, evidence is the timer's."""
    found = state(load)
    for time in (found.tpot, *([found.ttft] if found.ttft else [])):
        assert time.ideal <= time.low <= time.expected <= time.high
        assert time.evidence == "measured"
    assert 0 < found.utilisation < 1
    assert (found.ttft is None) == (found.refusal is not None) == (found.utilisation > BUSIEST)


@given(loads)
def test_a_sure_timer_gives_a_sure_answer(load: ServedLoad) -> None:
    """Without an interval of the steps, TPOT has none."""
    found = state(load, factor=1.0)
    assert found.tpot.low == found.tpot.expected == found.tpot.high


def test_free_prompts_leave_the_decode_step() -> None:
    """Where a prompt adds nothing to a step, TPOT is that of decodes alone and prompts take no share."""
    found = state(LOAD, token_s=0.0, read_s=0.0)
    assert found.tpot.expected == pytest.approx(5e-3)
    assert found.utilisation == 0.0
    assert found.tokens_per_s == pytest.approx(16 / 5e-3)


def test_long_answers_hide_prompts() -> None:
    """The longer the answers, the nearer is TPOT to that of the decode step."""
    shares = [
        state(load).tpot.expected / LinearTimer().price(load.decode).expected_s - 1
        for load in (replace(LOAD, output_len=n) for n in (10, 100, 1000, 10_000))
    ]
    assert shares == sorted(shares, reverse=True) and shares[-1] < 1e-3


def test_prompts_first_or_beside() -> None:
    """Prompts that do not share steps read the weights once more, and each waits for half of the others."""
    line = replace(LOAD, first_token=ALONE._replace(line=1.0))
    beside, first = (state(replace(line, chunked_prefill_with_decode=mixes)) for mixes in (True, False))
    assert first.tokens_per_s < beside.tokens_per_s
    prompt = LinearTimer().price(LOAD.prompt).expected_s
    assert first.ttft is not None and first.ttft.expected == pytest.approx(prompt * 17 / 2)
    assert "between" in str(first.assumptions[0]) and "share steps" in str(beside.assumptions[0])


def test_first_tokens_hold_the_front_end_the_own_turn_and_a_share_of_the_line() -> None:
    """Linear in each; the interval is at least that which runs of the engine show."""
    own = state(LOAD).ttft
    line = state(replace(LOAD, first_token=ALONE._replace(line=1.0))).ttft
    shown = FirstToken(front_s=0.05, line=0.1, off=(-0.5, 0.7))
    found = state(replace(LOAD, first_token=shown)).ttft
    assert own is not None and line is not None and found is not None
    wanted = 0.05 + own.expected + 0.1 * (line.expected - own.expected)
    assert found.expected == pytest.approx(wanted)
    assert found.low <= found.expected * 0.607 and found.high >= found.expected * 2.01
    together = replace(LOAD, first_token=shown._replace(one_length_s=0.2))
    for one_length, more in ((False, 0.0), (True, 0.15)):
        seen = state(replace(together, one_length=one_length)).ttft
        assert seen is not None and seen.expected == pytest.approx(wanted + more)


def test_requests_of_one_length_wait_for_prompts_of_others() -> None:
    """So many as the engine's figures say, and at most half of those in flight."""
    shown = LOAD.first_token
    seen = [
        state(replace(LOAD, one_length=one, first_token=shown._replace(one_length_prompts=prompts))).ttft
        for one, prompts in ((False, 2.0), (True, 0.0), (True, 1.0), (True, 1e6))
    ]
    times = [time.expected for time in seen if time is not None]
    assert len(times) == 4 and times[0] == times[1] < times[2]
    most = (LOAD.per_replica - 1) / 2
    assert times[3] - times[1] == pytest.approx(most * (times[2] - times[1]))


def test_no_time_to_first_token_where_a_queue_decides() -> None:
    """Requests without room wait for others to end; near saturation no closed form knows the queue."""
    waiting = state(replace(LOAD, concurrency=20))
    assert waiting.ttft is None and "4 requests wait" in (waiting.refusal or "")
    busy = state(replace(LOAD, input_len=8000, output_len=10))
    assert busy.ttft is None and busy.utilisation > BUSIEST


def test_replicas_and_stages_share_the_requests() -> None:
    """Four replicas of a quarter of the requests decode them four times as fast as one of all, prompts included."""
    one = state(replace(LOAD, concurrency=4, running=4.0))
    four = state(replace(LOAD, replicas=4), token_s=1e-5 / 4, read_s=1e-8 / 4)  # the step holds all replicas' tokens
    assert four.tpot.expected == pytest.approx(one.tpot.expected)
    assert four.tokens_per_s == pytest.approx(4 * one.tokens_per_s)
    staged = replace(LOAD, stages=4)
    assert staged.per_replica == 4 and staged.decode.tokens == 4


def test_an_encoder_runs_before_decodes() -> None:
    """The prompts of an encoder-decoder go into its encoder, which no decode shares a step with."""
    load = replace(LOAD, encoder=True)
    assert load.prompt.source[0].new == load.decode.source[0].new == load.input_len
    assert "between" in str(state(load).assumptions[0])


@dataclass(frozen=True)
class TiledTimer:
    """A step as long as whole tiles of 128 rows take, the last of which may be nearly empty."""

    def price(self, step: Step) -> StepTime:
        """Milliseconds by tile."""
        t = 1e-3 * max(1, -(-step.tokens // 128)) + 1e-7 * step.tokens
        return StepTime.of(Duration(t, t, t, t / 2, "measured"))


@pytest.mark.parametrize(("stages", "mixes"), [(1, True), (1, False), (4, True), (4, False)])
def test_tokens_a_second_never_fall_with_requests(stages: int, mixes: bool) -> None:
    """Nor where one more request begins a tile of its own, or a stage of a pipeline holds one more than another."""
    loads = [
        replace(LOAD, concurrency=n, running=float(n), stages=stages, chunked_prefill_with_decode=mixes, input_len=256)
        for n in range(1, 700)
    ]
    rates = [steady_state(TiledTimer(), load).tokens_per_s for load in loads]
    assert all(now >= before * (1 - 1e-12) for before, now in pairwise(rates))


def test_six_requests_over_four_stages() -> None:
    """Two stages' steps hold two requests and two hold one: the average of both, not the longer."""
    load = replace(LOAD, concurrency=6, running=6.0, stages=4)
    assert load.stage_batches == ((0.5, 1), (0.5, 2))
    assert replace(load, running=8.0).stage_batches == ((1.0, 2),)


@dataclass(frozen=True)
class CrowdedTimer:
    """A step in which prompts take the longer, the more sequences decode in it."""

    def price(self, step: Step) -> StepTime:
        """Milliseconds: one, and for prompts two for each hundred rows of the others."""
        decodes = sum(seqs.batch for seqs in step.seqs if seqs.new == 1)
        t = 1e-3 * (1 + 0.0092 * decodes * (step.tokens > decodes))
        return StepTime.of(Duration(t, t, t, t / 2, "measured"))


@pytest.mark.parametrize("mixes", (True, False))
@pytest.mark.parametrize("running", (129, 160, 192, 255))
def test_a_load_between_two_batches_is_answered_between_them(running: int, mixes: bool) -> None:
    """Also where what a prompt adds grows with the batch."""
    low, here, high = (
        steady_state(
            CrowdedTimer(),
            replace(LOAD, concurrency=n, running=float(n), input_len=256, chunked_prefill_with_decode=mixes),
        ).tokens_per_s
        for n in (128, running, 256)
    )
    assert min(low, high) * (1 - 1e-12) <= here <= max(low, high) * (1 + 1e-12)


def test_prompts_of_different_lengths_interrupt_all_others() -> None:
    """Between steps of decodes: each answer waits for the prompts of all others but those that run with its own, not of
    half of them; prompts that come within one step of decodes share what a step takes beside them.
    """
    between = replace(LOAD, chunked_prefill_with_decode=False, output_len=50, step_tokens=256)
    prompt, step = (LinearTimer().price(s).expected_s for s in (LOAD.prompt, between.decode))
    apart = state(between).tpot.expected  # a step has room for one
    assert apart == pytest.approx(step + 15 * (1 - 1 / 49) / 49 * prompt)
    met = state(replace(between, step_tokens=8192)).tpot.expected
    alike = state(replace(between, step_tokens=8192, one_length=True)).tpot.expected
    assert alike == pytest.approx(step + 7.5 / 50 * prompt) and alike < met < apart
    assert met > step + 15 * (1 - 1 / 49) / 49 * (prompt - 5e-3)


@pytest.mark.parametrize("mixes", (True, False))
def test_a_step_that_is_scheduled_ahead_is_one_more_of_each_request(mixes: bool) -> None:
    """The prompt that takes a place runs a step later. Beside decodes that is always one of theirs, between them only
    where no prompt had come before.
    """
    here = replace(LOAD, chunked_prefill_with_decode=mixes)
    later = replace(here, ahead=1).cycle - here.cycle
    assert later == 1 if mixes else 0.5 < later < 1
    assert state(replace(here, ahead=1)).tokens_per_s < state(here).tokens_per_s


def test_full_steps_let_only_so_many_run_as_fill_them() -> None:
    """A request takes its prompt's tokens of steps, and one of each step that it decodes in."""
    full = replace(LOAD, concurrency=512, running=512.0, input_len=1000, output_len=101, step_tokens=2048)
    found = state(full)
    assert found.running == pytest.approx(2048 * 101 / 1100)
    assert found.ttft is None and "steps of 2,048 tokens are full" in (found.refusal or "")
    per_step = found.running / 101 * 1000 + found.running / 101 * 100
    assert per_step == pytest.approx(2048)
    assert state(replace(full, step_tokens=0)).running == 512
    assert state(replace(full, chunked_prefill_with_decode=False)).running == 512


@dataclass(frozen=True)
class HidingTimer:
    """A step takes 5 ms, in which up to 256 tokens hide, and 10 us for each further one."""

    def price(self, step: Step) -> StepTime:
        """The formula."""
        t = 5e-3 + 1e-5 * max(0, step.tokens - 256)
        return StepTime.of(Duration(t, t, t, t / 2, "measured"))


def test_prompts_that_meet_do_not_hide_beside_decodes() -> None:
    """One prompt is free beside the decodes; two in a step are not."""
    short = replace(LOAD, concurrency=50, running=50.0, output_len=50)
    found = steady_state(HidingTimer(), short).tpot.expected
    assert found == pytest.approx(5e-3 + (49 / 50 - (1 - (49 / 50) ** 49)) * 1e-5 * 194)
    assert steady_state(HidingTimer(), replace(short, one_length=True)).tpot.expected == pytest.approx(5e-3)


def test_a_prompt_beyond_a_step_takes_several() -> None:
    """Each beside the decodes, which run in all of them."""
    cut = replace(LOAD, running=1.0, concurrency=1, input_len=1500, step_tokens=512)
    found = state(cut)
    timer = LinearTimer()
    parts = sum(n * timer.price(Step.mixed(cut.decode, step)).expected_s for n, step in cut.prompts)
    steps = sum(n for n, _ in cut.prompts)
    assert steps == 3 and found.ttft is not None
    assert found.ttft.expected == pytest.approx(parts - 2 * timer.price(cut.decode).expected_s)
