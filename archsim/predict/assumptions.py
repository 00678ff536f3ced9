"""What an estimate rests on: assumptions, evidence, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from archsim.base.notes import Note, past_context
from archsim.counts.workload import PREFILL_TOKENS, Workload
from archsim.engines.names import DEFAULT_ENGINE, EngineChoice
from archsim.engines.overhead import EngineOverheads
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.spec.engine import load_engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, expert_counts, fullest_share
from archsim.timing.step_time import PIECE, StepTime


def assumed(memory: EngineMemoryModel, plan: Plan, held: DeviceMemory) -> list[Note]:
    """What the figures rest on."""
    model, load = memory.model, memory.load
    notes = [
        Note(
            "A01",
            "speed of light: datasheet peaks, every tensor moved once, elementwise work fused, activations that fit "
            "the last-level cache kept there",
        ),
        Note("A02", "prefill computes logits at the last position; attention counts the pairs that the mask allows"),
        Note("A03", _usable(held)),
        Note("A04", _activations(memory)),
        Note("A05", f"decode at the mean context of {load.context:,} tokens"),
    ]
    if expert_counts(model):
        experts = "tokens pick experts evenly and independently: E(1 - (1 - k/E)^T) distinct experts are read"
        notes.append(Note("A06", experts + _uneven(model, plan)))
    if plan.pp > 1:
        pieces = f"a prefill is cut into pieces of {PIECE:,} tokens so that all stages work at once"
        notes.append(Note("A07", f"a decode step passes the stages in turn; {pieces}"))
    return notes


def _uneven(model: Model, plan: Plan) -> str:
    """Where experts do not divide over the ranks, which rank is meant."""
    if fullest_share(model, plan.ep) == 1:
        return ""
    counts = expert_counts(model)
    most = ", ".join(f"{-(-n // plan.ep)} of {n}" for n in counts)
    return f"; times and memory are those of the rank that holds most experts ({most} on {plan.ep} ranks)"


def _usable(held: DeviceMemory) -> str:
    """What of a device the engine gives itself."""
    share, runtime = f"{round(held.division.share * 100)} %", f"{held.runtime / 2**30:.2g} GiB"
    return {
        "total": f"{share} of the memory is usable, of which the runtime takes {runtime}",
        "static": f"{share} of the memory is for weights and cache; steps and the runtime come on top",
        "free": f"{share} of what is free after weights and one step is for the cache; the runtime takes {runtime}",
        "none": f"all memory that the process sees is usable, of which the runtime takes {runtime}",
    }[held.division.meaning]


def _activations(memory: EngineMemoryModel) -> str:
    """What step the activations are of."""
    if memory.rules.memory.activations.profile == "estimate":
        return f"activation memory: what a prefill of at most {PREFILL_TOKENS:,} tokens at once needs"
    tokens = memory.step_tokens(int(memory.length), int(memory.load.batch))
    return f"activation memory: what a prefill of {tokens:,} batched tokens needs"


def lifted(*phases: StepTime | None) -> Iterator[Note]:
    """Launches whose time is that of the roofline, since a fit says less."""
    for phase in phases:
        if phase is not None and phase.rank.lifted:
            share = phase.rank.lifted_s / phase.in_turn_s
            what = f"{phase.rank.lifted:,} kernel launches of {phase.name} take the time of their roofline"
            yield Note("A16", f"{what}, which is above their fitted time: {share:.2%} of its time")


EVIDENCE = {
    "measured": "measured at this very point",
    "calibrated": "from kernels measured on this device",
    "transferred": "from kernels measured on other devices, scaled by the datasheet",
    "datasheet": "datasheet peaks times usual efficiencies: no such kernel has been measured on such a device",
}


MEASURED: Mapping[str, str] = {
    "measured": "measured at this very point",
    "calibrated": "measured on this device",
    "transferred": "measured on other devices, scaled by the datasheet",
}
"""What an engine's kernels are known from, by evidence."""


GRAPHS: Mapping[str, str] = {"NVIDIA": "CUDA graphs", "AMD": "HIP graphs"}
"""What launches without host time are made of, by vendor."""


def launches_of(overheads: EngineOverheads, hardware: Hardware) -> str:
    """How kernels are launched, in words."""
    if overheads.launch_s:
        return f"{overheads.launch_s * 1e6:.2g} µs of host time a launch"
    return GRAPHS.get(hardware.vendor, "launches without host time")


def timed_by(overheads: EngineOverheads, phase: StepTime, engine: EngineChoice, hardware: Hardware) -> Iterator[Note]:
    """What expected times rest on: whose kernels, how engines launch them, the host's part; and what is assumed of
    the engine.
    """
    basis = EVIDENCE[phase.evidence]
    if phase.evidence in MEASURED:
        whose = f" of {load_engine(overheads.kernels).title}" if overheads.kernels else ""
        basis = f"kernels{whose} as {MEASURED[phase.evidence]}"
    yield Note("A08", f"expected times: {basis}, {launches_of(overheads, hardware)}, sustained clocks")
    if engine.name != DEFAULT_ENGINE:
        name, version = engine.name, engine.version
        shown = f"{name} {version}" if version else f"{name}, no version given"
        work = overheads.host
        each = f" and {work.sequence_s[0] * 1e6:.2g} µs a sequence" if work.sequence_s[0] else ""
        launch = f", {work.launch_s[0] * 1e6:.3g} µs a launch of prompts beyond graphs" if work.launch_s[0] else ""
        host = f"; its host takes {work.step_s[0] * 1e3:.2g} ms a step{each}{launch}" if work.step_s[0] else ""
        other = engine.rules.memory.as_
        rules = f"the rules of {other}" if other else "its own rules"
        yield Note("A09", f"engine {shown}: memory by {rules}{host}")
    yield from engine.notes


def longest_sequence(model: Model, load: Workload) -> int:
    """Tokens of the longest sequence that a stack sees: an encoder only the prompt, a decoder what follows too."""
    prompt, answer = int(load.input_len), int(load.output_len)
    if model.architecture == "encoder":
        return prompt
    return max(prompt, answer) if model.encoder is not None else prompt + answer


def warned(model: Model, load: Workload, plan: Plan) -> list[Note]:
    """What the user should look at."""
    found = []
    longest, limit = longest_sequence(model, load), model.max_context
    if limit is not None and longest > limit:
        found.append(past_context(longest, limit, model.name))
    if load.batch < plan.dp:
        found.append(Note("W02", f"batch {load.batch} is less than dp {plan.dp}: some replicas idle"))
    return found
