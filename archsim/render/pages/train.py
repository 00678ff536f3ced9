"""`archsim train` as a page: the verdict, memory and time by part, utilisation, the run, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.amounts import short_amount
from archsim.base.notes import urgent
from archsim.energy.energy_use import EnergyUse
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Cell, Page, Section, bar, facts, percent, row
from archsim.render.provenance import basis
from archsim.training.objective import OBJECTIVES
from archsim.training.offload import offload_text
from archsim.training.train import Outcome, Training

COMM_NAMES = {
    "tp": "tensor parallel", "cp": "context parallel", "ep": "expert parallel", "pp": "pipeline", "fsdp": "ZeRO 3",
    "dp": "data parallel", "host": "host link",
}  # fmt: skip


def gib(size: float) -> str:
    """Bytes in GiB."""
    return f"{size / 2**30:,.2f} GiB"


def seconds(value: float) -> str:
    """Seconds, or milliseconds below one."""
    return f"{value:,.2f} s" if value >= 1 else f"{value * 1e3:,.1f} ms"


def page(answer: Training, verbose: bool = False) -> Page:
    """The report."""
    sections = [
        _verdict(answer),
        *_run(answer),
        _memory(answer),
        *_stages(answer),
        _time(answer),
        *_parts(answer),
        _metrics(answer),
    ]
    sections += _suggestions(answer)
    text = "exact = counted from the graph · modelled = kernels and schedule · fitted = a stack's overlap"
    return Page(
        head=head(answer), notes=(*(note.text for note in answer.warnings), *urgent(answer.assumptions)),
        sections=(*sections, *basis(text, answer.assumptions, (), verbose), *_next(answer)),
    )  # fmt: skip


def bare(answer: Training) -> str:
    """The answer in one line."""
    verdict = "FITS" if answer.fits else "NO"
    return (
        f"{verdict}: {answer.metrics.tokens_per_s:,.0f} tokens/s, {gib(answer.priced.memory.most.allocated)} a device\n"
    )


def head(answer: Training) -> tuple[str, ...]:
    """What was asked, and the layout."""
    x = answer.layout
    where = answer.hardware.name if x.devices == 1 else f"{x.devices:,} × {answer.hardware.name}"
    degrees = [f"{name} {n}" for name in ("tp", "cp", "pp", "vpp", "dp", "ep") if (n := getattr(x, name)) > 1]
    degrees += [f"etp {x.etp}"] if x.ep > 1 else []
    degrees += ["sp"] if x.sp and x.tp > 1 else []
    degrees += [f"zero {x.zero}"] if x.data_ranks > 1 else []
    degrees += [x.schedule] if x.pp > 1 else []
    choice = f"{x.global_batch:,} × {x.seq_len:,} tokens a step, {x.micro_batches:,} micro-batches of {x.micro_batch}"
    return (
        f"Training {answer.model.name} on {where}",
        " · ".join([", ".join(degrees) or "one device", choice]),
        f"{answer.recipe_name} · {answer.optimizer_name} · recompute {answer.priced.choice.recompute} · "
        + (f"offload {offload_text(answer.priced.choice.offload)} · " if answer.priced.choice.offload else "")
        + f"stack {answer.stack_name}",
    )


def _verdict(answer: Training) -> Section:
    held, step, m = answer.priced.memory, answer.priced.step, answer.metrics
    need = held.most.allocated + held.runtime
    left = held.capacity - need
    cell = Cell("FITS", "good") if answer.fits else Cell("NO", "bad")
    which = f" on stage {held.worst}" if len(held.ranks) > 1 else ""
    room = f"{gib(left)} left" if left >= 0 else f"short by {gib(-left)}"
    what, share = answer.bound
    speed = f"{seconds(step.expected_s)} a step, {m.tokens_per_s:,.0f} tokens/s, MFU {percent(m.utilisation(m.causal))}"
    rows = [
        row(cell, f"{gib(need)} of {gib(held.capacity)} a device{which}, {room}"),
        row("", f"{speed} (causal attention); {what} takes {percent(share)} of it"),
    ]
    return Section(title="", rows=tuple(rows), align="l", below=_reason(answer))


def _reason(answer: Training) -> tuple[str, ...]:
    """Why this layout: how many were tried, and what the nearest others cost."""
    if not (answer.chosen and answer.fits):
        return ()
    step_s = answer.priced.step.expected_s
    words = OBJECTIVES[answer.objective].words
    found = [f"the layout {words} of {answer.tried:,} that archsim tried"]
    slower = sorted((each for each in answer.neighbours if each.fits and each.step_s >= 0), key=lambda e: e.step_s)
    found += [f"`{each.change}`: {each.step_s / step_s:+.1%} time" for each in slower[:2]]
    found += [f"`{each.change}`: does not fit" for each in answer.neighbours if not each.fits][:1]
    return ("; ".join(found),)


def _memory(answer: Training) -> Section:
    held = answer.priced.memory
    most = held.most
    parts = [
        ("weights", most.states.weights), ("gradients", most.states.gradients), ("optimizer", most.states.optimizer),
        ("saved for the backward", most.saved), ("working set", most.working), ("logits and loss", most.logits),
        ("gathered layers", most.gathered), ("runtime", held.runtime),
    ]  # fmt: skip
    rows = [
        row(name, gib(size), bar(size / held.capacity), percent(size / held.capacity)) for name, size in parts if size
    ]
    low, high = gib(held.low), gib(held.high)
    return Section(
        title="Memory per device", rows=tuple(rows), align="lrlr", aside=f"{gib(held.capacity)}",
        below=(f"80 % interval {low} to {high}; the allocator reserves about {gib(most.reserved + held.runtime)}",),
    )  # fmt: skip


def _stages(answer: Training) -> list[Section]:
    """Pipeline ranks, the fullest first; alike ones once."""
    held = answer.priced.memory
    if len(held.ranks) == 1:
        return []
    order = sorted(range(len(held.ranks)), key=lambda i: -held.ranks[i].allocated)
    rows = [row(f"stage {i}", gib(held.ranks[i].allocated), f"{held.ranks[i].in_flight} in flight") for i in order[:4]]
    return [Section(title="Pipeline", rows=tuple(rows), align="lrr", aside="fullest stages first", sub=True)]


def _time(answer: Training) -> Section:
    step = answer.priced.step
    names = {
        "forward_s": "forward", "backward_s": "backward", "recompute_s": "recomputation",
        "head_and_loss_s": "head and loss", "optimizer_s": "optimizer", "bubble_s": "pipeline bubble",
    }  # fmt: skip
    parts = [(names[name], value) for name, value in step.parts._asdict().items()]
    parts += [(f"{COMM_NAMES[kind]}, exposed", comm.exposed_s) for kind, comm in step.comm.items()]
    shares = [(name, value, value / step.expected_s) for name, value in parts if value]
    rows = [row(name, seconds(value), bar(share), percent(share)) for name, value, share in shares]
    below = (
        f"80 % interval {seconds(answer.low_s)} to {seconds(answer.high_s)}; "
        f"at the devices' peaks {seconds(step.ideal_s)}; evidence: {answer.priced.micro.evidence}",
    )
    return Section(
        title="Step", rows=tuple(rows), align="lrlr", aside=seconds(step.expected_s), below=below,
    )  # fmt: skip


MOST_PARTS = 30
"""Rows of the step's parts on the page; `--json` has all."""


def _parts(answer: Training) -> list[Section]:
    """What each group of kernels takes on the rank that works longest, where it was asked."""
    if not answer.parts:
        return []
    shown = answer.parts[:MOST_PARTS]
    rows = [
        row(
            part.name + (", communication" if part.communication else ""), seconds(part.forward_s),
            seconds(part.backward_s), seconds(part.recompute_s), seconds(part.total_s),
        )
        for part in shown
    ]  # fmt: skip
    left = len(answer.parts) - len(shown)
    below: tuple[str, ...] = (
        (f"{left:,} more take {seconds(sum(part.total_s for part in answer.parts[MOST_PARTS:]))}",) if left else ()
    )
    if any(part.communication for part in shown):
        below += ("communication includes the part that overlaps with kernels",)
    return [
        Section(
            title="Where the step goes", header=("forward", "backward", "recomputed", "step"), rows=tuple(rows),
            align="lrrrr", below=below,
        )
    ]  # fmt: skip


def _metrics(answer: Training) -> Section:
    m = answer.metrics
    pairs = [
        ("tokens/s", f"{m.tokens_per_s:,.0f}"),
        ("tokens/s per device", f"{m.tokens_per_s / m.devices:,.0f}"),
        ("MFU, causal attention", percent(m.utilisation(m.causal))),
        ("MFU, full attention", percent(m.utilisation(m.full))),
        ("HFU", percent(m.utilisation(m.executed))),
        ("peak", f"{m.peak_flops / 1e12:,.1f} TFLOP/s, {m.peak_format}"),
    ]
    wide = m.of_peak(answer.hardware.peak_flops("bf16").flops, "bf16")
    if wide.peak_flops < m.peak_flops:
        both = f"{percent(wide.utilisation(wide.causal))} causal, {percent(wide.utilisation(wide.full))} full"
        pairs.append(("MFU over the bf16 peak", both))
    return facts("Throughput", pairs)


def _run(answer: Training) -> list[Section]:
    run = answer.run
    if run is None:
        return []
    days, hours = run.seconds / 86_400, run.device_hours
    low, high = (days * edge / answer.priced.step.expected_s for edge in (answer.low_s, answer.high_s))
    found = [
        ("days", f"{days:,.1f} (80 %: {low:,.1f} to {high:,.1f}) for {run.tokens:,} tokens, {run.steps:,} steps"),
        ("device-hours", f"{hours:,.0f}, steps taking {percent(run.goodput)} of the time"),
    ]
    if run.price is not None:
        found.append(("dollars", f"{run.usd:,.0f}, at {run.price.in_words}"))
    if run.energy is not None:
        found += energy_facts(run.energy, run.tonnes)
    return [facts("Run", [*found, *_outcome(run.outcome)])]


def energy_facts(use: EnergyUse, tonnes: float | None) -> list[tuple[str, str]]:
    """Megawatt-hours of the devices, and of the facility with its range; tonnes of CO2 where the grid is stated."""
    facility = use.in_scope(use.kwh, "facility").times(1e-3)
    watts = f"{use.watts.expected:,.0f} W each (80 %: {use.watts.low:,.0f} to {use.watts.high:,.0f})"
    found = [
        ("MWh", f"{use.kwh.expected / 1000:,.1f}, devices alone, at {watts}"),
        ("MWh of the facility", f"{facility.low:,.1f} to {facility.high:,.1f}: nodes 1.25 to 1.6 x, PUE {use.pue:g}"),
    ]
    grams = use.grams
    if tonnes is not None and grams is not None:
        span = f"({grams.low / 1e6:,.3g} to {grams.high / 1e6:,.3g})"
        found.append(("tonnes of CO2", f"{tonnes:,.3g} {span}, facility at {use.grid:g} g/kWh"))
    return found


def _outcome(outcome: Outcome | None) -> list[tuple[str, str]]:
    """What the scaling law says."""
    if outcome is None:
        return []
    ratio = f"{outcome.ratio_to_optimum:.3g} times the optimum of {short_amount(outcome.optimal_tokens)}"
    found = [("tokens per parameter", f"{outcome.tokens_per_parameter:,.1f}, {ratio} (law {outcome.law})")]
    if outcome.loss is not None:
        found.append(("loss", f"{outcome.loss:.3f} nats on the law's own corpus and tokenizer"))
    return found


def _next(answer: Training) -> list[Section]:
    """Commands that go on from here."""
    names, asked = (answer.model.name, "--hw", answer.hardware.id), dict(answer.options)
    asked.pop("hw", None)
    changes = asked.pop("set", ())
    asked["set"] = (changes,) if isinstance(changes, str) else tuple(changes) if isinstance(changes, Sequence) else ()
    lines = []
    if answer.suggestions:
        best = answer.suggestions[0]
        change = _options_of(best.change)
        about = "faster" if answer.fits else "fits" if best.fits else "needs less"
        lines.append((command_line("train", *names, **{**_degrees(answer, change), **asked, **change}), about))
    if "tokens" not in asked and answer.method == "full":
        lines.append((command_line("train", *names, **{**asked, "tokens": "1T"}), "days, dollars and loss of a run"))
    if answer.method == "full" and not answer.fits and answer.layout.devices == 1:
        lines.append((command_line("train", *names, **{**asked, "method": "qlora"}), "adapters on 4-bit weights"))
    return [try_section(lines)] if lines else []


def _degrees(answer: Training, change: Mapping[str, object]) -> dict[str, object]:
    """The chosen layout as options, so that a change is of it alone."""
    x = answer.layout
    found: dict[str, object] = {name: getattr(x, name) for name in ("tp", "pp", "dp")} if answer.chosen else {}
    found |= {"zero": x.zero, "micro_batch": x.micro_batch} if answer.chosen else {}
    return {**found, "recompute": answer.priced.choice.recompute} if "recompute" not in change else found


def _options_of(change: str) -> dict[str, object]:
    """A change as it is typed, by name of its options."""
    words = change.split()
    names = [i for i, word in enumerate(words) if word.startswith("--")]
    return {
        words[i][2:].replace("-", "_"): True if i + 1 == len(words) or i + 1 in names else words[i + 1] for i in names
    }


def _suggestions(answer: Training) -> list[Section]:
    if not answer.suggestions:
        return []
    step_s = answer.priced.step.expected_s
    rows = [
        row(
            each.change, f"{each.peak_bytes / 2**30:+,.2f} GiB", f"{each.step_s / step_s:+.1%} time",
            "fits" if each.fits else "does not fit",
        )
        for each in answer.suggestions
    ]  # fmt: skip
    title = "What would make it faster" if answer.fits else "What would help it fit"
    return [Section(title=title, rows=tuple(rows), align="lrrl")]
