"""`archsim explain`: what a topic is (an error code, a term, or a quantity of a model), and its page."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import NoSuchName, UsageError, did_you_mean
from archsim.base.json_types import JsonObject
from archsim.base.notes import NOTES
from archsim.base.units import format_bytes, format_rate, format_seconds
from archsim.render.command_line import command_line, try_section
from archsim.render.glossary import ABSENT, EXPLAIN, SYNONYMS, TERMS
from archsim.render.page import Page, Section, bullets, facts, row
from archsim.spec.catalog import is_known

if TYPE_CHECKING:
    from archsim.explanation.formulas import Explanation, Formula
    from archsim.predict.estimate import Estimate
    from archsim.spec.hardware import Hardware
    from archsim.training.one_device import StepOnDevice

LONGEST_FORMULA = 1500


class OnDevice(NamedTuple):
    """What the time of a quantity on a device follows of: an estimate, or a training step."""

    estimate: Estimate | None = None
    step: StepOnDevice | None = None

    def terms(self, quantity: str) -> JsonObject:
        """What the time is made of."""
        if self.step is not None:
            return training_terms(self.step)
        return time_terms(self.estimate, quantity) if self.estimate is not None else {}

    def section(self, quantity: str) -> Section:
        """The same as part of a page."""
        if self.step is not None:
            return _training_time(self.step)
        assert self.estimate is not None
        return _time(self.estimate, quantity)


def formula_page(x: Explanation, on: OnDevice | None = None) -> Page:
    """Formula, the same with numbers, value and source. on: a device's estimate or training step, for the time."""
    formula, numbers = _short(x.whole.symbols), _short(x.whole.numbers)
    whole = facts(x.title, [("formula", formula), ("with numbers", numbers), ("value", value_text(x.whole))])
    letters = tuple(row(letter, f"{n:,}", x.meaning(letter)) for letter, n in x.letters.items())
    parts = tuple(row(p.part, value_text(p), _short(p.symbols)) for p in x.parts)
    sections = [whole, Section(title="Letters", rows=letters, align="lr")]
    if len(parts) > 1:
        sections.append(Section(title="Parts", rows=parts, align="lr"))
    if on is not None:
        sections.append(on.section(x.quantity))
    sections += [bullets("Conventions", x.notes), bullets("Sources", x.sources)]
    return Page(head=(f"{x.model}: {x.quantity}",), sections=tuple(sections))


def value_text(f: Formula) -> str:
    """The value with its unit; bytes also with a prefix."""
    value = f"{f.value:,}" if isinstance(f.value, int) else f"{f.value:,.4f}"
    large = f.unit.split(" ")[0] == "B" and f.value >= 10_000
    return f"{value} {f.unit}" + (f" = {format_bytes(f.value)}" if large else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_FORMULA else text[: LONGEST_FORMULA - 1] + "…"


TIMED = ("decode", "prefill", "train")
"""Quantities whose time on a device is told."""


def time_terms(e: Estimate, quantity: str) -> JsonObject:
    """What the time of a decode step or a prefill on a device is made of, per device."""
    phase = e.prefill if quantity == "prefill" or e.decode is None else e.decode
    bandwidth = e.hardware.bandwidth
    return {
        "devices": e.plan.devices,
        "context": e.workload.input_len if phase is e.prefill else e.workload.context,
        "weight_bytes": float(phase.total("weight_bytes")),
        "state_bytes": float(phase.total("state_bytes")),
        "activation_bytes": float(phase.total("act_bytes")),
        "bandwidth_bytes_per_s": bandwidth,
        "memory_s": float(phase.total("memory_s")),
        "compute_s": float(phase.total("compute_s")),
        "communication_s": float(phase.total("comm_s")),
        "ideal_s": float(phase.ideal_s),
        "expected_s": float(phase.expected_s),
    }


def _time(e: Estimate, quantity: str) -> Section:
    t = time_terms(e, quantity)
    sizes = " + ".join(format_bytes(t[f"{part}_bytes"]) for part in ("weight", "state", "activation"))
    bandwidth = format_rate(t["bandwidth_bytes_per_s"], "B/s")
    over = "prompt" if quantity == "prefill" else "context"
    memory, ideal = format_seconds(t["memory_s"]), format_seconds(t["ideal_s"])
    lines = {
        "memory": f"(weights + caches + activations) / bandwidth = ({sizes}) / {bandwidth} = {memory}",
        "arithmetic": f"FLOP / peak = {format_seconds(t['compute_s'])}",
        "links": format_seconds(t["communication_s"]) if t["communication_s"] else None,
        "speed of light": f"every kernel the larger of its two, links added: {ideal}",
        "expected": f"{format_seconds(t['expected_s'])} with measured kernel efficiency and launch overhead",
        "for": f"each device, batch {e.workload.batch:,}, {over} of {t['context']:,} tokens",
    }
    return facts(f"Time on {t['devices']:,} × {e.hardware.name}", lines.items())


def training_terms(on: StepOnDevice) -> JsonObject:
    """What the time of a training step of one sequence on one device is made of."""
    step, held = on.priced.step, on.priced.memory
    return {
        "devices": 1, "context": on.length, "forward_s": step.parts.forward_s, "backward_s": step.parts.backward_s,
        "head_and_loss_s": step.parts.head_and_loss_s, "optimizer_s": step.parts.optimizer_s, "ideal_s": step.ideal_s,
        "expected_s": step.expected_s, "peak_allocated_bytes": round(held.most.allocated), "fits": held.fits,
    }  # fmt: skip


def _training_time(on: StepOnDevice) -> Section:
    t, stated = training_terms(on), ("forward", "backward", "head_and_loss", "optimizer")
    parts = " + ".join(format_seconds(t[f"{part}_s"]) for part in stated)
    fits = "it fits" if t["fits"] else "more than it has: `archsim train` finds a layout over several"
    lines = {
        "expected": f"forward + backward + head and loss + optimizer = {parts} = {format_seconds(t['expected_s'])}",
        "speed of light": f"every kernel of both passes at its roofline: {format_seconds(t['ideal_s'])}",
        "memory": f"{format_bytes(t['peak_allocated_bytes'])} at the peak of the step, {fits}",
        "for": f"one device, one sequence of {t['context']:,} tokens, bf16 and AdamW, nothing recomputed",
    }
    return facts(f"Time on 1 × {on.hardware.name}", lines.items())


def text_page(title: str, text: str, more: str = "") -> Page:
    """A paragraph under a title."""
    lines = (textwrap.dedent(text).strip(), *((more,) if more else ()))
    return Page(head=(title,), sections=(Section(title="", rows=tuple(row(line) for line in lines)),))


# ------------------------------------------------------------------ topics
TOPICS = "a topic is a model and a quantity, an error code such as `E103`, or a term such as `tpot`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A paragraph about a code or a term."""

    name: str
    kind: str
    text: str

    def page(self) -> Page:
        """The paragraph as a page."""
        return text_page(self.name, self.text)

    def to_dict(self) -> JsonObject:
        """The `archsim.explain/1` object."""
        return {"schema": "archsim.explain/1", "topic": self.name, "kind": self.kind, "text": self.text}


def look_up(text: str) -> Topic | None:
    """The code or term that a topic names, if it names one; an `s` at its end does not matter."""
    code = text.strip().upper()
    if code in EXPLAIN:
        return Topic(name=code, kind="error code", text=EXPLAIN[code])
    if code in NOTES:
        return Topic(name=code, kind="assumption" if code[0] == "A" else "warning", text=NOTES[code])
    term = code.lower()
    known = (SYNONYMS, TERMS, ABSENT)
    if not any(term in words for words in known):
        plain = term.replace("-", " ").replace("_", " ")
        close = (plain, plain.removesuffix("s"), term + "s", term.removesuffix("s"))
        term = next((word for word in close if any(word in words for words in known)), term)
    term = SYNONYMS.get(term, term)
    if term in ABSENT:
        return Topic(name=term, kind="not modelled", text=ABSENT[term])
    if term in TERMS:
        return Topic(name=term, kind="term", text=TERMS[term])
    return None


def formula(
    topic: Sequence[str], *, context: int, weights: str | None, changes: tuple[str, ...], hw: str | None
) -> tuple[Explanation, OnDevice | None]:
    """The explanation of a model's quantity, and where a device is given what its time there follows of.

    Raises UnknownName for a topic that is none.
    """
    from archsim.explanation.formulas import QUANTITIES, explain
    from archsim.importers.opening import load_model

    name, *rest = topic
    try:
        model = load_model(name, changes)
    except NoSuchName as error:
        raise _unknown_topic(" ".join(topic), error) from None
    if len(rest) != 1:
        asked = f"one of {', '.join(QUANTITIES)}"
        raise UsageError(
            f"which quantity of {quote(name)}?", hints=(f"give {asked}, such as `archsim explain {name} params`",)
        )
    if context < 1:
        raise UsageError(f"`--context-len` must be positive, not {context}")
    answer = explain(model, rest[0], context, weights)
    if hw is None or answer.quantity not in TIMED:
        return answer, None
    from archsim.spec.load import load_hardware

    device = load_hardware(hw)
    if answer.quantity == "train":
        from archsim.training.one_device import step_on_device

        return answer, OnDevice(step=step_on_device(model, context, device))
    from archsim.predict.estimate import estimate

    prompt = context if answer.quantity == "prefill" else max(context - 1, 1)
    return answer, OnDevice(estimate(model, device, weights=weights, input_len=prompt, output_len=2))


def device_of(topic: Sequence[str]) -> Hardware | None:
    """The device that a topic names, if it names one."""
    from archsim.spec.load import load_hardware

    name = " ".join(topic)
    return load_hardware(name) if is_known("hw", name) and not is_known("models", name) else None


def device_page(hw: Hardware) -> Page:
    """The roofline of a device with its numbers, and what follows for a model."""
    data, bandwidth = hw.to_dict(), hw.bandwidth
    rate = format_rate(bandwidth, "B/s")
    ridges = tuple(
        row(dtype, format_rate(peak, "FLOP/s"), f"/ {rate}", f"= {peak / bandwidth:,.4g} FLOP/B")
        for dtype, peak in data["peaks_flops"].items()
    )
    example = 8e9 * 2
    rules = [
        ("a kernel", "time >= max(FLOP / peak, bytes / bandwidth): below the ridge memory limits it, above arithmetic"),
        (
            "a decode",
            f"8 B parameters in bf16 are {format_bytes(example)}: {format_bytes(example)} / {rate} = "
            f"{format_seconds(example / bandwidth)} per token at least",
        ),
        ("memory", f"{format_bytes(hw.memory_bytes)} for weights, caches, activations and runtime"),
    ]
    return Page(
        head=(hw.name, "what bounds its times"),
        sections=(
            Section(title="Ridge", rows=ridges, align="lrll", header=("dense peak", "bandwidth", "intensity")),
            facts("Bounds", rules),
            try_section([
                (command_line("show", hw.id), "all its figures with their sources"),
                (command_line("estimate", "llama3-8b", hw=hw.id), "a model on it"),
            ]),
        ),
    )  # fmt: skip


def device_terms(hw: Hardware) -> JsonObject:
    """The `archsim.explain/1` object of a device."""
    peaks = hw.to_dict()["peaks_flops"]
    return {
        "schema": "archsim.explain/1", "topic": hw.id, "kind": "device", "peaks_flops": peaks,
        "bandwidth_bytes_per_s": hw.bandwidth, "memory_bytes": hw.memory_bytes,
        "ridge_flop_per_byte": {dtype: peak / hw.bandwidth for dtype, peak in peaks.items()},
    }  # fmt: skip


def _unknown_topic(name: str, error: NoSuchName) -> NoSuchName:
    """The complaint about a topic, with the closest terms and models."""
    known = [*EXPLAIN, *NOTES, *TERMS, *ABSENT, *SYNONYMS]
    close = difflib.get_close_matches(name[:100].lower(), known, n=1, cutoff=0.6)
    hints = (*did_you_mean(error.close), TOPICS) if close else (TOPICS,)
    return NoSuchName(f"nothing to explain about {quote(name)}", close=close or error.close, hints=hints)
