"""Continuous batching in its steady state, in closed form.

`concurrency` requests are always in flight; while one answer of `osl` tokens is decoded, the prompts of the others
that take the places of finished ones are prefilled in the same steps. With B requests running,

    TPOT = t(B) + (B - 1) / osl · (t(B + prompt) - t(B))

where t(B) is a decode step at the mean context and t(B + prompt) the step that also prefills one prompt. An engine
that puts prompts before decodes and does not mix them lets all requests of one length finish, and start, together:
each then waits for the prompts behind its own, (B - 1)/2 on average, and for no others. Either way B answers take
osl · t(B) and B prompts; the share of prompts in that is the utilisation: near one, queues decide, and no closed form
is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from archsim.base.notes import Note
from archsim.counts.count import step_for
from archsim.counts.formats import Formats, choose_formats
from archsim.engines.names import DEFAULT_ENGINE, named
from archsim.engines.overhead import profile_of
from archsim.graph.step import Seqs, Step
from archsim.predict.estimate import Estimator, Workload, checked_workload
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, check_degrees
from archsim.timing.calibration import Store, default_store
from archsim.timing.kernel_timer import Evidence
from archsim.timing.step_time import WEAKEST, Phase

ENDS = ("expected_s", "low_s", "high_s", "ideal_s")

BUSIEST = 0.85
"""Utilisation above which no TTFT is given: small errors of capacity become errors of the queue a thousand times
as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Seconds, with the ends of the 80 % interval and the speed of light."""

    seconds: float
    low: float
    high: float
    ideal: float
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The steady state. running: requests that decode at the same time on all replicas. ttft: None where `refusal`
    says why. utilisation: share of the engine's time that goes into prompts.
    """

    concurrency: int
    running: float
    tpot: Interval
    ttft: Interval | None
    refusal: str | None
    utilisation: float
    tokens_per_s: float
    assumptions: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `estimate --concurrency`."""
        return {
            "concurrency": self.concurrency, "running": self.running, "utilisation": self.utilisation,
            "tpot_s": self.tpot.seconds, "tpot_low_s": self.tpot.low, "tpot_high_s": self.tpot.high,
            "ttft_s": self.ttft.seconds if self.ttft else None,
            "ttft_low_s": self.ttft.low if self.ttft else None,
            "ttft_high_s": self.ttft.high if self.ttft else None, "ttft_refused": self.refusal,
            "tokens_per_s": self.tokens_per_s, "evidence": self.tpot.evidence,
        }  # fmt: skip


def steady(
    model: Model, hardware: Hardware, *, concurrency: int, input_len: int, output_len: int, tp: int = 1, pp: int = 1,
    ep: int = 1, dp: int = 1, weights: str | None = None, kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE, most_running: float | None = None, formats: Formats | None = None,
    store: Store | None = None,
) -> Steady:  # fmt: skip
    """The steady state of `concurrency` requests of one length. most_running: requests that the cache or the scheduler
    lets run at the same time; the rest wait. Raises UsageError, InvalidPlan.
    """
    checked_workload(model, concurrency, input_len, output_len)
    plan = Plan(tp=tp, pp=pp, ep=ep, dp=dp, engine=named(engine)[0])
    check_degrees(model, plan)
    running = min(float(concurrency), most_running or float(concurrency))
    load = Workload(batch=max(dp, round(running / pp)), input_len=input_len, output_len=output_len)
    formats = formats or choose_formats(model, weights, kv_cache_dtype, engine=engine)
    store = store or default_store()
    profile = profile_of(*named(engine), store)
    return Server(model, hardware, formats, load, profile=profile, store=store).answer(
        plan, concurrency, running
    )


class Server(Estimator):
    """An estimator that also prices the step in which prompts are prefilled beside running decodes."""

    __slots__ = ("plan",)

    def answer(self, plan: Plan, concurrency: int, running: float) -> Steady:
        """The closed form, from a decode step and a step with one prompt on every replica."""
        self.plan = plan
        step = self.phase("decode", plan)
        together = self.model.encoder is None and "mla_decode" not in {share.op for share in step.shares}
        mixed = self.profile.mixes and together
        prompt = self.phase("mixed" if mixed else "single", plan)
        beside = max(1.0, running / plan.dp / plan.pp)  # requests on one replica
        others = (beside - 1) if self.profile.mixes else (beside - 1) / 2
        osl = max(self.load.output_len, 1)

        def own(end: str) -> float:
            t, joined = float(getattr(step, end)), float(getattr(prompt, end))
            return max(joined - t, 0.0) if mixed else joined

        spans = {end: float(getattr(step, end)) + others / osl * own(end) for end in ENDS}
        whole = Interval(seconds=spans["expected_s"], low=spans["low_s"], high=spans["high_s"],
                         ideal=spans["ideal_s"], evidence=weaker(step, prompt))  # fmt: skip
        prompts = beside * own("expected_s")  # seconds of them while every request makes its answer
        cycle = osl * float(step.expected_s) + prompts
        refusal = refused(prompts / cycle, concurrency - running)
        return Steady(
            concurrency=concurrency, running=running, tpot=whole, refusal=refusal, utilisation=prompts / cycle,
            ttft=None if refusal else self._ttft(step, prompt, beside), assumptions=self._assumed(mixed),
            tokens_per_s=running * osl / cycle,
        )  # fmt: skip

    def _ttft(self, step: Phase, prompt: Phase, beside: float) -> Interval:
        """From sending to the first token, without a queue of requests that have no room.

        An engine that mixes prompts with decodes spreads requests that started together; how far depends on how long it
        has run. Between a turn of one's own and the line of a common start nothing is known: the middle, in log, is
        given, and both ends.
        """
        own, line = (
            {end: make(float(getattr(step, end)), float(getattr(prompt, end)), beside) for end in ENDS}
            for make in (self._own_turn, self._in_line)
        )
        if not self.profile.mixes:
            own = line
        return Interval(
            seconds=(own["expected_s"] * max(line["expected_s"], own["expected_s"])) ** 0.5, low=own["low_s"],
            high=max(line["high_s"], own["high_s"]), ideal=own["ideal_s"], evidence=weaker(step, prompt),
        )  # fmt: skip

    def _own_turn(self, step: float, prompt: float, beside: float) -> float:
        """The rest of the step under way, E[t²] / 2E[t] over steps with and without a prompt, then the own prompt."""
        share = min(1.0, beside / max(self.load.output_len, 1))
        mean, square = (share * prompt**n + (1 - share) * step**n for n in (1, 2))
        return prompt + (square / mean / 2 if beside > 1 else 0.0)

    def _in_line(self, step: float, prompt: float, beside: float) -> float:
        """Requests of one length arrive together: half of them go first."""
        return prompt * (beside + 1) / 2

    def _step(self, name: str) -> Step:
        prompts = Seqs(self.plan.dp, self.load.input_len, 0)
        if name == "single":
            return step_for(self.model, self.plan.dp, self.load.input_len)
        if name == "mixed":
            return Step(seqs=(Seqs(self.load.batch, 1, self.load.context - 1), prompts))
        return Estimator._step(self, name)

    def _assumed(self, mixed: bool) -> tuple[Note, ...]:
        how = "share steps with" if mixed else "run between the steps of"
        text = (
            f"prompts {how} running decodes; every request has {self.load.input_len:,} prompt and "
            f"{self.load.output_len:,} answer tokens; no prefix is shared"
        )
        return (Note("A15", text),)


def refused(utilisation: float, waiting: float) -> str | None:
    """Why no TTFT is given; None where one is."""
    if waiting >= 1:
        return f"{waiting:,.0f} requests wait for KV cache space: TTFT is queueing time, which no closed form gives"
    if utilisation > BUSIEST:
        return (
            f"prefill takes {utilisation:.0%} of the time, above {BUSIEST:.0%}: so near saturation TTFT is mostly "
            "queueing, where small errors in capacity become large ones"
        )
    return None


def weaker(*phases: Phase) -> Evidence:
    """The weakest evidence of several phases."""
    return min((phase.evidence for phase in phases), key=WEAKEST.index)
